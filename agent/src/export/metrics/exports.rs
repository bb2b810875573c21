//! How destinations of records are doing, read when scraped.
//!
//! Owns: their families. Refuses: the counts (`ship`'s).

use super::catalog::{
    Definition, EXPORT_LAST_SUCCESS, EXPORT_QUEUE_BYTES, EXPORT_QUEUE_RECORDS, EXPORT_RECORDS, EXPORTS, Kind,
};
use super::{Metrics, MetricsError};
use crate::ship::{Outcome, Outlets, Total};
use prometheus::{
    IntCounterVec,
    core::{Collector, Desc},
    proto,
};
use std::collections::HashMap;
use std::sync::Arc;

struct ExportsCollector {
    outlets: Arc<Outlets>,
    descs: Vec<Desc>,
}

impl Metrics {
    /// Destinations are asked how they are doing from here on. Once.
    ///
    /// # Errors
    /// Destinations were named before.
    pub fn exports(&self, outlets: Arc<Outlets>) -> Result<(), MetricsError> {
        let descs = EXPORTS.iter().map(desc).collect::<Result<_, _>>()?;
        self.registry
            .register(Box::new(ExportsCollector { outlets, descs }))?;
        Ok(())
    }

    /// Where destinations count attempts that fail.
    pub fn export_failures(&self) -> IntCounterVec {
        self.export_failures.clone()
    }
}

impl Collector for ExportsCollector {
    fn desc(&self) -> Vec<&Desc> {
        self.descs.iter().collect()
    }

    fn collect(&self) -> Vec<proto::MetricFamily> {
        let totals = self.outlets.totals();
        let records = totals.iter().flat_map(|total| {
            Outcome::ALL.map(|outcome| {
                let labels = vec![total.name, outcome.as_str()];
                (labels, total.counts[outcome as usize] as f64)
            })
        });
        let each = |value: &dyn Fn(&Total) -> Option<f64>| -> Vec<(Vec<&str>, f64)> {
            let of = |total: &Total| Some((vec![total.name], value(total)?));
            totals.iter().filter_map(of).collect()
        };
        let families = [
            family(EXPORT_RECORDS, records.collect()),
            family(EXPORT_QUEUE_RECORDS, each(&|total| Some(total.waiting.0 as f64))),
            family(EXPORT_QUEUE_BYTES, each(&|total| Some(total.waiting.1 as f64))),
            family(EXPORT_LAST_SUCCESS, each(&|total| total.delivered_at)),
        ];
        families
            .into_iter()
            .filter(|family| !family.get_metric().is_empty())
            .collect()
    }
}

/// What the registry is told of a metric.
pub(super) fn desc(definition: &&Definition) -> prometheus::Result<Desc> {
    let labels = definition.labels.iter().map(|&label| label.to_owned());
    Desc::new(
        definition.name.to_owned(),
        definition.help.to_owned(),
        labels.collect(),
        HashMap::new(),
    )
}

/// A family of counters or gauges with these labels and values.
pub(super) fn family(definition: &Definition, values: Vec<(Vec<&str>, f64)>) -> proto::MetricFamily {
    let metric = |(labels, value): (Vec<&str>, f64)| {
        let pair = |(name, value): (&&str, &str)| {
            let mut pair = proto::LabelPair::default();
            pair.set_name((*name).to_owned());
            pair.set_value(value.to_owned());
            pair
        };
        let mut metric = proto::Metric::default();
        metric.set_label(definition.labels.iter().zip(labels).map(pair).collect());
        if definition.kind == Kind::Counter {
            let mut counter = proto::Counter::default();
            counter.set_value(value);
            metric.set_counter(counter);
        } else {
            let mut gauge = proto::Gauge::default();
            gauge.set_value(value);
            metric.set_gauge(gauge);
        }
        metric
    };
    let mut family = proto::MetricFamily::default();
    family.set_name(definition.name.to_owned());
    family.set_help(definition.help.to_owned());
    family.set_field_type(if definition.kind == Kind::Counter {
        proto::MetricType::COUNTER
    } else {
        proto::MetricType::GAUGE
    });
    family.set_metric(values.into_iter().map(metric).collect());
    family
}

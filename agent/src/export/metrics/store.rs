//! How the embedded store is doing, read when scraped.
//!
//! Owns: its families. Refuses: the counts (the store's).

use super::catalog::{Definition, Kind, STORE, STORE_BYTES, STORE_LOST, STORE_UP, STORE_WRITES};
use super::{Metrics, MetricsError};
use crate::store::{Loss, StoreStatus};
use prometheus::{
    core::{Collector, Desc},
    proto,
};
use std::collections::HashMap;
use std::sync::Arc;

struct StoreCollector {
    status: Arc<StoreStatus>,
    descs: Vec<Desc>,
}

impl Metrics {
    /// The store is asked how it is doing from here on. Once.
    ///
    /// # Errors
    /// A store was named before.
    pub fn store(&self, status: Arc<StoreStatus>) -> Result<(), MetricsError> {
        let desc = |definition: &&Definition| {
            let labels = definition.labels.iter().map(|&label| label.to_owned());
            Desc::new(
                definition.name.to_owned(),
                definition.help.to_owned(),
                labels.collect(),
                HashMap::new(),
            )
        };
        let descs = STORE.iter().map(desc).collect::<Result<_, _>>()?;
        self.registry
            .register(Box::new(StoreCollector { status, descs }))?;
        Ok(())
    }
}

impl Collector for StoreCollector {
    fn desc(&self) -> Vec<&Desc> {
        self.descs.iter().collect()
    }

    fn collect(&self) -> Vec<proto::MetricFamily> {
        let status = &self.status;
        let lost = Loss::ALL.map(|loss| (Some(loss.as_str()), status.lost_for(loss) as f64));
        let mut families = vec![
            family(STORE_UP, &[(None, f64::from(u8::from(status.up())))]),
            family(STORE_WRITES, &[(None, status.written() as f64)]),
            family(STORE_LOST, &lost),
        ];
        families.extend(
            status
                .bytes()
                .map(|bytes| family(STORE_BYTES, &[(None, bytes as f64)])),
        );
        families
    }
}

/// A family of at most one label.
fn family(definition: &Definition, values: &[(Option<&str>, f64)]) -> proto::MetricFamily {
    let metric = |(label, value): &(Option<&str>, f64)| {
        let mut metric = proto::Metric::default();
        if let (Some(value), Some(name)) = (label, definition.labels.first()) {
            let mut pair = proto::LabelPair::default();
            pair.set_name((*name).to_owned());
            pair.set_value((*value).to_owned());
            metric.set_label(vec![pair]);
        }
        if definition.kind == Kind::Counter {
            let mut counter = proto::Counter::default();
            counter.set_value(*value);
            metric.set_counter(counter);
        } else {
            let mut gauge = proto::Gauge::default();
            gauge.set_value(*value);
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
    family.set_metric(values.iter().map(metric).collect());
    family
}

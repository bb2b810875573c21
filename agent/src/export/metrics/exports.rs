//! How destinations of records are doing, read when scraped.
//!
//! Owns: their families. Refuses: the counts (`ship`'s).

use super::catalog::{
    EXPORT_LAST_SUCCESS, EXPORT_QUEUE_BYTES, EXPORT_QUEUE_RECORDS, EXPORT_RECORDS, EXPORTS,
};
use super::{
    Metrics, MetricsError,
    scraped::{descs, family_of},
};
use crate::ship::{Outcome, Outlets, Total};
use prometheus::{
    IntCounterVec,
    core::{Collector, Desc},
    proto,
};
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
        let descs = descs(EXPORTS)?;
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
            family_of(EXPORT_RECORDS, records),
            family_of(EXPORT_QUEUE_RECORDS, each(&|total| Some(total.waiting.0 as f64))),
            family_of(EXPORT_QUEUE_BYTES, each(&|total| Some(total.waiting.1 as f64))),
            family_of(EXPORT_LAST_SUCCESS, each(&|total| total.delivered_at)),
        ];
        families
            .into_iter()
            .filter(|family| !family.get_metric().is_empty())
            .collect()
    }
}

//! How asking the Kubernetes API server for pods is doing, read when scraped.
//!
//! Owns: its families. Refuses: the counts (`pods`'s).

use super::catalog::{KUBERNETES, KUBERNETES_ERRORS, KUBERNETES_PODS, KUBERNETES_REFUSED, KUBERNETES_TOLD};
use super::{
    Metrics, MetricsError,
    scraped::{descs, family_of},
};
use crate::pods::{PodsStatus, Reason};
use prometheus::{
    core::{Collector, Desc},
    proto,
};
use std::sync::Arc;

struct PodsCollector {
    status: Arc<PodsStatus>,
    descs: Vec<Desc>,
}

impl Metrics {
    /// What asks for pods is asked how it is doing from here on. Once.
    ///
    /// # Errors
    /// It was named before.
    pub fn kubernetes(&self, status: Arc<PodsStatus>) -> Result<(), MetricsError> {
        let descs = descs(KUBERNETES)?;
        self.registry
            .register(Box::new(PodsCollector { status, descs }))?;
        Ok(())
    }
}

impl Collector for PodsCollector {
    fn desc(&self) -> Vec<&Desc> {
        self.descs.iter().collect()
    }

    fn collect(&self) -> Vec<proto::MetricFamily> {
        let status = &self.status;
        let errors = Reason::ALL.map(|reason| ([reason.as_str()], status.errors(reason) as f64));
        let plain = |value: f64| [([], value)];
        let families = [
            family_of(KUBERNETES_PODS, plain(status.pods() as f64)),
            family_of(KUBERNETES_REFUSED, plain(status.refused() as f64)),
            family_of(KUBERNETES_TOLD, status.told_at().map(|at| ([], at))),
            family_of(KUBERNETES_ERRORS, errors),
        ];
        families
            .into_iter()
            .filter(|family| !family.get_metric().is_empty())
            .collect()
    }
}

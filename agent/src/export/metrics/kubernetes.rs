//! How asking the Kubernetes API server for pods is doing, read when scraped.
//!
//! Owns: its families. Refuses: the counts (`pods`'s).

use super::catalog::{KUBERNETES, KUBERNETES_ERRORS, KUBERNETES_PODS, KUBERNETES_REFUSED, KUBERNETES_TOLD};
use super::exports::{desc, family};
use super::{Metrics, MetricsError};
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
        let descs = KUBERNETES.iter().map(desc).collect::<Result<_, _>>()?;
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
        let errors = Reason::ALL.map(|reason| (vec![reason.as_str()], status.errors(reason) as f64));
        let told = status.told_at().map(|at| (Vec::new(), at));
        let families = [
            family(KUBERNETES_PODS, vec![(Vec::new(), status.pods() as f64)]),
            family(KUBERNETES_REFUSED, vec![(Vec::new(), status.refused() as f64)]),
            family(KUBERNETES_TOLD, told.into_iter().collect()),
            family(KUBERNETES_ERRORS, errors.to_vec()),
        ];
        families
            .into_iter()
            .filter(|family| !family.get_metric().is_empty())
            .collect()
    }
}

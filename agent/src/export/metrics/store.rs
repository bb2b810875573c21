//! How the embedded store is doing, read when scraped.
//!
//! Owns: its families. Refuses: the counts (the store's).

use super::catalog::{STORE, STORE_BYTES, STORE_LOST, STORE_UP, STORE_WRITES};
use super::{
    Metrics, MetricsError,
    scraped::{descs, family_of},
};
use crate::store::{Loss, StoreStatus};
use prometheus::{
    core::{Collector, Desc},
    proto,
};
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
        let descs = descs(STORE)?;
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
            family_of(STORE_UP, [(None, f64::from(u8::from(status.up())))]),
            family_of(STORE_WRITES, [(None, status.written() as f64)]),
            family_of(STORE_LOST, lost),
        ];
        families.extend(
            status
                .bytes()
                .map(|bytes| family_of(STORE_BYTES, [(None, bytes as f64)])),
        );
        families
    }
}

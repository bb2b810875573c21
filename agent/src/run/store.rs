//! The store of a running agent.
//!
//! Owns: what happens where it can't be opened: the agent runs without, and says so. Refuses: what is written.

use crate::export::{Exporter, Note};
use crate::store::{Store, StoreConfig, StoreStatus};
use std::sync::Arc;

/// Opens the store, if there is to be one.
pub(super) fn open(config: &StoreConfig, exporter: &Arc<Exporter>) -> Option<Arc<Store>> {
    let file = config.file()?;
    let trouble = {
        let exporter = Arc::clone(exporter);
        Box::new(move |sentence| exporter.note(Note::Store, sentence))
    };
    let (store, status) = match Store::open(file, trouble) {
        Ok(store) => {
            let status = Arc::clone(store.status());
            (Some(Arc::new(store)), status)
        }
        Err(error) => {
            let told = format!("nothing is kept for the next start: {error}");
            tracing::warn!("{told}");
            exporter.note(Note::Store, Some(told));
            (None, Arc::new(StoreStatus::new(file, false)))
        }
    };
    if let Err(error) = exporter.metrics().store(status) {
        tracing::warn!("the store is not in the metrics: {error}");
    }
    store
}

//! The store of a running agent, and the budgets and records that are kept in it.
//!
//! Owns: what happens where it can't be opened: the agent runs without, and says so. Refuses: what is written.

use crate::budget::KeeperThread;
use crate::config::Config;
use crate::export::{Exporter, Note};
use crate::ship::{self, Outlets};
use crate::store::{Store, StoreConfig, StoreStatus};
use anyhow::Context as _;
use std::sync::Arc;
use std::time::Duration;

/// How long the agent's end waits for destinations of records, all together.
const SEND: Duration = Duration::from_secs(4);
/// How long the agent's end waits for the disk.
const CLOSE: Duration = Duration::from_secs(5);

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

/// Goes on with the budgets where the last run left them.
///
/// # Errors
/// The system has no thread to give.
pub(super) fn budgets(
    config: &Config,
    exporter: &Arc<Exporter>,
    store: Option<&Arc<Store>>,
) -> anyhow::Result<KeeperThread> {
    let keeper = exporter.budgets();
    if let Some(store) = store {
        keeper.keep_in(store);
    }
    keeper.configure(config.budgets());
    KeeperThread::start(exporter).context("cannot start the thread of the budgets")
}

/// Keeps records of requests where there is a store, and sends them where that is configured. Within the runtime.
///
/// # Errors
/// A destination can't be used as it is configured.
pub(super) fn records(
    config: &Config,
    exporter: &Exporter,
    store: Option<&Arc<Store>>,
) -> anyhow::Result<Arc<Outlets>> {
    let outlets = ship::start(config, exporter.metrics())?;
    let to = Arc::clone(&outlets);
    exporter
        .records()
        .keep(store, to, &config.records, exporter.metrics());
    exporter
        .records()
        .configure_content(&config.content, exporter.metrics());
    Ok(outlets)
}

/// Sends what is still to be sent, for a while.
pub(super) async fn send_rest(exporter: &Exporter, outlets: &Outlets) {
    exporter.records().settle();
    outlets.finish(SEND).await;
}

/// Waits until everything is written, whoever else holds the store.
pub(super) fn close(store: Option<Arc<Store>>) {
    if let Some(store) = store
        && !store.flush(CLOSE)
    {
        tracing::warn!(
            "the store did not answer in {} s: its last writes may be lost",
            CLOSE.as_secs()
        );
    }
}

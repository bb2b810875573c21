//! Sending records out.
//!
//! Owns: for every destination one bounded queue, a task that empties it in batches, attempts and delays, and counters.
//! Refuses: what a record is and which are kept (`records`). A destination that hangs or is down for an hour costs the
//! agent its queue and nothing else: whoever offers a record never waits.
//!
//! A new destination is a file that implements [`HttpDestination`] or [`Destination`], its section in the configuration
//! ([`destination_section!`](crate::destination_section)), and a line in [`start`].

mod answer;
mod backoff;
mod courier;
mod current;
mod destination;
mod document;
mod elastic;
mod file;
mod http;
mod json_lines;
mod line;
mod lines_file;
mod link;
mod loki;
pub mod otlp;
mod outlet;
mod reach;
mod tls;

pub use answer::HttpAnswer;
pub use courier::{Courier, Limits, Next, Outcome};
pub use destination::{Destination, Fault, Verdict};
pub use elastic::{Elasticsearch, ElasticsearchSection};
pub use http::{Http, HttpDestination, HttpRequest, Prepared};
pub use json_lines::{JsonLines, JsonLinesSection};
pub use link::LinkConfig;
pub use loki::{Loki, LokiSection};
pub use outlet::Outlet;
pub use reach::{reach, writable};

use crate::config::Config;
use crate::export::Metrics;
use crate::export::metrics::lock;
use crate::store::tables::record::KeptRecord;
use anyhow::{Context as _, anyhow};
use prometheus::IntCounterVec;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinHandle;

/// Every destination of a running agent.
#[derive(Debug, Default)]
pub struct Outlets {
    list: Vec<Arc<Outlet>>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
    failures: Option<IntCounterVec>,
}

impl Outlets {
    /// None yet. Attempts that fail are counted here, by destination.
    pub fn counting(failures: IntCounterVec) -> Outlets {
        Outlets {
            failures: Some(failures),
            ..Outlets::default()
        }
    }

    /// Adds a destination and starts sending to it. `attempt` is the time that one attempt may take. To be called within a
    /// tokio runtime.
    pub fn add<D: Destination>(&mut self, destination: D, limits: Limits, attempt: Duration) -> Arc<Outlet> {
        let name = destination.name();
        let failures = self.failures.as_ref().map(|all| all.with_label_values(&[name]));
        let outlet = Arc::new(Outlet::new(name, limits, failures));
        let task = outlet::deliver(Arc::clone(&outlet), destination, attempt);
        lock(&self.tasks).push(tokio::spawn(task));
        self.list.push(Arc::clone(&outlet));
        outlet
    }

    /// Their queues, in order.
    pub fn list(&self) -> &[Arc<Outlet>] {
        &self.list
    }

    /// Sends a record to all of them. Never waits.
    pub fn offer(&self, record: &Arc<KeptRecord>) {
        for outlet in &self.list {
            outlet.offer(record);
        }
    }

    /// Sends what is still there, for at most so long. What then is left is lost, counted and logged.
    pub async fn finish(&self, limit: Duration) {
        for outlet in &self.list {
            outlet.stop();
        }
        let tasks = std::mem::take(&mut *lock(&self.tasks));
        let until = tokio::time::Instant::now() + limit;
        for mut task in tasks {
            if tokio::time::timeout_at(until, &mut task).await.is_err() {
                task.abort();
            }
        }
        for outlet in &self.list {
            let left = outlet.drop_all();
            if left > 0 {
                let name = outlet.name();
                tracing::warn!("{name}: {left} records could not be sent before the end, and are lost");
            }
        }
    }
}

/// Starts sending to what is configured. To be called within a tokio runtime.
///
/// # Errors
/// A destination can't be used as it is configured.
pub fn start(config: &Config, metrics: &Metrics) -> anyhow::Result<Arc<Outlets>> {
    let mut outlets = Outlets::counting(metrics.export_failures());
    let host = host_name();
    otlp::start(&config.otlp, &host, &mut outlets).map_err(|reason| anyhow!("otlp.endpoint: {reason}"))?;
    logs(config, &host, &mut outlets)?;
    let outlets = Arc::new(outlets);
    if !outlets.list.is_empty() {
        metrics.exports(Arc::clone(&outlets))?;
        let names: Vec<&str> = outlets.list.iter().map(|outlet| outlet.name()).collect();
        tracing::info!("sending records to {}", names.join(", "));
    }
    Ok(outlets)
}

/// Names of the destinations that are configured, and how they are reached.
pub fn links(config: &Config) -> Vec<(&'static str, LinkConfig)> {
    let all = [
        ("otlp", config.otlp.link()),
        ("loki", config.loki.link()),
        ("elasticsearch", config.elasticsearch.link()),
    ];
    all.into_iter().filter(|(_, link)| link.on()).collect()
}

/// Starts sending to what takes records as logs.
fn logs(config: &Config, host: &str, outlets: &mut Outlets) -> anyhow::Result<()> {
    let link = config.loki.link();
    if link.on() {
        let loki = Loki::new(&config.loki, &config.metrics, Some(host));
        let loki = Http::new(loki, &link).map_err(|reason| anyhow!("loki.endpoint: {reason}"))?;
        outlets.add(loki, link.limits(), link.attempt());
    }
    let link = config.elasticsearch.link();
    if link.on() {
        let elastic = Elasticsearch::new(&config.elasticsearch, Some(host));
        let elastic =
            Http::new(elastic, &link).map_err(|reason| anyhow!("elasticsearch.endpoint: {reason}"))?;
        outlets.add(elastic, link.limits(), link.attempt());
    }
    let section = &config.json_lines;
    if section.on() {
        let lines = JsonLines::new(section).context("json_lines: no thread can be started to write them")?;
        outlets.add(lines, section.limits(), section.attempt());
    }
    Ok(())
}

/// An error with its causes.
pub(crate) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// The name of this host.
fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    Some(name.trim())
        .filter(|name| !name.is_empty())
        .unwrap_or("unknown")
        .to_owned()
}

#[cfg(test)]
mod fate_tests;
#[cfg(test)]
mod samples;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

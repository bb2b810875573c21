//! Sending records out.
//!
//! Owns: for every destination one bounded queue, a task that empties it in batches, attempts and delays, and counters.
//! Refuses: what a record is and which are kept (`records`). A destination that hangs or is down for an hour costs the
//! agent its queue and nothing else: whoever offers a record never waits.
//!
//! A new destination is a file that implements [`HttpDestination`] or [`Destination`], its section in the configuration
//! ([`destination_section!`](crate::destination_section)), and its lines in `section`.

mod answer;
mod backoff;
mod courier;
mod current;
mod destination;
mod document;
mod elastic;
mod file;
mod headers;
mod http;
mod json_lines;
mod line;
mod lines_file;
mod link;
mod loki;
pub mod otlp;
mod outlet;
mod outlets;
mod reach;
mod section;
mod tls;

pub use answer::HttpAnswer;
pub(crate) use backoff::Backoff;
pub use courier::{Courier, Limits, Next, Outcome};
pub(crate) use current::Current;
pub use destination::{Destination, Fault, Verdict};
pub use elastic::{Elasticsearch, ElasticsearchSection};
pub use headers::Headers;
pub(crate) use http::client as http_client;
pub use http::{Http, HttpDestination, HttpRequest, Prepared};
pub use json_lines::{JsonLines, JsonLinesSection};
pub use link::LinkConfig;
pub(crate) use link::endpoint as parse_endpoint;
pub use loki::{Loki, LokiSection};
pub use outlet::Outlet;
pub use outlets::{Outlets, Total};
pub use reach::{reach, writable};

use crate::config::Config;
use crate::export::Metrics;
use std::sync::Arc;

/// Starts sending to what is configured, and to what [`Outlets::configure`] says later. To be called within a tokio runtime.
///
/// # Errors
/// A destination can't be used as it is configured.
pub fn start(config: &Config, metrics: &Metrics) -> anyhow::Result<Arc<Outlets>> {
    let outlets = Outlets::new(metrics.export_failures(), &config.metrics, host_name());
    outlets.configure(config)?;
    let outlets = Arc::new(outlets);
    metrics.exports(Arc::clone(&outlets))?;
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

//! What `deploy/` ships is whole: files parse, references exist, privileges agree, queries are ones that Prometheus
//! answers and read metrics that exist.
//!
//! Refuses: installing anything. Needs `promtool` and `prometheus` (Debian's package `prometheus`) and
//! `systemd-analyze`, and fails without them.

mod gpus;
mod live;
mod money;
mod monitoring;
mod packaging;
mod pods;
mod retention;

use serde_json::Value;
use std::path::Path;

/// Every document of a YAML file. A key that stands twice is refused.
fn read_yaml(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_saphyr::from_multiple(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

//! Families from their definitions.
//!
//! Owns: making and registering those that have labels. Refuses: words (`catalog`) and values.

use super::Definition;
use prometheus::{IntCounterVec, IntGaugeVec, Opts, Registry};

/// What the registry wants to know of a metric.
pub(super) fn options(definition: &Definition) -> Opts {
    Opts::new(definition.name, definition.help)
}

/// A family of counters, registered.
pub(super) fn counter_vec(registry: &Registry, definition: &Definition) -> prometheus::Result<IntCounterVec> {
    let counter = IntCounterVec::new(options(definition), definition.labels)?;
    registry.register(Box::new(counter.clone()))?;
    Ok(counter)
}

/// A family of gauges, registered.
pub(super) fn gauge_vec(registry: &Registry, definition: &Definition) -> prometheus::Result<IntGaugeVec> {
    let gauge = IntGaugeVec::new(options(definition), definition.labels)?;
    registry.register(Box::new(gauge.clone()))?;
    Ok(gauge)
}

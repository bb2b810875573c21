//! How the agent itself is doing beyond its events: its configuration, attaching.
//!
//! Owns: these families and their first values. Refuses: deciding what they say.

use super::{Metrics, catalog, counter_vec, options};
use prometheus::{Counter, IntCounter, IntGauge, Registry};
use std::time::Duration;

/// The families.
pub(super) struct AgentMetrics {
    config_ok: IntGauge,
    /// Applied, refused.
    reloads: [IntCounter; 2],
    attach_waiting: IntGauge,
    attach_seconds: Counter,
}

impl AgentMetrics {
    pub(super) fn register(registry: &Registry) -> prometheus::Result<AgentMetrics> {
        let config_ok = IntGauge::with_opts(options(catalog::CONFIG_OK))?;
        registry.register(Box::new(config_ok.clone()))?;
        config_ok.set(1);
        let reloads = counter_vec(registry, catalog::CONFIG_RELOADS)?;
        let attach_waiting = IntGauge::with_opts(options(catalog::ATTACH_WAITING))?;
        registry.register(Box::new(attach_waiting.clone()))?;
        let attach_seconds = Counter::with_opts(options(catalog::ATTACH_SECONDS))?;
        registry.register(Box::new(attach_seconds.clone()))?;
        Ok(AgentMetrics {
            config_ok,
            attach_waiting,
            attach_seconds,
            reloads: ["applied", "refused"].map(|outcome| reloads.with_label_values(&[outcome])),
        })
    }
}

impl Metrics {
    /// Says whether the configuration as it was read last is in effect.
    pub fn config_ok(&self, ok: bool) {
        self.agent.config_ok.set(i64::from(ok));
    }

    /// The configuration was read again.
    pub fn config_reloaded(&self, applied: bool) {
        self.agent.reloads[usize::from(!applied)].inc();
    }

    /// Probes of so many processes wait to be attached or detached, and it was worked at that for `spent` more.
    pub fn attaching(&self, waiting: usize, spent: Duration) {
        let waiting = i64::try_from(waiting).unwrap_or(i64::MAX);
        self.agent.attach_waiting.set(waiting);
        self.agent.attach_seconds.inc_by(spent.as_secs_f64());
    }
}

//! How the agent itself is doing beyond its events: its configuration.
//!
//! Owns: these families and their first values. Refuses: deciding what they say.

use super::{Metrics, catalog, counter_vec, options};
use prometheus::{IntCounter, IntGauge, Registry};

/// The families.
pub(super) struct AgentMetrics {
    config_ok: IntGauge,
    /// Applied, refused.
    reloads: [IntCounter; 2],
}

impl AgentMetrics {
    pub(super) fn register(registry: &Registry) -> prometheus::Result<AgentMetrics> {
        let config_ok = IntGauge::with_opts(options(catalog::CONFIG_OK))?;
        registry.register(Box::new(config_ok.clone()))?;
        config_ok.set(1);
        let reloads = counter_vec(registry, catalog::CONFIG_RELOADS)?;
        Ok(AgentMetrics {
            config_ok,
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
}

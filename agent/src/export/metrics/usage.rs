//! What the usage ledger adds to the metrics: context limits, requests that came near them, and what had no key.
//!
//! Owns: these families. Refuses: usage itself, which the token counters and `/api/v1/cost` tell; which limit counts (the
//! core's `ledger`).

use super::{Metrics, catalog, counter_vec, gauge_vec, labels::OTHER, lock, options};
use infertap_core::ledger::{ContextLimit, LimitSource};
use infertap_core::observation::Labels;
use prometheus::{IntCounter, IntCounterVec, IntGaugeVec, Registry};
use std::sync::Arc;

/// Every source, as the label tells it.
const SOURCES: [(LimitSource, &str); 3] = [
    (LimitSource::Config, "config"),
    (LimitSource::CommandLine, "command_line"),
    (LimitSource::Files, "files"),
];

pub(super) struct UsageMetrics {
    near: IntCounterVec,
    limit: IntGaugeVec,
    overflow: IntCounter,
}

impl UsageMetrics {
    pub(super) fn register(registry: &Registry) -> prometheus::Result<UsageMetrics> {
        let overflow = IntCounter::with_opts(options(catalog::USAGE_OVERFLOW))?;
        registry.register(Box::new(overflow.clone()))?;
        Ok(UsageMetrics {
            near: counter_vec(registry, catalog::NEAR_CONTEXT_LIMIT)?,
            limit: gauge_vec(registry, catalog::CONTEXT_LIMIT)?,
            overflow,
        })
    }
}

impl Metrics {
    /// A request ended whose model's context limit is known; `near`: it came near it.
    pub fn near_context_limit(&self, labels: &Labels, near: bool) {
        let mut state = lock(&self.state);
        let model = state.models.admit(&labels.model).value;
        let scene = state.scenes.admit(&labels.scene).value;
        drop(state);
        let counter = self.usage.near.with_label_values(&[&*model, &*scene]);
        counter.inc_by(u64::from(near));
    }

    /// An engine's context limit is known, or no longer. Engines past the cap are left out.
    pub fn context_limit(&self, engine: &Arc<str>, limit: Option<ContextLimit>) {
        let engine = lock(&self.state).engine_label(engine);
        if &*engine == OTHER {
            return;
        }
        for (source, name) in SOURCES {
            let labels = [&*engine, name];
            match limit.filter(|limit| limit.source == source) {
                Some(limit) => {
                    let gauge = self.usage.limit.with_label_values(&labels);
                    gauge.set(i64::try_from(limit.tokens).unwrap_or(i64::MAX));
                }
                // It mostly was not there.
                None => drop(self.usage.limit.remove_label_values(&labels)),
            }
        }
    }

    /// So many observations had no key of their own in the usage ledger since the start.
    pub fn usage_overflow(&self, total: u64) {
        let counter = &self.usage.overflow;
        counter.inc_by(total.saturating_sub(counter.get()));
    }
}

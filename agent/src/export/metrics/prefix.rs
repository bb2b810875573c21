//! Prompts that begin like prompts before them, as Prometheus counters.
//!
//! Owns: their registration, and what was told of each row before. Refuses: label caps (`series`) and the sums (the core's).

use super::{catalog, counter_vec, lock, series::State};
use infertap_core::prefix::{BreakClass, PrefixBasis, PrefixReport};
use prometheus::{IntCounterVec, Registry};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

/// Whose sums: engine, model and scene, and what they are compared by. As many as the core has rows.
type Key = (Arc<str>, Arc<str>, Arc<str>, PrefixBasis);

/// Sums as they were told last.
#[derive(Default)]
struct Told {
    compared: u64,
    shareable: u64,
    hit: u64,
    lost: u64,
    breaks: [(u64, u64); BreakClass::ALL.len()],
}

/// The families.
pub(super) struct Prefixes {
    compared: IntCounterVec,
    shareable: IntCounterVec,
    hit: IntCounterVec,
    lost: IntCounterVec,
    breaks: IntCounterVec,
    broken: IntCounterVec,
    told: Mutex<HashMap<Key, Told>>,
}

impl Prefixes {
    pub(super) fn register(registry: &Registry) -> prometheus::Result<Prefixes> {
        Ok(Prefixes {
            compared: counter_vec(registry, catalog::PREFIX_COMPARED)?,
            shareable: counter_vec(registry, catalog::PREFIX_SHAREABLE)?,
            hit: counter_vec(registry, catalog::PREFIX_HIT_OF_SCENE)?,
            lost: counter_vec(registry, catalog::PREFIX_LOST)?,
            breaks: counter_vec(registry, catalog::PREFIX_BREAKS)?,
            broken: counter_vec(registry, catalog::PREFIX_BROKEN)?,
            told: Mutex::default(),
        })
    }

    /// Adds what a row has grown by.
    pub(super) fn apply(&self, report: &PrefixReport, state: &mut State) {
        let key = (
            Arc::clone(&report.engine),
            Arc::clone(&report.model),
            Arc::clone(&report.scene),
            report.basis,
        );
        let model = state.models.admit(&report.model).value;
        let scene = state.scenes.admit(&report.scene).value;
        let mut told = lock(&self.told);
        let told = told.entry(key).or_default();
        let add = |family: &IntCounterVec, known: &mut u64, sum: u64| {
            family
                .with_label_values(&[&*model, &*scene])
                .inc_by(grown(known, sum));
        };
        add(&self.compared, &mut told.compared, report.prompt_tokens);
        add(&self.shareable, &mut told.shareable, report.shareable_tokens);
        if let Some(hit) = report.hit_tokens {
            add(&self.hit, &mut told.hit, hit);
        }
        if let Some(lost) = report.lost_tokens {
            add(&self.lost, &mut told.lost, lost);
        }
        for one in &report.breaks {
            let place = BreakClass::ALL.iter().position(|class| *class == one.class);
            if let Some((requests, tokens)) = place.and_then(|at| told.breaks.get_mut(at)) {
                let labels = [&*model, &*scene, one.class.as_str()];
                self.breaks
                    .with_label_values(&labels)
                    .inc_by(grown(requests, one.requests));
                self.broken
                    .with_label_values(&labels)
                    .inc_by(grown(tokens, one.lost_tokens));
            }
        }
    }
}

/// What a sum has grown by. One that is smaller than it was, as with another block size, adds nothing until it is larger.
fn grown(known: &mut u64, sum: u64) -> u64 {
    sum.saturating_sub(std::mem::replace(known, sum.max(*known)))
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::{Metrics, MetricsConfig};
    use super::*;
    use infertap_core::{
        Observation,
        prefix::{BreakReport, Part},
    };

    /// A row of which everything is known.
    fn row(engine: &str, requests: u64) -> PrefixReport {
        PrefixReport {
            engine: engine.into(),
            model: "smollm2".into(),
            scene: "default".into(),
            basis: PrefixBasis::Tokens,
            block_tokens: Some(16),
            requests,
            prompt_tokens: 100 * requests,
            shareable_tokens: 64 * requests,
            shareable_ratio: Some(0.64),
            told_requests: requests,
            hit_tokens: Some(48 * requests),
            hit_ratio: Some(0.48),
            lost_tokens: Some(16 * requests),
            prefill_tokens_per_second: Some(1000.0),
            saved_s: Some(0.048 * requests as f64),
            lost_s: Some(0.016 * requests as f64),
            breaks: vec![BreakReport {
                class: BreakClass::Timestamp,
                part: Part::System,
                token: 7,
                character: 30,
                requests,
                request_ratio: 1.0,
                lost_tokens: 20 * requests,
            }],
            forgotten_blocks: 0,
        }
    }

    /// As it is told.
    pub(crate) fn told(engine: &str) -> Observation {
        Observation::Prefix(Box::new(row(engine, 2)))
    }

    fn value(metrics: &Metrics, name: &str) -> f64 {
        let families = metrics.gather();
        let family = families.iter().find(|family| family.name() == name);
        family.map_or(0.0, |family| {
            family
                .get_metric()
                .iter()
                .map(|metric| metric.get_counter().get_value())
                .sum()
        })
    }

    #[test]
    #[expect(clippy::float_cmp, reason = "whole numbers, which are exact")]
    fn counters_grow_by_what_rows_grow_and_never_shrink() {
        let metrics = Metrics::for_replay(&MetricsConfig::default()).expect("the defaults are valid");
        let tell = |report: PrefixReport| metrics.apply(&Observation::Prefix(Box::new(report)));
        tell(row("a", 1));
        tell(row("b", 1));
        tell(row("a", 3));
        let told = || {
            ["compared", "shareable", "hit", "lost", "broken"]
                .map(|name| value(&metrics, &format!("llm_prefix_{name}_tokens_total")))
        };
        assert_eq!(told(), [400.0, 256.0, 192.0, 64.0, 80.0]);
        assert_eq!(value(&metrics, "llm_prefix_breaks_total"), 4.0);
        // With another block size, less can be shared.
        let mut less = row("a", 3);
        (less.shareable_tokens, less.lost_tokens) = (10, Some(0));
        tell(less);
        assert_eq!(told(), [400.0, 256.0, 192.0, 64.0, 80.0]);
        tell(row("a", 4));
        assert_eq!(told(), [500.0, 320.0, 240.0, 80.0, 100.0]);
    }
}

//! What engines' own messages tell of their schedulers, as series of model and engine.
//!
//! Owns: which series an engine has, and their end with it. Refuses: label caps (it is told label values).

use super::{families::InsideFamilies, histogram::Histogram, labels::UNKNOWN};
use infertap_core::observation::{EngineReport, EngineStep, StepKind};
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

/// The state behind the families.
pub(super) struct InsideSeries {
    families: InsideFamilies,
    /// Models of the series of each engine; both are capped label values.
    series: HashMap<Arc<str>, HashSet<Arc<str>>>,
    /// Histograms of the steps of each engine, by its capped label value: one a kind, and one for unknown ones.
    steps: HashMap<Arc<str>, [Steps; KINDS]>,
}

/// Kinds of steps, and the unknown one.
const KINDS: usize = StepKind::ALL.len() + 1;

/// Duration and batch size of the steps of one engine and kind.
type Steps = [Option<Histogram>; 2];

impl InsideSeries {
    pub(super) fn new(families: InsideFamilies) -> InsideSeries {
        InsideSeries {
            families,
            series: HashMap::new(),
            steps: HashMap::new(),
        }
    }

    /// Takes a report of the engine with these label values.
    pub(super) fn report(&mut self, engine: &Arc<str>, model: &Arc<str>, report: &EngineReport) {
        let families = &self.families;
        let labels = [&**model, &**engine];
        if let Some(load) = report.load {
            let waiting = i64::try_from(load.waiting).unwrap_or(i64::MAX);
            families.queue_length.with_label_values(&labels).set(waiting);
            let running = i64::try_from(load.running).unwrap_or(i64::MAX);
            families.scheduled.with_label_values(&labels).set(running);
            if let Some(usage) = load.kv_cache_usage {
                families.kv_cache_usage.with_label_values(&labels).set(usage);
            }
            let queried = families.prefix_queried.with_label_values(&labels);
            queried.inc_by(report.prefix_queried_tokens);
            let hit = families.prefix_hit.with_label_values(&labels);
            hit.inc_by(report.prefix_hit_tokens);
        }
        let preemptions = families.preemptions.with_label_values(&labels);
        preemptions.inc_by(report.preemptions);
        self.series
            .entry(Arc::clone(engine))
            .or_default()
            .insert(Arc::clone(model));
    }

    /// Takes a step of the engine with this label value. Answers how many durations were refused because no clock gives
    /// them.
    pub(super) fn step(&mut self, engine: &Arc<str>, step: &EngineStep) -> u64 {
        let at = StepKind::ALL
            .iter()
            .position(|kind| Some(*kind) == step.kind)
            .unwrap_or(KINDS - 1);
        let families = [&self.families.step, &self.families.batch_size];
        let seconds = step.seconds();
        let values = [seconds, step.requests.map(|requests| requests as f64)];
        let steps = &mut self.steps.entry(Arc::clone(engine)).or_default()[at];
        for ((slot, family), value) in steps.iter_mut().zip(families).zip(values) {
            if let Some(value) = value {
                slot.get_or_insert_with(|| family.child(&[Arc::clone(engine), kind_label(step.kind).into()]))
                    .observe(value, 1, None);
            }
        }
        u64::from(step.start.is_some() && seconds.is_none())
    }

    /// The engine with this label value is gone.
    pub(super) fn down(&mut self, engine: &str) {
        for model in self.series.remove(engine).unwrap_or_default() {
            let labels = [&*model, engine];
            let families = &self.families;
            // Not every engine tells everything, so a failure to find a series is no news.
            let _ = families.queue_length.remove_label_values(&labels);
            let _ = families.scheduled.remove_label_values(&labels);
            let _ = families.kv_cache_usage.remove_label_values(&labels);
            let _ = families.preemptions.remove_label_values(&labels);
            let _ = families.prefix_queried.remove_label_values(&labels);
            let _ = families.prefix_hit.remove_label_values(&labels);
        }
        if self.steps.remove(engine).is_some() {
            for kind in StepKind::ALL.map(Some).into_iter().chain([None]) {
                let labels = [Arc::from(engine), Arc::from(kind_label(kind))];
                self.families.step.remove(&labels);
                self.families.batch_size.remove(&labels);
            }
        }
    }
}

fn kind_label(kind: Option<StepKind>) -> &'static str {
    kind.map_or(UNKNOWN, StepKind::as_str)
}

//! What engines' own messages tell of their schedulers, as series of model and engine.
//!
//! Owns: which series an engine has, and their end with it. Refuses: label caps (it is told label values).

use super::families::InsideFamilies;
use infertap_core::observation::EngineReport;
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

/// The state behind the families.
pub(super) struct InsideSeries {
    families: InsideFamilies,
    /// Models of the series of each engine; both are capped label values.
    series: HashMap<Arc<str>, HashSet<Arc<str>>>,
}

impl InsideSeries {
    pub(super) fn new(families: InsideFamilies) -> InsideSeries {
        InsideSeries {
            families,
            series: HashMap::new(),
        }
    }

    /// Takes a report of the engine with these label values.
    pub(super) fn report(&mut self, engine: &Arc<str>, model: &Arc<str>, report: &EngineReport) {
        let families = &self.families;
        let labels = [&**model, &**engine];
        if let Some(load) = report.load {
            let waiting = i64::try_from(load.waiting).unwrap_or(i64::MAX);
            families.queue_length.with_label_values(&labels).set(waiting);
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

    /// The engine with this label value is gone.
    pub(super) fn down(&mut self, engine: &str) {
        for model in self.series.remove(engine).unwrap_or_default() {
            let labels = [&*model, engine];
            let families = &self.families;
            // Not every engine tells everything, so a failure to find a series is no news.
            let _ = families.queue_length.remove_label_values(&labels);
            let _ = families.kv_cache_usage.remove_label_values(&labels);
            let _ = families.preemptions.remove_label_values(&labels);
            let _ = families.prefix_queried.remove_label_values(&labels);
            let _ = families.prefix_hit.remove_label_values(&labels);
        }
    }
}

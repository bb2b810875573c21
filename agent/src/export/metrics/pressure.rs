//! How short of memory engines are: series of the engine.
//!
//! Owns: which series an engine has, and their end with it. Refuses: label caps (it is told label values) and the judgement
//! (the core's `pressure`).
//!
//! An engine that the kernel kills for memory is gone the moment that this is known: its count of kills stays when the engine
//! goes, for a bounded number of engines.

use super::{catalog, counter_vec, gauge_vec, options};
use infertap_core::pressure::{PressureReport, PressureState, ReasonKind, StallScope};
use prometheus::{CounterVec, GaugeVec, IntCounterVec, IntGaugeVec, Registry};
use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

/// Engines that are gone and whose kills are still told.
const MAX_KEPT: usize = 64;

/// Values of the label `kind`.
const STALLS: [&str; 2] = ["some", "full"];
/// Values of the label `event`.
const EVENTS: [&str; 4] = ["low", "high", "max", "oom"];

/// The families.
#[derive(Clone)]
pub(super) struct PressureFamilies {
    state: IntGaugeVec,
    reason: IntGaugeVec,
    gpu_headroom: IntGaugeVec,
    gpu_time_to_full: GaugeVec,
    usage: IntGaugeVec,
    limit: IntGaugeVec,
    headroom: IntGaugeVec,
    swap: IntGaugeVec,
    events: IntCounterVec,
    oom_kills: IntCounterVec,
    stalls: CounterVec,
}

impl PressureFamilies {
    pub(super) fn register(registry: &Registry) -> prometheus::Result<PressureFamilies> {
        let gpu_time_to_full = GaugeVec::new(
            options(catalog::GPU_TIME_TO_FULL),
            catalog::GPU_TIME_TO_FULL.labels,
        )?;
        registry.register(Box::new(gpu_time_to_full.clone()))?;
        let stalls = CounterVec::new(options(catalog::MEMORY_STALLS), catalog::MEMORY_STALLS.labels)?;
        registry.register(Box::new(stalls.clone()))?;
        Ok(PressureFamilies {
            state: gauge_vec(registry, catalog::MEMORY_PRESSURE)?,
            reason: gauge_vec(registry, catalog::MEMORY_PRESSURE_REASON)?,
            gpu_headroom: gauge_vec(registry, catalog::GPU_HEADROOM)?,
            gpu_time_to_full,
            usage: gauge_vec(registry, catalog::CGROUP_MEMORY)?,
            limit: gauge_vec(registry, catalog::CGROUP_LIMIT)?,
            headroom: gauge_vec(registry, catalog::CGROUP_HEADROOM)?,
            swap: gauge_vec(registry, catalog::CGROUP_SWAP)?,
            events: counter_vec(registry, catalog::CGROUP_EVENTS)?,
            oom_kills: counter_vec(registry, catalog::OOM_KILLS)?,
            stalls,
        })
    }
}

/// What was told last of an engine's totals, which begin anew with the engine.
#[derive(Default)]
struct Told {
    events: [u64; 4],
    oom_kills: u64,
    stalls: [f64; 2],
    scope: Option<StallScope>,
    reasons: Vec<ReasonKind>,
}

/// The state behind the families.
pub(super) struct PressureSeries {
    families: PressureFamilies,
    engines: HashMap<Arc<str>, Told>,
    /// Engines that are gone, oldest first, and whose kills are still told.
    kept: VecDeque<Arc<str>>,
}

/// What a total has grown by since it was told.
fn grown(told: &mut u64, total: u64) -> u64 {
    total.saturating_sub(std::mem::replace(told, total.max(*told)))
}

impl PressureSeries {
    pub(super) fn new(families: PressureFamilies) -> PressureSeries {
        PressureSeries {
            families,
            engines: HashMap::new(),
            kept: VecDeque::new(),
        }
    }

    /// Takes a report of the engine with this label value.
    pub(super) fn report(&mut self, engine: &Arc<str>, report: &PressureReport) {
        let families = &self.families;
        let told = self.engines.entry(Arc::clone(engine)).or_default();
        for state in PressureState::ALL {
            families
                .state
                .with_label_values(&[&**engine, state.as_str()])
                .set(i64::from(state == report.state));
        }
        for kind in ReasonKind::ALL {
            let reason = report.reasons.iter().find(|reason| reason.kind == kind);
            if reason.is_some() && !told.reasons.contains(&kind) {
                told.reasons.push(kind);
            }
            // A reason's series begins when it first is one.
            if told.reasons.contains(&kind) {
                families
                    .reason
                    .with_label_values(&[&**engine, kind.as_str()])
                    .set(reason.map_or(0, |reason| reason.state as i64));
            }
        }
        let gpu = report.gpu.as_ref();
        set(&families.gpu_headroom, engine, gpu.map(|gpu| gpu.headroom_bytes));
        match gpu.and_then(|gpu| gpu.time_to_full_s) {
            Some(seconds) => families
                .gpu_time_to_full
                .with_label_values(&[engine])
                .set(seconds),
            None => _ = families.gpu_time_to_full.remove_label_values(&[engine]),
        }
        let cgroup = report.cgroup.as_ref();
        set(
            &families.usage,
            engine,
            cgroup.and_then(|cgroup| cgroup.usage_bytes),
        );
        set(
            &families.limit,
            engine,
            cgroup.and_then(|cgroup| cgroup.limit_bytes),
        );
        set(
            &families.headroom,
            engine,
            cgroup.and_then(|cgroup| cgroup.headroom_bytes),
        );
        set(
            &families.swap,
            engine,
            cgroup.and_then(|cgroup| cgroup.swap_bytes),
        );
        let Some(cgroup) = cgroup else { return };
        let events = cgroup.events;
        let totals = [events.low, events.high, events.max, events.oom];
        for ((event, told), total) in EVENTS.iter().zip(&mut told.events).zip(totals) {
            if let Some(total) = total {
                let counter = families.events.with_label_values(&[&**engine, event]);
                counter.inc_by(grown(told, total));
            }
        }
        if let Some(kills) = events.oom_kill {
            let counter = families.oom_kills.with_label_values(&[engine]);
            counter.inc_by(grown(&mut told.oom_kills, kills));
        }
        if let Some(stalls) = cgroup.stalls {
            if told.scope != Some(stalls.scope) {
                told.scope = Some(stalls.scope);
                told.stalls = [0.0; 2];
            }
            let totals = [stalls.some_s, stalls.full_s];
            for ((kind, told), total) in STALLS.iter().zip(&mut told.stalls).zip(totals) {
                let labels = [&**engine, stalls.scope.as_str(), kind];
                let counter = families.stalls.with_label_values(&labels);
                counter.inc_by((total - std::mem::replace(told, total.max(*told))).max(0.0));
            }
        }
    }

    /// The engine with this label value is gone.
    pub(super) fn down(&mut self, engine: &Arc<str>) {
        if self.engines.remove(engine).is_none() {
            return;
        }
        // Not every engine has every series, so a failure to find one is no news.
        let families = &self.families;
        for gauge in [
            &families.gpu_headroom,
            &families.usage,
            &families.limit,
            &families.headroom,
            &families.swap,
        ] {
            let _ = gauge.remove_label_values(&[engine]);
        }
        let _ = families.gpu_time_to_full.remove_label_values(&[engine]);
        for state in PressureState::ALL {
            let _ = families.state.remove_label_values(&[&**engine, state.as_str()]);
        }
        for kind in ReasonKind::ALL {
            let _ = families.reason.remove_label_values(&[&**engine, kind.as_str()]);
        }
        for event in EVENTS {
            let _ = families.events.remove_label_values(&[&**engine, event]);
        }
        for scope in [StallScope::Cgroup, StallScope::Host] {
            for kind in STALLS {
                let _ = families
                    .stalls
                    .remove_label_values(&[&**engine, scope.as_str(), kind]);
            }
        }
        self.keep_kills(engine);
    }

    fn keep_kills(&mut self, engine: &Arc<str>) {
        let kills = &self.families.oom_kills;
        self.kept.retain(|kept| kept != engine);
        if kills
            .get_metric_with_label_values(&[engine])
            .is_ok_and(|counter| counter.get() > 0)
        {
            self.kept.push_back(Arc::clone(engine));
        } else {
            let _ = kills.remove_label_values(&[engine]);
        }
        while self.kept.len() > MAX_KEPT
            && let Some(oldest) = self.kept.pop_front()
        {
            // One that is up again has its own series.
            if !self.engines.contains_key(&oldest) {
                let _ = kills.remove_label_values(&[&oldest]);
            }
        }
    }
}

/// Sets a gauge, or ends it where there is no value.
fn set(gauge: &IntGaugeVec, engine: &Arc<str>, value: Option<u64>) {
    match value {
        Some(value) => gauge
            .with_label_values(&[engine])
            .set(i64::try_from(value).unwrap_or(i64::MAX)),
        None => _ = gauge.remove_label_values(&[engine]),
    }
}

//! The memory of one engine: what is known of it, and the judgement.
//!
//! Owns: which value is held against which threshold. Refuses: events (`pressure`), hysteresis (`rule`).
//!
//! Serving engines fill their GPU on purpose, so that a full GPU is a setting and no shortage: for those, only failures and
//! growth count. Meeting a control group's limit costs nothing while it drops clean page cache, which is how weights are
//! read: where it is known how long tasks waited, meeting the limit is a reason only when they did.

use super::{
    PressureConfig,
    cgroups::{Cgroups, Happened},
    gpus::Gpus,
    reading::MemoryReading,
    report::{AllocFailures, GpuMemory, PressureReport, PressureState, Reason, ReasonKind},
    rule::{Bad, Held, Rule},
    window::Window,
};
use crate::{EngineInfo, EngineKind, Nanos, gpu::AllocFailure, observation::EngineLoad};
use std::{collections::BTreeMap, sync::Arc};

/// A load that was told longer ago is not known any more.
const LOAD_KEEP: Nanos = 60 * 1_000_000_000;
/// Windows over which out-of-memory events count.
const OOM_WINDOWS: u64 = 5;
/// Share of time that meeting a limit must cost to be a reason, where it is known what it costs.
const COSTLY: f64 = 0.01;
/// Part of the window that readings must cover for shares of time.
const COVERED: f64 = 1.0 / 6.0;
/// GPUs of one engine.
const MAX_GPUS: usize = 64;
/// `CUDA_ERROR_OUT_OF_MEMORY` and `cudaErrorMemoryAllocation`.
const OUT_OF_MEMORY: u32 = 2;

/// One engine.
#[derive(Debug)]
pub(super) struct Engine {
    /// Its GPU memory is full by design.
    fills_gpu: bool,
    /// GPUs that its processes were seen on, and when last.
    gpus: BTreeMap<Arc<str>, Nanos>,
    /// Its CUDA calls are seen, so that no failure means none.
    cuda: bool,
    failures: AllocFailures,
    cgroups: Cgroups,
    read_at: Option<Nanos>,
    /// Key-value cache: used part when told last, and since when it has been high.
    kv_cache: Option<f64>,
    kv_high_since: Option<Nanos>,
    load_told: Nanos,
    preemptions: u64,
    recent: Recent,
    held: [Held; ReasonKind::ALL.len()],
    state: PressureState,
    pub(super) told_at: Option<Nanos>,
    /// Something that is to be told at once.
    pub(super) news: bool,
}

/// What has happened within the window.
#[derive(Debug)]
struct Recent {
    failures: Window,
    preemptions: Window,
    high: Window,
    max: Window,
    oom: Window,
    /// Microseconds: waited by some, by all, and how long that was looked at.
    some: Window,
    full: Window,
    watched: Window,
}

impl Engine {
    pub(super) fn new(kind: EngineKind, config: &PressureConfig) -> Engine {
        let window = || Window::new(config.window_ns);
        Engine {
            // Generic servers are whatever the operator names.
            fills_gpu: kind != EngineKind::Generic,
            gpus: BTreeMap::new(),
            cuda: false,
            failures: AllocFailures::default(),
            cgroups: Cgroups::default(),
            read_at: None,
            kv_cache: None,
            kv_high_since: None,
            load_told: 0,
            preemptions: 0,
            recent: Recent {
                failures: window(),
                preemptions: window(),
                high: window(),
                max: window(),
                oom: Window::new(config.window_ns.saturating_mul(OOM_WINDOWS)),
                some: window(),
                full: window(),
                watched: window(),
            },
            held: Default::default(),
            state: PressureState::None,
            told_at: None,
            news: true,
        }
    }

    pub(super) fn uses_gpu(&mut self, gpu: &Arc<str>, at: Nanos) {
        if self.gpus.len() < MAX_GPUS || self.gpus.contains_key(gpu) {
            self.gpus.insert(Arc::clone(gpu), at);
        }
    }

    /// The reading of this GPU at `at` lists none of its processes.
    pub(super) fn left_gpu(&mut self, gpu: &str, at: Nanos) {
        if self.gpus.get(gpu).is_some_and(|seen| *seen < at) {
            self.gpus.remove(gpu);
        }
    }

    pub(super) fn cuda_seen(&mut self) {
        self.cuda = true;
    }

    pub(super) fn alloc_failed(&mut self, at: Nanos, failure: &AllocFailure) {
        self.cuda = true;
        self.news = true;
        let count = if failure.code == OUT_OF_MEMORY {
            self.recent.failures.add(at, 1);
            &mut self.failures.out_of_memory
        } else {
            &mut self.failures.other
        };
        *count = count.saturating_add(1);
    }

    /// Failures so far; `None` where its CUDA calls were not seen.
    pub(super) fn failures(&self) -> Option<u64> {
        self.cuda.then(|| self.failures.total())
    }

    pub(super) fn read(&mut self, at: Nanos, reading: &MemoryReading) {
        let Happened {
            high,
            max,
            oom,
            stalled,
        } = self.cgroups.read(reading);
        let recent = &mut self.recent;
        recent.high.add(at, high.unwrap_or(0));
        recent.max.add(at, max.unwrap_or(0));
        recent.oom.add(at, oom);
        self.news |= oom > 0;
        if let (Some(stalled), Some(before)) = (stalled, self.read_at) {
            recent.some.add(at, stalled.some_us);
            recent.full.add(at, stalled.full_us);
            recent.watched.add(at, at.saturating_sub(before) / 1000);
        }
        self.read_at = Some(at);
    }

    /// What the engine's scheduler told last, and when; and how many requests it has put back since it was found.
    pub(super) fn load(
        &mut self,
        now: Nanos,
        load: Option<(EngineLoad, Nanos)>,
        preemptions: u64,
        config: &PressureConfig,
    ) {
        let more = preemptions.saturating_sub(self.preemptions);
        self.recent.preemptions.add(now, more);
        self.preemptions = preemptions;
        let Some((load, told)) = load else { return };
        self.load_told = told;
        self.kv_cache = load.kv_cache_usage;
        let high = load
            .kv_cache_usage
            .is_some_and(|usage| usage >= config.kv_cache_usage_some);
        self.kv_high_since = if high {
            self.kv_high_since.or(Some(told))
        } else {
            None
        };
    }

    /// Judges what is known at `now`. Answers whether anything changed that is to be told at once.
    pub(super) fn judge(&mut self, now: Nanos, gpus: &Gpus, config: &PressureConfig) -> bool {
        let values = self.values(now, gpus, config);
        let mut changed = false;
        for ((kind, held), value) in ReasonKind::ALL.into_iter().zip(&mut self.held).zip(values) {
            changed |= held.update(now, value, &rule(kind, config), config.hold_ns);
        }
        self.state = self.held.iter().map(Held::state).max().unwrap_or_default();
        std::mem::take(&mut self.news) || changed
    }

    /// The values of all reasons, in their order; `None` where one is not known.
    fn values(
        &mut self,
        now: Nanos,
        gpus: &Gpus,
        config: &PressureConfig,
    ) -> [Option<f64>; ReasonKind::ALL.len()] {
        let gpu = self.gpu(now, gpus);
        let fills = self.fills_gpu;
        let usage = gpu
            .as_ref()
            .filter(|gpu| !fills && gpu.total_bytes > 0)
            .map(|gpu| gpu.used_bytes as f64 / gpu.total_bytes as f64);
        let time_to_full = gpu.and_then(|gpu| gpu.time_to_full_s);
        let kv_cache = self.kv_cache.filter(|_| {
            let fresh = now.saturating_sub(self.load_told) <= LOAD_KEEP;
            let long = |since: Nanos| now.saturating_sub(since) >= config.kv_cache_usage_for_ns;
            fresh && self.kv_high_since.is_some_and(long)
        });
        let recent = &mut self.recent;
        let watched = recent.watched.sum(now) as f64;
        let enough = watched * 1000.0 >= COVERED * config.window_ns as f64;
        let share = |window: &mut Window| enough.then(|| (window.sum(now) as f64 / watched).min(1.0));
        let (some, full) = (share(&mut recent.some), share(&mut recent.full));
        let cheap = some.is_some_and(|some| some < COSTLY);
        let count = |window: &mut Window| Some(window.sum(now) as f64);
        let limit = |window: &mut Window| {
            if cheap {
                Some(0.0)
            } else {
                Some(window.sum(now) as f64)
            }
        };
        ReasonKind::ALL.map(|kind| match kind {
            ReasonKind::GpuAllocFailures => count(&mut recent.failures),
            ReasonKind::GpuTimeToFull => time_to_full,
            ReasonKind::GpuUsage => usage,
            ReasonKind::KvCacheUsage => kv_cache,
            ReasonKind::Preemptions => count(&mut recent.preemptions),
            ReasonKind::CgroupHigh => limit(&mut recent.high),
            ReasonKind::CgroupMax => limit(&mut recent.max),
            ReasonKind::Oom => count(&mut recent.oom),
            ReasonKind::StallSome => some,
            ReasonKind::StallFull => full,
        })
    }

    /// That of its GPUs with the least room. Of a GPU and an instance of it, the instance is what it has.
    fn gpu(&self, now: Nanos, gpus: &Gpus) -> Option<GpuMemory> {
        let known = || self.gpus.keys().filter_map(|uuid| gpus.memory(uuid, now));
        let whole = |gpu: &Arc<str>| {
            self.gpus
                .keys()
                .any(|other| gpus.parent(other).is_some_and(|parent| parent == gpu))
        };
        let own = || known().filter(|memory| !whole(&memory.gpu));
        let time_to_full_s = own()
            .filter_map(|memory| memory.time_to_full_s)
            .min_by(f64::total_cmp);
        let tightest = own().min_by_key(|memory| memory.headroom_bytes)?;
        Some(GpuMemory {
            time_to_full_s,
            ..tightest
        })
    }

    pub(super) fn report(&self, engine: &Arc<str>, now: Nanos, gpus: &Gpus) -> PressureReport {
        let reasons = ReasonKind::ALL.into_iter().zip(&self.held);
        let mut reasons: Vec<Reason> = reasons
            .filter_map(|(kind, held)| held.reason(kind, now))
            .collect();
        reasons.sort_by_key(|reason| std::cmp::Reverse(reason.state));
        PressureReport {
            engine: Arc::clone(engine),
            state: self.state,
            reasons,
            gpu: self.gpu(now, gpus),
            alloc_failures: self.cuda.then_some(self.failures),
            cgroup: self.cgroups.memory(),
        }
    }

    /// Heap bytes, about.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Engine>() + self.cgroups.bytes() + self.gpus.len() * 64
    }

    /// The engine's description, as discovery learns more.
    pub(super) fn is(&mut self, info: &EngineInfo) {
        self.fills_gpu = info.kind != EngineKind::Generic;
    }
}

fn rule(kind: ReasonKind, config: &PressureConfig) -> Rule {
    let (some, severe) = match kind {
        ReasonKind::GpuAllocFailures => (
            Some(config.alloc_failures_some),
            Some(config.alloc_failures_severe),
        ),
        ReasonKind::GpuTimeToFull => {
            return Rule {
                bad: Bad::Low,
                some: Some(config.time_to_full_some_s),
                severe: Some(config.time_to_full_severe_s),
            };
        }
        ReasonKind::GpuUsage => (Some(config.gpu_usage_some), None),
        ReasonKind::KvCacheUsage => (Some(config.kv_cache_usage_some), None),
        ReasonKind::Preemptions => (Some(config.preemptions_some), Some(config.preemptions_severe)),
        ReasonKind::CgroupHigh | ReasonKind::CgroupMax => (Some(config.limit_events_some), None),
        ReasonKind::Oom => (None, Some(1.0)),
        ReasonKind::StallSome => (Some(config.stall_some), None),
        ReasonKind::StallFull => (None, Some(config.stall_severe)),
    };
    Rule::high(some, severe)
}

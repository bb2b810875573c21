//! What is told of an engine's memory: one state, why, and the figures behind it.
//!
//! Owns: the shape, which the API prints. Refuses: deciding any of it (`engine`).

use super::reading::{CgroupVersion, MemoryEvents};
use serde::Serialize;
use std::sync::Arc;

/// How short of memory an engine is. `state` label of `llm_memory_pressure`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PressureState {
    /// Nothing tells of a shortage.
    #[default]
    None,
    /// Work is slowed by a shortage of memory, or will be soon.
    Some,
    /// Work fails or stands still for want of memory, or is about to.
    Severe,
}

impl PressureState {
    /// Every state, mildest first.
    pub const ALL: [PressureState; 3] = [PressureState::None, PressureState::Some, PressureState::Severe];

    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            PressureState::None => "none",
            PressureState::Some => "some",
            PressureState::Severe => "severe",
        }
    }
}

/// What a shortage shows in. `reason` label of `llm_memory_pressure_reason`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ReasonKind {
    /// Allocations of GPU memory that failed for want of it, within the window.
    GpuAllocFailures,
    /// Seconds until a GPU is full if its memory goes on growing as it does.
    GpuTimeToFull,
    /// Used part of a GPU's memory, of an engine that does not fill it on purpose.
    GpuUsage,
    /// Used part of the key-value cache, which was as high all the time that the configuration asks for.
    KvCacheUsage,
    /// Requests put back into the queue for their memory, within the window.
    Preemptions,
    /// Throttlings at a control group's high limit, within the window.
    CgroupHigh,
    /// Allocations that met a control group's hard limit, within the window.
    CgroupMax,
    /// Allocations that failed at a control group's hard limit and processes killed for it, within five windows.
    Oom,
    /// Share of time in which a task waited for memory.
    StallSome,
    /// Share of time in which all tasks that had work waited for memory.
    StallFull,
}

impl ReasonKind {
    /// Every reason, in declaration order.
    pub const ALL: [ReasonKind; 10] = [
        ReasonKind::GpuAllocFailures,
        ReasonKind::GpuTimeToFull,
        ReasonKind::GpuUsage,
        ReasonKind::KvCacheUsage,
        ReasonKind::Preemptions,
        ReasonKind::CgroupHigh,
        ReasonKind::CgroupMax,
        ReasonKind::Oom,
        ReasonKind::StallSome,
        ReasonKind::StallFull,
    ];

    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            ReasonKind::GpuAllocFailures => "gpu_alloc_failures",
            ReasonKind::GpuTimeToFull => "gpu_time_to_full",
            ReasonKind::GpuUsage => "gpu_usage",
            ReasonKind::KvCacheUsage => "kv_cache_usage",
            ReasonKind::Preemptions => "preemptions",
            ReasonKind::CgroupHigh => "cgroup_high",
            ReasonKind::CgroupMax => "cgroup_max",
            ReasonKind::Oom => "oom",
            ReasonKind::StallSome => "stall_some",
            ReasonKind::StallFull => "stall_full",
        }
    }
}

/// Why an engine is in its state.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Reason {
    /// What it shows in.
    #[serde(rename = "reason")]
    pub kind: ReasonKind,
    /// How bad this alone is.
    pub state: PressureState,
    /// What it is now, or was when it was last known; in the unit of its kind.
    pub value: f64,
    /// What it had to reach for its state.
    pub threshold: f64,
    /// How long it has been a reason, seconds.
    pub for_s: f64,
}

/// What is known of an engine's memory.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PressureReport {
    /// Engine instance id.
    #[serde(skip)]
    pub engine: Arc<str>,
    /// The worst state of any reason.
    pub state: PressureState,
    /// Why, worst first; empty when there is no pressure.
    pub reasons: Vec<Reason>,
    /// That of its GPUs with the least room; absent where it is not known to use one.
    pub gpu: Option<GpuMemory>,
    /// Allocations of GPU memory that failed; absent where the engine's CUDA calls were not seen.
    pub alloc_failures: Option<AllocFailures>,
    /// Its control groups; absent where none was read.
    pub cgroup: Option<CgroupMemory>,
}

/// Memory of one GPU, bytes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GpuMemory {
    /// UUID of the GPU or MIG instance.
    pub gpu: Arc<str>,
    /// In use, by whoever.
    pub used_bytes: u64,
    /// All there is.
    pub total_bytes: u64,
    /// What is left.
    pub headroom_bytes: u64,
    /// Seconds until nothing is left, where use grows steadily enough to tell and that is within a day; the shortest of
    /// all its GPUs.
    pub time_to_full_s: Option<f64>,
}

/// Allocations of GPU memory that failed since the engine was found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct AllocFailures {
    /// For want of memory.
    pub out_of_memory: u64,
    /// For another reason.
    pub other: u64,
}

impl AllocFailures {
    /// All of them.
    pub const fn total(self) -> u64 {
        self.out_of_memory.saturating_add(self.other)
    }
}

/// An engine's control groups together.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct CgroupMemory {
    /// Interface of the memory controller.
    pub version: CgroupVersion,
    /// In use by the groups that its processes are in, page cache included.
    pub usage_bytes: Option<u64>,
    /// Swap in use by them.
    pub swap_bytes: Option<u64>,
    /// The smallest hard limit of these and of the groups above them; absent where there is none.
    pub limit_bytes: Option<u64>,
    /// What is left to the hard limit that is nearest; page cache counts as used.
    pub headroom_bytes: Option<u64>,
    /// What has happened since the engine was first read.
    pub events: MemoryEvents,
    /// Seconds in which tasks waited for memory since the engine was first read.
    pub stalls: Option<Stalls>,
}

/// Waits for memory, seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Stalls {
    /// Whose they are.
    pub scope: StallScope,
    /// At least one task waited.
    pub some_s: f64,
    /// All tasks that had work waited at once.
    pub full_s: f64,
}

/// Whose tasks waited. `scope` label of `llm_engine_memory_pressure_seconds_total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StallScope {
    /// Those of the engine's control group.
    Cgroup,
    /// Those of the whole host: its control groups do not tell.
    Host,
}

impl StallScope {
    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            StallScope::Cgroup => "cgroup",
            StallScope::Host => "host",
        }
    }
}

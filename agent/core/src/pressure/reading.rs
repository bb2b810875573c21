//! What is told of the memory of an engine's processes, as the kernel accounts it.
//!
//! Owns: the facts as they come in. Refuses: how they were read (the agent's sampler) and what they mean.

use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// One reading of the memory of one engine's control groups. [`Event::at`](crate::Event::at) is when it was taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryReading {
    /// Engine instance id.
    pub engine: Arc<str>,
    /// The control groups that its processes are in, and those above them that limit them; each once.
    pub cgroups: Vec<CgroupReading>,
    /// Stalls of the whole host, where no control group tells its own.
    pub host: Option<StallTotals>,
}

/// One control group with memory accounting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CgroupReading {
    /// Its path in the hierarchy, as far as the agent sees it: its identity.
    pub path: Arc<str>,
    /// Interface of the memory controller.
    pub version: CgroupVersion,
    /// Processes of the engine are in it; otherwise it is above one that they are in, and has a limit.
    pub own: bool,
    /// Memory in use by it and those below it, page cache included, bytes.
    pub current: Option<u64>,
    /// Hard limit, bytes; absent where it has none.
    pub max: Option<u64>,
    /// Limit over which its processes are throttled, bytes; absent where it has none, and with version 1.
    pub high: Option<u64>,
    /// Swap in use, bytes.
    pub swap: Option<u64>,
    /// Events of its own limits since it was made.
    pub events: MemoryEvents,
    /// Stalls of it and those below it since it was made.
    pub stalls: Option<StallTotals>,
}

/// Version of the control group interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CgroupVersion {
    /// `memory.limit_in_bytes` and its kin.
    V1,
    /// `memory.max` and its kin.
    V2,
}

/// How often a control group met its limits; absent: its version does not tell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryEvents {
    /// It was reclaimed from although it was under its protected amount.
    pub low: Option<u64>,
    /// Its processes were throttled for being over the high limit.
    pub high: Option<u64>,
    /// It was about to go over its hard limit (version 1: `failcnt`). Page cache alone brings this about.
    pub max: Option<u64>,
    /// An allocation was about to fail at its hard limit.
    pub oom: Option<u64>,
    /// Processes of it that any out-of-memory killer killed.
    pub oom_kill: Option<u64>,
}

/// Time in which tasks waited for memory, as pressure stall information (PSI) counts it, microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StallTotals {
    /// At least one task waited.
    pub some_us: u64,
    /// All tasks that had work waited at once.
    pub full_us: u64,
}

//! What is told of GPUs: readings of their counters, and bursts of work that processes gave them; and whose it was.
//!
//! Owns: the facts as they come in, and the parts of their join with engines and requests. Refuses: how they were read
//! (the agent's sampler and probes).

mod charge;
mod join;
mod kind;
mod readings;
mod requests;
mod share;
#[cfg(test)]
mod simulator;
#[cfg(test)]
mod tests;
mod timeline;

pub(crate) use join::Join;
pub use share::{GpuShare, GpuState, TokenPhase, Unattributed, Uncharged};

mod cuda;
mod mapping;

pub use mapping::{CudaMapping, MappedMemory, Mapping};

pub(crate) use cuda::{burst, memory};

use crate::Nanos;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// One reading of one GPU, or of one MIG instance of it. [`Event::at`](crate::Event::at) is when it was taken.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GpuReading {
    /// UUID, as NVML prints it: `GPU-…` or `MIG-…`.
    pub uuid: Arc<str>,
    /// The UUID of the whole GPU, when this is an instance of it.
    pub parent: Option<Arc<str>>,
    /// When the reading before it was taken; absent for the first, and after the GPU was away.
    pub since: Option<Nanos>,
    /// Energy drawn between `since` and now, joules; absent where the driver tells neither energy nor power.
    pub energy_j: Option<f64>,
    /// Busy shares between `since` and now, oldest first, as the driver sampled them.
    pub busy: Vec<BusySample>,
    /// Memory in use, bytes.
    pub memory_used: Option<u64>,
    /// Memory there is, bytes.
    pub memory_total: Option<u64>,
    /// Processes that use it; `None` where the driver does not tell.
    pub processes: Option<Vec<GpuProcess>>,
}

/// The share of time in which any kernel ran, over the time up to `end` from the sample before it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct BusySample {
    /// End of the sampled time.
    pub end: Nanos,
    /// 0 to 1.
    pub ratio: f64,
}

/// A process that uses a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct GpuProcess {
    /// Process (thread group), initial PID namespace.
    pub tgid: u32,
    /// GPU memory that it holds, bytes; absent where the driver does not tell.
    pub memory: Option<u64>,
    /// Its share of the multiprocessors' time since the last reading, 0 to 1.
    pub sm: Option<f64>,
}

/// Work that a process gave to its GPUs, up to its waiting for it: what a step of an engine looks like from outside.
/// [`Event::at`](crate::Event::at) is `end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CudaBurst {
    /// Process (thread group), initial PID namespace.
    pub tgid: u32,
    /// Thread that waited.
    pub tid: u32,
    /// First launch after the wait before.
    pub begin: Nanos,
    /// Last launch before the wait.
    pub last_launch: Nanos,
    /// The wait began.
    pub wait: Nanos,
    /// The wait was over: the work was done.
    pub end: Nanos,
    /// Kernels launched one by one.
    pub kernels: u32,
    /// Graphs launched.
    pub graphs: u32,
}

/// An allocation of GPU memory that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AllocFailure {
    /// Process (thread group), initial PID namespace.
    pub tgid: u32,
    /// Thread.
    pub tid: u32,
    /// Bytes that were asked for.
    pub bytes: u64,
    /// What the call returned: a `CUresult` or `cudaError_t`; 2 is out of memory in both.
    pub code: u32,
}

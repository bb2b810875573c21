//! What `/api/v1/engines` tells of an engine's CUDA calls: the metrics' numbers, and the streams behind them.
//!
//! Owns: the shape. Refuses: the numbers. Streams are told here alone: as a label they would have no bound.

use super::metrics::{Copies, CudaCalls, DIRECTIONS};
use serde::Serialize;
use std::collections::BTreeMap;

/// CUDA calls of an engine since they are counted.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CudaStatus {
    /// Kernels launched one by one.
    pub kernel_launches: u64,
    /// Graphs launched.
    pub graph_launches: u64,
    /// By direction.
    pub copies: BTreeMap<&'static str, Copies>,
    /// Allocations that were made.
    pub allocations: u64,
    /// Allocations that failed.
    pub alloc_failures: u64,
    /// Frees of memory whose allocation was not seen.
    pub unknown_frees: u64,
    /// Bytes held, of allocations that were seen; absent when there were more than are followed.
    pub allocated_bytes: Option<u64>,
    /// Waits.
    pub syncs: u64,
    /// How long they took.
    pub sync_s: f64,
    /// What went to which stream, busiest first; of processes that are still there.
    pub streams: Vec<CudaStream>,
}

/// What went to a stream.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct CudaStream {
    /// Process.
    pub pid: u32,
    /// Its handle; `default`; or `other`: all those for which there was no room.
    pub stream: String,
    /// Kernels launched.
    pub kernel_launches: u64,
    /// Graphs launched.
    pub graph_launches: u64,
    /// Copies.
    pub copies: u64,
    /// Bytes of them.
    pub copied_bytes: u64,
}

impl CudaStatus {
    /// From what was counted.
    pub fn new(calls: &CudaCalls, allocated_bytes: Option<u64>, streams: Vec<CudaStream>) -> CudaStatus {
        CudaStatus {
            kernel_launches: calls.kernel_launches,
            graph_launches: calls.graph_launches,
            copies: DIRECTIONS.into_iter().zip(calls.copies).collect(),
            allocations: calls.allocations,
            alloc_failures: calls.alloc_failures,
            unknown_frees: calls.unknown_frees,
            allocated_bytes,
            syncs: calls.syncs,
            sync_s: calls.sync_ns as f64 / 1e9,
            streams,
        }
    }
}

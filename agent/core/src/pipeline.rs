//! The façade: one event in, observations out; all state bounded.
//!
//! Owns: routing of events to connections, limits and eviction. Refuses: I/O and clocks; time arrives with the events.

use crate::{Event, Nanos, Observation};

/// Bounds of the pipeline's state, and what the timeline needs to know.
#[derive(Debug, Clone)]
pub struct PipelineConfig {
    /// Connections tracked at once; the least recently active is evicted past it.
    pub max_connections: usize,
    /// Nanoseconds without a byte after which an open exchange is given up as `timeout`.
    pub idle_timeout_ns: Nanos,
    /// Requests in flight on one connection (pipelining) before the oldest is given up.
    pub max_pipelined: usize,
    /// Tokens a request whose times are kept one by one; later ones are counted but their gaps are not.
    pub max_token_times: usize,
}

impl Default for PipelineConfig {
    fn default() -> Self {
        PipelineConfig {
            max_connections: 16_384,
            idle_timeout_ns: 600_000_000_000,
            max_pipelined: 64,
            max_token_times: 16_384,
        }
    }
}

/// The core's façade.
#[derive(Debug)]
pub struct Pipeline {
    _config: PipelineConfig,
}

impl Pipeline {
    /// An empty pipeline.
    pub fn new(config: PipelineConfig) -> Pipeline {
        Pipeline { _config: config }
    }

    /// Takes one event.
    pub fn handle(&mut self, _event: Event<'_>, _out: &mut Vec<Observation>) {}

    /// Time has passed: expires what has gone stale, flushes token counts. Call it about every 100 ms.
    pub fn advance(&mut self, _now: Nanos, _out: &mut Vec<Observation>) {}
}

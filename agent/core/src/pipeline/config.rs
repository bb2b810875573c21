//! Bounds of the pipeline, and what it tells about itself.
//!
//! Owns: the numbers' meaning and defaults. Refuses: enforcing them (`pipeline`).

use super::Pipeline;
use crate::{
    DiagnosisConfig, Nanos, PrefixConfig, PressureConfig, SceneRules,
    capacity::DEFAULT_HALF_LIFE_NS,
    client::Proxies,
    content::{ContentRules, HeardLimits},
    pods::{DEFAULT_MAX_PODS, PodStats},
};
use std::sync::Arc;

/// Bounds of the pipeline's state, and what the timeline needs to know.
#[derive(Debug, Clone)]
pub struct PipelineConfig {
    /// Connections tracked at once; the least recently active is evicted past it.
    pub max_connections: usize,
    /// Bytes of state at once, by estimate; the least recently active connections are evicted past it.
    pub max_state_bytes: usize,
    /// Nanoseconds without a byte after which an open exchange is given up as `timeout`.
    pub idle_timeout_ns: Nanos,
    /// Requests in flight on one connection (pipelining) before the oldest is given up.
    pub max_pipelined: usize,
    /// Tokens a request whose times are kept one by one; later ones are counted but their gaps are not.
    pub max_token_times: usize,
    /// Believe what engines tell beyond their clients' sockets: the messages between their processes, and calls within
    /// them. Without it, no number has [`Source::Engine`](crate::Source::Engine).
    pub engine_hooks: bool,
    /// From which share of its time on something is the cause of a request's slowness.
    pub diagnosis: DiagnosisConfig,
    /// Nanoseconds after which an observation counts half in an engine's capacity table.
    pub capacity_half_life_ns: Nanos,
    /// Infer when the scheduler started a request where the engine does not tell; marked as
    /// [`Source::Estimate`](crate::Source::Estimate).
    pub estimates: bool,
    /// What requests are for. Those in flight keep the rules that they began with.
    pub scenes: Arc<SceneRules>,
    /// Whose word is taken for who their client is.
    pub proxies: Arc<Proxies>,
    /// Pods that are known at once by their addresses; further ones are refused, and counted.
    pub max_pods: usize,
    /// Lower-case name of the header that comes before all others in naming a request's trace.
    pub trace_header: Option<Box<str>>,
    /// When an engine is short of memory.
    pub pressure: PressureConfig,
    /// Ask for counts of tokens ([`Observation::Count`](crate::Observation::Count)) where neither the engine nor the
    /// response tells them. Somebody must answer; until then what was said is kept, and the records wait.
    pub count: bool,
    /// Nanoseconds that a record waits for its count.
    pub count_wait_ns: Nanos,
    /// Bytes of one request that are kept to be counted.
    pub count_request_bytes: usize,
    /// Bytes that are kept of all requests together.
    pub count_bytes: usize,
    /// Of which scenes content is kept. Of requests in flight when it changes, what both allow.
    pub content: Arc<ContentRules>,
    /// How much content is held while requests are under way.
    pub content_limits: HeardLimits,
    /// Whether prompts are compared with those before them, and what may be kept for that.
    pub prefix: PrefixConfig,
}

impl Default for PipelineConfig {
    fn default() -> Self {
        PipelineConfig {
            max_connections: 16_384,
            max_state_bytes: 128 * 1024 * 1024,
            idle_timeout_ns: 600_000_000_000,
            max_pipelined: 64,
            max_token_times: 16_384,
            engine_hooks: true,
            diagnosis: DiagnosisConfig::default(),
            capacity_half_life_ns: DEFAULT_HALF_LIFE_NS,
            estimates: true,
            scenes: Arc::default(),
            proxies: Arc::default(),
            max_pods: DEFAULT_MAX_PODS,
            trace_header: None,
            pressure: PressureConfig::default(),
            count: false,
            count_wait_ns: 2_000_000_000,
            count_request_bytes: 4 * 1024 * 1024,
            count_bytes: 64 * 1024 * 1024,
            content: Arc::default(),
            content_limits: HeardLimits {
                one: 2 * 1024 * 1024,
                all: 64 * 1024 * 1024,
            },
            prefix: PrefixConfig::default(),
        }
    }
}

impl Pipeline {
    /// Other rules for the requests that begin from now on.
    pub fn set_scenes(&mut self, scenes: Arc<SceneRules>) {
        self.config.scenes = scenes;
    }

    /// Other rules of whose content is kept, and how much is held, for the requests that begin from now on.
    pub fn set_content(&mut self, content: Arc<ContentRules>, limits: HeardLimits) {
        self.config.content = content;
        self.config.content_limits = limits;
    }

    /// Another header that names traces, for the requests that begin from now on.
    pub fn set_trace_header(&mut self, header: Option<Box<str>>) {
        self.config.trace_header = header;
    }

    /// Other proxies to believe, for the requests that begin from now on.
    pub fn set_proxies(&mut self, proxies: Arc<Proxies>) {
        self.config.proxies = proxies;
    }
}

/// What the pipeline holds, for the agent's own metrics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PipelineStats {
    /// Connections whose bytes are read.
    pub connections: usize,
    /// Connections that are known only to be ignored.
    pub ignored: usize,
    /// Requests told as started and not yet as finished.
    pub in_flight: usize,
    /// Bytes of state, by estimate.
    pub state_bytes: usize,
    /// Pods.
    pub pods: PodStats,
}

impl Pipeline {
    /// What it holds of pods; [`PipelineStats`] without the sum over all that it holds.
    pub fn pods(&self) -> PodStats {
        self.pods.stats()
    }
}

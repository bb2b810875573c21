//! One request, finished: the record that the API, the store and the recordings' expectations print.
//!
//! Owns: its shape and its JSON. Refuses: computing any of it (the timeline's work). What is not known is `None`
//! (`null`), never zero.

use crate::{Diagnosis, Nanos, TraceSource, money::Cost};
use serde::{Deserialize, Serialize};
use std::{net::IpAddr, sync::Arc};

/// How a request ended. `status` label of `llm_requests_total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// A complete 2xx response without an error in its stream.
    Ok,
    /// The server refused it: 4xx.
    ClientError,
    /// The server failed it: 5xx, an error object in the stream, or a response that the server broke off.
    ServerError,
    /// The client went away before the response was complete.
    Cancelled,
    /// 408 or 504, or an open exchange that saw no byte for the configured time.
    Timeout,
    /// Loss, late join or eviction: what happened is not fully known. Durations are not observed.
    Incomplete,
}

impl Status {
    /// Every status, in label order.
    pub const ALL: [Status; 6] = [
        Status::Ok,
        Status::ClientError,
        Status::ServerError,
        Status::Cancelled,
        Status::Timeout,
        Status::Incomplete,
    ];

    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Status::Ok => "ok",
            Status::ClientError => "client_error",
            Status::ServerError => "server_error",
            Status::Cancelled => "cancelled",
            Status::Timeout => "timeout",
            Status::Incomplete => "incomplete",
        }
    }
}

/// Where a number came from, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The engine's own messages or calls.
    Engine,
    /// The response said so.
    Usage,
    /// We counted with the model's tokenizer.
    Tokenizer,
    /// Content-bearing chunks.
    Chunk,
    /// Inferred.
    Estimate,
}

impl Source {
    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Source::Engine => "engine",
            Source::Usage => "usage",
            Source::Tokenizer => "tokenizer",
            Source::Chunk => "chunk",
            Source::Estimate => "estimate",
        }
    }
}

/// Where each derived number of a record came from; absent where the number is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sources {
    /// Source of T1.
    pub t1: Option<Source>,
    /// Source of T2.
    pub t2: Option<Source>,
    /// Source of T3.
    pub t3: Option<Source>,
    /// Source of `input_tokens`.
    pub input_tokens: Option<Source>,
    /// Source of `output_tokens`.
    pub output_tokens: Option<Source>,
}

/// One request. Times are CLOCK_MONOTONIC nanoseconds, durations seconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RequestRecord {
    /// Our id: 16 hex digits, unique while the agent runs.
    pub id: String,
    /// W3C trace id, 32 lower-case hex digits: that of the request's headers, else made from `id`.
    pub trace_id: String,
    /// Where `trace_id` came from; `derived` in the JSON of a version that did not tell.
    #[serde(default)]
    pub trace_source: TraceSource,
    /// The span that asked, 16 lower-case hex digits, where the headers name it.
    pub parent_span_id: Option<String>,
    /// The response's own `id`.
    pub response_id: Option<String>,
    /// Engine instance id.
    pub engine: Arc<str>,
    /// Model: what the request asked for, else what the response or the engine said, else `unknown`.
    pub model: Arc<str>,
    /// Scene.
    pub scene: Arc<str>,
    /// Address of who sent it, without port; absent on Unix sockets, and where it was not told or a trusted proxy hides it.
    pub client: Option<IpAddr>,
    /// Namespace of the pod that had this address when the request came; absent where no pod is known by it.
    pub client_namespace: Option<Arc<str>>,
    /// Name of that pod.
    pub client_pod: Option<Arc<str>>,
    /// Name of what that pod belongs to, as of its Deployment.
    pub client_workload: Option<Arc<str>>,
    /// Kind of that, as in `Deployment`.
    pub client_workload_kind: Option<Arc<str>>,
    /// Protocol name, as in `openai_chat`.
    pub protocol: String,
    /// The response was a stream of events.
    pub streamed: bool,
    /// How it ended.
    pub status: Status,
    /// HTTP status code, when a response head was seen.
    pub http_status: Option<u16>,
    /// `stop`, `length`, `tool_calls`… of the first choice that told one.
    pub finish_reason: Option<String>,
    /// First byte of the request reached the server: its socket, where the kernel tells, else its read.
    pub t0_ns: Option<Nanos>,
    /// The scheduler started it.
    pub t1_ns: Option<Nanos>,
    /// First token exists.
    pub t2_ns: Option<Nanos>,
    /// Last token exists.
    pub t3_ns: Option<Nanos>,
    /// Last byte of the response left.
    pub t4_ns: Option<Nanos>,
    /// T1 − T0.
    pub queue_s: Option<f64>,
    /// T2 − T1.
    pub prefill_s: Option<f64>,
    /// T3 − T2.
    pub decode_s: Option<f64>,
    /// Time in the tokenizer.
    pub tokenize_s: Option<f64>,
    /// First content-bearing chunk − T0.
    pub ttft_s: Option<f64>,
    /// (T3 − T2) / (output tokens − 1).
    pub tpot_s: Option<f64>,
    /// T4 − T0.
    pub e2e_s: Option<f64>,
    /// Prompt tokens.
    pub input_tokens: Option<u64>,
    /// Generated tokens.
    pub output_tokens: Option<u64>,
    /// Prompt tokens that came from the prefix cache.
    pub cached_input_tokens: Option<u64>,
    /// Generated tokens that were reasoning.
    pub reasoning_tokens: Option<u64>,
    /// Content-bearing chunks.
    pub chunks: u64,
    /// Bytes of the request, head and body as on the wire.
    pub request_bytes: u64,
    /// Bytes of the response, head and body as on the wire.
    pub response_bytes: u64,
    /// Sources of the numbers.
    pub sources: Sources,
    /// How far T1 may be off, either way, seconds, where it is inferred (its source is `estimate`); absent otherwise. An
    /// estimate itself: docs/inference.md tells how often it held.
    pub t1_error_s: Option<f64>,
    /// Allocations of GPU memory that failed in its engine while it was in flight; absent where the engine's CUDA calls are
    /// not seen.
    pub gpu_alloc_failures: Option<u64>,
    /// Why it is not fully known: `late_join`, `gap_in`, `gap_out`, `evicted`, …; empty when it is.
    pub incomplete: Vec<String>,
    /// Where its time went; absent when nothing is known of that.
    pub diagnosis: Option<Diagnosis>,
    /// What its tokens cost; absent where none is known, and without a price for its model.
    pub cost: Option<Cost>,
    /// Energy of GPUs that went into it, joules. It comes some seconds after the end; absent before, where the driver tells
    /// no energy, and where a part is not known.
    pub energy_j: Option<f64>,
}

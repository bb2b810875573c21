//! What the core tells: observations, to be exported by whoever likes.
//!
//! Owns: their list. Refuses: metric names and label caps (the exporters').

use crate::content::Heard;
use crate::prefix::PrefixReport;
use crate::{
    CountJob, CountOutcome, Nanos, RequestRecord, Source,
    capacity::CapacityReport,
    event::ConnId,
    gateway::{GatewayExchange, Joined},
    gpu::GpuShare,
    money::Charge,
    pressure::PressureReport,
};
use serde::Serialize;
use std::{net::IpAddr, sync::Arc};

/// Something that did not fit. `kind` label of `infertap_anomalies_total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Anomaly {
    /// The first bytes of a connection are no protocol that is known here.
    NotHttp,
    /// TLS without a TLS probe.
    Tls,
    /// HTTP/2 with prior knowledge, not decoded yet.
    Http2,
    /// A request head that does not parse, or is larger than the limit.
    BadRequestHead,
    /// A response head that does not parse, or is larger than the limit.
    BadResponseHead,
    /// Chunked framing that does not parse.
    BadChunk,
    /// An event-stream line or event larger than the limit.
    OversizeEvent,
    /// A JSON body or event that does not parse or has another shape.
    BadJson,
    /// A content encoding that is not decoded here.
    UnsupportedEncoding,
    /// A response without a request.
    UnexpectedResponse,
    /// Bytes missing from a stream.
    Gap,
    /// Bytes that were there already, or out of order.
    Overlap,
    /// State dropped to stay within bounds.
    Evicted,
    /// A clock value before one that it must follow.
    TimeWentBack,
    /// A message between an engine's own processes that fits no layout known here.
    EngineMessage,
    /// A step, a burst of CUDA calls or a reading of a GPU that came when its time had been accounted for.
    GpuLate,
}

impl Anomaly {
    /// Every anomaly, in declaration order.
    pub const ALL: [Anomaly; 16] = [
        Anomaly::NotHttp,
        Anomaly::Tls,
        Anomaly::Http2,
        Anomaly::BadRequestHead,
        Anomaly::BadResponseHead,
        Anomaly::BadChunk,
        Anomaly::OversizeEvent,
        Anomaly::BadJson,
        Anomaly::UnsupportedEncoding,
        Anomaly::UnexpectedResponse,
        Anomaly::Gap,
        Anomaly::Overlap,
        Anomaly::Evicted,
        Anomaly::TimeWentBack,
        Anomaly::EngineMessage,
        Anomaly::GpuLate,
    ];

    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Anomaly::NotHttp => "not_http",
            Anomaly::Tls => "tls",
            Anomaly::Http2 => "http2",
            Anomaly::BadRequestHead => "bad_request_head",
            Anomaly::BadResponseHead => "bad_response_head",
            Anomaly::BadChunk => "bad_chunk",
            Anomaly::OversizeEvent => "oversize_event",
            Anomaly::BadJson => "bad_json",
            Anomaly::UnsupportedEncoding => "unsupported_encoding",
            Anomaly::UnexpectedResponse => "unexpected_response",
            Anomaly::Gap => "gap",
            Anomaly::Overlap => "overlap",
            Anomaly::Evicted => "evicted",
            Anomaly::TimeWentBack => "time_went_back",
            Anomaly::EngineMessage => "engine_message",
            Anomaly::GpuLate => "gpu_late",
        }
    }
}

/// Which way tokens went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TokenDirection {
    /// Prompt.
    Input,
    /// Generated.
    Output,
}

impl TokenDirection {
    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            TokenDirection::Input => "input",
            TokenDirection::Output => "output",
        }
    }
}

/// The labels that every request-shaped observation shares.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Labels {
    /// Engine instance id.
    pub engine: Arc<str>,
    /// Served model.
    pub model: Arc<str>,
    /// Scene.
    pub scene: Arc<str>,
}

/// What the core tells.
#[derive(Debug, Clone)]
pub enum Observation {
    /// A request is now in flight. Exactly one [`Observation::Finished`] with the same engine and model follows.
    Started(Labels),
    /// Tokens appeared since the last such observation of the same request. Sent in small batches while a response
    /// streams and once more at its end, so that the sum over a request is its reconciled count. Counters only add.
    Tokens {
        /// The request, as [`Finished::id`].
        request: u64,
        /// Whose.
        labels: Labels,
        /// Who sent the request, as its record will tell.
        client: Option<IpAddr>,
        /// Which way.
        direction: TokenDirection,
        /// How many more.
        count: u64,
    },
    /// A request ended.
    Finished(Box<Finished>),
    /// Something did not fit, `count` times.
    Anomaly {
        /// What.
        kind: Anomaly,
        /// How often.
        count: u64,
    },
    /// An engine's scheduler told how it is doing.
    Engine(Box<EngineReport>),
    /// An engine made a step. Steps of one engine core come in order, but may be told later than the requests that ended
    /// with them: what a step held can take the messages of those after it to know.
    Step(Box<EngineStep>),
    /// How long an engine's requests wait, by how many it has; told at most once a second.
    Capacity(Box<CapacityReport>),
    /// How short of memory an engine is; told when that changes, and every few seconds.
    Pressure(Box<PressureReport>),
    /// How much of a scene's prompts begins like prompts before them; told when that changes, at most once a second.
    Prefix(Box<PrefixReport>),
    /// Whether the messages between an engine's own processes are understood; told when it changes.
    EngineMessages {
        /// Engine instance id.
        engine: Arc<str>,
        /// The last one was.
        understood: bool,
    },
    /// Tokenizer calls whose request has ended, or will not be known any more, since this was last told.
    TokenizerCalls {
        /// They are in a request's record.
        tied: u64,
        /// They are in none: they could be several requests', or came from no request that was seen.
        unassigned: u64,
    },
    /// Time and energy of GPUs have found whose they were.
    Gpu(GpuShare),
    /// Tokens are to be counted, which the core can't. It waits for [`EventKind::Counted`](crate::EventKind::Counted) with
    /// the job's id, for a while.
    Count(Box<CountJob>),
    /// How an attempt to count ended: with a count, or with a lesser source and why.
    TokenCount(CountOutcome),
    /// Money was spent. Told by [`Money`](crate::Money), behind the pipeline.
    Charge(Box<Charge>),
    /// Tokens were told for which the price book has no price. Told by [`Money`](crate::Money).
    Unpriced {
        /// Whose.
        labels: Labels,
        /// Which way.
        direction: TokenDirection,
        /// How many.
        count: u64,
    },
    /// A gateway served an inference request. It is no request of its own: the engine's is.
    Gateway(Box<GatewayExchange>),
    /// A request that ended came by way of a gateway. [`Observation::Finished`] may come later.
    Joined(Box<Joined>),
    /// The core has no use for the bytes of this connection: the kernel side may stop copying them.
    Ignore(ConnId),
}

/// What an engine's scheduler told after a step.
#[derive(Debug, Clone, PartialEq)]
pub struct EngineReport {
    /// Engine instance id.
    pub engine: Arc<str>,
    /// The model that it is known to serve.
    pub model: Option<Arc<str>>,
    /// How busy it is; absent where this step did not tell.
    pub load: Option<EngineLoad>,
    /// Prompt tokens looked up in the prefix cache since the last report.
    pub prefix_queried_tokens: u64,
    /// Those of them that were found.
    pub prefix_hit_tokens: u64,
    /// Requests put back into the queue since the last report.
    pub preemptions: u64,
}

/// How busy an engine is: all its engine cores together.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct EngineLoad {
    /// Requests that run.
    pub running: u64,
    /// Requests that wait for the scheduler.
    pub waiting: u64,
    /// Used part of the key-value cache, 0 to 1; the mean over the engine cores.
    pub kv_cache_usage: Option<f64>,
}

/// One pass of an engine over a batch of requests.
#[derive(Debug, Clone, PartialEq)]
pub struct EngineStep {
    /// Engine instance id.
    pub engine: Arc<str>,
    /// The model that it is known to serve.
    pub model: Option<Arc<str>>,
    /// When it began; absent where nothing tells whether the engine worked all the time before `end`.
    pub start: Option<Nanos>,
    /// When its tokens existed.
    pub end: Nanos,
    /// What it did; absent where requests may have been in it of which nothing is known.
    pub kind: Option<StepKind>,
    /// Prompt tokens that it computed.
    pub prefill_tokens: Option<u64>,
    /// Tokens that it gave to requests which had one before; several a request with speculative decoding.
    pub decode_tokens: Option<u64>,
    /// Requests in it: the batch size.
    pub requests: Option<u64>,
    /// Where all this comes from.
    pub source: Source,
}

impl EngineStep {
    /// `end` − `start`, seconds.
    pub fn seconds(&self) -> Option<f64> {
        Some(self.end.checked_sub(self.start?)? as f64 / 1e9)
    }
}

/// What a step did for the requests in it. `kind` label of `llm_engine_step_seconds` and `llm_batch_size`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StepKind {
    /// Read prompts only.
    Prefill,
    /// Generated only.
    Decode,
    /// Both.
    Mixed,
}

impl StepKind {
    /// Every kind, in label order.
    pub const ALL: [StepKind; 3] = [StepKind::Prefill, StepKind::Decode, StepKind::Mixed];

    /// That of a step in which so many requests read their prompt and so many generated; `None`: nothing did.
    pub const fn of(prefilling: u64, decoding: u64) -> Option<StepKind> {
        match (prefilling, decoding) {
            (0, 0) => None,
            (_, 0) => Some(StepKind::Prefill),
            (0, _) => Some(StepKind::Decode),
            _ => Some(StepKind::Mixed),
        }
    }

    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            StepKind::Prefill => "prefill",
            StepKind::Decode => "decode",
            StepKind::Mixed => "mixed",
        }
    }
}

/// A finished request with what does not belong in its record.
#[derive(Debug, Clone)]
pub struct Finished {
    /// The request, for as long as the agent runs; in hexadecimal digits the record's `id`.
    pub id: u64,
    /// The labels it was [`Observation::Started`] with.
    pub labels: Labels,
    /// The record.
    pub record: RequestRecord,
    /// Gaps between successive tokens: seconds, and how many tokens share the gap (a chunk with k tokens is k gaps of 1/k).
    pub gaps: Vec<(f64, u32)>,
    /// The token that the first gap follows; absent where the gaps are of several choices, which decode side by side.
    pub gaps_from: Option<Nanos>,
    /// Requests that the engine had in flight when this one arrived, itself not counted; absent where that was not seen.
    pub in_flight_at_arrival: Option<u64>,
    /// Source of the counts, per direction, for `llm_token_source_total`.
    pub token_sources: [(TokenDirection, Option<Source>); 2],
    /// What it and its answer said, where the rules of content may keep it of its scene.
    pub content: Option<Arc<Heard>>,
}

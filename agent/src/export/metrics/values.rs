//! What the values of the bounded labels mean, for the reference; and the losses that are the agent's own.
//!
//! Owns: the words. Refuses: the values themselves, which their enums own. Each match is exhaustive, so a new value
//! that is not explained does not compile.

use infertap_abi::DropReason;
use infertap_core::{Anomaly, Cause, Source, Status, observation::StepKind};

/// Why the user side lost an event; `reason` of `infertap_events_dropped_total`, beside the kernel's [`DropReason`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgentLoss {
    /// A record from the kernel that is none of this version's.
    Decode,
    /// A recorder that did not keep up.
    Recorder,
    /// A reason in a recording that this version does not know.
    Other,
}

impl AgentLoss {
    /// Every loss.
    pub const ALL: [AgentLoss; 3] = [AgentLoss::Decode, AgentLoss::Recorder, AgentLoss::Other];

    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            AgentLoss::Decode => "decode",
            AgentLoss::Recorder => "recorder",
            AgentLoss::Other => "other",
        }
    }
}

/// Every source, best first.
pub(super) const SOURCES: [Source; 5] = [
    Source::Engine,
    Source::Usage,
    Source::Tokenizer,
    Source::Chunk,
    Source::Estimate,
];

pub(super) const fn status(status: Status) -> &'static str {
    match status {
        Status::Ok => "A complete 2xx response without an error in its stream.",
        Status::ClientError => "The server refused it: 4xx.",
        Status::ServerError => {
            "The server failed it: 5xx, an error object in the stream, or a response that the server broke off."
        }
        Status::Cancelled => "The client went away before the response was complete.",
        Status::Timeout => {
            "408 or 504, or an open exchange that saw no byte for the configured time (`capture.idle_timeout`)."
        }
        Status::Incomplete => {
            "Loss, late join or eviction: what happened is not fully known, so its durations are not observed."
        }
    }
}

pub(super) const fn cause(cause: Cause) -> &'static str {
    match cause {
        Cause::Queue => {
            "Waiting for the engine's scheduler: it had more requests than it runs at once. Add replicas, or let it run more \
             (`llm_capacity_concurrency` tells how many that is)."
        }
        Cause::Prefill => {
            "Reading the prompt, which is long for the answer that follows. Shorten prompts, or make them share a prefix that \
             the engine caches."
        }
        Cause::Decode => {
            "Generating. Where a healthy request of some length spends its time: no trouble by itself. When it is slow too \
             (`llm_tpot_seconds`), the batch is large or the model is."
        }
        Cause::Interference => {
            "Standing still between tokens while the engine read the prompts of other requests; the record's diagnosis tells \
             whose. Chunked prefill with smaller chunks, or another engine for long prompts, makes it less."
        }
        Cause::Client => {
            "The client did not read: its socket would not take more. Nothing that the engine does makes it faster."
        }
    }
}

pub(super) const fn source(source: Source) -> &'static str {
    match source {
        Source::Engine => "The engine's own messages or calls.",
        Source::Usage => "The response said so.",
        Source::Tokenizer => "Counted with the model's tokenizer.",
        Source::Chunk => "Content-bearing chunks, each taken for a token.",
        Source::Estimate => "Inferred.",
    }
}

pub(super) const fn step_kind(kind: StepKind) -> &'static str {
    match kind {
        StepKind::Prefill => "Prompts were read, wholly or in part; nothing else.",
        StepKind::Decode => "Every request in it got tokens after its first.",
        StepKind::Mixed => "Both: prompts were read while others generated.",
    }
}

/// What the unknown kind means.
pub(super) const UNKNOWN_STEP: &str = "Requests may have been in it of which the engine's messages tell nothing, as while a long prompt is read in pieces.";

pub(super) const fn kernel_drop(reason: DropReason) -> &'static str {
    match reason {
        DropReason::RingFull => {
            "The ring buffer had no room: the agent did not get the processor in time. Give it more CPU, or a larger \
             ring (`capture.ring_bytes`)."
        }
        DropReason::FdTableFull => {
            "The table of descriptors was full: the observed processes hold more than it has room for. Observe fewer."
        }
        DropReason::ConnTableFull => {
            "The table of connections was full: the observed processes hold more than it has room for. Observe fewer."
        }
        DropReason::CallTableFull => {
            "The table of system calls in progress was full: too many threads in one call."
        }
        DropReason::ReadFault => {
            "A buffer of the process could not be read: paged out, or unmapped by another thread. Rare and harmless alone."
        }
        DropReason::Budget => {
            "One call moved more buffers or bytes than the programs walk; the rest of it is counted and not seen."
        }
        DropReason::CudaStreams => {
            "The table of CUDA calls had no room for another stream: its calls are counted, but not by stream."
        }
        DropReason::CudaAllocations => {
            "The table of GPU allocations was full: `cuda_allocated_bytes` of the process is absent from then on."
        }
    }
}

pub(super) const fn agent_loss(loss: AgentLoss) -> &'static str {
    match loss {
        AgentLoss::Decode => {
            "A record that this version does not understand: agent and BPF object do not match."
        }
        AgentLoss::Recorder => {
            "A recorder did not keep up and left records out of the recording. Live metrics are not touched by it; a \
             replay lacks these records."
        }
        AgentLoss::Other => "In replays: lost for a reason that this version does not know.",
    }
}

/// Outcomes of tokenizer calls: tied, then unassigned.
pub(super) const TOKENIZER_CALLS: [(&str, &str); 2] = [
    (
        "tied",
        "Its time is in the record of the request that it was for.",
    ),
    (
        "unassigned",
        "It was for no request that was seen (the engine's start, its tokenize endpoint), or could be for several that \
         came at once with as many tokens.",
    ),
];

/// Outcomes of counts, in the order of `CountOutcome::ALL`.
pub(super) const TOKEN_COUNTS: [(&str, &str); 8] = [
    ("counted", "With the model's tokenizer."),
    (
        "queue_full",
        "Estimated: too many requests waited to be counted (`tokens.queue`).",
    ),
    (
        "late",
        "Estimated: the count did not come in time (`tokens.wait`).",
    ),
    (
        "no_tokenizer",
        "Estimated: the engine's tokenizer was not found or can't be used; the log says why. `tokens.files` can name one.",
    ),
    (
        "unsupported",
        "Estimated, or absent where there are images or audio: the request holds what can't be counted from outside.",
    ),
    (
        "failed",
        "Estimated: the tokenizer or the chat template failed on it.",
    ),
    (
        "too_large",
        "Absent: the request was larger than is kept (`tokens.request_bytes`), or there was no room (`tokens.memory`).",
    ),
    ("incomplete", "Absent: part of the request was not seen."),
];

pub(super) const fn anomaly(kind: Anomaly) -> &'static str {
    match kind {
        Anomaly::NotHttp => "The first bytes of a connection are no protocol that is known here.",
        Anomaly::Tls => "TLS on a socket that no TLS probe reads.",
        Anomaly::Http2 => "HTTP/2 with prior knowledge, which is not decoded.",
        Anomaly::BadRequestHead => "A request head that does not parse, or is larger than the limit.",
        Anomaly::BadResponseHead => "A response head that does not parse, or is larger than the limit.",
        Anomaly::BadChunk => "Chunked framing that does not parse.",
        Anomaly::OversizeEvent => "An event-stream line or event larger than the limit.",
        Anomaly::BadJson => "A JSON body or event that does not parse, or has another shape.",
        Anomaly::UnsupportedEncoding => "A content encoding that is not decoded here.",
        Anomaly::UnexpectedResponse => "A response without a request.",
        Anomaly::Gap => "Bytes missing from a stream: see the dropped events.",
        Anomaly::Overlap => "Bytes that were there already, or out of order.",
        Anomaly::Evicted => "State dropped to stay within bounds (`capture.max_connections`).",
        Anomaly::TimeWentBack => "A time before one that it must follow; the duration is not observed.",
        Anomaly::EngineMessage => {
            "A message between an engine's own processes that fits no layout known here; see `infertap_engine_coverage`."
        }
        Anomaly::GpuLate => {
            "A step, a burst of CUDA calls or a reading of a GPU that came when its time had been accounted for."
        }
    }
}

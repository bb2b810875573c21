//! What is told of gateways: one exchange of theirs, and its part in the record of an engine's request.
//!
//! Owns: the shapes and their JSON. Refuses: which belongs to which (`evidence`).

use crate::{Nanos, RequestRecord, Status, TraceSource};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// What says that an exchange of a gateway was for a request of an engine; the strongest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JoinedBy {
    /// Both responses have the same id.
    Response,
    /// The headers of both requests name the same trace.
    Trace,
    /// Both requests have the same body, and no other could be meant.
    Content,
}

impl JoinedBy {
    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            JoinedBy::Response => "response",
            JoinedBy::Trace => "trace",
            JoinedBy::Content => "content",
        }
    }
}

/// Whether the engine's part of a gateway's exchange was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GatewayOutcome {
    /// A request of an engine on this host was for it; several, where the gateway tried again.
    Joined,
    /// No engine on this host had a request for it: the gateway answered by itself, or an engine elsewhere did.
    NoEngine,
    /// There were requests that may have been for it, and nothing told them apart.
    Ambiguous,
}

impl GatewayOutcome {
    /// The value of the `engine` label.
    pub const fn as_str(self) -> &'static str {
        match self {
            GatewayOutcome::Joined => "joined",
            GatewayOutcome::NoEngine => "none",
            GatewayOutcome::Ambiguous => "ambiguous",
        }
    }
}

/// One inference request that a gateway served. Times are CLOCK_MONOTONIC nanoseconds. What is not known is absent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GatewayExchange {
    /// Our id: 16 hex digits, unique while the agent runs; the id of its span.
    pub id: String,
    /// The gateway's id, as in `nginx-8080`.
    pub gateway: Arc<str>,
    /// The trace that its headers name, 32 lower-case hex digits; else one made from `id`.
    pub trace_id: String,
    /// Where `trace_id` came from.
    pub trace_source: TraceSource,
    /// The span that asked, where the headers name it: 16 lower-case hex digits.
    pub parent_span_id: Option<String>,
    /// The response's own `id`.
    pub response_id: Option<String>,
    /// Model: what the request asked for, else what the response said, else `unknown`.
    pub model: Arc<str>,
    /// Protocol name, as in `openai_chat`.
    pub protocol: String,
    /// How it ended towards the client.
    pub status: Status,
    /// HTTP status code that the client got.
    pub http_status: Option<u16>,
    /// First byte of the request reached the gateway.
    pub t0_ns: Option<Nanos>,
    /// First byte of the response left the gateway.
    pub first_byte_ns: Option<Nanos>,
    /// Last byte of the response left the gateway.
    pub t4_ns: Option<Nanos>,
    /// Whether the engine's part was found.
    pub outcome: GatewayOutcome,
}

/// The gateway's part in the record of a request that came by way of it. It is the parent of the request's own span.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GatewayPart {
    /// Id of the gateway's exchange: 16 hex digits.
    pub id: String,
    /// The gateway's id, as in `nginx-8080`.
    pub name: Arc<str>,
    /// The span that asked the gateway, where its headers name it.
    pub parent_span_id: Option<String>,
    /// What says that they belong together.
    pub joined_by: JoinedBy,
    /// How the exchange ended towards the client.
    pub status: Status,
    /// HTTP status code that the client got.
    pub http_status: Option<u16>,
    /// First byte of the request reached the gateway, CLOCK_MONOTONIC nanoseconds.
    pub t0_ns: Option<Nanos>,
    /// First byte of the response left the gateway.
    pub first_byte_ns: Option<Nanos>,
    /// Last byte of the response left the gateway.
    pub t4_ns: Option<Nanos>,
    /// From T0 of the gateway to T0 of the engine, seconds: the gateway read the request, chose, connected and sent.
    pub before_s: Option<f64>,
    /// From T4 of the engine to T4 of the gateway, seconds.
    pub after_s: Option<f64>,
}

/// A request of an engine has its gateway's part. Told once for each, when both have ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Joined {
    /// The request, as [`Finished::id`](crate::observation::Finished::id).
    pub request: u64,
    /// The gateway's part.
    pub part: GatewayPart,
    /// The trace that the gateway's headers name, where the request's own name none: its record is of this trace.
    pub trace: Option<JoinedTrace>,
}

impl Joined {
    /// Names the gateway's trace in the request's record, where its own headers named none.
    pub fn name_trace(&self, record: &mut RequestRecord) {
        if let Some(trace) = &self.trace
            && record.trace_source == TraceSource::Derived
        {
            record.trace_id.clone_from(&trace.id);
            record.trace_source = trace.source;
            record.parent_span_id.clone_from(&trace.parent_span_id);
        }
    }
}

/// The trace of a gateway's exchange.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinedTrace {
    /// 32 lower-case hex digits.
    pub id: String,
    /// Which header told.
    pub source: TraceSource,
    /// The span that asked.
    pub parent_span_id: Option<String>,
}

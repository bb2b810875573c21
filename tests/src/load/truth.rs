//! What the client saw of one request: the outside truth that the agent's record is compared with.
//!
//! Owns: the record's shape. Refuses: anything that a client can't see.

use super::Plan;
use serde::{Deserialize, Serialize};

/// How a request ended, seen from the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// A complete response.
    Complete,
    /// The client went away as planned.
    Cancelled,
    /// The server broke the response off, or there was none.
    Broken,
}

/// What llama.cpp says of one request at its end.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names are those of llama.cpp's JSON")]
pub struct Timings {
    /// Prompt tokens that were in the slot's cache.
    #[serde(default)]
    pub cache_n: u64,
    /// Prompt tokens that were computed.
    pub prompt_n: u64,
    pub prompt_ms: f64,
    pub predicted_n: u64,
    pub predicted_ms: f64,
}

/// One request, by the client's clock (CLOCK_MONOTONIC nanoseconds).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClientTruth {
    /// The plan's number.
    pub index: usize,
    /// The plan's name.
    pub name: String,
    /// The trace id that was sent.
    pub trace_id: Option<String>,
    /// The response's own `id`.
    pub response_id: Option<String>,
    /// HTTP status.
    pub status: Option<u16>,
    /// How it ended.
    pub outcome: Outcome,
    /// The response was an event stream.
    pub streamed: bool,
    /// Just before the request was written.
    pub sent_ns: u64,
    /// The `recv` that completed each content-bearing chunk returned.
    pub content_ns: Vec<u64>,
    /// The `recv` that brought the last byte returned, or the client left.
    pub last_ns: u64,
    /// `usage.prompt_tokens`.
    pub prompt_tokens: Option<u64>,
    /// `usage.completion_tokens`.
    pub completion_tokens: Option<u64>,
    /// `usage.prompt_tokens_details.cached_tokens`.
    #[serde(default)]
    pub cached_tokens: Option<u64>,
    /// llama.cpp's `timings`.
    #[serde(default)]
    pub timings: Option<Timings>,
    /// The stream held an error object.
    pub stream_error: bool,
    /// Request bytes on the wire.
    pub request_bytes: u64,
    /// Response bytes on the wire, as far as they were read.
    pub response_bytes: u64,
    /// Earlier attempts that the server's closing of a kept-alive connection left without a byte of response.
    #[serde(default)]
    pub unanswered: u32,
    /// The connection can carry another request.
    pub reusable: bool,
    /// What went wrong.
    pub error: Option<String>,
}

impl ClientTruth {
    /// The truth of a plan that has not been carried out.
    pub(super) fn new(plan: &Plan) -> ClientTruth {
        ClientTruth {
            index: plan.index,
            name: plan.name.clone(),
            trace_id: plan.trace_id.clone(),
            response_id: None,
            status: None,
            outcome: Outcome::Broken,
            streamed: false,
            sent_ns: 0,
            content_ns: Vec::new(),
            last_ns: 0,
            prompt_tokens: None,
            completion_tokens: None,
            cached_tokens: None,
            timings: None,
            stream_error: false,
            request_bytes: 0,
            response_bytes: 0,
            unanswered: 0,
            reusable: false,
            error: None,
        }
    }

    pub(super) fn failed(plan: &Plan, error: String) -> ClientTruth {
        ClientTruth {
            error: Some(error),
            ..ClientTruth::new(plan)
        }
    }

    /// Seconds from sending to the first content-bearing chunk of a stream.
    pub fn ttft_s(&self) -> Option<f64> {
        let first = self.streamed.then(|| self.content_ns.first()).flatten()?;
        Some(first.saturating_sub(self.sent_ns) as f64 / 1e9)
    }

    /// Seconds from sending to the last byte.
    pub fn e2e_s(&self) -> f64 {
        self.last_ns.saturating_sub(self.sent_ns) as f64 / 1e9
    }

    /// The `status` label that the request should get.
    pub fn expected_status(&self) -> &'static str {
        match (self.outcome, self.status) {
            (Outcome::Cancelled, _) => "cancelled",
            (_, Some(408 | 504)) => "timeout",
            (_, Some(400..=499)) => "client_error",
            (Outcome::Complete, Some(200..=299)) if !self.stream_error => "ok",
            _ => "server_error",
        }
    }
}

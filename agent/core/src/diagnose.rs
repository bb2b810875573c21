//! Where a request's time went, and what to do about it: one diagnosis a request.
//!
//! Owns: the shares, their thresholds, the choice of one cause. Refuses: measuring (`timeline`, `inside`, `stalls`,
//! `interference`), and a cause where the time is not known to have gone there.
//!
//! Decode is where a healthy request spends its time, so it is named only when nothing that is amiss is large enough:
//! of `client`, `queue`, `prefill` and `interference`, the largest that reaches its threshold is the cause.

mod interference;
mod peers;
mod stalls;
#[cfg(test)]
pub(crate) mod tests;

pub(crate) use interference::{Gap, Interference, Prefill, interference};
pub(crate) use peers::{Peers, Witness};
pub(crate) use stalls::Stalls;

use crate::{RequestRecord, Source};
use serde::{Deserialize, Serialize};

/// What most of a request's time went into. `cause` label of `llm_bottleneck_total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Waiting for the scheduler: the engine had more requests than it runs at once.
    Queue,
    /// Reading the prompt.
    Prefill,
    /// Generating: what is left when nothing is amiss.
    Decode,
    /// Standing still while the engine read the prompts of other requests.
    Interference,
    /// Waiting for a client that did not read.
    Client,
}

impl Cause {
    /// Every cause, in label order.
    pub const ALL: [Cause; 5] = [
        Cause::Queue,
        Cause::Prefill,
        Cause::Decode,
        Cause::Interference,
        Cause::Client,
    ];

    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Cause::Queue => "queue",
            Cause::Prefill => "prefill",
            Cause::Decode => "decode",
            Cause::Interference => "interference",
            Cause::Client => "client",
        }
    }
}

/// Shares of a request's time from which on each cause is one, 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DiagnosisConfig {
    /// Of waiting for the scheduler.
    pub queue: f64,
    /// Of reading the prompt.
    pub prefill: f64,
    /// Of generating.
    pub decode: f64,
    /// Of standing still for other requests' prompts.
    pub interference: f64,
    /// Of waiting for the client to read.
    pub client: f64,
}

impl Default for DiagnosisConfig {
    fn default() -> Self {
        DiagnosisConfig {
            queue: 0.3,
            prefill: 0.6,
            decode: 0.7,
            interference: 0.2,
            client: 0.3,
        }
    }
}

impl DiagnosisConfig {
    /// The threshold of a cause.
    pub const fn of(&self, cause: Cause) -> f64 {
        match cause {
            Cause::Queue => self.queue,
            Cause::Prefill => self.prefill,
            Cause::Decode => self.decode,
            Cause::Interference => self.interference,
            Cause::Client => self.client,
        }
    }
}

/// A request that others stood still for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Blamed {
    /// Its id; absent while its response has not begun.
    pub id: Option<String>,
    /// Its response's id, where it is known.
    pub response_id: Option<String>,
    /// Its trace: 32 lower-case hex digits; absent where `id` is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
    /// For how long.
    pub seconds: f64,
}

/// Where the time of one request went. Shares are parts of its end-to-end time, 0 to 1; what is not known is `None`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Diagnosis {
    /// What it waited for most, when anything reaches its threshold.
    pub cause: Option<Cause>,
    /// Share of waiting for the scheduler.
    pub queue: Option<f64>,
    /// Share of reading the prompt.
    pub prefill: Option<f64>,
    /// Share of generating, interference included.
    pub decode: Option<f64>,
    /// Share of standing still for other requests' prompts.
    pub interference: Option<f64>,
    /// Share of waiting for the client to read.
    pub client: Option<f64>,
    /// Seconds of interference.
    pub interference_s: Option<f64>,
    /// By whom: the worst few, the worst first.
    pub interference_by: Vec<Blamed>,
    /// Seconds in which the socket would take no more.
    pub client_stall_s: Option<f64>,
    /// Requests that the engine had in flight when this one arrived, itself not counted.
    pub in_flight_at_arrival: Option<u64>,
    /// Those of them that it ran, where its scheduler tells.
    pub running_at_arrival: Option<u64>,
    /// The weakest source of what it rests on.
    pub source: Option<Source>,
}

/// What a diagnosis rests on, beside the record.
#[derive(Debug, Default)]
pub(crate) struct Evidence {
    /// Absent where other requests' prefills are not known.
    pub(crate) interference: Option<Interference>,
    /// Nanoseconds of waiting for the client; absent without a response.
    pub(crate) stalled_ns: Option<u64>,
    /// How much longer than to T4 the last such wait went on, nanoseconds: a client that never read again.
    pub(crate) stalled_after_ns: u64,
    pub(crate) in_flight: Option<u64>,
    pub(crate) running: Option<u64>,
}

/// The diagnosis of `record`; `None` when nothing is known of where its time went.
pub(crate) fn diagnose(
    record: &RequestRecord,
    evidence: Evidence,
    config: &DiagnosisConfig,
) -> Option<Diagnosis> {
    let e2e = record.e2e_s.filter(|e2e| *e2e > 0.0)?;
    let share = |part: Option<f64>, whole: f64| part.map(|part| rounded((part / whole).clamp(0.0, 1.0)));
    let (queue, prefill, decode) = (
        share(record.queue_s, e2e),
        share(record.prefill_s, e2e),
        share(record.decode_s, e2e),
    );
    let stall_s = evidence.stalled_ns.map(seconds);
    let client = share(stall_s, e2e + seconds(evidence.stalled_after_ns));
    if queue.or(prefill).or(decode).is_none() && client.is_none_or(|client| client <= 0.0) {
        return None;
    }
    let interference_s = evidence
        .interference
        .as_ref()
        .map(|found| seconds(found.ns).min(record.decode_s.unwrap_or(0.0)));
    let mut diagnosis = Diagnosis {
        cause: None,
        queue,
        prefill,
        decode,
        interference: share(interference_s, e2e),
        client,
        interference_s,
        interference_by: evidence.interference.map(|found| found.by).unwrap_or_default(),
        client_stall_s: stall_s,
        in_flight_at_arrival: evidence.in_flight,
        running_at_arrival: evidence.running,
        source: weakest(record),
    };
    diagnosis.cause = diagnosis.dominant(config);
    Some(diagnosis)
}

impl Diagnosis {
    /// The share of a cause.
    pub const fn share(&self, cause: Cause) -> Option<f64> {
        match cause {
            Cause::Queue => self.queue,
            Cause::Prefill => self.prefill,
            Cause::Decode => self.decode,
            Cause::Interference => self.interference,
            Cause::Client => self.client,
        }
    }

    /// The largest of what is amiss, else decode; of equal ones the first of this order.
    fn dominant(&self, config: &DiagnosisConfig) -> Option<Cause> {
        const AMISS: [Cause; 4] = [Cause::Client, Cause::Queue, Cause::Prefill, Cause::Interference];
        // A threshold of 0 is not reached by nothing.
        let reached = |cause| {
            self.share(cause)
                .filter(|share| *share > 0.0 && *share >= config.of(cause))
        };
        let mut worst: Option<(Cause, f64)> = None;
        for cause in AMISS {
            if let Some(share) = reached(cause)
                && worst.is_none_or(|(_, most)| share > most)
            {
                worst = Some((cause, share));
            }
        }
        worst
            .map(|(cause, _)| cause)
            .or_else(|| reached(Cause::Decode).map(|_| Cause::Decode))
    }
}

/// Of the points in time that the shares are made from.
fn weakest(record: &RequestRecord) -> Option<Source> {
    let sources = &record.sources;
    let of = |known: bool, source: Option<Source>| source.filter(|_| known);
    let (queue, prefill, decode) = (
        record.queue_s.is_some(),
        record.prefill_s.is_some(),
        record.decode_s.is_some(),
    );
    [
        of(queue || prefill, sources.t1),
        of(prefill || decode, sources.t2),
        of(decode, sources.t3),
    ]
    .into_iter()
    .flatten()
    // Declared best first.
    .max()
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// To a hundredth of a percent: shares are for reading.
fn rounded(share: f64) -> f64 {
    (share * 1e4).round() / 1e4
}

//! What an engine itself knows of one request: the truth that the agent's record is held against.
//!
//! Owns: its shape, and the pairing of the client's requests with the agent's records. Refuses: how an engine tells it
//! (`vllm`, `llama`).

use crate::{
    agent::Record,
    load::{ClientTruth, Outcome},
};

/// One request as its engine tells it. Times are CLOCK_MONOTONIC nanoseconds, durations seconds; absent where the engine
/// tells none.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Known {
    pub(super) input_tokens: Option<u64>,
    pub(super) cached_tokens: Option<u64>,
    /// From and to: of a request that was ended from outside, the engine's processes knew different counts.
    pub(super) output_tokens: Option<(u64, u64)>,
    pub(super) t1: Option<u64>,
    pub(super) t2: Option<u64>,
    /// More than one where the engine's processes knew different last tokens.
    pub(super) t3: Vec<u64>,
    pub(super) prefill_s: Option<f64>,
    pub(super) decode_s: Option<f64>,
    /// The engine's own queue begins here.
    pub(super) entered: Option<u64>,
    /// The engine's `/metrics` count it.
    pub(super) counted: bool,
}

/// One request seen from all sides.
#[derive(Debug, Clone)]
pub(super) struct Case {
    pub(super) client: ClientTruth,
    /// Absent where the engine knows of no such request: it was refused before.
    pub(super) known: Option<Known>,
    /// Absent where the agent has none, or several.
    pub(super) record: Option<Record>,
}

impl Case {
    /// How it is named in the tables.
    pub(super) fn name(&self) -> String {
        format!("{} ({})", self.client.index, self.client.name)
    }

    /// Its response ended before it had an id, by which sockets and engine messages are joined.
    pub(super) fn unanswered(&self) -> bool {
        self.client.response_id.is_none() && self.client.outcome == Outcome::Cancelled
    }

    /// Both timelines, in milliseconds after the client's send.
    pub(super) fn timelines(&self) -> String {
        let sent = self.client.sent_ns as f64;
        let point =
            |at: Option<u64>| at.map_or("-".to_owned(), |at| format!("{:.3}", (at as f64 - sent) / 1e6));
        let client = format!(
            "client first {} last {}",
            point(self.client.content_ns.first().copied()),
            point(Some(self.client.last_ns))
        );
        let engine = self.known.as_ref().map_or("engine -".to_owned(), |known| {
            format!(
                "engine T1 {} T2 {} T3 {}",
                point(known.t1),
                point(known.t2),
                point(known.t3.first().copied())
            )
        });
        let agent = self.record.as_ref().map_or("agent -".to_owned(), |record| {
            let source = |source: &Option<String>| source.clone().unwrap_or_else(|| "-".to_owned());
            format!(
                "agent T0 {} T1 {} T2 {} T3 {} T4 {} ({} {} {}) id {}",
                point(record.t0_ns),
                point(record.t1_ns),
                point(record.t2_ns),
                point(record.t3_ns),
                point(record.t4_ns),
                source(&record.sources.t1),
                source(&record.sources.t2),
                source(&record.sources.t3),
                record.id,
            )
        });
        format!("{client} | {engine} | {agent}")
    }
}

/// Pairs each of the client's requests with what the engine knows and with the agent's record.
pub(super) fn cases(truths: &[ClientTruth], records: &[Record], known: &[Option<Known>]) -> Vec<Case> {
    let record = |truth: &ClientTruth| {
        let fits = |record: &&Record| match (&truth.response_id, &truth.trace_id) {
            (Some(id), _) => record.response_id.as_ref() == Some(id),
            (None, Some(trace)) => record.trace_id == *trace,
            (None, None) => false,
        };
        let mut found = records.iter().filter(fits);
        found.next().filter(|_| found.next().is_none()).cloned()
    };
    truths
        .iter()
        .enumerate()
        .map(|(at, truth)| Case {
            client: truth.clone(),
            known: known.get(at).cloned().flatten(),
            record: record(truth),
        })
        .collect()
}

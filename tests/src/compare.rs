//! The agent's records against a client's truth: each request once, right status, right counts, right times.
//!
//! Owns: the pairing and the judgement. Refuses: tolerances of time: it reports distributions, the tests set limits.

use crate::{
    agent::Record,
    load::{ClientTruth, Outcome},
    stats::Distribution,
};
use std::{collections::HashSet, fmt::Write};

/// What came out.
#[derive(Debug)]
pub struct Comparison {
    /// Truth and record of the same request.
    pub pairs: Vec<(ClientTruth, Record)>,
    /// Everything that is not as it must be.
    pub problems: Vec<String>,
    /// Client's TTFT less the agent's, seconds, absolute; streams with content.
    pub ttft: Distribution,
    /// Client's end-to-end time less the agent's, seconds, absolute; complete responses.
    pub e2e: Distribution,
    /// From the client's send to the server's read of its first byte, seconds: part of every difference above, and no
    /// error of either clock.
    pub read_lag: Distribution,
    /// From the server's first content-bearing write to the client's read of it, seconds.
    pub receive_lag: Distribution,
    /// Chunks that the server wrote after the last one that a cancelling client read.
    pub beyond_cancel: Distribution,
}

/// Pairs truths with records by response id, else by trace id, and checks every pair.
pub fn compare(truths: &[ClientTruth], records: &[Record]) -> Comparison {
    let mut problems = Vec::new();
    let mut pairs = Vec::new();
    let mut used = HashSet::new();
    for truth in truths {
        let name = format!("request {} ({})", truth.index, truth.name);
        if let Some(error) = &truth.error {
            problems.push(format!("{name}: the client failed: {error}"));
        }
        let fits = |record: &&Record| match (&truth.response_id, &truth.trace_id) {
            (Some(id), _) => record.response_id.as_ref() == Some(id),
            (None, Some(trace)) => {
                // The record of an attempt that got no answer is none of this request.
                record.trace_id == *trace && (record.http_status.is_some() || truth.unanswered == 0)
            }
            (None, None) => false,
        };
        let found: Vec<&Record> = records.iter().filter(fits).collect();
        let [record] = found[..] else {
            problems.push(format!(
                "{name}: seen {} times, not once: {}",
                found.len(),
                brief(truth)
            ));
            continue;
        };
        used.insert(record.id.as_str());
        let complaints = check(truth, record);
        if !complaints.is_empty() {
            problems.push(format!(
                "{name}: {}\n    client {}\n    agent  {record:?}",
                complaints.join("; "),
                brief(truth)
            ));
        }
        pairs.push((truth.clone(), record.clone()));
    }
    // An attempt that got no answer may have been read by the server before it closed, or not.
    let mut unanswered: u32 = truths.iter().map(|truth| truth.unanswered).sum();
    for record in records.iter().filter(|record| !used.contains(record.id.as_str())) {
        if unanswered > 0 && record.http_status.is_none() && record.response_bytes == 0 {
            unanswered -= 1;
        } else {
            problems.push(format!("a record of no request that was sent: {record:?}"));
        }
    }
    let ttft = pairs
        .iter()
        .filter_map(|(truth, record)| Some((truth.ttft_s()? - record.ttft_s?).abs()));
    let complete = pairs
        .iter()
        .filter(|(truth, _)| truth.outcome == Outcome::Complete);
    let e2e = complete.filter_map(|(truth, record)| Some((truth.e2e_s() - record.e2e_s?).abs()));
    let cancelled = pairs
        .iter()
        .filter(|(truth, _)| truth.outcome == Outcome::Cancelled);
    let beyond = cancelled.map(|(truth, record)| record.chunks as f64 - truth.content_ns.len() as f64);
    let (ttft, e2e, beyond_cancel) = (
        Distribution::new(ttft),
        Distribution::new(e2e),
        Distribution::new(beyond),
    );
    let lag = |from: u64, to: u64| (to as f64 - from as f64) / 1e9;
    let read = pairs
        .iter()
        .filter_map(|(truth, record)| Some(lag(truth.sent_ns, record.t0_ns?)));
    let read_lag = Distribution::new(read);
    let streams = pairs.iter().filter(|(truth, _)| truth.streamed);
    let receive = streams.filter_map(|(truth, record)| Some(lag(record.t2_ns?, *truth.content_ns.first()?)));
    let receive_lag = Distribution::new(receive);
    Comparison {
        pairs,
        problems,
        ttft,
        e2e,
        read_lag,
        receive_lag,
        beyond_cancel,
    }
}

/// A truth without the time of every chunk.
fn brief(truth: &ClientTruth) -> String {
    let ends: Vec<u64> = truth
        .content_ns
        .first()
        .into_iter()
        .chain(truth.content_ns.last())
        .copied()
        .collect();
    format!(
        "{} chunks, {:?}",
        truth.content_ns.len(),
        ClientTruth {
            content_ns: ends,
            ..truth.clone()
        }
    )
}

/// What is wrong with one record.
fn check(truth: &ClientTruth, record: &Record) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut equal = |what: &str, client: &dyn std::fmt::Debug, agent: &dyn std::fmt::Debug| {
        let (client, agent) = (format!("{client:?}"), format!("{agent:?}"));
        if client != agent {
            wrong.push(format!("{what} is {client}, the agent says {agent}"));
        }
    };
    let nothing: [&str; 0] = [];
    equal("incomplete", &nothing, &record.incomplete);
    equal("status", &truth.expected_status(), &record.status);
    // A client that left before the response began knows nothing of what was written to nobody.
    if truth.status.is_some() || truth.outcome != Outcome::Cancelled {
        equal("HTTP status", &truth.status, &record.http_status);
        equal("streamed", &truth.streamed, &record.streamed);
        equal("response id", &truth.response_id, &record.response_id);
    }
    if let Some(trace) = &truth.trace_id {
        equal("trace id", trace, &record.trace_id);
    }
    equal("request bytes", &truth.request_bytes, &record.request_bytes);
    if let Some(tokens) = truth.prompt_tokens {
        equal("input tokens", &Some(tokens), &record.input_tokens);
    }
    if let Some(tokens) = truth.completion_tokens {
        equal("output tokens", &Some(tokens), &record.output_tokens);
    }
    if truth.outcome == Outcome::Complete {
        equal("response bytes", &truth.response_bytes, &record.response_bytes);
        if truth.status == Some(200) {
            // A chunk is one message of a stream: a response that is none has none.
            if truth.streamed {
                equal("content chunks", &(truth.content_ns.len() as u64), &record.chunks);
                equal(
                    "has TTFT",
                    &!truth.content_ns.is_empty(),
                    &record.ttft_s.is_some(),
                );
            }
            equal("has end-to-end time", &true, &record.e2e_s.is_some());
        }
    } else {
        // A server notices late that its client has left, so it may have written more than the client has read.
        let streamed = truth.content_ns.len() as u64;
        let tokens = record.output_tokens.unwrap_or(0);
        if record.chunks < streamed || tokens < streamed {
            wrong.push(format!(
                "{streamed} chunks had streamed, the agent counts {} and {tokens} tokens",
                record.chunks
            ));
        }
    }
    wrong
}

impl Comparison {
    /// The numbers, for the test's output.
    pub fn report(&self) -> String {
        let mut text = String::new();
        // Writing to a String can't fail.
        let _ = writeln!(text, "requests paired       {}", self.pairs.len());
        let _ = writeln!(text, "|TTFT difference|  ms {}", self.ttft.in_units(1e-3));
        let _ = writeln!(text, "|e2e difference|   ms {}", self.e2e.in_units(1e-3));
        let _ = writeln!(text, "send to T0          ms {}", self.read_lag.in_units(1e-3));
        let _ = writeln!(
            text,
            "write to client's read ms {}",
            self.receive_lag.in_units(1e-3)
        );
        let _ = writeln!(text, "chunks after cancel   {}", self.beyond_cancel.in_units(1.0));
        let mut statuses: Vec<&str> = self
            .pairs
            .iter()
            .map(|(_, record)| record.status.as_str())
            .collect();
        statuses.sort_unstable();
        for chunk in statuses.chunk_by(|a, b| a == b) {
            let _ = writeln!(text, "status {:14} {}", chunk[0], chunk.len());
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn truth(index: usize) -> ClientTruth {
        serde_json::from_value(json!({"index": index, "name": "chat", "trace_id": null, "response_id": format!("r{index}"),
            "status": 200, "outcome": "complete", "streamed": true, "sent_ns": 1000, "content_ns": [2_001_000, 3_000_000],
            "last_ns": 4_001_000, "prompt_tokens": 3, "completion_tokens": 2, "stream_error": false, "request_bytes": 10,
            "response_bytes": 20, "reusable": true, "error": null}))
        .unwrap()
    }

    fn record(index: usize) -> Record {
        serde_json::from_value(json!({"id": format!("id{index}"), "trace_id": "t", "response_id": format!("r{index}"),
            "engine": "e", "model": "m", "protocol": "openai_chat", "streamed": true, "status": "ok", "http_status": 200,
            "finish_reason": null, "t0_ns": 0, "t2_ns": 0, "t3_ns": 0, "t4_ns": 0, "ttft_s": 0.0019, "e2e_s": 0.0035,
            "input_tokens": 3, "output_tokens": 2, "chunks": 2, "request_bytes": 10, "response_bytes": 20,
            "sources": {"input_tokens": "usage", "output_tokens": "usage"}, "incomplete": []}))
        .unwrap()
    }

    #[test]
    fn what_agrees_has_no_problems() {
        let result = compare(&[truth(1), truth(2)], &[record(2), record(1)]);
        assert!(result.problems.is_empty(), "{:?}", result.problems);
        assert!((result.ttft.max() - 0.0001).abs() < 1e-9 && (result.e2e.max() - 0.0005).abs() < 1e-9);
    }

    #[test]
    fn what_differs_is_told() {
        let cancelled = ClientTruth {
            outcome: Outcome::Cancelled,
            completion_tokens: None,
            ..truth(1)
        };
        let cases: Vec<(ClientTruth, Vec<Record>, &str)> = vec![
            (truth(1), vec![], "seen 0 times"),
            (truth(1), vec![record(1), record(1)], "seen 2 times"),
            (truth(1), vec![record(1), record(2)], "no request that was sent"),
            (
                truth(1),
                vec![Record {
                    status: "cancelled".into(),
                    ..record(1)
                }],
                "status",
            ),
            (
                truth(1),
                vec![Record {
                    output_tokens: Some(3),
                    ..record(1)
                }],
                "output tokens",
            ),
            (
                truth(1),
                vec![Record {
                    response_bytes: 19,
                    ..record(1)
                }],
                "response bytes",
            ),
            (
                truth(1),
                vec![Record {
                    incomplete: vec!["gap_out".into()],
                    ..record(1)
                }],
                "gap_out",
            ),
            (
                cancelled,
                vec![Record {
                    status: "cancelled".into(),
                    chunks: 1,
                    ..record(1)
                }],
                "had streamed",
            ),
        ];
        for (truth, records, part) in cases {
            let problems = compare(&[truth], &records).problems.join("\n");
            assert!(problems.contains(part), "{part}: {problems}");
        }
    }
}

//! vLLM's own account of a run: the file that `engines/vllm_truth` writes, and its `/metrics`.
//!
//! Owns: reading the account, and which of its stamps is which point of a timeline. Refuses: sharing a line of code with
//! the agent's reading of vLLM's messages, which it is there to check.

use super::{
    gauges::State,
    known::{Case, Known},
    mix::request_id,
    sums::Sum,
};
use crate::{agent::Record, exposition::Exposition, load::ClientTruth};
use anyhow::{Context, Result};
use serde::Deserialize;
use std::collections::HashMap;

/// One line of the file. Times are seconds of CLOCK_MONOTONIC.
#[derive(Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Line {
    /// The front end saw it end by itself.
    Finished(Request),
    /// The front end ended it: its client had left.
    Aborted(Request),
    /// The scheduler after a step; `stamp` is the engine core's.
    Step {
        at: f64,
        stamp: Option<f64>,
        running: f64,
        waiting: f64,
        kv_usage: f64,
    },
    /// The engine core was told to end it, and had made so many tokens.
    Stopped {
        at: f64,
        engine_id: String,
        output_tokens: u64,
    },
}

#[derive(Debug, Deserialize)]
struct Request {
    id: String,
    engine_id: String,
    input_tokens: u64,
    cached_tokens: Option<u64>,
    output_tokens: u64,
    queued: Option<f64>,
    scheduled: Option<f64>,
    first_token: Option<f64>,
    last_token: Option<f64>,
    preemptions: u64,
}

/// The whole file.
#[derive(Debug, Default)]
pub(super) struct Account {
    /// By the id that the response shows; whether it finished by itself.
    requests: HashMap<String, (Request, bool)>,
    /// What the engine core had made of those that it was told to end, and when, by its own id.
    stopped: HashMap<String, (u64, u64)>,
    /// After each step, in order.
    pub(super) states: Vec<State>,
}

impl Account {
    pub(super) fn parse(text: &str) -> Result<Account> {
        let mut account = Account::default();
        for (number, line) in text.lines().enumerate() {
            let line = serde_json::from_str(line)
                .with_context(|| format!("line {} of vLLM's account is none: {line}", number + 1))?;
            match line {
                Line::Finished(request) => account.keep(request, true),
                Line::Aborted(request) => account.keep(request, false),
                Line::Step {
                    at,
                    stamp,
                    running,
                    waiting,
                    kv_usage,
                } => account.states.push(State {
                    at_ns: nanos(stamp.unwrap_or(at)),
                    values: [running, waiting, kv_usage],
                }),
                Line::Stopped {
                    at,
                    engine_id,
                    output_tokens,
                } => {
                    account.stopped.insert(engine_id, (output_tokens, nanos(at)));
                }
            }
        }
        account.states.sort_by_key(|state| state.at_ns);
        Ok(account)
    }

    fn keep(&mut self, request: Request, finished: bool) {
        // Completions number their prompts behind the response's id; this load sends one a request.
        let id = match request.id.strip_suffix("-0") {
            Some(id) if id.starts_with("cmpl-") => id.to_owned(),
            _ => request.id.clone(),
        };
        self.requests.insert(id, (request, finished));
    }

    /// What vLLM knows of the request that the client sent; `None` where it refused it.
    pub(super) fn known(&self, truth: &ClientTruth) -> Option<Known> {
        let by_header = format!("chatcmpl-{}", request_id(truth.index));
        let id = truth.response_id.as_deref().unwrap_or(&by_header);
        let (request, finished) = self.requests.get(id)?;
        let stopped = self.stopped.get(&request.engine_id).copied();
        let made = stopped.map_or(request.output_tokens, |(tokens, _)| tokens);
        let [scheduled, first, last] =
            [request.scheduled, request.first_token, request.last_token].map(|at| at.map(nanos));
        let mut t3: Vec<u64> = last.into_iter().collect();
        if let (Some(last), Some((_, until))) = (last, stopped) {
            // Tokens that the engine core made while the front end already had let go of the request.
            let beyond = made.saturating_sub(request.output_tokens) as usize;
            let steps = self.states.iter().map(|state| state.at_ns);
            t3.extend(steps.filter(|at| (last + 1..=until).contains(at)).take(beyond));
        }
        Some(Known {
            input_tokens: Some(request.input_tokens),
            cached_tokens: request.cached_tokens,
            output_tokens: Some((request.output_tokens, made.max(request.output_tokens))),
            t1: scheduled,
            t2: first,
            t3,
            prefill_s: between(scheduled, first),
            decode_s: between(first, last),
            entered: request.queued.map(nanos),
            counted: *finished,
        })
    }

    /// Requests that were put back into the queue.
    pub(super) fn preemptions(&self) -> u64 {
        self.requests
            .values()
            .map(|(request, _)| request.preemptions)
            .sum()
    }
}

fn nanos(seconds: f64) -> u64 {
    (seconds * 1e9).round() as u64
}

fn between(from: Option<u64>, to: Option<u64>) -> Option<f64> {
    Some((to? as f64 - from? as f64) / 1e9)
}

/// What vLLM's `/metrics` grew by, against the records of the requests that it counts, and the agent's own counters.
pub(super) fn sums(
    cases: &[Case],
    engine: (&Exposition, &Exposition),
    agent: (&Exposition, &Exposition),
) -> Vec<Sum> {
    let growth = |(before, after): (&Exposition, &Exposition), name: &str| {
        after.sum(name, &[]) - before.sum(name, &[])
    };
    let counted = || {
        cases
            .iter()
            .filter(|case| case.known.as_ref().is_some_and(|known| known.counted))
            .filter_map(|case| case.record.as_ref())
    };
    let of = |value: fn(&Record) -> Option<f64>| counted().filter_map(value).sum::<f64>();
    let sum = |name: &str, agent: f64| Sum {
        what: name.to_owned(),
        engine: growth(engine, name),
        agent,
        bound: true,
    };
    let of_agent = |name: &str, own: &str| Sum {
        what: format!("{name} ({own})"),
        ..sum(name, growth(agent, own))
    };
    vec![
        sum("vllm:e2e_request_latency_seconds_count", counted().count() as f64),
        sum(
            "vllm:request_prompt_tokens_sum",
            of(|record| record.input_tokens.map(|n| n as f64)),
        ),
        sum(
            "vllm:request_generation_tokens_sum",
            of(|record| record.output_tokens.map(|n| n as f64)),
        ),
        // vLLM's begins when the engine core takes the request from its inbox, for which only vLLM has a stamp.
        Sum {
            what: "vllm:request_queue_time_seconds_sum (from its QUEUED to T1)".to_owned(),
            ..sum("vllm:request_queue_time_seconds_sum", queue_from_own_entry(cases))
        },
        Sum {
            what: "vllm:request_queue_time_seconds_sum (queue from T0)".to_owned(),
            bound: false,
            ..sum("vllm:request_queue_time_seconds_sum", of(|record| record.queue_s))
        },
        sum(
            "vllm:request_prefill_time_seconds_sum",
            of(|record| record.prefill_s),
        ),
        sum(
            "vllm:request_decode_time_seconds_sum",
            of(|record| record.decode_s),
        ),
        sum("vllm:e2e_request_latency_seconds_sum", of(|record| record.e2e_s)),
        // These hold what cancelled requests have used, too.
        of_agent(
            "vllm:prefix_cache_queries_total",
            "llm_prefix_cache_queried_tokens_total",
        ),
        of_agent(
            "vllm:prefix_cache_hits_total",
            "llm_prefix_cache_hit_tokens_total",
        ),
        of_agent("vllm:num_preemptions_total", "llm_preemptions_total"),
        of_agent("vllm:generation_tokens_total", "llm_output_tokens_total"),
    ]
}

/// The agent's T1 less the engine core's entry of the request, of those that vLLM counts.
fn queue_from_own_entry(cases: &[Case]) -> f64 {
    let queue = |case: &Case| {
        let known = case.known.as_ref().filter(|known| known.counted)?;
        between(known.entered, Some(case.record.as_ref()?.t1_ns?))
    };
    cases.iter().filter_map(queue).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const TEXT: &str = r#"{"kind": "step", "stamp": 10.5, "running": 1, "waiting": 2, "kv_usage": 0.25, "at": 10.6}
{"kind": "finished", "id": "cmpl-a-0", "engine_id": "cmpl-a-0-1234", "input_tokens": 7, "cached_tokens": 0, "output_tokens": 3, "queued": 9.5, "scheduled": 10.0, "first_token": 10.5, "last_token": 11.25, "preemptions": 1, "at": 11.3}
{"kind": "aborted", "id": "chatcmpl-b", "engine_id": "chatcmpl-b-1", "input_tokens": 9, "cached_tokens": 4, "output_tokens": 2, "queued": 9.5, "scheduled": 10.0, "first_token": 10.5, "last_token": 11.0, "preemptions": 0, "at": 11.6}
{"kind": "aborted", "id": "chatcmpl-accuracy-0013", "engine_id": "x", "input_tokens": 9, "cached_tokens": null, "output_tokens": 0, "queued": null, "scheduled": null, "first_token": null, "last_token": null, "preemptions": 0, "at": 11.6}
{"kind": "step", "stamp": 11.5, "running": 2, "waiting": 0, "kv_usage": 0.5, "at": 11.6}
{"kind": "stopped", "engine_id": "chatcmpl-b-1", "output_tokens": 3, "at": 11.7}
"#;

    fn truth(index: usize, id: Option<&str>) -> ClientTruth {
        serde_json::from_value(json!({"index": index, "name": "chat", "trace_id": null, "response_id": id,
            "status": 200, "outcome": "complete", "streamed": true, "sent_ns": 0, "content_ns": [], "last_ns": 0,
            "prompt_tokens": null, "completion_tokens": null, "stream_error": false, "request_bytes": 0,
            "response_bytes": 0, "reusable": true, "error": null}))
        .expect("a truth")
    }

    #[test]
    fn a_request_is_found_by_its_responses_id_or_by_its_header() {
        let account = Account::parse(TEXT).expect("an account");
        let finished = account.known(&truth(1, Some("cmpl-a"))).expect("known");
        assert_eq!(
            (finished.input_tokens, finished.output_tokens),
            (Some(7), Some((3, 3)))
        );
        assert_eq!((finished.prefill_s, finished.decode_s), (Some(0.5), Some(0.75)));
        assert_eq!((finished.entered, finished.counted), (Some(9_500_000_000), true));
        assert_eq!(finished.t3, [11_250_000_000]);
        let waiting = account.known(&truth(13, None)).expect("known");
        assert_eq!((waiting.t1, waiting.counted), (None, false));
        assert_eq!(account.known(&truth(14, None)), None);
        assert_eq!(account.preemptions(), 1);
    }

    #[test]
    fn what_the_engine_core_made_beyond_an_abort_may_be_counted() {
        let account = Account::parse(TEXT).expect("an account");
        let known = account.known(&truth(2, Some("chatcmpl-b"))).expect("known");
        assert_eq!(known.output_tokens, Some((2, 3)));
        assert_eq!(known.t3, [11_000_000_000, 11_500_000_000]);
        assert!(Account::parse("{\"kind\": \"other\"}").is_err());
    }
}

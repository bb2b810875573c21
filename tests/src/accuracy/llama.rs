//! llama.cpp's own account of a run: each response's `timings`, and the server's log, in which slots take their tasks.
//!
//! Owns: reading the log, finding each request's task in it, and tying the log's clock to the client's. Refuses: anything
//! that the agent reads.

use super::{
    known::{Case, Known},
    report::{Section, Verdict},
    sums::Sum,
};
use crate::{
    agent::Record,
    exposition::Exposition,
    load::{ClientTruth, Timings},
};
use anyhow::{Result, ensure};
use std::{collections::BTreeMap, fmt::Write};

/// Two requests that a slot took within this time of each other may change places: slots are filled in one pass of the
/// server's loop.
const TOGETHER_NS: u64 = 1_000_000;

/// A task as the log tells it; times in microseconds of the log's clock.
#[derive(Debug, Clone, Default, PartialEq)]
struct Task {
    launched: Option<u64>,
    started: Option<u64>,
    /// Milliseconds and tokens.
    prompt: Option<(f64, u64)>,
    predicted: Option<(f64, u64)>,
    printed: Option<u64>,
}

impl Task {
    /// The log rounds to hundredths of a millisecond.
    fn is_of(&self, timings: &Timings) -> bool {
        let same = |told: Option<(f64, u64)>, ms: f64, n: u64| {
            told.is_some_and(|(told_ms, told_n)| told_n == n && (told_ms - ms).abs() < 0.0051)
        };
        same(self.prompt, timings.prompt_ms, timings.prompt_n)
            && same(self.predicted, timings.predicted_ms, timings.predicted_n)
    }
}

/// What the log tells of the requests of one run.
#[derive(Debug)]
pub(super) struct Account {
    /// Of each request, in the client's order: when a slot took it and when its prompt was begun, by the client's clock.
    tasks: Vec<Option<(u64, u64)>>,
    /// How far the log's clock may be off.
    pub(super) clock_error_ns: u64,
}

impl Account {
    /// Reads the log of the server that answered `truths`.
    pub(super) fn parse(log: &str, truths: &[ClientTruth]) -> Result<Account> {
        let tasks: Vec<Task> = tasks(log).into_values().collect();
        let of_truth = |truth: &ClientTruth| {
            let timings = truth.timings.as_ref()?;
            let mut fits = tasks.iter().filter(|task| task.is_of(timings));
            fits.next().filter(|_| fits.next().is_none())
        };
        let found: Vec<Option<&Task>> = truths.iter().map(of_truth).collect();
        let (least, most) = clock_offset(truths, &found);
        ensure!(
            least <= most,
            "the server's log tells another order than the client's clock: its clock would be at least {least} ns and at most {most} ns behind"
        );
        let offset = least + (most - least) / 2;
        let absolute = |us: u64| (us as i64 * 1000 + offset) as u64;
        Ok(Account {
            tasks: found
                .into_iter()
                .map(|task| task.and_then(|task| Some((absolute(task.launched?), absolute(task.started?)))))
                .collect(),
            clock_error_ns: ((most - least) / 2) as u64,
        })
    }

    /// What the server knows of the request at this place of the client's order.
    pub(super) fn known(&self, at: usize, truth: &ClientTruth) -> Option<Known> {
        let timings = truth.timings?;
        let (prefill_s, decode_s) = (timings.prompt_ms / 1e3, timings.predicted_ms / 1e3);
        let t1 = self.tasks.get(at).copied().flatten().map(|(_, started)| started);
        let after = |ms: f64| t1.map(|t1| t1 + (ms * 1e6) as u64);
        Some(Known {
            input_tokens: Some(timings.cache_n + timings.prompt_n),
            cached_tokens: Some(timings.cache_n),
            output_tokens: Some((timings.predicted_n, timings.predicted_n)),
            t1,
            t2: after(timings.prompt_ms),
            t3: after(timings.prompt_ms + timings.predicted_ms)
                .into_iter()
                .collect(),
            prefill_s: Some(prefill_s),
            decode_s: Some(decode_s),
            entered: None,
            counted: true,
        })
    }

    /// Whether the agent's T1 come in the order in which slots took the requests.
    pub(super) fn order(&self, cases: &[Case]) -> Section {
        let mut taken: Vec<(u64, u64, String)> = cases
            .iter()
            .enumerate()
            .filter_map(|(at, case)| {
                let (launched, _) = self.tasks.get(at).copied().flatten()?;
                Some((launched, case.record.as_ref()?.t1_ns?, case.name()))
            })
            .collect();
        taken.sort_unstable();
        let (mut swapped, mut latest) = (Vec::new(), 0);
        for (_, t1, name) in &taken {
            if t1 + TOGETHER_NS < latest {
                swapped.push(name.clone());
            }
            latest = latest.max(*t1);
        }
        let verdict = Verdict::of(!taken.is_empty() && swapped.is_empty());
        let words = format!(
            "order in which slots took requests: {} of {} requests come too early by the agent's T1",
            swapped.len(),
            taken.len()
        );
        let mut text = format!("{verdict} {words}\n");
        if !swapped.is_empty() {
            // Writing to a String can't fail.
            let _ = writeln!(text, "       {}", swapped.join("; "));
        }
        Section {
            text,
            verdicts: vec![(words, verdict)],
        }
    }
}

/// How far the log's clock is behind CLOCK_MONOTONIC, at least and at most, in nanoseconds: no slot took a request before
/// it was sent, and no client had a token before it was made.
fn clock_offset(truths: &[ClientTruth], tasks: &[Option<&Task>]) -> (i64, i64) {
    let ns = |us: u64| us as i64 * 1000;
    let (mut least, mut most) = (i64::MIN, i64::MAX);
    for (truth, task) in truths.iter().zip(tasks) {
        let Some(task) = task else { continue };
        if let Some(launched) = task.launched {
            least = least.max(truth.sent_ns as i64 - ns(launched));
        }
        if let Some(printed) = task.printed {
            most = most.min(truth.last_ns as i64 - ns(printed));
        }
        let first = truth.content_ns.first().filter(|_| truth.streamed);
        if let (Some(started), Some((ms, _)), Some(first)) = (task.started, task.prompt, first) {
            most = most.min(*first as i64 - ns(started) - (ms * 1e6) as i64);
        }
    }
    if least == i64::MIN || most == i64::MAX {
        // Nothing was found in the log.
        return (0, 0);
    }
    (least, most)
}

fn tasks(log: &str) -> BTreeMap<u64, Task> {
    let mut tasks: BTreeMap<u64, Task> = BTreeMap::new();
    for line in log.lines() {
        let Some((at, id, text)) = line_of_task(line) else {
            continue;
        };
        let task = tasks.entry(id).or_default();
        if text.starts_with("processing task") {
            task.launched = Some(at);
        } else if text.starts_with("new prompt") {
            task.started = Some(at);
        } else if let Some(told) = text.strip_prefix("prompt eval time =") {
            task.prompt = time_and_tokens(told);
            task.printed = Some(at);
        } else if let Some(told) = text.strip_prefix("eval time =") {
            task.predicted = time_and_tokens(told);
        }
    }
    tasks
}

/// `0.03.878.059 I slot launch_slot_: id  3 | task 0 | processing task…`: microseconds, the task's number, the rest.
fn line_of_task(line: &str) -> Option<(u64, u64, &str)> {
    let (stamp, rest) = line.split_once(' ')?;
    let mut parts = stamp.split('.').map(|part| part.parse::<u64>().ok());
    let mut part = || parts.next().flatten();
    let at = ((part()? * 60 + part()?) * 1000 + part()?) * 1000 + part()?;
    let (_, rest) = rest.split_once("| task ")?;
    let (id, text) = rest.split_once(" | ")?;
    Some((at, id.trim().parse().ok()?, text.trim()))
}

/// `  262.33 ms /    38 tokens (…`.
fn time_and_tokens(text: &str) -> Option<(f64, u64)> {
    let (ms, rest) = text.split_once(" ms /")?;
    let tokens = rest.split_whitespace().next()?;
    Some((ms.trim().parse().ok()?, tokens.parse().ok()?))
}

/// What llama.cpp's `/metrics` grew by, against the agent's records. It counts the prompts and tokens of cancelled requests
/// too, which its `timings` do not tell, so these are shown and not judged.
pub(super) fn sums(cases: &[Case], (before, after): (&Exposition, &Exposition)) -> Vec<Sum> {
    let of = |value: fn(&Record) -> Option<f64>| {
        cases
            .iter()
            .filter_map(|case| case.record.as_ref())
            .filter_map(value)
            .sum::<f64>()
    };
    let sum = |name: &str, agent: f64| Sum {
        what: name.to_owned(),
        engine: after.sum(name, &[]) - before.sum(name, &[]),
        agent,
        bound: false,
    };
    let computed = |record: &Record| {
        let cached = record.cached_input_tokens.unwrap_or(0);
        record.input_tokens.map(|n| n.saturating_sub(cached) as f64)
    };
    vec![
        sum("llamacpp:prompt_tokens_total", of(computed)),
        sum("llamacpp:prompt_seconds_total", of(|record| record.prefill_s)),
        sum(
            "llamacpp:tokens_predicted_total",
            of(|record| record.output_tokens.map(|n| n as f64)),
        ),
        sum(
            "llamacpp:tokens_predicted_seconds_total",
            of(|record| record.decode_s),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const LOG: &str = "\
0.03.876.442 I slot get_availabl: id  3 | task -1 | selected slot by LRU, t_last = -1
0.03.878.066 I slot launch_slot_: id  3 | task 0 | processing task, is_child = 0
0.03.878.259 I slot   operator(): id  3 | task 0 | new prompt, n_ctx_slot = 4096, n_keep = 0, task.n_tokens = 38
0.04.436.947 I slot print_timing: id  3 | task 0 | prompt eval time =     262.76 ms /    38 tokens (    6.91 ms per token,   144.62 tokens per second)
0.04.437.067 I slot print_timing: id  3 | task 0 |        eval time =     295.91 ms /     8 tokens (   42.27 ms per token,    23.66 tokens per second)
1.04.141.597 I slot launch_slot_: id  1 | task 3 | processing task, is_child = 0
1.04.141.661 I slot   operator(): id  1 | task 3 | new prompt, n_ctx_slot = 4096, n_keep = 0, task.n_tokens = 38
1.04.452.191 I slot print_timing: id  1 | task 3 | prompt eval time =     127.50 ms /    38 tokens (    3.36 ms per token,   298.04 tokens per second)
1.04.452.282 I slot print_timing: id  1 | task 3 |        eval time =     183.00 ms /     8 tokens (   26.14 ms per token,    38.25 tokens per second)
";

    /// The log's clock is 100 s behind; the request goes `early_us` before its slot takes it, and its response comes
    /// `late_us` after the log tells its end.
    fn truth(index: usize, launched: u64, printed: u64, prompt_ms: f64, predicted_ms: f64) -> ClientTruth {
        let absolute = |us: u64| 100_000_000_000 + us * 1000;
        serde_json::from_value(json!({"index": index, "name": "chat", "trace_id": null, "response_id": format!("r{index}"),
            "status": 200, "outcome": "complete", "streamed": false, "sent_ns": absolute(launched - 400), "content_ns": [],
            "last_ns": absolute(printed + 600), "prompt_tokens": 38, "completion_tokens": 8, "stream_error": false,
            "request_bytes": 0, "response_bytes": 0, "reusable": true, "error": null,
            "timings": {"cache_n": 2, "prompt_n": 38, "prompt_ms": prompt_ms, "predicted_n": 8, "predicted_ms": predicted_ms}}))
        .expect("a truth")
    }

    fn truths() -> [ClientTruth; 2] {
        [
            truth(0, 64_141_597, 64_452_191, 127.498, 183.005),
            truth(1, 3_878_066, 4_436_947, 262.761, 295.914),
        ]
    }

    #[test]
    fn each_request_is_found_in_the_log_and_its_clock_is_tied_to_the_clients() {
        let truths = truths();
        let account = Account::parse(LOG, &truths).expect("an account");
        assert_eq!(account.clock_error_ns, 500_000);
        let known = account.known(0, &truths[0]).expect("known");
        // Between 400 us too early and 600 us too late, the middle is 100 us too late.
        assert_eq!(known.t1, Some(164_141_761_000));
        assert_eq!(known.t2, Some(164_269_259_000));
        assert_eq!((known.input_tokens, known.cached_tokens), (Some(40), Some(2)));
    }

    #[test]
    fn a_log_of_another_server_is_refused_or_tells_nothing() {
        let mut other = truths();
        other[0].sent_ns += 2_000_000_000;
        assert!(Account::parse(LOG, &other).is_err());
        let nothing = Account::parse("no log", &truths()).expect("an account");
        assert_eq!(nothing.known(0, &truths()[0]).and_then(|known| known.t1), None);
    }

    #[test]
    fn an_order_that_slots_did_not_take_is_told() {
        let truths = truths();
        let account = Account::parse(LOG, &truths).expect("an account");
        let verdict = |t1: [u64; 2]| {
            let case = |(truth, t1): (&ClientTruth, u64)| {
                Case {
                client: truth.clone(),
                known: None,
                record: serde_json::from_value(json!({"id": "i", "trace_id": "t", "engine": "e", "model": "m", "protocol": "p",
                    "streamed": true, "status": "ok", "t1_ns": t1, "chunks": 0, "request_bytes": 0, "response_bytes": 0,
                    "sources": {}, "incomplete": []}))
                .expect("a record"),
            }
            };
            let cases: Vec<Case> = truths.iter().zip(t1).map(case).collect();
            account.order(&cases).verdicts[0].1
        };
        // The second of the client's requests was taken first.
        assert_eq!(verdict([90_000_000, 50_000_000]), Verdict::Pass);
        assert_eq!(verdict([50_000_000, 90_000_000]), Verdict::Fail);
        assert_eq!(verdict([50_000_000, 50_500_000]), Verdict::Pass);
    }
}

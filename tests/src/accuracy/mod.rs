//! `cargo xtask accuracy`: what the agent says of a real engine under a load that makes it queue, against what the engine
//! itself says.
//!
//! Owns: the run, the comparisons and their bounds. Refuses: a bound that is not written down in `docs/accuracy.md`, and
//! a truth that the agent had a hand in.

mod counts;
mod gauges;
pub(crate) mod inference;
mod known;
mod llama;
mod mix;
mod prefix;
pub(crate) mod report;
mod setting;
mod sums;
mod texts;
pub(crate) mod times;
mod tokens;
mod vllm;

use crate::{agent::Record, compare::compare, engines::Kind, load::ClientTruth};
use anyhow::Result;
use known::{Case, Known, cases};
pub use prefix::prefix;
use report::{Report, Section, Verdict};
use setting::{Run, Side};
use std::path::PathBuf;
use times::{Bound, Pair, Times};
pub use tokens::{TokenOptions, tokens};

/// What to run with.
#[derive(Debug)]
pub struct Options {
    /// The engine.
    pub kind: Kind,
    /// The agent's executable; it and its caller are root.
    pub agent: PathBuf,
    /// Folder of installed engines.
    pub engines: PathBuf,
    /// Folder for logs and accounts.
    pub logs: PathBuf,
    /// How many requests.
    pub requests: usize,
    /// Seed of the load.
    pub seed: u64,
}

/// Carries it out and prints every distribution; the bounds that were broken.
pub fn run(options: &Options) -> Result<Vec<String>> {
    let run = setting::run(options)?;
    let mut report = Report::default();
    Report::heading("Every request once, by the client's clock and count");
    report.add(client(&run.truths, &run.hooks, "hooks"));
    report.add(client(&run.truths, &run.no_hooks, "no hooks"));
    match options.kind {
        Kind::Vllm => of_vllm(&run, &mut report)?,
        Kind::Llama => of_llama(&run, &mut report)?,
    }
    Ok(report.finish())
}

const VLLM: Bound = Bound {
    seconds: 0.001,
    share: 0.0,
    percentile: 99.0,
};
const LLAMA: Bound = Bound {
    seconds: 0.003,
    share: 0.03,
    percentile: 95.0,
};
const LLAMA_QUEUE: Bound = Bound {
    seconds: 0.005,
    share: 0.0,
    percentile: 95.0,
};

fn of_vllm(run: &Run, report: &mut Report) -> Result<()> {
    let account = vllm::Account::parse(&run.account)?;
    let known: Vec<Option<Known>> = run.truths.iter().map(|truth| account.known(truth)).collect();
    let cases_of = |side: &Side| cases(&run.truths, &side.records, &known);
    let hooked = cases_of(&run.hooks);
    Report::heading("Token counts against vLLM's own");
    report.add_all(counts::sections(&hooked));
    Report::heading("Points in time and durations against vLLM's own events");
    for (what, points) in [
        ("T1, scheduled", Points::T1),
        ("T2, first token", Points::T2),
        ("T3, last token", Points::T3),
    ] {
        report.add(points.times(what, &hooked, Some(VLLM)).section());
    }
    for (what, spans) in SPANS {
        report.add(spans.times(what, &hooked, Some(VLLM)).section());
    }
    report.add(
        Span::OwnQueue
            .times("queue, from vLLM's own entry of the request", &hooked, None)
            .section(),
    );
    Report::heading("Gauges against the scheduler's own state");
    println!(
        "{} samples of the agent, {} steps of the engine",
        run.samples.len(),
        account.states.len()
    );
    report.add_all(gauges::sections(&run.samples, &account.states));
    Report::heading("Sums");
    let left_out: Vec<String> = hooked
        .iter()
        .filter(|case| case.known.as_ref().is_none_or(|known| !known.counted))
        .map(Case::name)
        .collect();
    let left_out = format!(
        "vLLM's sums over requests leave out {} that were cancelled or refused: {}; it put {} back into the queue",
        left_out.len(),
        left_out.join(", "),
        account.preemptions()
    );
    let sums = vllm::sums(
        &hooked,
        (&run.engine.0, &run.engine.1),
        (&run.hooks.before, &run.hooks.after),
    );
    report.add(sums::section(&sums, &left_out));
    inferred(&cases_of(&run.no_hooks), report);
    Ok(())
}

fn of_llama(run: &Run, report: &mut Report) -> Result<()> {
    let account = llama::Account::parse(&run.account, &run.truths)?;
    let known: Vec<Option<Known>> = run
        .truths
        .iter()
        .enumerate()
        .map(|(at, truth)| account.known(at, truth))
        .collect();
    let cases_of = |side: &Side| cases(&run.truths, &side.records, &known);
    let hooked = cases_of(&run.hooks);
    let in_log = known.iter().flatten().filter(|known| known.t1.is_some()).count();
    println!(
        "\n{} responses carry timings, {in_log} of them are found in the server's log, whose clock is known to {:.3} ms",
        known.iter().flatten().count(),
        account.clock_error_ns as f64 / 1e6
    );
    Report::heading("Token counts against the response's timings");
    report.add_all(counts::sections(&hooked));
    Report::heading("Durations against timings, and queue against the log");
    for (what, span) in SPANS {
        let bound = match span {
            Span::Queue => LLAMA_QUEUE,
            _ => LLAMA,
        };
        report.add(span.times(what, &hooked, Some(bound)).section());
    }
    report.add(
        Span::ClientQueue
            .times(
                "queue, by the client's first token less timings' prefill",
                &hooked,
                None,
            )
            .section(),
    );
    report.add(account.order(&hooked));
    Report::heading("Sums");
    let sums = llama::sums(&hooked, (&run.engine.0, &run.engine.1));
    report.add(sums::section(&sums, "both sides with cancelled requests"));
    inferred(&cases_of(&run.no_hooks), report);
    Ok(())
}

/// What the agent inferred without hooks.
fn inferred(cases: &[Case], report: &mut Report) {
    Report::heading("Hooks off: what is inferred");
    for (what, span) in [SPANS[1], SPANS[0]] {
        let guesses = inference::guesses(
            cases,
            |case| span.of_engine(case),
            |record| span.of_agent(record),
            |record| record.sources.t1.clone(),
        );
        report.add(inference::section(what, &guesses));
    }
}

/// Everything that the client can tell of the records.
fn client(truths: &[ClientTruth], side: &Side, name: &str) -> Section {
    let comparison = compare(truths, &side.records);
    let verdict = Verdict::of(comparison.problems.is_empty());
    let words = format!(
        "{name}: {} of {} requests paired, {} problems",
        comparison.pairs.len(),
        truths.len(),
        comparison.problems.len()
    );
    let mut text = format!("{verdict} {words}\n");
    for line in comparison
        .report()
        .lines()
        .chain(comparison.problems.iter().map(String::as_str))
    {
        text.push_str("       ");
        text.push_str(line);
        text.push('\n');
    }
    Section {
        text,
        verdicts: vec![(words, verdict)],
    }
}

/// A point in time, compared by its distance from the client's send.
#[derive(Debug, Clone, Copy)]
enum Points {
    T1,
    T2,
    T3,
}

impl Points {
    fn times(self, what: &str, cases: &[Case], bound: Option<Bound>) -> Times {
        let after = |case: &Case, at: u64| (at as f64 - case.client.sent_ns as f64) / 1e9;
        let of_agent = |record: &Record| match self {
            Points::T1 => record.t1_ns,
            Points::T2 => record.t2_ns,
            Points::T3 => record.t3_ns,
        };
        let truth = |case: &Case| {
            let known = case.known.as_ref()?;
            let agent = case.record.as_ref().and_then(of_agent);
            let at = match self {
                Points::T1 => known.t1,
                Points::T2 => known.t2,
                // Where the engine's processes differ, either is true.
                Points::T3 => known
                    .t3
                    .iter()
                    .copied()
                    .min_by_key(|at| at.abs_diff(agent.unwrap_or(0))),
            };
            Some(after(case, at?))
        };
        times(what, cases, bound, truth, |case| {
            case.record.as_ref().and_then(of_agent).map(|at| after(case, at))
        })
    }
}

/// A duration.
#[derive(Debug, Clone, Copy)]
enum Span {
    Queue,
    Prefill,
    Decode,
    /// The queue from the engine's own entry of the request.
    OwnQueue,
    /// The queue by the client's clock, where the first token came in a stream.
    ClientQueue,
}

const SPANS: [(&str, Span); 3] = [
    ("queue, from the client's send", Span::Queue),
    ("prefill", Span::Prefill),
    ("decode", Span::Decode),
];

impl Span {
    fn of_engine(self, case: &Case) -> Option<f64> {
        let known = case.known.as_ref()?;
        let sent = case.client.sent_ns as f64;
        match self {
            Span::Queue => Some((known.t1? as f64 - sent) / 1e9),
            Span::Prefill => known.prefill_s,
            // Where the engine's processes differ on the last token, the nearest is compared.
            Span::Decode => match (known.t2, &known.t3[..]) {
                (Some(t2), [_, _, ..]) => {
                    let agent = case.record.as_ref().and_then(|record| record.t3_ns).unwrap_or(0);
                    let t3 = known.t3.iter().min_by_key(|at| at.abs_diff(agent))?;
                    Some((*t3 as f64 - t2 as f64) / 1e9)
                }
                _ => known.decode_s,
            },
            Span::OwnQueue => Some((known.t1? as f64 - known.entered? as f64) / 1e9),
            Span::ClientQueue => Some(case.client.ttft_s()? - known.prefill_s?),
        }
    }

    fn of_agent(self, record: &Record) -> Option<f64> {
        match self {
            Span::Queue | Span::OwnQueue | Span::ClientQueue => record.queue_s,
            Span::Prefill => record.prefill_s,
            Span::Decode => record.decode_s,
        }
    }

    fn times(self, what: &str, cases: &[Case], bound: Option<Bound>) -> Times {
        times(
            what,
            cases,
            bound,
            |case| self.of_engine(case),
            |case| case.record.as_ref().and_then(|record| self.of_agent(record)),
        )
    }
}

fn times(
    what: &str,
    cases: &[Case],
    bound: Option<Bound>,
    truth: impl Fn(&Case) -> Option<f64>,
    agent: impl Fn(&Case) -> Option<f64>,
) -> Times {
    let (mut pairs, mut missing) = (Vec::new(), Vec::new());
    for case in cases {
        match (truth(case), agent(case)) {
            (Some(truth), Some(agent)) => pairs.push(Pair {
                who: format!("{} {}", case.name(), case.timelines()),
                truth,
                agent,
            }),
            (Some(_), None) if !case.unanswered() => missing.push(case.name()),
            _ => {}
        }
    }
    Times {
        what: what.to_owned(),
        pairs,
        missing,
        bound,
    }
}

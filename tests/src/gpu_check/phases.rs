//! Requests: what the agent says of their phases against the program's own account, on a load that makes it queue.
//!
//! Owns: the load and its bounds. Refuses: anything of one side alone.

use super::program::{Account, Program, SLOTS, Served, plan};
use crate::{
    accuracy::{
        inference::{self, Guess},
        report::{Section, Verdict},
        times::{Bound, Pair, Times},
    },
    agent::{Agent, Record},
    exposition::Exposition,
    load::{ClientTruth, Outcome, Plan},
};
use anyhow::{Result, ensure};
use std::{collections::HashMap, fmt::Write, time::Duration};

/// Requests, one by one and then more at once than can run.
const CALM: usize = 4;
const BUSY: usize = 40;
const CONNECTIONS: usize = 2 * SLOTS + 2;

/// A token exists when the engine's thread has it, and is seen when another thread writes it.
const TOKEN: Bound = Bound {
    seconds: 0.005,
    share: 0.0,
    percentile: 95.0,
};
const DECODE: Bound = Bound {
    seconds: 0.005,
    share: 0.03,
    percentile: 95.0,
};

/// One request by its three accounts.
struct Case<'a> {
    client: &'a ClientTruth,
    engine: &'a Served,
    agent: Option<&'a Record>,
}

/// Drives the load and compares.
pub(super) fn sections(program: &Program, agent: &Agent, engine: &str) -> Result<Vec<Section>> {
    let before = agent.metrics()?;
    let known = agent.requests()?.len();
    let mut plans = plans();
    let busy = plans.split_off(CALM);
    let mut truths = program.load(1).run_all(plans);
    truths.extend(program.load(CONNECTIONS).run_all(busy));
    for truth in &truths {
        ensure!(
            truth.outcome == Outcome::Complete && truth.status == Some(200),
            "a request failed: {truth:?}"
        );
    }
    let records = agent.wait_requests(known + truths.len(), Duration::from_secs(10), |record| {
        record.engine == engine
    })?;
    let account = program.account()?;
    let mut sections = compared(&truths, &account, &records);
    // What engines did is settled a few seconds later.
    std::thread::sleep(Duration::from_secs(4));
    sections.push(states(&account, &truths, &before, &agent.metrics()?, engine));
    Ok(sections)
}

/// Short and long prompts, short and long answers; one in four of them long in both.
fn plans() -> Vec<Plan> {
    let one = |index: usize| {
        let prompt = [20, 400, 60, 150][index % 4];
        let tokens = [48, 96, 24, 64][(index / 2) % 4];
        plan(index, "completion stream", prompt, tokens)
    };
    (0..CALM + BUSY).map(one).collect()
}

fn compared(truths: &[ClientTruth], account: &Account, records: &[Record]) -> Vec<Section> {
    let served = account.by_id();
    let told: HashMap<&str, &Record> = records
        .iter()
        .filter_map(|record| Some((record.response_id.as_deref()?, record)))
        .collect();
    let cases: Vec<Case> = truths
        .iter()
        .filter_map(|client| {
            let id = client.response_id.as_deref()?;
            Some(Case {
                client,
                engine: served.get(id)?,
                agent: told.get(id).copied(),
            })
        })
        .collect();
    let mut sections = vec![counts(truths, &cases)];
    sections.extend(times(&cases).iter().map(Times::section));
    for (what, guesses) in guesses(&cases) {
        sections.push(inference::section(what, &guesses));
    }
    sections
}

fn counts(truths: &[ClientTruth], cases: &[Case]) -> Section {
    let right = |case: &&Case| {
        case.agent.is_some_and(|record| {
            record.input_tokens == Some(case.engine.prompt_tokens)
                && record.output_tokens == Some(case.engine.output_tokens)
        })
    };
    let right = cases.iter().filter(right).count();
    let verdict = Verdict::of(right == truths.len() && !truths.is_empty());
    let words = format!(
        "input and output tokens: of {} requests, {right} are told with as many as the engine read and made",
        truths.len()
    );
    Section {
        text: format!("{verdict} {words}\n"),
        verdicts: vec![(words, verdict)],
    }
}

fn since(case: &Case, at: u64) -> f64 {
    (at as f64 - case.client.sent_ns as f64) / 1e9
}

fn times(cases: &[Case]) -> Vec<Times> {
    type Of = fn(&Case) -> Option<f64>;
    let compared: [(&str, Bound, Of, Of); 3] = [
        (
            "T2, first token, from the client's send",
            TOKEN,
            |case| Some(since(case, case.engine.first_ns)),
            |case| Some(since(case, case.agent?.t2_ns?)),
        ),
        (
            "T3, last token, from the client's send",
            TOKEN,
            |case| Some(since(case, case.engine.last_ns)),
            |case| Some(since(case, case.agent?.t3_ns?)),
        ),
        (
            "decode",
            DECODE,
            |case| Some((case.engine.last_ns - case.engine.first_ns) as f64 / 1e9),
            |case| case.agent?.decode_s,
        ),
    ];
    let times = |(what, bound, truth, agent): (&str, Bound, Of, Of)| {
        let (mut pairs, mut missing) = (Vec::new(), Vec::new());
        for case in cases {
            match (truth(case), agent(case)) {
                (Some(truth), Some(agent)) => pairs.push(Pair {
                    who: case.engine.id.clone(),
                    truth,
                    agent,
                }),
                _ => missing.push(case.engine.id.clone()),
            }
        }
        Times {
            what: what.to_owned(),
            pairs,
            missing,
            bound: Some(bound),
        }
    };
    compared.into_iter().map(times).collect()
}

fn guesses(cases: &[Case]) -> [(&'static str, Vec<Guess>); 2] {
    let of = |truth: fn(&Case) -> f64, inferred: fn(&Record) -> Option<f64>| -> Vec<Guess> {
        let guess = |case: &Case| Guess {
            who: case.engine.id.clone(),
            truth: truth(case),
            inferred: case.agent.and_then(inferred),
            source: case.agent.and_then(|record| record.sources.t1.clone()),
        };
        cases.iter().map(guess).collect()
    };
    [
        (
            "prefill",
            of(
                |case| (case.engine.first_ns - case.engine.scheduled_ns) as f64 / 1e9,
                |record| record.prefill_s,
            ),
        ),
        (
            "queue, from the client's send",
            of(
                |case| since(case, case.engine.scheduled_ns),
                |record| record.queue_s,
            ),
        ),
    ]
}

/// Where the agent says the GPU's time went, beside the time of the program's own steps: they are not the same (a step is
/// longer than what it computes), so this is shown and not judged.
fn states(
    account: &Account,
    truths: &[ClientTruth],
    before: &Exposition,
    after: &Exposition,
    engine: &str,
) -> Section {
    let from = truths.iter().map(|truth| truth.sent_ns).min().unwrap_or(0);
    let mut text = String::from("     GPU seconds by state of the engine, and the engine's own steps:");
    for state in ["prefill", "decode", "mixed", "idle", "idle_while_queued"] {
        let labels = [("engine", engine), ("state", state)];
        let name = "llm_gpu_seconds_total";
        let seconds = after.sum(name, &labels) - before.sum(name, &labels);
        let steps = account
            .steps
            .iter()
            .filter(|step| step.kind == state && step.begin_ns >= from);
        let own: f64 = steps.map(|step| (step.end_ns - step.begin_ns) as f64 / 1e9).sum();
        // Writing to a String can't fail.
        let _ = match state {
            "prefill" | "decode" => write!(text, " {state} {seconds:.2} (steps {own:.2}),"),
            _ => write!(text, " {state} {seconds:.2},"),
        };
    }
    let joules = |metrics: &Exposition| metrics.sum("llm_energy_joules_total", &[("model", "gpu-check")]);
    let _ = writeln!(
        text,
        " energy of requests {:.1} J",
        joules(after) - joules(before)
    );
    Section {
        text,
        verdicts: Vec::new(),
    }
}

//! What the agent costs the engine on the GPU: the same load and the same calls without it and with it, in turn.
//!
//! Owns: the rounds and their ratios. Refuses: a bound: what a launch may cost is the operator's to judge.

use super::{
    program::{Program, SLOTS, plan},
    watch::Watch,
};
use crate::{
    load::{ClientTruth, Outcome},
    stats::Distribution,
};
use anyhow::{Context, Result, ensure};

const ROUNDS: usize = 5;
/// Seconds that one load should take.
const SECONDS: f64 = 3.0;
const MOST_WAVES: usize = 64;
/// Prompt and answer of one request.
const SIZES: (usize, usize) = (60, 256);
/// Calls in a loop.
const LOOP: &str = "kernels=50000&graphs=10000";

/// One side of one round.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Sample {
    /// Output tokens a second, by the client.
    tokens: f64,
    /// Nanoseconds a kernel launch and a graph launch, by the program.
    kernel: f64,
    graph: f64,
}

/// Measures and prints.
pub(super) fn measure(program: &Program, watch: impl Fn() -> Result<Watch>) -> Result<()> {
    let first = load(program, 1)?;
    let waves = ((SECONDS / first.1).ceil() as usize).clamp(1, MOST_WAVES);
    let sample = || -> Result<Sample> {
        let (tokens, seconds) = load(program, waves)?;
        let known = program.known(LOOP)?;
        Ok(Sample {
            tokens: tokens as f64 / seconds,
            kernel: known.kernel_ns,
            graph: known.graph_ns,
        })
    };
    let watched = || -> Result<Sample> {
        let watch = watch()?;
        let measured = sample();
        watch.stop();
        measured
    };
    let mut rounds = Vec::new();
    for round in 0..ROUNDS {
        // Each round begins with the other, so that neither is always the first.
        rounds.push(if round % 2 == 0 {
            let without = sample()?;
            (without, watched()?)
        } else {
            let with = watched()?;
            (sample()?, with)
        });
    }
    for line in table(&rounds) {
        println!("{line}");
    }
    Ok(())
}

/// Tokens and seconds of so many waves of as many requests as run at once.
fn load(program: &Program, waves: usize) -> Result<(u64, f64)> {
    let plans = (0..waves * SLOTS).map(|index| plan(index, "overhead", SIZES.0, SIZES.1));
    let truths = program.load(SLOTS).run_all(plans.collect());
    let complete = |truth: &ClientTruth| truth.outcome == Outcome::Complete;
    ensure!(truths.iter().all(complete), "a request failed: {truths:?}");
    let tokens: Option<u64> = truths.iter().map(|truth| truth.completion_tokens).sum();
    let first = truths.iter().map(|truth| truth.sent_ns).min();
    let last = truths.iter().map(|truth| truth.last_ns).max();
    let seconds = first.zip(last).map(|(first, last)| (last - first) as f64 / 1e9);
    tokens.zip(seconds).context("a response without usage")
}

/// A row: what it is, which number, and whether rounds are compared by ratio.
type Row = (&'static str, fn(&Sample) -> f64, bool);

fn table(rounds: &[(Sample, Sample)]) -> Vec<String> {
    let mut lines = vec![
        format!("{ROUNDS} interleaved rounds, medians; in a round: median (min – max)\n"),
        "| what | without | with | in a round |".to_owned(),
        "|---|---|---|---|".to_owned(),
    ];

    let rows: [Row; 3] = [
        ("output tokens a second", |sample| sample.tokens, true),
        ("ns a kernel launch", |sample| sample.kernel, false),
        ("ns a graph launch", |sample| sample.graph, false),
    ];
    for (what, of, ratio) in rows {
        let side = |values: Vec<f64>| Distribution::new(values).median();
        let without = side(rounds.iter().map(|(without, _)| of(without)).collect());
        let with = side(rounds.iter().map(|(_, with)| of(with)).collect());
        let compare = |(without, with): &(Sample, Sample)| {
            if ratio {
                of(with) / of(without)
            } else {
                of(with) - of(without)
            }
        };
        let compared = Distribution::new(rounds.iter().map(compare));
        let (sign, digits) = if ratio { ("×", 4) } else { ("+", 0) };
        lines.push(format!(
            "| {what} | {without:.1} | {with:.1} | {sign} {:.digits$} ({:.digits$} – {:.digits$}) |",
            compared.median(),
            compared.min(),
            compared.max()
        ));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_compared_by_ratio_and_calls_by_difference() {
        let sample = |tokens, kernel| Sample {
            tokens,
            kernel,
            graph: 2.0 * kernel,
        };
        let rounds = [
            (sample(100.0, 1000.0), sample(90.0, 3000.0)),
            (sample(200.0, 1000.0), sample(190.0, 3500.0)),
            (sample(100.0, 2000.0), sample(99.0, 4500.0)),
        ];
        let lines = table(&rounds);
        assert_eq!(
            lines[3],
            "| output tokens a second | 100.0 | 99.0 | × 0.9500 (0.9000 – 0.9900) |"
        );
        assert_eq!(
            lines[4],
            "| ns a kernel launch | 1000.0 | 3500.0 | + 2500 (2000 – 2500) |"
        );
    }
}

//! The agent's gauges while an engine works, against the states of its scheduler.
//!
//! Owns: sampling them, and which states a sample may show. Refuses: knowing how the states became known (`vllm`).

use super::report::{Section, Verdict};
use crate::{agent::Agent, clock::monotonic_ns, exposition::Exposition, stats::Distribution};
use std::{
    fmt::Write,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

/// Ten samples a second.
const EVERY: Duration = Duration::from_millis(100);
/// So many of a hundred samples must show a state that may be shown.
const PERCENTILE: f64 = 99.0;

/// What is sampled: its name in the tables, and its value in an exposition.
pub(super) const GAUGES: [&str; 3] = ["running", "waiting", "KV cache usage"];

/// One reading of the agent's `/metrics`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Sample {
    /// Just before it was asked for.
    pub(super) before_ns: u64,
    /// Just after it had come.
    pub(super) after_ns: u64,
    /// In the order of [`GAUGES`]; absent where the agent does not tell.
    pub(super) values: [Option<f64>; 3],
}

/// The scheduler after one step.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct State {
    /// When the engine stamped it.
    pub(super) at_ns: u64,
    /// In the order of [`GAUGES`].
    pub(super) values: [f64; 3],
}

/// Reads the agent's gauges of `engine` until `stop`.
pub(super) fn sample(agent: &Agent, engine: &str, stop: &AtomicBool) -> Vec<Sample> {
    let mut samples = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let before_ns = monotonic_ns();
        // An agent that has ended is told by whoever waits for its records.
        if let Ok(metrics) = agent.metrics() {
            samples.push(Sample {
                before_ns,
                after_ns: monotonic_ns(),
                values: values(&metrics, engine),
            });
        }
        thread::sleep(EVERY);
    }
    samples
}

fn values(metrics: &Exposition, engine: &str) -> [Option<f64>; 3] {
    let value = |name: &str| {
        let of_engine = [("engine", engine)];
        let mut found = metrics.select(name, &of_engine).map(|sample| sample.value);
        found.next().map(|first| first + found.sum::<f64>())
    };
    [
        value("llm_requests_scheduled"),
        value("llm_queue_length"),
        value("llm_kv_cache_usage_ratio"),
    ]
}

/// A table for each gauge. A sample may show the state that was the latest when it was asked for, the one before (the step
/// by which the agent may lag), or any that came while it was answered.
/// What came before the agent watched is not for it to show.
pub(super) fn sections(samples: &[Sample], states: &[State]) -> Vec<Section> {
    let start = samples.first().map_or(0, |sample| sample.before_ns);
    let states = &states[states.partition_point(|state| state.at_ns < start)..];
    (0..GAUGES.len())
        .map(|gauge| section(gauge, samples, states))
        .collect()
}

fn section(gauge: usize, samples: &[Sample], states: &[State]) -> Section {
    let (mut differences, mut untold, mut greatest) = (Vec::new(), 0, 0.0_f64);
    for sample in samples {
        let shown = states.partition_point(|state| state.at_ns <= sample.before_ns);
        let end = states.partition_point(|state| state.at_ns <= sample.after_ns);
        // Before the first step there is nothing to show.
        let allowed = &states[shown.saturating_sub(2)..end];
        if shown == 0 {
            continue;
        }
        let Some(value) = sample.values[gauge] else {
            untold += 1;
            continue;
        };
        greatest = allowed
            .iter()
            .map(|state| state.values[gauge])
            .fold(greatest, f64::max);
        let nearest = allowed
            .iter()
            .map(|state| (value - state.values[gauge]).abs())
            .fold(f64::INFINITY, f64::min);
        differences.push(nearest);
    }
    let all = differences.len() + untold;
    let same = differences
        .iter()
        .filter(|difference| **difference < 1e-9)
        .count();
    let needed = (PERCENTILE / 100.0 * all as f64).ceil() as usize;
    let verdict = Verdict::of(all > 0 && same >= needed);
    let words = format!(
        "{}: {same} of {all} samples show the scheduler's state, {needed} (P{PERCENTILE}) must; {untold} show none",
        GAUGES[gauge]
    );
    let mut text = format!("{verdict} {words}\n");
    // Writing to a String can't fail.
    let _ = writeln!(
        text,
        "       |difference| {}   (greatest state {greatest:.4})",
        Distribution::new(differences).in_units(1.0)
    );
    Section {
        text,
        verdicts: vec![(words, verdict)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn states() -> Vec<State> {
        (1..=4_u32)
            .map(|step| State {
                at_ns: u64::from(step) * 100,
                values: [f64::from(step), 0.0, 0.0],
            })
            .collect()
    }

    #[test]
    fn a_sample_may_lag_by_one_step() {
        // Asked for at 310, when the third step was the latest, and answered at 390.
        let cases = [
            (3.0, Verdict::Pass),
            (2.0, Verdict::Pass),
            (1.0, Verdict::Fail),
            (4.0, Verdict::Fail),
        ];
        for (value, expected) in cases {
            let first = Sample {
                before_ns: 10,
                after_ns: 20,
                values: [None; 3],
            };
            let sample = Sample {
                before_ns: 310,
                after_ns: 390,
                values: [Some(value), Some(0.0), None],
            };
            let sections = sections(&[first, sample], &states());
            let verdicts: Vec<Verdict> = sections.iter().map(|section| section.verdicts[0].1).collect();
            assert_eq!(verdicts, [expected, Verdict::Pass, Verdict::Fail], "{value}");
        }
    }

    #[test]
    fn a_state_that_came_meanwhile_may_be_shown_and_early_samples_are_left_out() {
        let sample = |before_ns, after_ns, value| Sample {
            before_ns,
            after_ns,
            values: [Some(value), Some(0.0), Some(0.0)],
        };
        let section = &sections(&[sample(10, 20, 9.0), sample(310, 410, 4.0)], &states())[0];
        assert_eq!(section.verdicts[0].1, Verdict::Pass, "{}", section.text);
        assert!(section.text.contains("1 of 1"), "{}", section.text);
        // An agent that came after the first three steps shows the fourth, or nothing yet.
        let late = &sections(&[sample(310, 320, 9.0), sample(410, 420, 4.0)], &states())[0];
        assert_eq!(late.verdicts[0].1, Verdict::Pass, "{}", late.text);
    }

    #[test]
    fn the_gauges_of_one_engine_are_summed_over_its_models() {
        let metrics = Exposition::parse(
            "llm_requests_scheduled{model=\"a\",engine=\"e\"} 3\nllm_requests_scheduled{model=\"b\",engine=\"e\"} 1\n\
             llm_requests_scheduled{model=\"a\",engine=\"f\"} 9\nllm_queue_length{model=\"a\",engine=\"e\"} 2\n",
        )
        .expect("an exposition");
        assert_eq!(values(&metrics, "e"), [Some(4.0), Some(2.0), None]);
    }
}

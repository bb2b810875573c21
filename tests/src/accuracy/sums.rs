//! Sums that the engine exports against the same sums over the agent's records.
//!
//! Owns: the table and its bound. Refuses: which requests the engine counts (`vllm`, `llama`).

use super::report::{Section, Verdict};
use std::fmt::Write;

/// The agent's sum may be off by so much of the engine's.
const SHARE: f64 = 0.01;

/// One sum of both sides.
#[derive(Debug, Clone)]
pub(super) struct Sum {
    /// What it is a sum of, with the engine's name for it.
    pub(super) what: String,
    pub(super) engine: f64,
    pub(super) agent: f64,
    /// It must agree; others are shown.
    pub(super) bound: bool,
}

/// The table; `left_out` says which requests the engine does not count.
pub(super) fn section(sums: &[Sum], left_out: &str) -> Section {
    let mut text = format!("engine's /metrics against the agent's records; {left_out}\n");
    let mut verdicts = Vec::new();
    for sum in sums {
        let off = sum.agent - sum.engine;
        let share = if off == 0.0 { 0.0 } else { off / sum.engine };
        let verdict = if sum.bound {
            Verdict::of(share.abs() <= SHARE)
        } else {
            Verdict::Shown
        };
        let line = format!(
            "{:62} engine {:14.6}  agent {:14.6}  off by {:+.3} %",
            sum.what,
            sum.engine,
            sum.agent,
            share * 100.0
        );
        // Writing to a String can't fail.
        let _ = writeln!(text, "{verdict} {line}");
        verdicts.push((format!("sum of {line}"), verdict));
    }
    Section { text, verdicts }
}

#[cfg(test)]
mod tests {
    use super::{
        Verdict::{Fail, Pass, Shown},
        *,
    };

    #[test]
    fn one_percent_is_the_limit() {
        let sum = |engine, agent, bound| Sum {
            what: "x".to_owned(),
            engine,
            agent,
            bound,
        };
        let all = [
            sum(100.0, 100.9, true),
            sum(100.0, 98.9, true),
            sum(0.0, 0.0, true),
            sum(0.0, 1.0, true),
            sum(1.0, 5.0, false),
        ];
        let verdicts: Vec<Verdict> = section(&all, "").verdicts.iter().map(|v| v.1).collect();
        assert_eq!(verdicts, [Pass, Fail, Pass, Fail, Shown]);
    }
}

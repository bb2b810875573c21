//! What the agent infers when it may not read an engine's own messages and calls, scored with the engine's truth.
//!
//! Owns: the bound of the medians, and the count of requests of which nothing was inferred. Refuses: judging counts:
//! they come from the response there.

use super::{
    known::Case,
    report::{Section, Verdict},
};
use crate::{agent::Record, stats::Distribution};
use std::fmt::Write;

/// The median of the differences must be below one of them.
const SECONDS: f64 = 0.020;
const SHARE: f64 = 0.20;

/// One request: what is true and what was inferred, with its source.
#[derive(Debug, Clone)]
pub(crate) struct Guess {
    pub(crate) who: String,
    pub(crate) truth: f64,
    pub(crate) inferred: Option<f64>,
    pub(crate) source: Option<String>,
}

/// Collects one duration of all requests of which the truth knows it.
pub(super) fn guesses(
    cases: &[Case],
    truth: impl Fn(&Case) -> Option<f64>,
    inferred: impl Fn(&Record) -> Option<f64>,
    source: impl Fn(&Record) -> Option<String>,
) -> Vec<Guess> {
    let guess = |case: &Case| {
        Some(Guess {
            who: format!("{} {}", case.name(), case.timelines()),
            truth: truth(case)?,
            inferred: case.record.as_ref().and_then(&inferred),
            source: case.record.as_ref().and_then(&source),
        })
    };
    cases.iter().filter_map(guess).collect()
}

/// The table. Only what is said to be an estimate may be inferred here: another source would mean that the agent read what
/// it was told to leave.
pub(crate) fn section(what: &str, guesses: &[Guess]) -> Section {
    let told: Vec<(&Guess, f64)> = guesses
        .iter()
        .filter_map(|guess| Some((guess, guess.inferred? - guess.truth)))
        .collect();
    let silent = guesses.len() - told.len();
    let strangers: Vec<&str> = told
        .iter()
        .filter_map(|(guess, _)| guess.source.as_deref())
        .filter(|source| *source != "estimate")
        .collect();
    let signed = Distribution::new(told.iter().map(|(_, off)| *off));
    let absolute = Distribution::new(told.iter().map(|(_, off)| off.abs()));
    let shares = Distribution::new(told.iter().map(|(guess, off)| off.abs() / guess.truth.abs()));
    let good = absolute.median() < SECONDS || shares.median() < SHARE;
    let verdict = Verdict::of(!told.is_empty() && good && strangers.is_empty());
    let words = format!(
        "{what}, inferred: median off by {:.3} ms, {:.1} %; below {} ms or {} % it must be; {} inferred, of {silent} nothing is said",
        absolute.median() * 1e3,
        shares.median() * 1e2,
        SECONDS * 1e3,
        SHARE * 1e2,
        told.len(),
    );
    let mut text = format!("{verdict} {words}\n");
    // Writing to a String can't fail.
    if !told.is_empty() {
        let _ = writeln!(text, "       |difference| ms {}", absolute.in_units(1e-3));
        let _ = writeln!(text, "       difference ms   {}", signed.in_units(1e-3));
        let _ = writeln!(text, "       of the truth %  {}", shares.in_units(1e-2));
    }
    if !strangers.is_empty() {
        let _ = writeln!(
            text,
            "       {} have another source than an estimate, as {}",
            strangers.len(),
            strangers[0]
        );
    }
    let mut worst = told;
    worst.sort_by(|a, b| b.1.abs().total_cmp(&a.1.abs()));
    for (guess, off) in worst.iter().take(3) {
        let _ = writeln!(
            text,
            "       off by {:+.3} ms, truth {:.3}: {}",
            off * 1e3,
            guess.truth * 1e3,
            guess.who
        );
    }
    Section {
        text,
        verdicts: vec![(words, verdict)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guess(truth: f64, inferred: Option<f64>, source: &str) -> Guess {
        Guess {
            who: "request".to_owned(),
            truth,
            inferred,
            source: Some(source.to_owned()),
        }
    }

    #[test]
    fn the_median_is_judged_and_silence_is_no_error() {
        let cases: [(Vec<Guess>, Verdict); 6] = [
            (vec![guess(0.1, Some(0.119), "estimate")], Verdict::Pass),
            (vec![guess(0.05, Some(0.08), "estimate")], Verdict::Fail),
            (vec![guess(10.0, Some(11.9), "estimate")], Verdict::Pass),
            (
                vec![guess(0.1, Some(0.1), "estimate"), guess(0.1, None, "")],
                Verdict::Pass,
            ),
            (vec![guess(0.1, None, "")], Verdict::Fail),
            (vec![guess(0.1, Some(0.1), "engine")], Verdict::Fail),
        ];
        for (guesses, expected) in cases {
            assert_eq!(section("queue", &guesses).verdicts[0].1, expected, "{guesses:?}");
        }
    }
}

//! Durations and points in time of two sides, request by request: the distribution of their differences, and its bound.
//!
//! Owns: the rule by which a bound is kept. Refuses: which times are compared (`vllm`, `llama`, `inference`).

use super::report::{Section, Verdict};
use crate::stats::Distribution;
use std::fmt::Write;

/// Worst requests that are listed…
const WORST: usize = 3;
/// …where they are off by at least so much.
const WORTH_LISTING: f64 = 10e-6;

/// What one request gave.
#[derive(Debug, Clone)]
pub(crate) struct Pair {
    /// Its name and both timelines, for the list of the worst.
    pub(crate) who: String,
    /// Seconds that the truth says.
    pub(crate) truth: f64,
    /// Seconds that the agent says.
    pub(crate) agent: f64,
}

impl Pair {
    fn difference(&self) -> f64 {
        self.agent - self.truth
    }

    /// Of the truth; infinite where that is zero and the difference is not.
    fn share(&self) -> f64 {
        let difference = self.difference().abs();
        if difference == 0.0 {
            0.0
        } else {
            difference / self.truth.abs()
        }
    }
}

/// How far the agent may be off.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bound {
    /// A request is within the bound when it is off by no more than so many seconds…
    pub(crate) seconds: f64,
    /// …or by no more than this share of the truth.
    pub(crate) share: f64,
    /// So many of a hundred requests must be within it.
    pub(crate) percentile: f64,
}

/// One compared quantity.
#[derive(Debug)]
pub(crate) struct Times {
    pub(crate) what: String,
    pub(crate) pairs: Vec<Pair>,
    /// Requests of which the truth says it and the agent does not.
    pub(crate) missing: Vec<String>,
    pub(crate) bound: Option<Bound>,
}

impl Times {
    /// The table, with the bound's verdict. A missing value is outside every bound.
    pub(crate) fn section(&self) -> Section {
        let signed = Distribution::new(self.pairs.iter().map(Pair::difference));
        let absolute = Distribution::new(self.pairs.iter().map(|pair| pair.difference().abs()));
        let shares = Distribution::new(self.pairs.iter().map(Pair::share));
        let (verdict, words) = self.verdict();
        let mut text = format!("{verdict} {}", self.what);
        if !words.is_empty() {
            // Writing to a String can't fail.
            let _ = write!(text, ": {words}");
        }
        text.push('\n');
        if !self.pairs.is_empty() {
            let _ = write!(
                text,
                "       |difference| ms {}\n       difference ms   {}\n       of the truth %  {}\n",
                absolute.in_units(1e-3),
                signed.in_units(1e-3),
                shares.in_units(1e-2),
            );
        }
        if !self.missing.is_empty() {
            let _ = writeln!(
                text,
                "       the agent does not tell it of {}: {}",
                self.missing.len(),
                self.missing.join("; ")
            );
        }
        for pair in self.worst() {
            let _ = writeln!(
                text,
                "       off by {:+.3} ms, truth {:.3}: {}",
                pair.difference() * 1e3,
                pair.truth * 1e3,
                pair.who
            );
        }
        let verdicts = vec![(format!("{}: {words}", self.what), verdict)];
        Section { text, verdicts }
    }

    fn verdict(&self) -> (Verdict, String) {
        let Some(bound) = self.bound else {
            return (Verdict::Shown, String::new());
        };
        let within = |pair: &&Pair| pair.difference().abs() <= bound.seconds || pair.share() <= bound.share;
        let (all, inside) = (
            self.pairs.len() + self.missing.len(),
            self.pairs.iter().filter(within).count(),
        );
        // By nearest rank: the value at the percentile is within the bound when at least so many are.
        let needed = (bound.percentile / 100.0 * all as f64).ceil() as usize;
        let share = if bound.share > 0.0 {
            format!(" or {} %", bound.share * 100.0)
        } else {
            String::new()
        };
        let words = format!(
            "{inside} of {all} within {} ms{share}, {needed} (P{}) must be",
            bound.seconds * 1e3,
            bound.percentile
        );
        (Verdict::of(all > 0 && inside >= needed), words)
    }

    fn worst(&self) -> Vec<&Pair> {
        let worth = |pair: &&Pair| pair.difference().abs() >= WORTH_LISTING;
        let mut pairs: Vec<&Pair> = self.pairs.iter().filter(worth).collect();
        pairs.sort_by(|a, b| b.difference().abs().total_cmp(&a.difference().abs()));
        pairs.truncate(WORST);
        pairs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(differences_ms: &[f64], missing: usize, bound: Bound) -> Times {
        let pair = |(index, ms): (usize, &f64)| Pair {
            who: format!("request {index}"),
            truth: 0.1,
            agent: 0.1 + ms / 1e3,
        };
        Times {
            what: "prefill".to_owned(),
            pairs: differences_ms.iter().enumerate().map(pair).collect(),
            missing: vec!["x".to_owned(); missing],
            bound: Some(bound),
        }
    }

    #[test]
    fn a_bound_is_kept_by_as_many_as_its_percentile_says() {
        let tight = |percentile| Bound {
            seconds: 0.001,
            share: 0.0,
            percentile,
        };
        let with_share = Bound {
            share: 0.03,
            ..tight(95.0)
        };
        let mut many = vec![0.5; 99];
        many.push(-50.0);
        let cases: [(&[f64], usize, Bound, Verdict); 8] = [
            (&[0.5, -0.9], 0, tight(99.0), Verdict::Pass),
            (&[0.5, -1.1], 0, tight(99.0), Verdict::Fail),
            (&many, 0, tight(99.0), Verdict::Pass),
            (&many, 1, tight(99.0), Verdict::Fail),
            (&[0.5], 1, tight(99.0), Verdict::Fail),
            (&[2.9], 0, with_share, Verdict::Pass),
            (&[3.1], 0, with_share, Verdict::Fail),
            (&[], 0, tight(99.0), Verdict::Fail),
        ];
        for (differences, missing, bound, expected) in cases {
            let section = times(differences, missing, bound).section();
            assert_eq!(
                section.verdicts[0].1, expected,
                "{differences:?} {missing} {bound:?}"
            );
        }
    }

    #[test]
    fn the_worst_are_listed_with_who_they_are() {
        let bound = Bound {
            seconds: 0.001,
            share: 0.0,
            percentile: 99.0,
        };
        let text = times(&[0.1, -7.0, 0.2, 0.3], 0, bound).section().text;
        assert!(
            text.contains("off by -7.000 ms, truth 100.000: request 1"),
            "{text}"
        );
        assert!(!text.contains("request 0"), "{text}");
    }
}

//! From readings to totals: counters that never go back, and integrals over samples.
//!
//! Owns: what happens when the driver's own counter starts anew, and when samples are missing. Refuses: which value is
//! which (`known`).

use super::source::{Sample, Stamp};
use infertap_core::Nanos;

/// How far ahead of the reading a sample may be stamped: the clocks are not read at the same instant.
const AHEAD: Nanos = 1_000_000_000;

/// A total that only grows, whatever becomes of the counter behind it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Count {
    total: f64,
    /// What the driver's counter told last.
    raw: Option<f64>,
    begun: bool,
    shown: bool,
}

impl Count {
    /// The driver's counter reads `raw`. Returns what was added; `None` for the first reading, with which the total
    /// begins.
    pub(super) fn counted(&mut self, raw: f64) -> Option<f64> {
        let added = self.raw.map(|before| {
            if raw >= before {
                raw - before
            } else {
                // It began anew: a reset, or a driver that was loaded again.
                raw
            }
        });
        match added {
            Some(added) => self.total += added,
            None if !self.begun => self.total = raw,
            // It was integrated meanwhile: what the counter has gained since is in the total already.
            None => {}
        }
        self.raw = Some(raw);
        (self.begun, self.shown) = (true, true);
        added
    }

    /// Adds what was integrated.
    pub(super) fn add(&mut self, amount: f64) {
        self.total += amount;
        self.raw = None;
        (self.begun, self.shown) = (true, true);
    }

    /// It is not supported (any more). Should it be again, it goes on from where it was.
    pub(super) fn hide(&mut self) {
        self.raw = None;
        self.shown = false;
    }

    /// The total, where there is one.
    pub(super) fn value(self) -> Option<f64> {
        self.shown.then_some(self.total)
    }
}

/// A sample and the time that it stands for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Span {
    pub(super) end: Nanos,
    pub(super) length: Nanos,
    pub(super) value: f64,
}

impl Span {
    pub(super) fn seconds(self) -> f64 {
        self.length as f64 / 1e9
    }
}

/// The samples of one value, each standing for the time since the one before it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Sampled {
    /// End of the last sample that was taken.
    pub(super) anchor: Option<Nanos>,
}

/// What [`Sampled::take`] found.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Taken {
    /// Oldest first, without a hole between them.
    pub(super) spans: Vec<Span>,
    /// Samples are missing between those before and these: what came before the hole is left out.
    pub(super) gap: bool,
}

impl Sampled {
    /// Takes the samples since the last time, in any order. A span longer than `longest` is a hole.
    pub(super) fn take(&mut self, stamp: Stamp, samples: &[Sample], longest: Nanos) -> Taken {
        let mut timed: Vec<(Nanos, f64)> = samples
            .iter()
            .filter(|sample| sample.value.is_finite() && sample.value >= 0.0)
            .filter_map(|sample| Some((stamp.monotonic(sample.wall_us)?, sample.value)))
            .filter(|(at, _)| *at <= stamp.at.saturating_add(AHEAD))
            .map(|(at, value)| (at.min(stamp.at), value))
            .collect();
        timed.sort_by_key(|(at, _)| *at);
        let mut taken = Taken::default();
        for (end, value) in timed {
            if let Some(before) = self.anchor {
                if end <= before {
                    continue;
                }
                let length = end - before;
                if length > longest {
                    taken.spans.clear();
                    taken.gap = true;
                } else {
                    taken.spans.push(Span { end, length, value });
                }
            }
            self.anchor = Some(end);
        }
        taken
    }
}

/// The mean over spans, weighted by their length.
pub(super) fn mean(spans: &[Span]) -> Option<f64> {
    let length: f64 = spans.iter().map(|span| span.seconds()).sum();
    (length > 0.0).then(|| integral(spans) / length)
}

/// The integral over spans, value times seconds.
pub(super) fn integral(spans: &[Span]) -> f64 {
    spans.iter().map(|span| span.value * span.seconds()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_total_goes_on_when_its_counter_begins_anew_or_goes_away() {
        let mut count = Count::default();
        assert_eq!(count.value(), None, "unknown is not zero");
        assert_eq!((count.counted(100.0), count.value()), (None, Some(100.0)));
        assert_eq!((count.counted(130.0), count.value()), (Some(30.0), Some(130.0)));
        assert_eq!(
            (count.counted(5.0), count.value()),
            (Some(5.0), Some(135.0)),
            "a reset"
        );
        count.hide();
        assert_eq!(count.value(), None);
        assert_eq!((count.counted(50.0), count.value()), (None, Some(135.0)));
        count.add(2.0);
        assert_eq!(count.value(), Some(137.0));
        assert_eq!(
            (count.counted(60.0), count.value()),
            (None, Some(137.0)),
            "those 10 were integrated"
        );
        assert_eq!((count.counted(61.0), count.value()), (Some(1.0), Some(138.0)));
    }

    const NOW: Stamp = Stamp {
        at: 100_000_000_000,
        wall_us: 1_700_000_000_000_000,
    };

    fn sample(ago_ms: i64, value: f64) -> Sample {
        Sample {
            wall_us: NOW.wall_us.saturating_add_signed(-ago_ms * 1000),
            value,
        }
    }

    #[test]
    fn samples_stand_for_the_time_since_the_one_before() {
        let mut sampled = Sampled::default();
        let longest = 2_000_000_000;
        let first = sampled.take(NOW, &[sample(900, 0.5), sample(1000, 0.1)], longest);
        // The first of all only tells when the next one begins.
        assert_eq!(first.spans.len(), 1);
        let samples = [
            sample(500, 1.0),
            sample(900, 0.9),
            sample(700, 0.2),
            // From the future, for the clock was set: not believed. Only just: taken as now.
            sample(-5000, 1.0),
            sample(-1, 0.4),
            sample(300, f64::NAN),
        ];
        let taken = sampled.take(NOW, &samples, longest);
        let told: Vec<(u64, f64)> = taken
            .spans
            .iter()
            .map(|s| (s.length / 1_000_000, s.value))
            .collect();
        assert_eq!(told, [(200, 0.2), (200, 1.0), (500, 0.4)]);
        assert!((integral(&taken.spans) - 0.44).abs() < 1e-12);
        assert!((mean(&taken.spans).expect("some") - 0.44 / 0.9).abs() < 1e-12);
        assert_eq!(sampled.anchor, Some(NOW.at));
        assert_eq!(mean(&[]), None);
    }

    #[test]
    fn a_hole_is_told_and_nothing_spans_it() {
        let mut sampled = Sampled {
            anchor: Some(NOW.at - 5_000_000_000),
        };
        let taken = sampled.take(NOW, &[sample(1000, 1.0), sample(500, 0.5)], 2_000_000_000);
        assert!(taken.gap);
        assert_eq!(
            taken.spans.iter().map(|s| s.length).collect::<Vec<_>>(),
            [500_000_000]
        );
    }

    proptest! {
        #[test]
        fn spans_never_overlap_and_never_exceed_the_time_that_passed(
            polls in proptest::collection::vec(proptest::collection::vec((-3000_i64..3000, 0.0_f64..1.0), 0..20), 1..10),
        ) {
            let mut sampled = Sampled::default();
            let mut last_end = None;
            for (i, poll) in polls.iter().enumerate() {
                let passed = i as u64 * 1_000_000_000;
                let stamp = Stamp { at: NOW.at + passed, wall_us: NOW.wall_us + passed / 1000 };
                let samples: Vec<Sample> = poll.iter().map(|(ago, value)| sample(ago - passed as i64 / 1_000_000, *value)).collect();
                let taken = sampled.take(stamp, &samples, 10_000_000_000);
                for span in taken.spans {
                    prop_assert!(span.end <= stamp.at);
                    if let Some(last) = last_end {
                        prop_assert_eq!(span.end - span.length, last);
                    }
                    last_end = Some(span.end);
                }
            }
        }
    }
}

//! How long a response waited for its client to read.
//!
//! Owns: the waits, from refused, short and long writes. Refuses: deciding whether that is much (`diagnose`). What fits
//! into the socket's buffer makes nobody wait, so a slow client of a short response does not show.

use crate::Nanos;

/// A write that takes longer was kept waiting for room; a shorter one may have lost the processor.
const LONG_WRITE: Nanos = 5_000_000;
/// Where the kernel side's clock of a call ends: the write took at least as long.
const SATURATED: Nanos = u32::MAX as Nanos;
/// Waits that are kept one by one; further ones only add to the sum.
const MAX_SPANS: usize = 256;

/// The waits of one response.
#[derive(Debug, Default)]
pub(crate) struct Stalls {
    /// The socket takes nothing since.
    since: Option<Nanos>,
    /// Waits are counted up to here: the pieces of one write share its time.
    counted: Nanos,
    total: u64,
    spans: Vec<(Nanos, Nanos)>,
}

impl Stalls {
    /// A write was refused.
    pub(crate) fn refused(&mut self, at: Nanos) {
        self.since.get_or_insert(at);
    }

    /// A write began at `at` and was over at `until`; `short`: the socket took less than it was offered.
    pub(crate) fn wrote(&mut self, at: Nanos, until: Nanos, short: bool) {
        if let Some(since) = self.since
            && at >= since
        {
            self.add(since, at);
            self.since = None;
        }
        let took = until.saturating_sub(at);
        if took >= SATURATED {
            self.since = Some(at);
        } else if took >= LONG_WRITE {
            self.add(at, until);
        }
        if short {
            self.since = Some(self.since.map_or(until, |since| since.min(until)));
        }
    }

    /// The response is over: a socket that took nothing until then never did again.
    pub(crate) fn end(&mut self, at: Nanos) {
        if let Some(since) = self.since.take() {
            self.add(since, at);
        }
    }

    fn add(&mut self, from: Nanos, to: Nanos) {
        let from = from.max(self.counted);
        if to <= from {
            return;
        }
        self.counted = to;
        self.total += to - from;
        if let Some(last) = self.spans.last_mut()
            && last.1 == from
        {
            last.1 = to;
        } else if self.spans.len() < MAX_SPANS {
            self.spans.push((from, to));
        }
    }

    /// All of it, nanoseconds.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// When the last wait was over; 0 without any.
    pub(crate) fn last(&self) -> Nanos {
        self.counted
    }

    /// The part of it within a time.
    pub(crate) fn within(&self, from: Nanos, to: Nanos) -> u64 {
        let first = self.spans.partition_point(|span| span.1 <= from);
        self.spans
            .get(first..)
            .unwrap_or_default()
            .iter()
            .take_while(|span| span.0 < to)
            .map(|span| span.1.min(to).saturating_sub(span.0.max(from)))
            .sum()
    }

    /// Heap bytes.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.spans.capacity() * size_of::<(Nanos, Nanos)>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: Nanos = 1_000_000;

    fn stalls(act: impl FnOnce(&mut Stalls)) -> Stalls {
        let mut stalls = Stalls::default();
        act(&mut stalls);
        stalls
    }

    #[test]
    fn a_refusal_lasts_until_a_write_succeeds() {
        let refused = stalls(|s| {
            s.refused(10 * MS);
            s.refused(15 * MS);
            s.wrote(30 * MS, 30 * MS + 9_000, false);
            s.wrote(40 * MS, 40 * MS + 9_000, false);
            s.end(50 * MS);
        });
        assert_eq!(refused.total(), 20 * MS);
        assert_eq!(refused.within(0, 20 * MS), 10 * MS);
        assert_eq!(refused.within(12 * MS, 18 * MS), 6 * MS);
        assert_eq!(refused.within(30 * MS, 90 * MS), 0);
    }

    #[test]
    fn a_short_write_lasts_until_the_next_and_its_pieces_are_one() {
        let short = stalls(|s| {
            s.wrote(10 * MS, 11 * MS, true);
            s.wrote(10 * MS, 11 * MS, true);
            s.refused(12 * MS);
            s.wrote(21 * MS, 22 * MS, false);
        });
        assert_eq!(short.total(), 10 * MS);
    }

    #[test]
    fn a_long_write_is_a_wait_and_a_longer_one_than_the_clock_ends_with_the_next() {
        let long = stalls(|s| {
            for _ in 0..3 {
                s.wrote(0, 20 * MS, false);
            }
            s.wrote(30 * MS, 34 * MS, false);
        });
        assert_eq!(long.total(), 20 * MS);
        let saturated = stalls(|s| {
            s.wrote(0, SATURATED, false);
            s.wrote(0, SATURATED, false);
            s.wrote(9_000 * MS, 9_001 * MS, false);
        });
        assert_eq!(saturated.total(), 9_000 * MS);
    }

    #[test]
    fn a_client_that_never_reads_again_is_waited_for_to_the_end() {
        let left = stalls(|s| {
            s.wrote(0, MS, true);
            s.end(501 * MS);
        });
        assert_eq!((left.total(), left.last()), (500 * MS, 501 * MS));
    }

    #[test]
    fn past_the_bound_the_sum_goes_on() {
        let many = stalls(|s| {
            for i in 0..1000 {
                s.refused(i * 10 * MS);
                s.wrote(i * 10 * MS + MS, i * 10 * MS + MS, false);
            }
        });
        assert_eq!((many.total(), many.spans.len()), (1000 * MS, MAX_SPANS));
    }

    proptest! {
        /// In any order, no time counts twice.
        #[test]
        fn never_more_than_has_passed(steps in proptest::collection::vec((0u8..4, 0u64..100, 0u64..8), 0..60)) {
            let mut stalls = Stalls::default();
            let mut latest = 0;
            for (what, at, took) in steps {
                let (at, until) = (at * MS, (at + took) * MS);
                latest = latest.max(until);
                match what {
                    0 => stalls.refused(at),
                    1 => stalls.end(at),
                    _ => stalls.wrote(at, until, what == 3),
                }
                prop_assert!(stalls.total() <= latest);
                prop_assert_eq!(stalls.within(0, Nanos::MAX), stalls.total());
                prop_assert!(stalls.spans.is_sorted_by(|a, b| a.1 < b.0));
            }
        }
    }
}

//! One request's points in time, and the spans between them.
//!
//! Owns: T0…T4, the gaps between tokens, their bounds; the promise that no duration is negative. Refuses: deciding what
//! is a token (`protocol`) and where a request begins and ends (`connection`).
//!
//! T2 and T3 are the beginnings of the writes that *completed* the first and the last content-bearing chunk: a client
//! can use a chunk only when its last byte is there.

use crate::Nanos;

/// A clock value that must follow another came before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WentBack;

/// Times of one request.
#[derive(Debug, Default)]
pub(crate) struct Timeline {
    t0: Option<Nanos>,
    t2: Option<Nanos>,
    t3: Option<Nanos>,
    t4: Option<Nanos>,
    gaps: Gaps,
    /// Last chunk of the first choice.
    last: Option<Nanos>,
    /// Last chunk of each other choice.
    others: Vec<(u32, Nanos)>,
}

/// Choices, beside the first, whose gaps are told apart; further ones have none.
const MAX_OTHER_CHOICES: usize = 127;

impl Timeline {
    /// A timeline whose first byte came at `t0`; `None` when the agent was not there yet.
    pub(crate) fn new(t0: Option<Nanos>) -> Timeline {
        Timeline {
            t0,
            ..Timeline::default()
        }
    }

    /// A content-bearing chunk of `tokens` tokens of this choice was written at `at`. Choices decode side by side, so a
    /// gap is between chunks of one choice. At most `limit` gaps are kept.
    pub(crate) fn chunk(
        &mut self,
        at: Nanos,
        choice: u32,
        tokens: u32,
        limit: usize,
    ) -> Result<(), WentBack> {
        let (at, went_back) = not_before(at, self.t3.or(self.t0));
        self.t2.get_or_insert(at);
        self.t3 = Some(at);
        let previous = if choice == 0 {
            self.last.replace(at)
        } else if let Some((_, last)) = self.others.iter_mut().find(|(index, _)| *index == choice) {
            Some(std::mem::replace(last, at))
        } else {
            if self.others.len() < MAX_OTHER_CHOICES {
                self.others.push((choice, at));
            }
            None
        };
        if let Some(previous) = previous {
            self.gaps.push(at - previous, tokens, limit);
        }
        went_back
    }

    /// Choices that had content, at least 1.
    pub(crate) fn choices(&self) -> usize {
        (usize::from(self.last.is_some()) + self.others.len()).max(1)
    }

    /// Response bytes had left by `at`.
    pub(crate) fn wrote(&mut self, at: Nanos) -> Result<(), WentBack> {
        let (at, went_back) = not_before(at, self.t4.or(self.t3).or(self.t0));
        self.t4 = Some(at);
        went_back
    }

    pub(crate) fn t0(&self) -> Option<Nanos> {
        self.t0
    }

    pub(crate) fn t2(&self) -> Option<Nanos> {
        self.t2
    }

    pub(crate) fn t3(&self) -> Option<Nanos> {
        self.t3
    }

    /// Never before T3: the write that carried the last chunk also left after it began.
    pub(crate) fn t4(&self) -> Option<Nanos> {
        self.t4.map(|t4| t4.max(self.t3.unwrap_or(0)))
    }

    pub(crate) fn ttft_s(&self) -> Option<f64> {
        seconds_between(self.t0, self.t2)
    }

    pub(crate) fn decode_s(&self) -> Option<f64> {
        seconds_between(self.t2, self.t3)
    }

    /// Decode time over the tokens after the first, when `tokens` came in `chunks` chunks. Each of several choices is
    /// taken to have its share of the tokens. Absent with fewer than two tokens a choice, and with a single chunk,
    /// which shows no time between tokens whatever it carries.
    pub(crate) fn tpot_s(&self, tokens: u64, chunks: u64) -> Option<f64> {
        let decode_s = self.decode_s().filter(|_| chunks >= 2)?;
        Timeline::tpot_of(decode_s, tokens, self.choices())
    }

    /// `decode_s` over the tokens after the first, as [`Timeline::tpot_s`].
    pub(crate) fn tpot_of(decode_s: f64, tokens: u64, choices: usize) -> Option<f64> {
        let after_first = tokens as f64 / choices.max(1) as f64 - 1.0;
        (after_first >= 1.0).then_some(decode_s / after_first)
    }

    pub(crate) fn e2e_s(&self) -> Option<f64> {
        seconds_between(self.t0, self.t4())
    }

    /// Seconds, and the tokens that share them, for each content-bearing chunk after the first.
    pub(crate) fn gaps(&self) -> Vec<(f64, u32)> {
        self.gaps.seconds()
    }

    /// Heap bytes.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.gaps.heap_bytes() + self.others.capacity() * size_of::<(u32, Nanos)>()
    }
}

fn not_before(at: Nanos, floor: Option<Nanos>) -> (Nanos, Result<(), WentBack>) {
    match floor {
        Some(floor) if at < floor => (floor, Err(WentBack)),
        _ => (at, Ok(())),
    }
}

fn seconds_between(from: Option<Nanos>, to: Option<Nanos>) -> Option<f64> {
    Some(to?.checked_sub(from?)? as f64 / 1e9)
}

/// Gaps as varints of microseconds: two or three bytes a token instead of sixteen. The lowest bit tells whether a
/// token count other than one follows.
#[derive(Debug, Default)]
pub(crate) struct Gaps {
    bytes: Vec<u8>,
    count: usize,
    /// Nanoseconds that rounding to microseconds has kept back, so that the gaps of a stream add up to its length.
    carry: u64,
}

impl Gaps {
    /// Adds a gap that `tokens` tokens share, unless there are `limit` already.
    pub(crate) fn push(&mut self, ns: u64, tokens: u32, limit: usize) {
        if self.count >= limit {
            return;
        }
        self.count += 1;
        let ns = ns.saturating_add(self.carry);
        self.carry = ns % 1000;
        let us = (ns / 1000).min(u64::MAX >> 1);
        put_varint(&mut self.bytes, us << 1 | u64::from(tokens != 1));
        if tokens != 1 {
            put_varint(&mut self.bytes, u64::from(tokens));
        }
    }

    /// Seconds, and the tokens that share them.
    pub(crate) fn seconds(&self) -> Vec<(f64, u32)> {
        self.iter()
            .map(|(us, tokens)| (us as f64 / 1e6, tokens))
            .collect()
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    fn iter(&self) -> impl Iterator<Item = (u64, u32)> {
        let mut rest = self.bytes.as_slice();
        std::iter::from_fn(move || {
            let head = take_varint(&mut rest)?;
            let tokens = if head & 1 == 1 {
                take_varint(&mut rest)? as u32
            } else {
                1
            };
            Some((head >> 1, tokens))
        })
    }
}

fn put_varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    let mut shift = 0;
    loop {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
        shift += 7;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_spans_are_those_of_the_design() {
        let mut timeline = Timeline::new(Some(1_000_000_000));
        for (at, tokens) in [(1_250_000_000, 1), (1_300_000_000, 1), (1_400_000_000, 4)] {
            timeline.chunk(at, 0, tokens, 100).expect("in order");
            timeline.wrote(at + 5_000).expect("in order");
        }
        timeline.wrote(1_500_000_000).expect("in order");
        assert_eq!(timeline.ttft_s(), Some(0.25));
        assert_eq!(timeline.decode_s(), Some(0.15));
        assert_eq!(timeline.e2e_s(), Some(0.5));
        assert_eq!(timeline.gaps(), [(0.05, 1), (0.1, 4)]);
        assert_eq!(timeline.tpot_s(6, 3), Some(0.03));
        assert_eq!(timeline.tpot_s(1, 1), None);
        assert_eq!(timeline.tpot_s(6, 1), None, "one chunk shows no gap");
    }

    #[test]
    fn choices_have_gaps_of_their_own() {
        let mut timeline = Timeline::new(Some(0));
        for step in 0..3 {
            for choice in 0..2u32 {
                let at = step * 100_000_000 + u64::from(choice) * 1_000_000;
                timeline.chunk(at, choice, 1, 100).expect("in order");
            }
        }
        assert_eq!(timeline.gaps(), [(0.1, 1); 4]);
        assert_eq!(timeline.tpot_s(6, 6), Some(0.1005));
    }

    #[test]
    fn without_evidence_a_span_is_absent() {
        let mut timeline = Timeline::new(None);
        assert_eq!(
            (timeline.ttft_s(), timeline.decode_s(), timeline.e2e_s()),
            (None, None, None)
        );
        timeline.chunk(5, 0, 1, 10).expect("first");
        timeline.wrote(6).expect("later");
        assert_eq!(
            (timeline.ttft_s(), timeline.decode_s(), timeline.e2e_s()),
            (None, Some(0.0), None)
        );
    }

    #[test]
    fn time_that_goes_back_is_told_and_clamped() {
        let mut timeline = Timeline::new(Some(100));
        assert_eq!(timeline.chunk(90, 0, 1, 10), Err(WentBack));
        assert_eq!(timeline.chunk(200, 0, 1, 10), Ok(()));
        assert_eq!(timeline.chunk(150, 0, 1, 10), Err(WentBack));
        assert_eq!(timeline.wrote(120), Err(WentBack));
        assert_eq!(
            (timeline.t2(), timeline.t3(), timeline.t4()),
            (Some(100), Some(200), Some(200))
        );
    }

    #[test]
    fn gaps_are_bounded_and_sub_microsecond_rests_are_carried() {
        let mut timeline = Timeline::new(Some(0));
        for i in 0..50 {
            timeline.chunk(i * 1_500, 0, 1, 10).expect("in order");
        }
        let gaps = timeline.gaps();
        assert_eq!(gaps.len(), 10);
        assert!((gaps.iter().map(|g| g.0).sum::<f64>() - 15e-6).abs() < 1e-9);
    }

    proptest! {
        #[test]
        fn any_times_give_ordered_points(
            t0 in proptest::option::of(any::<u64>()),
            steps in proptest::collection::vec((any::<u64>(), any::<u32>(), any::<bool>()), 0..40),
        ) {
            let mut timeline = Timeline::new(t0);
            for (at, tokens, chunk) in steps {
                let _ = if chunk { timeline.chunk(at, tokens % 3, tokens, 20) } else { timeline.wrote(at) };
            }
            let points: Vec<u64> =
                [timeline.t0(), timeline.t2(), timeline.t3(), timeline.t4()].into_iter().flatten().collect();
            prop_assert!(points.is_sorted(), "{points:?}");
            prop_assert!(timeline.gaps().iter().all(|g| g.0 >= 0.0));
        }

        #[test]
        fn gaps_survive_their_packing(gaps in proptest::collection::vec((0u64..u64::MAX >> 20, any::<u32>()), 0..60)) {
            let mut packed = Gaps::default();
            for (us, tokens) in &gaps {
                packed.push(us * 1000, *tokens, usize::MAX);
            }
            prop_assert_eq!(packed.iter().collect::<Vec<_>>(), gaps);
        }
    }
}

//! When an engine began to give work to its GPUs: step boundaries, where CUDA calls are probed.
//!
//! Owns: their bounded memory, and what they say of a start that is known less well. Refuses: the start itself (`plan`).

use super::plan::Start;
use crate::Nanos;
use std::collections::VecDeque;

/// Beginnings remembered.
const MAX_BEGINS: usize = 4096;
/// Beginnings that are so close are of one step: of several processes, or of what a step does in parts.
const SAME: Nanos = 2_000_000;
/// From the scheduler's decision to the first launch: inputs are put together.
const LAUNCH: Nanos = 2_000_000;

/// Beginnings of bursts, in order.
#[derive(Debug, Default)]
pub(super) struct Bursts {
    begins: VecDeque<Nanos>,
}

impl Bursts {
    /// A burst began; it is told when it is over.
    pub(super) fn began(&mut self, at: Nanos) {
        let place = self.begins.partition_point(|begin| *begin <= at);
        self.begins.insert(place, at);
        if self.begins.len() > MAX_BEGINS {
            self.begins.pop_front();
        }
    }

    /// The start, by the burst that it must have come with; as it was, where none or several may be that. `alone`: nothing
    /// else was under way when the request came at `t0`, so the first burst since is its own.
    pub(super) fn sharpen(&self, start: Start, t0: Nanos, t2: Nanos, alone: bool) -> Start {
        let (from, to) = if alone {
            (t0, t2)
        } else {
            let from = start.at.saturating_sub(start.error).max(t0);
            (from, start.at.saturating_add(start.error).min(t2))
        };
        let first = self.begins.partition_point(|begin| *begin < from);
        let mut within = self.begins.range(first..).take_while(|begin| **begin <= to);
        let Some(begin) = within.next().copied() else {
            return start;
        };
        let one = alone || within.all(|other| *other <= begin.saturating_add(SAME));
        if !one {
            return start;
        }
        Start {
            at: begin,
            error: if alone { LAUNCH } else { start.error.min(LAUNCH) },
        }
    }

    /// Heap bytes.
    pub(super) fn bytes(&self) -> usize {
        self.begins.capacity() * size_of::<Nanos>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanos = 1_000_000;

    #[test]
    fn a_start_is_that_of_the_only_burst_that_it_can_be() {
        let mut bursts = Bursts::default();
        // Two processes at 100 ms; steps at 130 and 160 ms.
        for at in [101, 100, 160, 130] {
            bursts.began(at * MS);
        }
        let start = |at, error| Start {
            at: at * MS,
            error: error * MS,
        };
        let cases = [
            ("one", start(98, 10), false, start(100, 2)),
            ("several", start(120, 20), false, start(120, 20)),
            ("none", start(115, 5), false, start(115, 5)),
            ("alone, long before", start(20, 5), true, start(100, 2)),
        ];
        for (name, before, alone, after) in cases {
            assert_eq!(bursts.sharpen(before, 20 * MS, 200 * MS, alone), after, "{name}");
        }
    }

    #[test]
    fn memory_is_bounded() {
        let mut bursts = Bursts::default();
        for at in 0..10_000 {
            bursts.began(at);
        }
        assert_eq!(bursts.begins.len(), MAX_BEGINS);
    }
}

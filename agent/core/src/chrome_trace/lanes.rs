//! Lanes for intervals that overlap.
//!
//! Owns: that no two on one lane overlap, and that there are as few lanes as there can be. Refuses: what they are of.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

/// Gives each interval a lane; they must come by their beginnings.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    /// By when they are free again.
    busy: BinaryHeap<Reverse<(u64, u32)>>,
    free: BTreeSet<u32>,
    count: u32,
}

impl Lanes {
    /// The first lane, from 0 on, that is free from `from` to `to`. What ends when another begins does not overlap it.
    pub(super) fn take(&mut self, from: u64, to: u64) -> u32 {
        while let Some(Reverse((end, lane))) = self.busy.peek().copied()
            && end <= from
        {
            self.busy.pop();
            self.free.insert(lane);
        }
        let lane = self.free.pop_first().unwrap_or_else(|| {
            self.count += 1;
            self.count - 1
        });
        self.busy.push(Reverse((to, lane)));
        lane
    }

    /// How many were needed.
    pub(super) fn count(&self) -> u32 {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_overlaps_is_apart_and_a_free_lane_is_used_again() {
        let mut lanes = Lanes::default();
        let intervals = [
            (0, 10),
            (1, 4),
            (2, 12),
            (4, 6),
            (10, 20),
            (10, 10),
            (11, 12),
            (12, 13),
        ];
        let taken: Vec<u32> = intervals.iter().map(|&(from, to)| lanes.take(from, to)).collect();
        assert_eq!(taken, [0, 1, 2, 1, 0, 1, 1, 1]);
        assert_eq!(lanes.count(), 3);
    }
}

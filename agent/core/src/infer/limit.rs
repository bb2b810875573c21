//! How many requests one engine runs side by side: learnt from how many were under way whenever one started.
//!
//! Owns: the samples, and when they are enough to believe. Refuses: times.
//!
//! A request that had to wait starts when one before it ends. If the number under way at that moment is nearly always the
//! same, the engine has that many places; if it varies, memory or a policy decides, and nothing is said.

use std::collections::VecDeque;

/// Samples kept: a changed engine is believed after some dozens of requests.
const SAMPLES: usize = 64;
/// Waits that are enough to believe a limit.
const ENOUGH: usize = 4;

/// What was seen of one start.
#[derive(Debug, Clone, Copy)]
struct Sample {
    /// Requests under way that had arrived before it, and itself, when it arrived.
    arrived: u32,
    /// The same when it started.
    started: u32,
}

/// The limit of one engine.
#[derive(Debug, Default)]
pub(super) struct Limit {
    samples: VecDeque<Sample>,
}

impl Limit {
    /// A request arrived as number `arrived` of those under way, and started as number `started`.
    pub(super) fn started(&mut self, arrived: u32, started: u32) {
        if self.samples.len() >= SAMPLES {
            self.samples.pop_front();
        }
        self.samples.push_back(Sample { arrived, started });
    }

    /// So many requests were seen to run side by side.
    pub(super) fn proven(&self) -> u32 {
        match self.established() {
            Some(limit) => limit,
            None => self.samples.iter().map(|s| s.started).max().unwrap_or(0),
        }
    }

    /// The limit, when enough requests that arrived past it started exactly at it.
    pub(super) fn established(&self) -> Option<u32> {
        let mut starts: Vec<u32> = self
            .samples
            .iter()
            .filter(|s| s.arrived > s.started)
            .map(|s| s.started)
            .collect();
        starts.sort_unstable();
        let (count, limit) = starts
            .chunk_by(|a, b| a == b)
            .filter_map(|same| Some((same.len(), *same.first()?)))
            .max()?;
        let past: Vec<&Sample> = self.samples.iter().filter(|s| s.arrived > limit).collect();
        let above = past.iter().filter(|s| s.started > limit).count();
        (count >= ENOUGH && count * 5 >= past.len() * 3 && above * 10 <= past.len()).then_some(limit)
    }

    /// Heap bytes.
    pub(super) fn bytes(&self) -> usize {
        self.samples.capacity() * size_of::<Sample>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_believed_once_waits_agree_and_forgotten_when_they_do_not() {
        let mut limit = Limit::default();
        for n in 1..=4 {
            limit.started(n, n);
        }
        assert_eq!((limit.established(), limit.proven()), (None, 4));
        for waiting in 5..9 {
            assert_eq!(limit.established(), None);
            limit.started(waiting, 4);
        }
        assert_eq!(limit.established(), Some(4));
        // The engine starts again with more places.
        for n in 5..=8 {
            limit.started(n, n);
        }
        assert_eq!((limit.established(), limit.proven()), (None, 8));
        for _ in 0..64 {
            limit.started(12, 8);
        }
        assert_eq!(limit.established(), Some(8));
    }

    #[test]
    fn where_starts_vary_no_limit_is_believed() {
        let mut limit = Limit::default();
        for n in 0..64u32 {
            limit.started(20, 3 + n * 7 % 9);
        }
        assert_eq!(limit.established(), None);
    }
}

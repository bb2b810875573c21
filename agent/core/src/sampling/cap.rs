//! At most so many in any 60 seconds.
//!
//! Owns: the times of those that were let through, which makes the cap exact in every window. Refuses: whom they are for.

use crate::Nanos;
use std::collections::VecDeque;

const WINDOW: Nanos = 60_000_000_000;

/// One cap. Memory: eight bytes for each that it lets through within a window.
#[derive(Debug)]
pub(super) struct Cap {
    most: usize,
    taken: VecDeque<Nanos>,
}

impl Cap {
    pub(super) fn new(most: usize) -> Cap {
        Cap {
            most,
            taken: VecDeque::new(),
        }
    }

    /// Another number from here on; those that were let through within the last 60 s count.
    pub(super) fn limit(&mut self, most: usize) {
        self.most = most;
    }

    /// Lets one through, unless the last 60 s had as many as there may be.
    pub(super) fn take(&mut self, now: Nanos) -> bool {
        while self
            .taken
            .front()
            .is_some_and(|at| now.saturating_sub(*at) >= WINDOW)
        {
            self.taken.pop_front();
        }
        let free = self.taken.len() < self.most;
        if free {
            self.taken.push_back(now);
        }
        free
    }
}

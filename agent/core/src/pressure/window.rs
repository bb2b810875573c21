//! Sums over the time that has just passed.
//!
//! Owns: the slots of a sliding window. Refuses: what is summed.

use crate::Nanos;

/// Slots of a window: what is summed leaves it a slot at a time.
const SLOTS: u64 = 12;

/// A sum over a window of time, in bounded memory. It covers the window, or up to a slot less.
#[derive(Debug)]
pub(super) struct Window {
    slot_ns: Nanos,
    sums: [u64; SLOTS as usize],
    /// Number of the newest slot since time 0.
    newest: u64,
}

impl Window {
    pub(super) fn new(width_ns: Nanos) -> Window {
        Window {
            slot_ns: (width_ns / SLOTS).max(1),
            sums: [0; SLOTS as usize],
            newest: 0,
        }
    }

    /// `count` more at `at`. What comes late counts as of now: events may be a little out of order.
    pub(super) fn add(&mut self, at: Nanos, count: u64) {
        self.pass(at);
        if let Some(sum) = self.sums.get_mut((self.newest % SLOTS) as usize) {
            *sum = sum.saturating_add(count);
        }
    }

    pub(super) fn sum(&mut self, now: Nanos) -> u64 {
        self.pass(now);
        self.sums.iter().fold(0, |sum, slot| sum.saturating_add(*slot))
    }

    fn pass(&mut self, now: Nanos) {
        let slot = now / self.slot_ns;
        if slot.saturating_sub(self.newest) >= SLOTS {
            self.sums = [0; SLOTS as usize];
        } else {
            for passed in self.newest + 1..=slot {
                if let Some(sum) = self.sums.get_mut((passed % SLOTS) as usize) {
                    *sum = 0;
                }
            }
        }
        self.newest = self.newest.max(slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_older_than_the_window_is_forgotten() {
        let mut window = Window::new(60);
        window.add(100, 3);
        window.add(130, 4);
        assert_eq!(window.sum(130), 7);
        assert_eq!(window.sum(159), 4 + 3 * u64::from(159 / 5 - 100 / 5 < 12));
        assert_eq!(window.sum(165), 4);
        window.add(90, 1);
        assert_eq!(window.sum(165), 5, "what comes late counts as of now");
        assert_eq!(window.sum(1000), 0);
        window.add(u64::MAX, 9);
        assert_eq!(window.sum(u64::MAX), 9);
    }

    proptest! {
        #[test]
        fn it_is_the_sum_of_the_slots_within(
            steps in proptest::collection::vec((0_u64..40, 0_u64..5), 0..80),
        ) {
            let mut window = Window::new(60);
            let mut all = Vec::new();
            let mut now = 0;
            for (wait, count) in steps {
                now += wait;
                window.add(now, count);
                all.push((now, count));
                let sum = window.sum(now);
                let within = |ns: u64| all.iter().filter(|(at, _)| at + ns > now).map(|(_, n)| n).sum::<u64>();
                prop_assert!((within(55)..=within(60)).contains(&sum), "{sum} of {all:?}");
            }
        }
    }
}

//! How long to wait after an attempt that failed.
//!
//! Owns: exponential delays with jitter, and how far a destination's own wish is followed. Refuses: the clock.

use std::time::Duration;

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_mins(1);
/// A destination that asks for more waits is asked again after this: its clock or ours may be wrong.
const LONGEST_ASKED: Duration = Duration::from_mins(10);

/// See the module.
#[derive(Debug)]
pub(crate) struct Backoff {
    failures: u32,
    random: u64,
}

impl Backoff {
    pub(crate) fn new(seed: u64) -> Backoff {
        Backoff {
            failures: 0,
            random: seed,
        }
    }

    /// The next delay: 1 s, 2 s, 4 s… up to a minute, each up to half shorter by chance, and not shorter than the
    /// destination asked for.
    pub(crate) fn next(&mut self, asked: Option<Duration>) -> Duration {
        let full = FIRST.saturating_mul(1 << self.failures.min(6)).min(LONGEST);
        self.failures = self.failures.saturating_add(1);
        let delay = full.mul_f64(1.0 - self.chance() / 2.0);
        // Many agents were told the same time: they spread behind it.
        let asked = asked.map(|asked| {
            let asked = asked.min(LONGEST_ASKED);
            asked + asked.mul_f64(self.chance() / 10.0)
        });
        delay.max(asked.unwrap_or_default())
    }

    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }

    /// From 0 to less than 1: the SplitMix64 generator.
    fn chance(&mut self) -> f64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_to_a_minute_and_follow_the_destination() {
        let mut backoff = Backoff::new(7);
        let mut expected = 1.0;
        for _ in 0..40 {
            let delay = backoff.next(None).as_secs_f64();
            assert!(
                (expected / 2.0..=expected).contains(&delay),
                "{delay} for {expected}"
            );
            expected = (expected * 2.0_f64).min(60.0);
        }
        let asked = backoff.next(Some(Duration::from_secs(100))).as_secs_f64();
        assert!((100.0..110.0).contains(&asked), "{asked}");
        let asked = backoff.next(Some(Duration::MAX)).as_secs_f64();
        assert!((600.0..660.0).contains(&asked), "{asked}");
        backoff.reset();
        assert!(backoff.next(Some(Duration::from_millis(1))) <= FIRST);
        let others = (0..50).map(|seed| Backoff::new(seed).next(None));
        let distinct: std::collections::BTreeSet<Duration> = others.collect();
        assert!(distinct.len() > 45, "agents do not come all at once");
    }
}

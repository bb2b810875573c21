//! One reason: its thresholds, and how long it stays.
//!
//! Owns: hysteresis. A state rises at once; it falls when the value has been clear of its threshold for the hold time, so a
//! value that hovers around a threshold does not make it flap. Refuses: where values come from (`engine`).

use super::report::{PressureState, Reason, ReasonKind};
use crate::Nanos;

/// How far a value must come back from a threshold to be clear of it.
const CLEAR: f64 = 0.8;

/// Which side of a threshold is bad.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bad {
    /// At or above it.
    High,
    /// At or below it.
    Low,
}

/// Thresholds of a reason; without one, the state is not reached.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rule {
    pub(super) bad: Bad,
    pub(super) some: Option<f64>,
    pub(super) severe: Option<f64>,
}

impl Rule {
    pub(super) const fn high(some: Option<f64>, severe: Option<f64>) -> Rule {
        Rule {
            bad: Bad::High,
            some,
            severe,
        }
    }

    fn threshold(&self, state: PressureState) -> Option<f64> {
        match state {
            PressureState::None => None,
            PressureState::Some => self.some,
            PressureState::Severe => self.severe,
        }
    }

    /// The state of a value, seen from one that holds already.
    fn state(&self, value: f64, held: PressureState) -> PressureState {
        let reaches = |state: PressureState| {
            self.threshold(state).is_some_and(|threshold| {
                let slack = if state <= held { CLEAR } else { 1.0 };
                match self.bad {
                    Bad::High => value >= threshold * slack,
                    Bad::Low => value <= threshold / slack,
                }
            })
        };
        [PressureState::Severe, PressureState::Some]
            .into_iter()
            .find(|state| reaches(*state))
            .unwrap_or_default()
    }
}

/// A reason as it stands.
#[derive(Debug, Default)]
pub(super) struct Held {
    state: PressureState,
    value: f64,
    threshold: f64,
    /// When its state was last met.
    met: Nanos,
    since: Nanos,
}

impl Held {
    /// The value at `now`; `None`: it is not known, which makes nothing worse. Answers whether the state is another one.
    pub(super) fn update(&mut self, now: Nanos, value: Option<f64>, rule: &Rule, hold_ns: Nanos) -> bool {
        let before = self.state;
        let state = value
            .filter(|value| value.is_finite())
            .map_or(PressureState::None, |value| {
                self.value = value;
                rule.state(value, before)
            });
        if state >= before {
            if state > before && before == PressureState::None {
                self.since = now;
            }
            self.met = self.met.max(now);
            self.state = state;
        } else if now.saturating_sub(self.met) >= hold_ns {
            self.met = now;
            self.state = state;
        }
        if let Some(threshold) = rule.threshold(self.state) {
            self.threshold = threshold;
        }
        self.state != before
    }

    pub(super) fn state(&self) -> PressureState {
        self.state
    }

    pub(super) fn reason(&self, kind: ReasonKind, now: Nanos) -> Option<Reason> {
        (self.state > PressureState::None).then(|| Reason {
            kind,
            state: self.state,
            value: self.value,
            threshold: self.threshold,
            for_s: now.saturating_sub(self.since) as f64 / 1e9,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RULE: Rule = Rule::high(Some(10.0), Some(20.0));

    #[test]
    fn it_rises_at_once_and_falls_after_the_hold() {
        use PressureState::{None, Severe, Some as Mild};
        let mut held = Held::default();
        for (now, value, expected) in [
            (0, Some(9.9), None),
            (1, Some(10.0), Mild),
            (2, Some(20.0), Severe),
            (3, Some(17.0), Severe),   // not clear of its threshold
            (100, Some(17.0), Severe), // and so it goes on
            (101, Some(15.0), Severe),
            (159, Option::None, Severe),
            (160, Some(8.5), Mild), // clear of the one, not of the other
            (219, Some(1.0), Mild),
            (220, Some(1.0), None),
            (221, Some(9.0), None),
            (222, Some(f64::NAN), None),
        ] {
            held.update(now, value, &RULE, 60);
            assert_eq!(held.state(), expected, "at {now}");
        }
    }

    #[test]
    fn low_is_bad_where_the_rule_says_so() {
        let rule = Rule {
            bad: Bad::Low,
            some: Some(1800.0),
            severe: Some(300.0),
        };
        let mut held = Held::default();
        for (value, expected) in [(2000.0, "none"), (1800.0, "some"), (299.0, "severe")] {
            held.update(1, Some(value), &rule, 60);
            assert_eq!(held.state().as_str(), expected);
        }
        let reason = held.reason(ReasonKind::GpuTimeToFull, 2_000_000_001);
        assert_eq!(
            reason,
            Some(Reason {
                kind: ReasonKind::GpuTimeToFull,
                state: PressureState::Severe,
                value: 299.0,
                threshold: 300.0,
                for_s: 2.0
            })
        );
    }

    proptest! {
        #[test]
        fn it_falls_at_most_once_a_hold(values in proptest::collection::vec((1_u64..20, 0.0..40.0), 0..300)) {
            let mut held = Held::default();
            let (mut now, mut fell) = (1_000, 0);
            for (wait, value) in values {
                now += wait;
                let before = held.state();
                let changed = held.update(now, Some(value), &RULE, 60);
                prop_assert_eq!(changed, held.state() != before);
                if held.state() < before {
                    prop_assert!(now - fell >= 60);
                    fell = now;
                }
                if value >= 20.0 {
                    prop_assert_eq!(held.state(), PressureState::Severe);
                }
            }
        }
    }
}

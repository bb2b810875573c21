//! Growth of memory in use, of shapes that are known.

use super::*;
use proptest::prelude::*;

const SECOND: Nanos = 1_000_000_000;
const GIB: f64 = 1_073_741_824.0;

/// Reads `used(seconds)` each second for `seconds`.
fn trend(seconds: u64, used: impl Fn(f64) -> f64) -> Option<f64> {
    let mut trend = Trend::new(600 * SECOND);
    for second in 0..seconds {
        trend.add(7_000 * SECOND + second * SECOND, used(second as f64) as u64);
    }
    trend.growth()
}

/// The same in every run, uniform in -1 to 1.
fn noise(seed: f64) -> f64 {
    let x = (seed * 12.9898).sin() * 43_758.547;
    2.0 * (x - x.floor()) - 1.0
}

#[test]
fn shapes_are_told_apart() {
    let rate = 10e6;
    for (name, growth, expected) in [
        ("flat", trend(900, |_| 70.0 * GIB), None),
        ("a steady leak", trend(900, |s| 40.0 * GIB + rate * s), Some(rate)),
        (
            "a leak under noise",
            trend(900, |s| 40.0 * GIB + rate * s + 3e8 * noise(s)),
            Some(rate),
        ),
        (
            "a leak by segments",
            trend(900, |s| 40.0 * GIB + (rate * s / 2e8).floor() * 2e8),
            Some(rate),
        ),
        (
            "a leak with peaks that come and go",
            trend(900, |s| {
                40.0 * GIB + rate * s + if s % 90.0 < 20.0 { 8.0 * GIB } else { 0.0 }
            }),
            Some(rate),
        ),
        ("noise alone", trend(900, |s| 40.0 * GIB + 3e8 * noise(s)), None),
        ("falling", trend(900, |s| 40.0 * GIB - rate * s), None),
        (
            "a model that has loaded",
            trend(400, |s| (s * 1.2 * GIB).min(70.0 * GIB)),
            None,
        ),
        (
            "one step",
            trend(600, |s| if s < 300.0 { 40.0 * GIB } else { 50.0 * GIB }),
            None,
        ),
        (
            "growth that has ended",
            trend(600, |s| 40.0 * GIB + rate * s.min(300.0)),
            None,
        ),
        (
            "breathing",
            trend(900, |s| 40.0 * GIB + 5e9 * (s / 40.0).sin()),
            None,
        ),
        ("too early to tell", trend(150, |s| 40.0 * GIB + rate * s), None),
    ] {
        match (growth, expected) {
            (Some(growth), Some(expected)) => {
                assert!((growth / expected - 1.0).abs() < 0.1, "{name}: {growth}");
            }
            (growth, expected) => assert_eq!(growth.is_some(), expected.is_some(), "{name}: {growth:?}"),
        }
    }
}

#[test]
fn it_is_bounded_and_forgets_what_is_old() {
    let mut trend = Trend::new(600 * SECOND);
    for tenth in 0..60_000_u64 {
        trend.add(tenth * SECOND / 10, tenth);
    }
    assert!(trend.samples.len() <= SAMPLES as usize);
    assert!(trend.growth().is_some());
    // The GPU was away: what was before says nothing of what comes.
    trend.add(100_000 * SECOND, 5);
    trend.add(100_011 * SECOND, 5);
    assert_eq!(trend.growth(), None);
}

proptest! {
    #[test]
    fn anything_is_taken(samples in proptest::collection::vec((any::<u64>(), any::<u64>()), 0..200), window in any::<u64>()) {
        let mut trend = Trend::new(window);
        for (at, bytes) in samples {
            trend.add(at, bytes);
            prop_assert!(trend.growth().is_none_or(|growth| growth > 0.0 && growth.is_finite()));
        }
    }
}

//! Budgets over time: periods, thresholds, restarts, projections.

use super::*;
use proptest::prelude::*;

const DAY: i64 = 86_400;
/// 2026-11-30 00:00 UTC, a Monday.
const MONDAY: i64 = 1_796_000_000 - 1_796_000_000 % DAY;

const TEXT: BudgetText<'static> = BudgetText {
    name: "b",
    scene: "search*",
    model: "*",
    unit: "tokens",
    basis: "tokens",
    limit: 100.0,
    period: "day",
    time_zone: "UTC",
    thresholds: &THRESHOLDS,
};

fn budget(text: BudgetText<'_>) -> Budget {
    text.budget().expect("a budget")
}

fn of(texts: &[BudgetText<'_>], kept: &[Kept], now: i64) -> Budgets {
    let mut all = Budgets::default();
    all.configure(texts.iter().copied().map(budget).collect(), kept, now);
    all
}

fn tokens(budgets: &mut Budgets, now: i64, count: u64) -> Vec<f64> {
    budgets.add(now, &"search".into(), &"m".into(), Use::Tokens(count));
    told(budgets)
}

fn told(budgets: &mut Budgets) -> Vec<f64> {
    budgets
        .take_events()
        .iter()
        .map(|event| event.threshold)
        .collect()
}

fn used(budgets: &Budgets, now: i64) -> Vec<f64> {
    budgets.report(now).iter().map(|report| report.used).collect()
}

#[test]
fn a_use_counts_wherever_it_is_covered() {
    let texts = [
        TEXT,
        BudgetText {
            name: "all",
            scene: "*",
            ..TEXT
        },
        BudgetText {
            name: "other",
            scene: "chat",
            ..TEXT
        },
        BudgetText {
            name: "model",
            model: "llama-?",
            ..TEXT
        },
        BudgetText {
            name: "money",
            unit: "USD",
            ..TEXT
        },
        BudgetText {
            name: "gpu",
            unit: "USD",
            basis: "gpu",
            ..TEXT
        },
    ];
    let mut budgets = of(&texts, &[], MONDAY);
    let (search, llama, m): (Arc<str>, Arc<str>, Arc<str>) =
        ("search-web".into(), "llama-3".into(), "m".into());
    let [usd, eur] = ["USD", "EUR"].map(|code| code.parse().expect("a currency"));
    for _ in 0..2 {
        budgets.add(MONDAY, &search, &m, Use::Tokens(1));
        budgets.add(MONDAY, &search, &llama, Use::Tokens(10));
        budgets.add(MONDAY, &search, &llama, Use::Money(usd, Basis::Tokens, 0.25));
        budgets.add(MONDAY, &search, &llama, Use::Money(eur, Basis::Tokens, 100.0));
        budgets.add(MONDAY, &search, &llama, Use::Money(usd, Basis::Gpu, 1.0));
        budgets.add(MONDAY, &search, &llama, Use::Money(usd, Basis::Tokens, f64::NAN));
    }
    assert_eq!(used(&budgets, MONDAY), [22.0, 22.0, 0.0, 20.0, 0.5, 2.0]);
}

#[test]
fn a_budget_is_used_up_for_those_that_it_covers_until_its_period_ends() {
    let mut budgets = of(&[TEXT], &[], MONDAY);
    let up = |budgets: &mut Budgets, now, scene: &str| budgets.used_up(now, &scene.into(), &"m".into());
    budgets.add(MONDAY, &"search".into(), &"m".into(), Use::Tokens(99));
    assert!(!up(&mut budgets, MONDAY, "search"));
    budgets.add(MONDAY, &"search".into(), &"m".into(), Use::Tokens(1));
    assert!(up(&mut budgets, MONDAY, "search"));
    assert!(
        up(&mut budgets, MONDAY, "search in mail"),
        "a budget is one for all that it covers"
    );
    assert!(!up(&mut budgets, MONDAY, "chat"));
    assert!(!up(&mut budgets, MONDAY + DAY, "search"), "another day");
}

#[test]
fn thresholds_are_told_once_a_period() {
    let mut budgets = of(&[TEXT], &[], MONDAY);
    assert_eq!(tokens(&mut budgets, MONDAY, 79), [0.0; 0]);
    assert_eq!(tokens(&mut budgets, MONDAY, 1), [0.8]);
    assert_eq!(tokens(&mut budgets, MONDAY, 1), [0.0; 0]);
    let kept = budgets.take_changed();
    assert_eq!(tokens(&mut budgets, MONDAY + 7, 100), [1.0]);
    assert_eq!(tokens(&mut budgets, MONDAY + DAY - 1, 100), [0.0; 0]);
    assert_eq!(budgets.report(MONDAY + DAY - 1)[0].exhausted_at, Some(MONDAY + 7));
    assert_eq!(
        tokens(&mut budgets, MONDAY + DAY, 100),
        [0.8, 1.0],
        "the next period"
    );
    assert_eq!(used(&budgets, MONDAY + DAY), [100.0]);

    let mut again = of(&[TEXT], &kept, MONDAY + 10);
    assert_eq!(used(&again, MONDAY + 10), [81.0]);
    assert_eq!(told(&mut again), [0.0; 0], "that was told before the restart");
    assert_eq!(tokens(&mut again, MONDAY + 10, 19), [1.0]);
    let mut late = of(&[TEXT], &kept, MONDAY + DAY);
    assert_eq!(used(&late, MONDAY + DAY), [0.0]);
    assert_eq!(tokens(&mut late, MONDAY + DAY, 80), [0.8]);
}

#[test]
fn another_limit_keeps_the_usage_and_another_measure_does_not() {
    let mut budgets = of(&[TEXT], &[], MONDAY);
    assert_eq!(tokens(&mut budgets, MONDAY, 120), [0.8, 1.0]);
    let kept = budgets.take_changed();
    let configure = |budgets: &mut Budgets, text, kept: &[Kept]| {
        budgets.configure(vec![budget(text)], kept, MONDAY + 1);
        told(budgets)
    };
    let higher = BudgetText { limit: 200.0, ..TEXT };
    assert_eq!(configure(&mut budgets, higher, &[]), [0.0; 0]);
    assert_eq!(used(&budgets, MONDAY + 1), [120.0]);
    assert_eq!(budgets.report(MONDAY + 1)[0].exhausted_at, None, "not any more");
    assert_eq!(tokens(&mut budgets, MONDAY + 2, 40), [0.8], "of the new limit");
    assert_eq!(configure(&mut budgets, TEXT, &[]), [1.0]);
    let mut restarted = of(&[higher], &kept, MONDAY + 3);
    assert_eq!(
        tokens(&mut restarted, MONDAY + 3, 40),
        [0.8],
        "the same over a restart"
    );
    for other in [
        BudgetText { scene: "*", ..TEXT },
        BudgetText { model: "m", ..TEXT },
        BudgetText { unit: "USD", ..TEXT },
        BudgetText {
            period: "week",
            ..TEXT
        },
        BudgetText {
            time_zone: "Europe/Berlin",
            ..TEXT
        },
    ] {
        let mut budgets = of(&[TEXT], &kept, MONDAY);
        assert_eq!(used(&budgets, MONDAY), [120.0]);
        configure(&mut budgets, other, &kept);
        assert_eq!(used(&budgets, MONDAY), [0.0], "{other:?}");
        configure(&mut budgets, TEXT, &kept);
        assert_eq!(used(&budgets, MONDAY), [120.0], "what was kept comes back");
    }
}

#[test]
fn a_clock_that_is_set_back_finds_its_totals() {
    let mut budgets = of(&[TEXT], &[], MONDAY - 10);
    tokens(&mut budgets, MONDAY - 10, 30);
    tokens(&mut budgets, MONDAY + 5, 7);
    tokens(&mut budgets, MONDAY - 5, 1);
    assert_eq!(used(&budgets, MONDAY - 5), [31.0]);
    budgets.advance(MONDAY + 6);
    assert_eq!(used(&budgets, MONDAY + 6), [7.0]);
    let kept = budgets.take_changed();
    let totals: Vec<_> = kept.iter().map(|kept| (kept.start, kept.used)).collect();
    assert_eq!(totals, [(MONDAY - DAY, 31.0), (MONDAY, 7.0)]);
    assert_eq!(budgets.take_changed(), [], "nothing more");
    budgets.keep_all();
    assert_eq!(budgets.take_changed(), kept);
}

#[test]
fn the_end_is_projected_by_the_higher_rate() {
    let big = BudgetText {
        limit: 24_000.0,
        ..TEXT
    };
    let mut budgets = of(&[big], &[], MONDAY - DAY);
    let report = |budgets: &Budgets, now| budgets.report(now).remove(0);
    assert_eq!(report(&budgets, MONDAY - DAY + 299).period_rate, None);
    // 1,000 an hour until noon: just enough.
    for hour in 0..12 {
        tokens(&mut budgets, MONDAY + hour * 3600, 1000);
    }
    let noon = MONDAY + 12 * 3600;
    let at_noon = report(&budgets, noon);
    assert_eq!(at_noon.period_rate, Some(1000.0));
    assert_eq!(at_noon.recent_rate, Some(1000.0));
    assert_eq!(at_noon.exhausted_at, None, "it lasts");
    // 7,000 more in the hour: recent use is double that of the period, and decides.
    tokens(&mut budgets, noon, 7000);
    let one = report(&budgets, noon + 3600);
    assert_eq!(one.used, 19_000.0);
    assert_eq!(one.recent_rate, Some((5.0 * 1000.0 + 7000.0) / 6.0));
    assert_eq!(one.exhausted_at, Some(noon + 3600 + 5000 * 3600 / 2000));
    // After midnight the recent hours are those of the day before, and the period has no rate of its own.
    budgets.advance(MONDAY + DAY + 60);
    let midnight = report(&budgets, MONDAY + DAY + 60);
    assert_eq!((midnight.used, midnight.period_rate), (0.0, None));
    assert_eq!(midnight.recent_rate, Some(0.0));
    assert_eq!(midnight.measured_since, None);
    // What was not measured is no time without use.
    let young = of(&[big], &[], noon);
    let young = report(&young, noon + 300);
    assert_eq!(young.measured_since, Some(noon));
    assert_eq!((young.period_rate, young.recent_rate), (Some(0.0), Some(0.0)));
}

#[test]
fn what_makes_no_sense_is_refused() {
    let long = "x".repeat(257);
    let many = [0.5; 11];
    for (text, reason) in [
        (BudgetText { name: " ", ..TEXT }, "needs a name"),
        (BudgetText { name: &long, ..TEXT }, "longer than 256"),
        (BudgetText { scene: "", ..TEXT }, "scene is empty"),
        (
            BudgetText {
                model: "a\nb",
                ..TEXT
            },
            "control characters",
        ),
        (
            BudgetText {
                unit: "token",
                ..TEXT
            },
            "neither \"tokens\" nor",
        ),
        (BudgetText { unit: "usd", ..TEXT }, "neither \"tokens\" nor"),
        (BudgetText { limit: 0.0, ..TEXT }, "no number above 0"),
        (
            BudgetText {
                limit: f64::INFINITY,
                ..TEXT
            },
            "no number above 0",
        ),
        (
            BudgetText {
                period: "year",
                ..TEXT
            },
            "none of \"day\"",
        ),
        (
            BudgetText {
                time_zone: "Berlin",
                ..TEXT
            },
            "as in \"Europe/Berlin\"",
        ),
        (
            BudgetText {
                thresholds: &[80.0],
                ..TEXT
            },
            "shares of the limit",
        ),
        (
            BudgetText {
                thresholds: &[0.0],
                ..TEXT
            },
            "shares of the limit",
        ),
        (
            BudgetText {
                thresholds: &many,
                ..TEXT
            },
            "more than 10 thresholds",
        ),
    ] {
        let refused = text.budget().expect_err(reason);
        assert!(refused.contains(reason), "{refused}");
    }
    let twice = [budget(TEXT), budget(TEXT)];
    assert_eq!(together(&twice).expect_err("twice").0, 1);
    assert!(together(&twice[..1]).is_ok());
    let many: Vec<_> = (0..=MAX_BUDGETS)
        .map(|n| {
            budget(BudgetText {
                name: &n.to_string(),
                ..TEXT
            })
        })
        .collect();
    assert_eq!(together(&many).expect_err("too many").0, MAX_BUDGETS);
    assert!(together(&many[1..]).is_ok());
}

#[test]
fn ten_thousand_scenes_take_no_more_memory_than_the_last_few() {
    let mut budgets = of(&[BudgetText { scene: "*", ..TEXT }], &[], MONDAY);
    for n in 0..10_000 {
        budgets.add(MONDAY, &format!("scene {n}").into(), &"m".into(), Use::Tokens(1));
    }
    assert_eq!(used(&budgets, MONDAY), [10_000.0]);
    assert!(budgets.covering.len() <= MAX_PAIRS);
}

proptest! {
    /// However uses, keeping and crashes follow each other, a crash loses what was used since the totals were last kept, and
    /// no more; nothing counts twice, and each threshold is told once for all that was kept.
    #[test]
    fn a_crash_loses_what_was_not_kept_and_counts_nothing_twice(
        steps in proptest::collection::vec((0_u8..5, 0_u64..40, 0_i64..DAY / 2), 1..60),
    ) {
        let mut now = MONDAY;
        let mut budgets = of(&[TEXT], &[], now);
        let mut disk: std::collections::BTreeMap<i64, Kept> = Default::default();
        // Period → used, as it is and as it was kept.
        let mut truth: std::collections::BTreeMap<i64, (u64, u64)> = Default::default();
        for (step, count, later) in steps {
            let start = now - now.rem_euclid(DAY);
            match step {
                0 | 1 => {
                    tokens(&mut budgets, now, count);
                    truth.entry(start).or_default().0 += count;
                }
                2 => now += later,
                3 => {
                    disk.extend(budgets.take_changed().into_iter().map(|kept| (kept.start, kept)));
                    truth.values_mut().for_each(|(used, kept)| *kept = *used);
                }
                _ => {
                    let kept: Vec<_> = disk.values().cloned().collect();
                    budgets = of(&[TEXT], &kept, now);
                    truth.values_mut().for_each(|(used, kept)| *used = *kept);
                    let again = budgets.take_events();
                    prop_assert!(again.is_empty(), "told twice: {again:?}");
                }
            }
            budgets.advance(now);
            let start = now - now.rem_euclid(DAY);
            let (expected, _) = truth.get(&start).copied().unwrap_or_default();
            prop_assert_eq!(used(&budgets, now), [expected as f64]);
        }
    }
}

//! Which price is a model's, and which books are refused.
//!
//! Owns: the tables of dates, prices and books. Refuses: charges (`tests`).

use super::{
    tests::{DAY_MS, book, pico, price},
    *,
};

fn day(text: &str) -> Day {
    text.parse().expect(text)
}

#[test]
fn dates_are_days_since_1970() {
    for (text, days) in [
        ("1970-01-01", 0),
        ("1970-03-01", 59),
        ("1972-02-29", 789),
        ("2000-02-29", 11_016),
        ("2000-03-01", 11_017),
        ("2026-01-31", 20_484),
        ("2100-03-01", 47_541),
    ] {
        assert_eq!(day(text), Day::of_unix_ms(days * DAY_MS), "{text}");
        assert_eq!(day(text), Day::of_unix_ms((days + 1) * DAY_MS - 1), "{text}");
    }
    for bad in [
        "",
        "2026",
        "2026-1-31",
        "2026-13-01",
        "2026-00-01",
        "2026-02-29",
        "2100-02-29",
        "2026-04-31",
        "2026-01-00",
        "1969-12-31",
        "+026-01-01",
        "2026-01-31T00:00",
        "２026-01-0",
    ] {
        assert!(bad.parse::<Day>().is_err(), "{bad}");
    }
}

#[test]
fn the_first_pattern_that_has_a_price_by_then_decides_and_of_it_the_latest() {
    let from = |text, date| PriceText {
        valid_from: Some(date),
        ..text
    };
    let book = book(&[
        from(price("a-*", 1.0, 1.0), "2026-01-01"),
        from(price("a-*", 3.0, 3.0), "2026-03-01"),
        from(price("a-*", 2.0, 2.0), "2026-02-01"),
        price("a-1", 9.0, 9.0),
        price("*", 5.0, 5.0),
    ]);
    for (model, date, expected) in [
        ("a-1", "2025-12-31", 9),
        ("a-2", "2025-12-31", 5),
        ("a-1", "2026-01-01", 1),
        ("a-1", "2026-01-31", 1),
        ("a-1", "2026-02-01", 2),
        ("a-1", "2027-01-01", 3),
        ("b", "2027-01-01", 5),
    ] {
        let price = book.price(model, day(date)).expect("a price");
        assert_eq!(price.input.times(1), pico(expected * 1_000_000), "{model} {date}");
    }
}

#[test]
fn bad_prices_are_refused_with_what_would_be_right() {
    let good = price("m", 1.0, 2.0);
    for (text, said) in [
        (PriceText { model: "", ..good }, "model is missing"),
        (PriceText { currency: "", ..good }, "currency is missing"),
        (
            PriceText {
                currency: "usd",
                ..good
            },
            "three upper-case letters",
        ),
        (PriceText { input: None, ..good }, "input is missing"),
        (PriceText { output: None, ..good }, "output is missing"),
        (
            PriceText {
                input: Some(-1.0),
                ..good
            },
            "input: -1 is not within",
        ),
        (
            PriceText {
                reasoning: Some(0.000_000_1),
                ..good
            },
            "reasoning: 0.0000001 has more than six decimals",
        ),
        (
            PriceText {
                cached_input: Some(1.5),
                ..good
            },
            "cached_input is more than input",
        ),
        (
            PriceText {
                valid_from: Some("1.2.2026"),
                ..good
            },
            "valid_from: \"1.2.2026\" is no date",
        ),
    ] {
        let error = text.price().expect_err(said);
        assert!(error.contains(said), "{error}");
    }
}

#[test]
fn a_book_in_which_a_price_could_never_be_used_is_refused() {
    let dated = |model, date| PriceText {
        valid_from: Some(date),
        ..price(model, 1.0, 1.0)
    };
    let refused = |texts: &[PriceText<'_>]| {
        let prices = texts.iter().map(|text| text.price().expect("a price")).collect();
        PriceBook::new(prices)
            .err()
            .map(|error| (error.price, error.reason))
    };
    let plain = |model| price(model, 1.0, 1.0);
    for (texts, at, said) in [
        (vec![plain("*"), plain("a")], 1, "price 1 before it, for \"*\""),
        (
            vec![plain("b"), plain("a*"), plain("a-*-b")],
            2,
            "price 2 before it",
        ),
        (
            vec![plain("a"), plain("b"), plain("a")],
            2,
            "from the same day on",
        ),
        (
            vec![dated("a", "2026-01-01"), dated("a", "2026-01-01")],
            1,
            "from the same day on",
        ),
    ] {
        let (price, reason) = refused(&texts).expect(said);
        assert_eq!(price, at, "{reason}");
        assert!(reason.contains(said), "{reason}");
    }
    for texts in [
        vec![plain("a"), plain("a*"), plain("*")],
        vec![dated("*", "2026-01-01"), plain("a"), plain("*")],
        vec![plain("a?"), plain("a*")],
    ] {
        assert_eq!(refused(&texts), None);
    }
}

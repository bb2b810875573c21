//! What is charged for told tokens, and what records say of it.
//!
//! Owns: the stage's tables and properties, and what they share with those of the book. Refuses: streams of bytes, which
//! the crate's `tests/costs.rs` plays.

use super::*;
use crate::{
    Observation, RequestRecord,
    observation::{Finished, Labels, TokenDirection},
};
use proptest::prelude::*;
use serde_json::json;
use std::sync::Arc;

pub(super) const DAY_MS: u64 = 86_400_000;

pub(super) fn price(model: &str, input: f64, output: f64) -> PriceText<'_> {
    PriceText {
        model,
        currency: "USD",
        input: Some(input),
        output: Some(output),
        ..PriceText::default()
    }
}

pub(super) fn book(texts: &[PriceText<'_>]) -> Arc<PriceBook> {
    let prices = texts.iter().map(|text| text.price().expect("a price")).collect();
    Arc::new(PriceBook::new(prices).expect("a book"))
}

fn labels(model: &str) -> Labels {
    Labels {
        engine: "e".into(),
        model: model.into(),
        scene: "s".into(),
    }
}

fn tokens(request: u64, direction: TokenDirection, count: u64) -> Observation {
    Observation::Tokens {
        request,
        labels: labels("m"),
        client: None,
        direction,
        count,
    }
}

/// Input, cached input, output, reasoning.
fn finished(id: u64, counts: [Option<u64>; 4]) -> Observation {
    let [input, cached, output, reasoning] = counts;
    let record: RequestRecord = serde_json::from_value(json!({
        "id": format!("{id:016x}"), "trace_id": "", "engine": "e", "model": "m", "scene": "s",
        "protocol": "openai_chat", "streamed": true, "status": "ok", "chunks": 1,
        "request_bytes": 1, "response_bytes": 1, "sources": {}, "incomplete": [],
        "input_tokens": input, "cached_input_tokens": cached,
        "output_tokens": output, "reasoning_tokens": reasoning,
    }))
    .expect("a record");
    Observation::Finished(Box::new(Finished {
        id,
        labels: labels("m"),
        record,
        gaps: Vec::new(),
        gaps_from: None,
        in_flight_at_arrival: None,
        content: None,
        token_sources: [(TokenDirection::Input, None), (TokenDirection::Output, None)],
    }))
}

fn apply(money: &mut Money, unix_ms: u64, mut observations: Vec<Observation>) -> Vec<Observation> {
    money.apply(unix_ms, &mut observations);
    observations
}

fn charges(out: &[Observation]) -> Vec<&Charge> {
    out.iter()
        .filter_map(|observation| match observation {
            Observation::Charge(charge) => Some(&**charge),
            _ => None,
        })
        .collect()
}

fn cost(out: &[Observation]) -> Option<Cost> {
    out.iter().find_map(|observation| match observation {
        Observation::Finished(finished) => finished.record.cost,
        _ => None,
    })
}

fn unpriced(out: &[Observation]) -> Vec<(TokenDirection, u64)> {
    out.iter()
        .filter_map(|observation| match observation {
            Observation::Unpriced { direction, count, .. } => Some((*direction, *count)),
            _ => None,
        })
        .collect()
}

fn sum(charges: &[&Charge]) -> Amount {
    charges.iter().map(|charge| charge.amount).sum()
}

pub(super) fn pico(amount: u128) -> Amount {
    Amount::from_pico(amount)
}

use TokenDirection::{Input, Output};

#[test]
fn output_is_charged_as_it_streams_and_the_rest_at_the_end() {
    let text = PriceText {
        cached_input: Some(0.25),
        ..price("m", 1.0, 2.0)
    };
    let mut money = Money::new(book(&[text]));
    let first = apply(&mut money, 0, vec![tokens(1, Output, 3), tokens(1, Output, 4)]);
    let told: Vec<_> = charges(&first)
        .iter()
        .map(|c| (c.kind, c.amount, c.tokens))
        .collect();
    assert_eq!(
        told,
        [
            (ChargeKind::Output, pico(6_000_000), 3),
            (ChargeKind::Output, pico(8_000_000), 4)
        ]
    );
    let end = [Some(100), Some(40), Some(9), None];
    let out = apply(
        &mut money,
        0,
        vec![tokens(1, Output, 2), tokens(1, Input, 100), finished(1, end)],
    );
    let told: Vec<_> = charges(&out)
        .iter()
        .map(|c| (c.kind, c.amount, c.tokens, c.saved))
        .collect();
    let none = Amount::ZERO;
    assert_eq!(
        told,
        [
            (ChargeKind::Output, pico(4_000_000), 2, none),
            (ChargeKind::Input, pico(60_000_000), 60, none),
            (ChargeKind::CachedInput, pico(10_000_000), 40, pico(30_000_000)),
        ]
    );
    let cost = cost(&out).expect("a cost");
    assert_eq!(
        serde_json::to_string(&cost).expect("JSON"),
        r#"{"currency":"USD","total":0.000088,"input":0.00006,"cached_input":0.00001,"output":0.000018,"reasoning":null,"saved":0.00003}"#
    );
    assert_eq!(sum(&charges(&first)).plus(sum(&charges(&out))), cost.total);
    assert_eq!(money.open_requests(), 0);
    assert!(unpriced(&out).is_empty());
}

#[test]
fn reasoning_is_charged_once_at_its_price() {
    for (reasoning, expected, rest) in [
        // Dearer: 10 tokens were charged at 2 as they streamed, 6 of them cost 3.
        (3.0, 26, Some((6, 0))),
        // Cheaper: what was charged stays.
        (1.0, 20, None),
    ] {
        let text = PriceText {
            reasoning: Some(reasoning),
            ..price("m", 0.0, 2.0)
        };
        let mut money = Money::new(book(&[text]));
        let end = finished(1, [None, None, Some(10), Some(6)]);
        let out = apply(&mut money, 0, vec![tokens(1, Output, 10), end]);
        let told = charges(&out);
        assert_eq!(sum(&told), pico(expected * 1_000_000));
        let more = told.get(1).map(|c| (c.amount.pico() / 1_000_000, c.tokens));
        assert_eq!(more, rest);
    }
    // Not streamed: each kind at its own price.
    let text = PriceText {
        reasoning: Some(3.0),
        ..price("m", 0.0, 2.0)
    };
    let mut money = Money::new(book(&[text]));
    let out = apply(&mut money, 0, vec![finished(1, [None, None, Some(10), Some(6)])]);
    let told: Vec<_> = charges(&out).iter().map(|c| (c.kind, c.tokens)).collect();
    assert_eq!(told, [(ChargeKind::Output, 4), (ChargeKind::Reasoning, 6)]);
}

#[test]
fn a_request_keeps_the_price_that_it_began_with() {
    let dear = PriceText {
        valid_from: Some("1970-01-02"),
        ..price("m", 10.0, 10.0)
    };
    let mut money = Money::new(book(&[price("m", 1.0, 1.0), dear]));
    let mut out = apply(&mut money, DAY_MS - 1, vec![tokens(1, Output, 5)]);
    out.extend(apply(
        &mut money,
        DAY_MS,
        vec![tokens(1, Output, 5), tokens(2, Output, 1)],
    ));
    money.set_prices(book(&[price("m", 7.0, 7.0)]));
    let end = finished(1, [Some(2), None, Some(10), None]);
    out.extend(apply(&mut money, DAY_MS, vec![tokens(1, Input, 2), end]));
    let of_first: Vec<_> = charges(&out)
        .into_iter()
        .filter(|c| c.request == Some(1))
        .collect();
    assert_eq!(sum(&of_first), pico(12_000_000));
    assert_eq!(cost(&out).expect("a cost").total, pico(12_000_000));
    let second = charges(&out)
        .into_iter()
        .find(|c| c.request == Some(2))
        .map(|c| c.amount);
    assert_eq!(second, Some(pico(10_000_000)));
}

#[test]
fn tokens_without_a_price_are_told_and_records_without_one_have_no_cost() {
    let mut money = Money::new(book(&[price("other", 1.0, 1.0)]));
    let end = finished(1, [Some(2), None, Some(10), None]);
    let out = apply(
        &mut money,
        0,
        vec![tokens(1, Output, 10), tokens(1, Input, 2), end],
    );
    assert_eq!(unpriced(&out), [(Output, 10), (Input, 2)]);
    assert_eq!((cost(&out), charges(&out).len()), (None, 0));
    // Without a price book nobody asks.
    let mut money = Money::default();
    let end = finished(1, [Some(2), None, Some(10), None]);
    let out = apply(&mut money, 0, vec![tokens(1, Output, 10), end]);
    assert_eq!((out.len(), money.open_requests(), cost(&out)), (2, 0, None));
    // What is not known costs nothing that is known.
    let mut money = Money::new(book(&[price("*", 1.0, 1.0)]));
    let out = apply(&mut money, 0, vec![finished(1, [None; 4])]);
    assert_eq!((out.len(), cost(&out)), (1, None));
    let out = apply(&mut money, 0, vec![finished(1, [None, None, Some(3), None])]);
    let cost = cost(&out).expect("a cost");
    assert_eq!(
        (cost.total, cost.input, cost.output),
        (pico(3_000_000), None, Some(pico(3_000_000)))
    );
}

proptest! {
    /// Whatever is told, charges of a request add up to its record's cost; more only where more output was seen to stream
    /// than the record has.
    #[test]
    fn charges_add_up(
        live in proptest::collection::vec((1_u64..5_000, 0_u64..3), 0..20),
        more in 0_u64..100,
        fewer in 0_u64..50,
        input in proptest::option::of(0_u64..100_000),
        cached in proptest::option::of(0_u64..100_000),
        reasoning in proptest::option::of(0_u64..10_000),
        prices in (0_u64..1_000_000, 0_u64..1_000_000, 0_u64..1_000_000, 0_u64..1_000_000),
        dearer in any::<bool>(),
    ) {
        let units = |micro: u64| Some(micro as f64 / 1e6);
        let (first, second, third, fourth) = prices;
        let text = PriceText {
            model: "*", currency: "EUR", input: units(first), cached_input: units(second.min(first)),
            output: units(third), reasoning: if dearer { units(third + fourth) } else { units(fourth) }, valid_from: None,
        };
        let mut money = Money::new(book(&[text]));
        let mut out = Vec::new();
        let mut streamed = 0;
        for (count, days) in &live {
            streamed += count;
            out.extend(apply(&mut money, days * DAY_MS, vec![tokens(1, Output, *count)]));
        }
        let output = (streamed + more).saturating_sub(fewer);
        out.extend(apply(&mut money, 0, vec![finished(1, [input, cached, Some(output), reasoning])]));
        let told = charges(&out);
        let cost = cost(&out).expect("a cost");
        let of = |kinds: [ChargeKind; 2]| -> Amount {
            told.iter().filter(|c| kinds.contains(&c.kind)).map(|c| c.amount).sum()
        };
        let rate = text.price().expect("a price").output;
        let generated = cost.output.unwrap_or_default().plus(cost.reasoning.unwrap_or_default());
        prop_assert_eq!(
            of([ChargeKind::Output, ChargeKind::Reasoning]),
            generated.max(rate.times(streamed))
        );
        prop_assert_eq!(
            of([ChargeKind::Input, ChargeKind::CachedInput]),
            cost.input.unwrap_or_default().plus(cost.cached_input.unwrap_or_default())
        );
        let saved: Amount = told.iter().map(|c| c.saved).sum();
        prop_assert_eq!(saved, cost.saved.unwrap_or_default());
        let tokens: u64 = told.iter().map(|c| c.tokens).sum();
        let read = input.unwrap_or(0).max(cached.filter(|_| input.is_none()).unwrap_or(0));
        prop_assert_eq!(tokens, read + output.max(streamed));
        prop_assert_eq!(money.open_requests(), 0);
    }
}

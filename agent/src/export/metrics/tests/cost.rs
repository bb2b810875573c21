//! Money, as series.

use super::*;
use infertap_core::money::{Amount, Basis, Charge, ChargeKind};

fn charge(model: &str, kind: ChargeKind, pico: u128) -> Observation {
    let saved = match kind {
        ChargeKind::CachedInput => Amount::from_pico(3 * pico),
        _ => Amount::ZERO,
    };
    Observation::Charge(Box::new(Charge {
        request: Some(1),
        client: None,
        labels: labels("e", model, "s"),
        basis: Basis::Tokens,
        currency: "USD".parse().expect("a currency"),
        kind,
        amount: Amount::from_pico(pico),
        tokens: 1,
        saved,
    }))
}

/// One of every kind.
pub(super) fn charges() -> Vec<Observation> {
    vec![
        charge("m", ChargeKind::Output, 100_000),
        charge("m", ChargeKind::CachedInput, 200_000),
        Observation::Unpriced {
            labels: labels("e", "m", "s"),
            direction: TokenDirection::Input,
            count: 7,
        },
    ]
}

#[test]
fn money_is_summed_exactly() {
    let metrics = metrics();
    for _ in 0..1_000_000 / 10 {
        metrics.apply_all(&charges());
    }
    assert_eq!(
        samples(&metrics, "llm_cost_total"),
        [
            r#"llm_cost_total{basis="tokens",currency="USD",direction="cached_input",model="m",scene="s"} 0.02"#,
            r#"llm_cost_total{basis="tokens",currency="USD",direction="output",model="m",scene="s"} 0.01"#,
        ]
    );
    assert_eq!(
        samples(&metrics, "llm_cost_saved_total"),
        [r#"llm_cost_saved_total{currency="USD",model="m",scene="s"} 0.06"#]
    );
    assert_eq!(
        samples(&metrics, "llm_unpriced_tokens_total"),
        [r#"llm_unpriced_tokens_total{direction="input",model="m",scene="s"} 700000"#]
    );
}

#[test]
fn charges_of_any_number_of_models_make_no_more_series_than_the_cap_allows() {
    let metrics = metrics();
    let cap = MetricsConfig::default().max_models;
    for i in 0..10_000 {
        metrics.apply(&charge(&format!("m{i}"), ChargeKind::Input, 1_000_000));
    }
    assert_eq!(samples(&metrics, "llm_cost_total").len(), cap + 1);
    let other: Vec<_> = samples(&metrics, "llm_cost_total")
        .into_iter()
        .filter(|line| line.contains(r#"model="other""#))
        .collect();
    let expected = (10_000 - cap) as f64 / 1e6;
    assert_eq!(other.len(), 1);
    assert!(other[0].ends_with(&format!(" {expected}")), "{other:?}");
}

//! What the panels of cost show, made up: charges, budgets, and what breaks prefixes.
//!
//! Owns: values of everything that is told of them. Refuses: what the panels make of it.

use infertap_core::Observation;
use infertap_core::budget::BudgetReport;
use infertap_core::money::{Amount, Basis, Charge, ChargeKind};
use infertap_core::observation::{Labels, TokenDirection};
use infertap_core::prefix::PrefixReport;
use serde_json::json;

/// By every basis, with some of it nobody's, and tokens without a price.
pub(crate) fn charges(labels: &Labels) -> Vec<Observation> {
    let charge = |basis, kind| {
        Observation::Charge(Box::new(Charge {
            request: None,
            client: None,
            labels: labels.clone(),
            basis,
            currency: "USD".parse().expect("a currency"),
            kind,
            amount: Amount::from_pico(1_000_000),
            tokens: 1,
            saved: Amount::from_pico(500_000),
        }))
    };
    vec![
        charge(Basis::Tokens, ChargeKind::Output),
        charge(Basis::Tokens, ChargeKind::CachedInput),
        charge(Basis::Gpu, ChargeKind::Input),
        charge(Basis::Gpu, ChargeKind::Output),
        charge(Basis::Gpu, ChargeKind::Unattributed),
        Observation::Unpriced {
            labels: labels.clone(),
            direction: TokenDirection::Output,
            count: 1,
        },
    ]
}

/// One in tokens and one in money, that will be used up.
pub(crate) fn budgets() -> Vec<BudgetReport> {
    let budget = |name, unit| {
        serde_json::from_value(json!({
            "name": name, "scene": "*", "model": "*", "unit": unit, "basis": null, "period": "day",
            "time_zone": "UTC", "period_start": 0, "period_end": 86_400, "measured_since": null,
            "thresholds": [0.8, 1.0], "limit": 100.0, "used": 85.0, "ratio": 0.85,
            "period_rate": 1.0, "recent_rate": 1.0, "exhausted_at": 80_000,
        }))
        .expect("a report")
    };
    vec![budget("tokens", "tokens"), budget("money", "USD")]
}

/// Of so many requests: a part was shared, a part of that lost, and a timestamp breaks the rest.
pub(crate) fn prefix(labels: &Labels, requests: u64) -> Observation {
    let report: PrefixReport = serde_json::from_value(json!({
        "engine": labels.engine, "model": labels.model, "scene": labels.scene, "basis": "tokens", "block_tokens": 16,
        "requests": requests, "prompt_tokens": 100 * requests, "shareable_tokens": 64 * requests,
        "shareable_ratio": 0.64, "told_requests": requests, "hit_tokens": 48 * requests, "hit_ratio": 0.48,
        "lost_tokens": 16 * requests, "prefill_tokens_per_second": 1000.0, "saved_s": 1.0, "lost_s": 1.0,
        "breaks": [{"class": "timestamp", "part": "system", "token": 7, "character": 30, "requests": requests,
            "request_ratio": 1.0, "lost_tokens": 20 * requests}],
        "forgotten_blocks": 0,
    }))
    .expect("a report");
    Observation::Prefix(Box::new(report))
}

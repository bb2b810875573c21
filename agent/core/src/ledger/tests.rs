//! Usage by key and time, growth, the heaviest requests, limits, caps, and taking back what was stored.

mod properties;

use super::*;
use crate::money::{Amount, Basis, Charge, ChargeKind, Currency};
use crate::observation::Labels;
use crate::request::RequestRecord;
use serde_json::json;

/// 2026-01-01 00:00 UTC.
const T: u64 = 1_767_225_600;

fn labels(model: &str, scene: &str) -> Labels {
    Labels {
        engine: "e".into(),
        model: model.into(),
        scene: scene.into(),
    }
}

fn tokens(model: &str, scene: &str, direction: TokenDirection, count: u64) -> Observation {
    Observation::Tokens {
        request: 1,
        labels: labels(model, scene),
        client: Some([10, 0, 0, 7].into()),
        direction,
        count,
    }
}

fn finished(id: &str, model: &str, scene: &str, status: Status, input: u64, output: u64) -> Observation {
    let record: RequestRecord = serde_json::from_value(json!({
        "id": id, "trace_id": format!("t{id}"), "client": "10.0.0.7", "engine": "e", "model": model, "scene": scene,
        "protocol": "openai_chat", "streamed": true, "status": status, "chunks": output,
        "input_tokens": input, "output_tokens": output, "cached_input_tokens": null,
        "request_bytes": 1, "response_bytes": 1, "sources": {}, "incomplete": [],
    }))
    .expect("a record");
    Observation::Finished(Box::new(Finished {
        id: 1,
        labels: labels(model, scene),
        record,
        gaps: Vec::new(),
        gaps_from: None,
        in_flight_at_arrival: None,
        content: None,
        token_sources: [(TokenDirection::Input, None), (TokenDirection::Output, None)],
    }))
}

/// A whole request at a time.
fn request(
    ledger: &mut Ledger,
    at: u64,
    id: &str,
    model: &str,
    scene: &str,
    input: u64,
    output: u64,
) -> Option<bool> {
    ledger.apply(at, &tokens(model, scene, TokenDirection::Input, input));
    ledger.apply(at, &tokens(model, scene, TokenDirection::Output, output));
    ledger.apply(at, &finished(id, model, scene, Status::Ok, input, output))
}

fn ledger() -> Ledger {
    Ledger::new(&LedgerConfig::default(), ContextLimits::default())
}

#[test]
fn usage_is_told_by_scene_and_by_model_with_its_ratio() {
    let mut ledger = ledger();
    request(&mut ledger, T, "1", "m", "chat", 100, 50);
    request(&mut ledger, T + 7000, "2", "m", "rag", 3000, 10);
    request(&mut ledger, T + 7000, "3", "n", "chat", 20, 10);
    ledger.apply(T + 7001, &finished("4", "n", "chat", Status::ServerError, 0, 0));
    ledger.apply(T + 7001, &finished("5", "n", "chat", Status::Incomplete, 0, 0));
    let told = |report: Report| -> Vec<String> {
        let rows = report.rows.iter().chain([&report.total]);
        rows.map(|row| {
            let usage = &row.usage;
            let ratio = row.input_output_ratio.map_or("-".to_owned(), |r| r.to_string());
            let (all, bad) = (usage.requests, usage.failed);
            format!(
                "{} {all} {bad} {}+{} {ratio}",
                row.name, usage.input_tokens, usage.output_tokens
            )
        })
        .collect()
    };
    assert_eq!(
        told(ledger.report(T + 7100, 24 * 3600, By::Scene)),
        [
            "rag 1 0 3000+10 300",
            "chat 4 1 120+60 2",
            "total 5 1 3120+70 44.57142857142857"
        ]
    );
    assert_eq!(
        told(ledger.report(T + 7100, 24 * 3600, By::Model)),
        [
            "m 2 0 3100+60 51.666666666666664",
            "n 3 1 20+10 2",
            "total 5 1 3120+70 44.57142857142857"
        ]
    );
    // The first bucket is over an hour old.
    assert_eq!(
        told(ledger.report(T + 7100, 3600, By::Client)),
        ["10.0.0.7 4 1 3020+20 151", "total 4 1 3020+20 151"]
    );
    assert_eq!(
        told(ledger.report(T + 300_000, 3600, By::Scene)),
        ["total 0 0 0+0 -"]
    );
}

#[test]
fn what_nobody_told_is_absent() {
    let mut ledger = ledger();
    request(&mut ledger, T, "1", "m", "s", 1, 1);
    let total = ledger.report(T, 3600, By::Scene).total.usage;
    assert_eq!((total.cached_input_tokens, total.reasoning_tokens), (None, None));
    assert_eq!(total.near_context_limit, None);
    let mut sum = Usage::default();
    for cached in [None, Some(0), None, Some(7)] {
        sum.add(&Usage {
            cached_input_tokens: cached,
            ..Usage::default()
        });
    }
    assert_eq!(sum.cached_input_tokens, Some(7));
}

#[test]
fn money_is_told_by_currency_and_basis() {
    let usd: Currency = "USD".parse().expect("a currency");
    let charge = |units: f64, basis| {
        Observation::Charge(Box::new(Charge {
            request: Some(1),
            labels: labels("m", "s"),
            client: Some([10, 0, 0, 7].into()),
            basis,
            currency: usd,
            kind: ChargeKind::CachedInput,
            amount: Amount::from_units(units).expect("an amount"),
            tokens: 5,
            saved: Amount::from_units(units / 2.0).expect("an amount"),
        }))
    };
    let mut ledger = ledger();
    for (at, units, basis) in [
        (T, 0.1, Basis::Tokens),
        (T + 3600, 0.2, Basis::Tokens),
        (T + 3600, 7.0, Basis::Gpu),
    ] {
        ledger.apply(at, &charge(units, basis));
    }
    let report = ledger.report(T + 7200, DAY, By::Client);
    assert_eq!(report.rows[0].name, "10.0.0.7");
    let spent = |basis| {
        report.rows[0]
            .usage
            .spent(usd, basis)
            .map(|spent| (spent.amount, spent.saved))
    };
    let exact = |amount, saved| Some((Amount::from_units(amount)?, Amount::from_units(saved)?));
    assert_eq!(spent(Basis::Tokens), exact(0.3, 0.15));
    assert_eq!(spent(Basis::Gpu), exact(7.0, 3.5));
    let growth = ledger.growth(T + 7200, 1, 1).cost;
    let told: Vec<_> = growth
        .iter()
        .map(|one| (one.basis, one.change.growth, one.change.ratio))
        .collect();
    assert_eq!(told, [(Basis::Tokens, 0.1, Some(1.0)), (Basis::Gpu, 7.0, None)]);
}

#[test]
fn requests_near_the_limit_are_counted_where_one_is_known() {
    let limits = ContextLimits::new(vec![("big-*".to_owned(), 1000)], 0.9);
    let mut ledger = Ledger::new(&LedgerConfig::default(), limits);
    for (model, input, output, near) in [
        ("big-1", 800, 99, Some(false)),
        ("big-1", 800, 100, Some(true)),
        ("big-2", 5000, 0, Some(true)),
        ("small", 5000, 5000, None),
    ] {
        assert_eq!(
            request(&mut ledger, T, "1", model, "s", input, output),
            near,
            "{model}"
        );
    }
    let told = ContextLimit {
        tokens: 2048,
        source: LimitSource::CommandLine,
    };
    ledger.limits.engine(&"e".into(), Some(told));
    assert_eq!(ledger.limits.of("e", "small"), Some(told));
    assert_eq!(
        ledger.limits.of("e", "big-1").map(|limit| limit.tokens),
        Some(1000)
    );
    assert_eq!(request(&mut ledger, T, "5", "small", "s", 1844, 0), Some(true));
    assert_eq!(request(&mut ledger, T, "6", "small", "s", 1843, 0), Some(false));
    ledger.limits.engine(&"e".into(), None);
    assert_eq!(ledger.limits.of("e", "small"), None);
    let rows = ledger.report(T, 60, By::Model).rows;
    let near: Vec<_> = rows
        .iter()
        .map(|row| (&*row.name, row.usage.near_context_limit))
        .collect();
    assert_eq!(near, [("small", Some(1)), ("big-2", Some(1)), ("big-1", Some(1))]);
}

#[test]
fn requests_from_before_the_start_are_among_the_heaviest_again() {
    let now = 10 * DAY;
    let heavy = |id: u64, ended| Heavy {
        ended,
        id: id.to_string(),
        trace_id: String::new(),
        engine: "e".into(),
        model: "m".into(),
        scene: "s".into(),
        client: None,
        input_tokens: Some(id),
        output_tokens: None,
        cost: Vec::new(),
    };
    let mut ledger = Ledger::new(&LedgerConfig::default(), ContextLimits::default());
    let times = [now, now - BUCKET, now + 1, now - HOURS, now - HOURS + BUCKET];
    let requests = (1..).zip(times).map(|(id, ended)| heavy(id, ended));
    assert_eq!(ledger.restore_heavy(now, requests), 3);
    let ids = |ledger: &Ledger| -> Vec<String> {
        let all = ledger.heaviest(now, HOURS, Order::Tokens, &|_| true, 100);
        all.iter().map(|heavy| heavy.id.clone()).collect()
    };
    assert_eq!(ids(&ledger), ["5", "2", "1"]);
    assert_eq!(ledger.changed(9), [], "nothing was used again");
    // However many: of a bucket so many stay.
    let many = (100..200).map(|id| heavy(id, now - 1));
    assert_eq!(ledger.restore_heavy(now, many), 100);
    assert_eq!(ids(&ledger).len(), MAX_HEAVY + 2);
    assert_eq!(ids(&ledger)[0], "199");
}

#[test]
fn the_heaviest_are_those_of_the_time_that_is_asked_for() {
    let mut ledger = ledger();
    for i in 0..100u64 {
        let scene = if i % 2 == 0 { "even" } else { "odd" };
        request(&mut ledger, T + i * 60, &i.to_string(), "m", scene, i, 1);
    }
    let now = T + 99 * 60;
    let ids = |since, admits: &dyn Fn(&Heavy) -> bool, limit| -> Vec<String> {
        let all = ledger.heaviest(now, since, Order::Tokens, admits, limit);
        all.iter().map(|heavy| heavy.id.clone()).collect()
    };
    assert_eq!(ids(86_400, &|_| true, 3), ["99", "98", "97"]);
    assert_eq!(ids(86_400, &|heavy| &*heavy.scene == "even", 2), ["98", "96"]);
    assert_eq!(ids(120, &|_| true, 100), ["99", "98", "97"]);
    assert_eq!(ledger.heaviest(now, 86_400, Order::Cost, &|_| true, 9), []);
}

#[test]
fn growth_is_told_with_who_it_comes_from_and_why() {
    let mut ledger = ledger();
    let mut id = 0;
    let mut many = |ledger: &mut Ledger, at, n, model, scene, input, output| {
        for _ in 0..n {
            id += 1;
            request(ledger, at, &id.to_string(), model, scene, input, output);
        }
    };
    let before = T + 1800;
    many(&mut ledger, T, 1, "m", "chat", 0, 0);
    many(&mut ledger, before, 10, "m", "chat", 80, 20);
    many(&mut ledger, before, 10, "m", "rag", 900, 100);
    many(&mut ledger, before, 4, "n", "batch", 50, 50);
    let now = before + 3600;
    many(&mut ledger, now, 30, "m", "chat", 80, 20);
    many(&mut ledger, now, 10, "m", "rag", 3900, 100);
    many(&mut ledger, now, 2, "n", "batch", 50, 50);
    // Not over yet: neither in the later window nor in the earlier one.
    many(&mut ledger, T + 7200, 1, "m", "rag", 1_000_000, 0);
    let growth = ledger.growth(T + 7230, 1, 10);
    assert_eq!((growth.before.from, growth.before.to), (T, T + 3600));
    assert_eq!((growth.now.from, growth.now.to), (T + 3600, T + 7200));
    assert!(growth.complete);
    assert_eq!((growth.tokens.before, growth.tokens.now), (11_400.0, 43_200.0));
    let told: Vec<String> = growth
        .contributions
        .iter()
        .map(|one| {
            let because = one.because.map_or("-", Because::as_str);
            let parts = (one.by_requests.expect("known"), one.by_size.expect("known"));
            let (by, name, growth) = (one.by.as_str(), &one.name, one.tokens.growth);
            format!("{by} {name} {growth} {:.1} {:.1} {because}", parts.0, parts.1)
        })
        .collect();
    assert_eq!(
        told,
        [
            "scene rag 30000 0.0 30000.0 larger requests",
            "scene chat 2000 1813.6 186.4 more requests",
            "scene batch -200 -200.0 0.0 fewer requests",
            "model m 32000 15188.7 16811.3 larger requests",
            "model n -200 -200.0 0.0 fewer requests",
            "client 10.0.0.7 31800 12618.9 19181.1 larger requests",
        ]
    );
    let heaviest: Vec<&str> = growth.heaviest.iter().map(|heavy| &*heavy.scene).collect();
    assert_eq!(heaviest, ["rag"; 10]);
    assert!(
        !ledger.growth(T + 7230, 2, 10).complete,
        "nothing is known before the start"
    );
}

#[test]
fn keys_past_the_cap_are_other_and_counted_and_nothing_is_lost() {
    let config = LedgerConfig {
        max_keys: 10,
        days: 2,
    };
    let mut ledger = Ledger::new(&config, ContextLimits::default());
    for i in 0..10_000u64 {
        let (model, scene) = (format!("m{i}"), format!("s{}", i % 5000));
        request(&mut ledger, T + i, &i.to_string(), &model, &scene, 2, 1);
    }
    assert!(
        ledger.hours.sizes().iter().all(|keys| *keys <= 14),
        "{:?}",
        ledger.hours.sizes()
    );
    assert!(ledger.overflow() > 9000, "{}", ledger.overflow());
    let report = ledger.report(T + 10_000, 4 * 3600, By::Scene);
    assert_eq!(report.total.usage.requests, 10_000);
    assert_eq!(report.total.usage.tokens(), 30_000);
    assert_eq!(report.rows[0].name, OTHER);
    let long = "x".repeat(300);
    request(&mut ledger, T + 90_000, "1", &long, "s", 1, 1);
    assert_eq!(ledger.report(T + 90_000, 60, By::Model).rows[0].name, OTHER);
}

#[test]
fn old_buckets_go_and_a_clock_that_jumps_leaves_a_bounded_number() {
    let mut ledger = ledger();
    for day in 0..200 {
        request(&mut ledger, T + day * DAY, "1", "m", "s", 1, 1);
    }
    assert_eq!(ledger.days.sizes().len(), 90);
    assert_eq!(ledger.hours.sizes().len(), 2);
    request(&mut ledger, u64::MAX, "1", "m", "s", 1, 1);
    request(&mut ledger, 0, "1", "m", "s", 1, 1);
    assert_eq!(ledger.hours.sizes().len(), 1);
    assert_eq!(ledger.growth(0, 24, 3).tokens.now, 0.0);
    assert_eq!(
        ledger.report(u64::MAX, u64::MAX, By::Scene).total.usage.requests,
        1
    );
}

#[test]
fn what_is_stored_and_taken_back_counts_nothing_twice() {
    let mut ledger = ledger();
    request(&mut ledger, T, "1", "m", "a", 10, 5);
    let mut stored: Vec<Row> = ledger.changed(100);
    assert_eq!(stored.len(), 2, "an hour's bucket and a day's");
    assert_eq!(ledger.changed(100), []);
    request(&mut ledger, T + 1, "2", "m", "a", 10, 5);
    let again = ledger.changed(1);
    assert_eq!(again[0].usage.requests, 2, "the sum so far");
    ledger.not_stored(&again);
    let again = ledger.changed(100);
    assert_eq!(again.len(), 2);
    stored = again;
    let mut next = super::tests::ledger();
    assert_eq!(next.restore(T + 60, stored.clone()), 2);
    assert_eq!(next.restore(T + 60, stored), 2, "twice is once");
    assert_eq!(next.changed(100), []);
    request(&mut next, T + 61, "3", "m", "a", 10, 5);
    for since in [3600, 30 * DAY] {
        let report = next.report(T + 62, since, By::Scene);
        assert_eq!(
            (report.total.usage.requests, report.total.usage.tokens()),
            (3, 45)
        );
        assert_eq!(report.observed_since, Some(T));
    }
    let old = next.changed(100);
    assert_eq!(super::tests::ledger().restore(T + 100 * DAY, old), 0);
}

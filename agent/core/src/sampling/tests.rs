//! What is kept, and nothing else.

use super::*;
use crate::observation::Labels;
use proptest::prelude::*;
use serde_json::json;
use std::collections::BTreeMap;

const SECOND: Nanos = 1_000_000_000;

/// As of a client that numbers its traces.
fn trace_id(n: u64) -> String {
    format!("{n:032x}")
}

fn request(n: u64, status: &str, ttft_s: f64, e2e_s: f64) -> Finished {
    let trace = trace_id(n);
    let record = json!({
        "id": format!("{n:016x}"), "trace_id": trace, "engine": "e", "model": "m", "scene": "s", "protocol": "openai_chat",
        "streamed": true, "status": status, "ttft_s": ttft_s, "e2e_s": e2e_s, "chunks": 3, "request_bytes": 9,
        "response_bytes": 9, "sources": {}, "incomplete": [],
    });
    let labels = Labels {
        engine: "e".into(),
        model: "m".into(),
        scene: "s".into(),
    };
    Finished {
        id: n,
        labels,
        record: serde_json::from_value(record).expect("a record"),
        gaps: vec![(0.02, 1), (0.03, 1)],
        gaps_from: None,
        in_flight_at_arrival: None,
        content: None,
        token_sources: [
            (crate::observation::TokenDirection::Input, None),
            (crate::observation::TokenDirection::Output, None),
        ],
    }
}

fn ok(n: u64) -> Finished {
    request(n, "ok", 0.2, 1.0)
}

/// No head, no running P99, and caps that are not in the way.
fn limits() -> SamplingConfig {
    SamplingConfig {
        usual_after: 0,
        head_rate: 0.0,
        per_minute: 100_000,
        ..SamplingConfig::default()
    }
}

/// Numbers that look random: the `n`-th, 0 to 1.
fn random(n: u64) -> f64 {
    (crate::identity::mix(n ^ 0xabcd) >> 11) as f64 / (1_u64 << 53) as f64
}

fn names(rules: Rules) -> Vec<&'static str> {
    rules.iter().map(Rule::as_str).collect()
}

#[test]
fn each_rule_matches_what_it_is_for() {
    let with = |change: fn(&mut Finished)| {
        let mut finished = ok(1);
        change(&mut finished);
        finished
    };
    let interference = json!({"cause": "interference", "interference_by": []});
    let mut diagnosed = ok(1);
    diagnosed.record.diagnosis = serde_json::from_value(interference).expect("a diagnosis");
    let mut decode = diagnosed.clone();
    if let Some(diagnosis) = &mut decode.record.diagnosis {
        diagnosis.cause = Some(Cause::Decode);
    }
    let cases: Vec<(Finished, &[&str])> = vec![
        (ok(1), &[]),
        (request(1, "ok", 4.999, 119.9), &[]),
        (request(1, "ok", 5.0, 10.0), &["slow_ttft"]),
        (request(1, "ok", 1.0, 120.0), &["slow_e2e"]),
        (request(1, "client_error", 0.1, 0.1), &["client_error"]),
        (
            request(1, "server_error", 9.0, 9.0),
            &["slow_ttft", "server_error"],
        ),
        (request(1, "timeout", 0.1, 0.1), &["timeout"]),
        (request(1, "cancelled", 0.1, 0.1), &["cancelled"]),
        (diagnosed, &["interference"]),
        (decode, &[]),
        // Two of a hundred gaps are long, then one: the P99 is the second largest of a hundred.
        (
            with(|f| {
                f.gaps = vec![(0.01, 1); 98]
                    .into_iter()
                    .chain([(0.6, 1), (0.7, 1)])
                    .collect()
            }),
            &["slow_itl"],
        ),
        (
            with(|f| f.gaps = vec![(0.01, 1); 99].into_iter().chain([(0.7, 1)]).collect()),
            &[],
        ),
        // A gap that ten tokens share is ten short ones.
        (with(|f| f.gaps = vec![(4.0, 10)]), &[]),
        (with(|f| f.gaps = vec![(5.0, 10)]), &["slow_itl"]),
        (with(|f| f.gaps = vec![(1.0, 0)]), &[]),
        // What is not known is not slow.
        (with(|f| (f.record.ttft_s, f.record.e2e_s) = (None, None)), &[]),
        (with(|f| f.record.ttft_s = Some(f64::NAN)), &[]),
        (request(1, "incomplete", 50.0, 500.0), &[]),
        (
            with(|f| (f.record.ttft_s, f.record.incomplete) = (Some(50.0), vec!["gap_out".to_owned()])),
            &[],
        ),
    ];
    let near = Sampler::new(limits()).decide(0, &ok(1), Rules::from_iter([Rule::NearContextLimit]));
    assert_eq!(
        (names(near.matched), near.kept()),
        (vec!["near_context_limit"], true)
    );
    // Beside what the request itself tells.
    let both = request(1, "ok", 5.0, 10.0);
    let over = Sampler::new(limits()).decide(0, &both, Rules::from_iter([Rule::OverBudget]));
    assert_eq!(names(over.matched), ["slow_ttft", "over_budget"]);
    for (index, (finished, expected)) in cases.iter().enumerate() {
        let decision = Sampler::new(limits()).decide(0, finished, Rules::default());
        assert_eq!(names(decision.matched), *expected, "case {index}");
        assert_eq!(decision.kept(), !expected.is_empty(), "case {index}");
    }
}

#[test]
fn slow_and_failed_and_the_head_are_kept_and_nothing_else() {
    const ALL: u64 = 100_000;
    let mut sampler = Sampler::new(SamplingConfig {
        usual_after: 1000,
        head_rate: 0.02,
        ..limits()
    });
    let (mut wrong, mut due, mut head, mut rest) = (Vec::new(), 0, 0, 0_u64);
    let mut kept = BTreeMap::<&str, u64>::new();
    for n in 0..ALL {
        // What is usual takes 0.1 to 0.4 s to its first token; what is slow 5 to 25 s.
        let (slow, failed) = (n % 100 == 37, n % 200 == 111);
        let ttft = if slow {
            5.0 + 20.0 * random(n)
        } else {
            0.1 + 0.3 * random(n)
        };
        let status = if failed { "server_error" } else { "ok" };
        let finished = request(n, status, ttft, ttft + 1.0);
        let decision = sampler.decide(n * SECOND / 50, &finished, Rules::default());
        for rule in decision.matched.iter() {
            *kept.entry(rule.as_str()).or_default() += 1;
        }
        let expected = slow || failed;
        due += u64::from(expected);
        rest += u64::from(!expected);
        if decision.matched.contains(Rule::Head) {
            head += 1;
            if expected || !sampled(&finished.record.trace_id, 0.02) {
                wrong.push(n);
            }
        } else if decision.kept() != expected || (failed && !decision.matched.contains(Rule::ServerError)) {
            wrong.push(n);
        }
    }
    println!("{ALL} requests, {due} slow or failed, {head} of {rest} others as the head; by rule {kept:?}");
    assert_eq!(wrong, [0_u64; 0]);
    assert_eq!((due, kept["server_error"], kept["slow_ttft"]), (1500, 500, 1000));
    let share = head as f64 / rest as f64;
    assert!((share - 0.02).abs() < 0.002, "{share}");
}

#[test]
fn in_an_outage_no_minute_keeps_more_than_the_cap() {
    const CAP: usize = 30;
    let mut sampler = Sampler::new(SamplingConfig {
        head_rate: 1.0,
        per_minute: CAP,
        ..limits()
    });
    let mut kept = Vec::new();
    // Two hundred failures a second for five minutes; then all is well.
    for n in 0..60_000 {
        let now = n * SECOND / 200;
        let decision = sampler.decide(now, &request(n, "server_error", 0.1, 0.1), Rules::default());
        assert_eq!(names(decision.matched), ["server_error"]);
        assert_eq!(decision.kept(), decision.capped.is_empty());
        if decision.kept() {
            kept.push(now);
        }
    }
    assert_eq!(kept.len(), 5 * CAP);
    for window in kept.windows(CAP + 1) {
        assert!(window[CAP] - window[0] >= 60 * SECOND, "{window:?}");
    }
    // Other rules have allowances of their own.
    let decision = sampler.decide(300 * SECOND, &ok(1), Rules::default());
    assert_eq!((names(decision.matched), decision.kept()), (vec!["head"], true));
    let slow = request(2, "server_error", 9.0, 9.0);
    let mut last = Decision::default();
    for _ in 0..CAP + 1 {
        last = sampler.decide(300 * SECOND, &slow, Rules::default());
    }
    assert!(!last.kept(), "both are used up");
    let nothing = SamplingConfig {
        per_minute: 0,
        ..limits()
    };
    assert!(!Sampler::new(nothing).decide(0, &slow, Rules::default()).kept());
}

#[test]
fn above_the_running_p99_of_its_model_and_scene_is_slow() {
    let mut sampler = Sampler::new(SamplingConfig {
        usual_after: 500,
        ..limits()
    });
    let mut slow = |n: u64, scene: &str, ttft: f64| {
        let mut finished = request(n, "ok", ttft, 1.0);
        finished.labels.scene = scene.into();
        let decision = sampler.decide(n * SECOND, &finished, Rules::default());
        decision.matched.contains(Rule::SlowTtft)
    };
    let usually = |n: u64| 0.1 + 0.1 * random(n);
    assert!(!slow(0, "s", 1.0), "nothing to compare with");
    let early = (1..500).filter(|&n| slow(n, "s", usually(n))).count();
    assert_eq!(early, 0);
    let told = (500..20_000).filter(|&n| slow(n, "s", usually(n))).count();
    assert!(told < 400, "{told} of 19500 in ordinary times");
    for n in 20_000..20_010 {
        assert!(slow(n, "s", 0.3), "half as much again as the P99");
    }
    assert!(!slow(20_010, "other", 0.3), "another scene");
    // Everything becomes slower: told for a while, then it is what is usual.
    let shift: Vec<bool> = (20_011..32_000).map(|n| slow(n, "s", 3.0 * usually(n))).collect();
    let early = shift[..50].iter().filter(|slow| **slow).count();
    let late = shift[11_000..].iter().filter(|slow| **slow).count();
    assert!(early > 25 && late < 30, "{early}, {late}");
}

#[test]
fn another_configuration_forgets_nothing() {
    let mut sampler = Sampler::new(SamplingConfig {
        per_minute: 2,
        usual_after: 0,
        ..limits()
    });
    for n in 0..200 {
        sampler.decide(n, &ok(n), Rules::default());
    }
    let failed = request(1, "server_error", 0.1, 0.1);
    for _ in 0..2 {
        assert!(sampler.decide(200, &failed, Rules::default()).kept());
    }
    sampler.configure(SamplingConfig {
        per_minute: 3,
        usual_after: 100,
        slow_e2e_s: Some(50.0),
        ..limits()
    });
    assert!(sampler.decide(201, &failed, Rules::default()).kept(), "one more");
    assert!(!sampler.decide(202, &failed, Rules::default()).kept(), "of three");
    let slow = |sampler: &mut Sampler, ttft, e2e| {
        let decision = sampler.decide(203, &request(1, "ok", ttft, e2e), Rules::default());
        names(decision.matched)
    };
    assert_eq!(
        slow(&mut sampler, 4.0, 0.1),
        ["slow_ttft"],
        "above the P99 of those before"
    );
    assert_eq!(slow(&mut sampler, 0.1, 60.0), ["slow_e2e"]);
    sampler.configure(limits());
    assert_eq!(slow(&mut sampler, 4.0, 60.0), [""; 0], "no longer");
}

#[test]
fn what_failed_does_not_make_slowness_usual() {
    let config = SamplingConfig {
        usual_after: 100,
        ..limits()
    };
    let mut sampler = Sampler::new(config);
    for n in 0..1000 {
        sampler.decide(n, &request(n, "server_error", 4.0, 4.0), Rules::default());
        if n % 2 == 0 {
            sampler.decide(n, &ok(n), Rules::default());
        }
    }
    let decision = sampler.decide(1000, &request(1, "ok", 1.0, 3.0), Rules::default());
    assert_eq!(names(decision.matched), ["slow_ttft", "slow_e2e"]);
}

#[test]
fn groups_are_bounded_and_the_least_recent_makes_room() {
    let mut sampler = Sampler::new(limits());
    for n in 0..1000_u64 {
        let mut finished = ok(n);
        finished.labels.model = format!("model {n}").into();
        sampler.decide(n, &finished, Rules::default());
        finished.labels.model = "always".into();
        sampler.decide(n, &finished, Rules::default());
    }
    assert_eq!(sampler.usual.len(), 256);
}

proptest! {
    #[test]
    fn the_head_is_a_share_of_traces_and_the_same_for_all(seed: u64, rate in 0.0_f64..=1.0) {
        let ids: Vec<String> = (0..2000).map(|n| trace_id(seed ^ n)).collect();
        let kept = ids.iter().filter(|id| sampled(id, rate)).count() as f64 / 2000.0;
        prop_assert!((kept - rate).abs() < 0.07, "{kept} for {rate}");
        // Who keeps less keeps a part of what others keep.
        prop_assert!(ids.iter().all(|id| !sampled(id, rate / 2.0) || sampled(id, rate)));
        prop_assert!(ids.iter().all(|id| sampled(id, 1.0) && !sampled(id, 0.0)));
    }

    #[test]
    fn the_p99_of_gaps_is_the_one_of_single_gaps(
        gaps in proptest::collection::vec((0.0_f64..10.0, 0_u32..5), 0..300),
    ) {
        let mut single: Vec<f64> = gaps
            .iter()
            .flat_map(|&(seconds, tokens)| (0..tokens).map(move |_| seconds / f64::from(tokens)))
            .collect();
        single.sort_by(f64::total_cmp);
        let rank = (single.len() * 99).div_ceil(100);
        let expected = rank.checked_sub(1).map(|at| single[at]);
        prop_assert_eq!(p99(&gaps, &mut Vec::new()), expected);
    }
}

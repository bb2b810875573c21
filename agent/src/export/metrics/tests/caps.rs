//! Caps on label values, seen through the exposition.

use super::*;
use crate::export::{Exporter, ServerConfig};
use crate::usage::SharedLedger;
use infertap_core::ledger::{By, ContextLimits, LedgerConfig};
use proptest::prelude::*;

#[test]
fn ten_thousand_models_make_the_cap_and_other() {
    let metrics = metrics();
    for i in 0..10_000 {
        metrics.apply_all(&request(
            &labels("e", &format!("model-{i}"), "default"),
            Status::Ok,
        ));
    }
    assert_eq!(samples(&metrics, "llm_input_tokens_total").len(), 101);
    assert_eq!(
        samples(&metrics, "llm_requests_total").len(),
        101 * Status::ALL.len()
    );
    assert_eq!(samples(&metrics, "llm_requests_running").len(), 101);
    assert!(
        samples(&metrics, "llm_input_tokens_total")
            .contains(&r#"llm_input_tokens_total{model="other",scene="default"} 376200"#.to_owned())
    );
    assert_eq!(
        samples(&metrics, "infertap_label_overflow_total"),
        [
            r#"infertap_label_overflow_total{label="engine"} 0"#,
            r#"infertap_label_overflow_total{label="model"} 9900"#,
            r#"infertap_label_overflow_total{label="scene"} 0"#,
            r#"infertap_label_overflow_total{label="xid"} 0"#,
        ]
    );
}

#[test]
fn scenes_and_engines_are_capped_too() {
    let metrics = metrics();
    for i in 0..200 {
        let labels = labels(&format!("vllm-{i}"), "m", &format!("scene-{i}"));
        metrics.engine_up(&engine(&labels.engine, i));
        metrics.apply_all(&request(&labels, Status::Ok));
    }
    assert_eq!(samples(&metrics, "llm_input_tokens_total").len(), 51);
    assert_eq!(samples(&metrics, "llm_requests_running").len(), 65);
    assert_eq!(samples(&metrics, "llm_engine_info").len(), 64);
    // Each engine past the cap is counted when it is found and with its request.
    assert_eq!(
        samples(&metrics, "infertap_label_overflow_total"),
        [
            r#"infertap_label_overflow_total{label="engine"} 272"#,
            r#"infertap_label_overflow_total{label="model"} 0"#,
            r#"infertap_label_overflow_total{label="scene"} 150"#,
            r#"infertap_label_overflow_total{label="xid"} 0"#,
        ]
    );
}

/// Ten thousand of each at once: all that the agent keeps of labels stays within its caps, and what did not fit is counted.
#[test]
fn ten_thousand_scenes_and_ten_thousand_models_make_no_more_than_the_caps() {
    let usage = SharedLedger::with_clock(&LedgerConfig::default(), ContextLimits::default(), || {
        1_767_225_600
    });
    let (metrics, server) = (MetricsConfig::default(), ServerConfig::default());
    let exporter = Exporter::with_usage(&metrics, &server, usage).expect("valid");
    let series = |text: &str| text.lines().filter(|line| !line.starts_with('#')).count();
    let encoded = || exporter.metrics().encode(Format::Text).expect("encodes");
    let family = |text: &str, name: &str| {
        let of_family = |line: &&str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with('{'));
        text.lines()
            .filter(of_family)
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    // Each model with each scene that has a place, before there are too many of either.
    let pairs = (0..10_000)
        .map(|i| (i, i))
        .chain((0..100).flat_map(|i| (0..50).map(move |j| (i, j))));
    let mut requests = 0u64;
    for (model, scene) in pairs {
        let labels = labels("e", &format!("model-{model}"), &format!("scene-{scene}"));
        exporter.apply(&request(&labels, Status::Ok));
        requests += 1;
    }
    let text = encoded();
    let (models, scenes) = (101, 51);
    let tokens = family(&text, "llm_input_tokens_total");
    // Models past the cap came with scenes past theirs only, and scenes past it with fifty models that had a place.
    assert_eq!(tokens.len(), 100 * 50 + 50 + 1);
    assert!(tokens.len() <= models * scenes);
    let sum: u64 = tokens
        .iter()
        .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
        .sum();
    assert_eq!(
        sum,
        38 * requests,
        "what has no place of its own is in other, and not lost"
    );
    let before = series(&text);
    for i in 10_000..20_000 {
        let labels = labels("e", &format!("model-{i}"), &format!("scene-{i}"));
        exporter.apply(&request(&labels, Status::Ok));
    }
    let text = encoded();
    println!(
        "{} series of llm_input_tokens_total, {} in all",
        tokens.len(),
        series(&text)
    );
    let overflow = family(&text, "infertap_label_overflow_total");
    println!("{}", overflow.join("\n"));
    assert_eq!(
        series(&text),
        before,
        "ten thousand more of each make no series more"
    );
    assert_eq!(
        overflow[1..3],
        [
            r#"infertap_label_overflow_total{label="model"} 19900"#,
            r#"infertap_label_overflow_total{label="scene"} 19950"#,
        ]
    );
    let report = exporter
        .usage()
        .lock()
        .report(exporter.usage().now(), 3600, By::Scene);
    assert_eq!(report.total.usage.requests, requests + 10_000);
    assert!(report.rows.len() <= 1000 + 251, "{}", report.rows.len());
    assert!(text.contains("\ninfertap_usage_overflow_total "));
}

#[test]
fn engine_places_are_free_again_when_engines_are_gone() {
    let config = MetricsConfig {
        max_engines: 2,
        ..MetricsConfig::default()
    };
    let metrics = Metrics::for_replay(&config).expect("valid");
    for i in 0..100 {
        let id = format!("vllm-{i}");
        metrics.engine_up(&engine(&id, i));
        metrics.engine_coverage(&id, "socket", true);
        metrics.apply_all(&request(&labels(&id, "m", "s"), Status::Ok));
        assert_eq!(
            samples(&metrics, "llm_requests_running"),
            [format!(r#"llm_requests_running{{engine="{id}",model="m"}} 0"#)]
        );
        metrics.engine_down(&id);
    }
    assert_eq!(samples(&metrics, "infertap_engine_coverage"), [""; 0]);
    assert_eq!(
        samples(&metrics, "infertap_label_overflow_total")[0],
        r#"infertap_label_overflow_total{label="engine"} 0"#
    );
}

#[test]
fn a_start_past_the_cap_ends_in_the_series_it_began_in() {
    let config = MetricsConfig {
        max_engines: 1,
        ..MetricsConfig::default()
    };
    let metrics = Metrics::for_replay(&config).expect("valid");
    metrics.engine_up(&engine("a", 1));
    let b = labels("b", "m", "s");
    metrics.apply(&Observation::Started(b.clone()));
    metrics.engine_down("a");
    metrics.engine_up(&engine("b", 2));
    metrics.apply(&finished(&b, record(&b, Status::Ok)));
    assert_eq!(
        samples(&metrics, "llm_requests_running"),
        [r#"llm_requests_running{engine="other",model="m"} 0"#]
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn whatever_labels_come_every_line_is_one_sample(model in any::<String>(), scene in any::<String>(), trace in any::<String>()) {
        let metrics = metrics();
        let labels = labels("e", &model, &scene);
        let mut record = record(&labels, Status::Ok);
        record.trace_id = trace;
        metrics.apply_all(&[Observation::Started(labels.clone()), finished(&labels, record)]);
        let open = metrics.encode(Format::OpenMetrics).expect("encodes");
        prop_assert!(open.ends_with("# EOF\n"));
        for text in [metrics.encode(Format::Text).expect("encodes"), open] {
            for line in text.lines() {
                let first = line.split(['{', ' ']).next().unwrap_or_default();
                prop_assert!(first == "#" || first.starts_with("llm_") || first.starts_with("infertap_"), "{line:?}");
            }
        }
    }
}

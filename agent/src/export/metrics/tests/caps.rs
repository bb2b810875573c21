//! Caps on label values, seen through the exposition.

use super::*;
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

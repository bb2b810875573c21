//! Bodies, labels and verdicts.

use super::*;
use crate::ship::samples::kept;
use infertap_core::Status;
use serde_json::{Value, json};

fn loki() -> Loki {
    let metrics = MetricsConfig {
        max_models: 2,
        ..MetricsConfig::default()
    };
    Loki::new(&LokiSection::default(), &metrics, Some("node-1"))
}

fn body(loki: &Loki, records: &[Arc<KeptRecord>]) -> Value {
    serde_json::from_slice(&loki.encode(records).body).expect("JSON")
}

#[test]
fn streams_have_few_labels_and_entries_in_order() {
    let mut failed = kept(3);
    failed.record.status = Status::ServerError;
    let body = body(&loki(), &[kept(5), kept(2), failed].map(Arc::new));
    let streams = body["streams"].as_array().expect("streams");
    let labels: Vec<&Value> = streams.iter().map(|stream| &stream["stream"]).collect();
    let of = |status: &str| {
        json!({
            "service_name": "infertap", "host": "node-1", "engine": "llama-cpp-8080", "model": "smollm2", "scene": "chat",
            "status": status,
        })
    };
    assert_eq!(labels, [&of("ok"), &of("server_error")]);
    let values = &streams[0]["values"];
    assert_eq!(values[0][0], "1780000000002000002");
    assert_eq!(values[1][0], "1780000000005000005");
    assert_eq!(
        values[0][2],
        json!({"trace_id": "4bf92f3577b34da60000000000000002", "span_id": "0000000000000002", "response_id": "chatcmpl-2"})
    );
    let line: Value = serde_json::from_str(values[0][1].as_str().expect("a line")).expect("JSON");
    assert_eq!(line["id"], "0000000000000002");
    assert_eq!(line["e2e_s"], 1.25);
}

#[test]
fn the_same_record_is_the_same_entry_whatever_it_is_sent_with() {
    let loki = loki();
    let (one, two) = (
        body(&loki, &[Arc::new(kept(5))]),
        body(&loki, &[kept(9), kept(5)].map(Arc::new)),
    );
    assert_eq!(one["streams"][0]["stream"], two["streams"][0]["stream"]);
    assert_eq!(one["streams"][0]["values"][0], two["streams"][0]["values"][0]);
}

#[test]
fn names_from_outside_make_no_endless_streams_and_ids_no_endless_metadata() {
    let records: Vec<Arc<KeptRecord>> = (0..50)
        .map(|n| {
            let mut kept = kept(n);
            kept.record.model = format!("model {n}\n").into();
            kept.record.response_id = Some("r".repeat(MAX_ID + 1));
            Arc::new(kept)
        })
        .collect();
    let body = body(&loki(), &records);
    let streams = body["streams"].as_array().expect("streams");
    let models: Vec<&Value> = streams.iter().map(|stream| &stream["stream"]["model"]).collect();
    assert_eq!(models, ["model 0_", "model 1_", "other"]);
    assert_eq!(streams[2]["values"].as_array().map(Vec::len), Some(48));
    assert_eq!(streams[0]["values"][0][2].get("response_id"), None);
}

#[test]
fn the_host_is_a_label_unless_another_is_given_or_there_is_no_name() {
    let of = |labels: &[(&str, &str)], host| {
        let labels = labels
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let config = LokiSection {
            labels: labels.collect(),
            ..LokiSection::default()
        };
        let loki = Loki::new(&config, &MetricsConfig::default(), host);
        body(&loki, &[Arc::new(kept(1))])["streams"][0]["stream"]["host"].clone()
    };
    assert_eq!(of(&[], Some("node-1")), "node-1");
    assert_eq!(of(&[("host", "mine")], Some("node-1")), "mine");
    for none in [None, Some("")] {
        assert_eq!(of(&[], none), Value::Null);
    }
}

#[test]
fn answers_about_the_batch_end_it_and_all_others_let_it_wait() {
    let judge = |status, records| {
        let answer = HttpAnswer {
            status,
            ..HttpAnswer::default()
        };
        loki().judge(records, &answer)
    };
    for status in [200, 204] {
        assert_eq!(judge(status, 5), Verdict::ACCEPTED);
    }
    for (status, records) in [(400, 2), (422, 2), (413, 2), (413, 1)] {
        assert!(
            matches!(judge(status, records), Verdict::TooLarge { .. }),
            "{status} {records}"
        );
    }
    for status in [400, 422] {
        assert!(matches!(judge(status, 1), Verdict::Refused { .. }), "{status}");
    }
    for status in [301, 401, 403, 404, 408, 429, 500, 502, 503, 504] {
        assert!(matches!(judge(status, 1), Verdict::Retry { .. }), "{status}");
    }
}

#[test]
fn labels_that_loki_refuses_are_refused_first() {
    let long = "x".repeat(2049);
    let cases: &[(&str, &str, Option<&str>)] = &[
        ("cluster", "eu-1", None),
        ("_a1", "ü", None),
        ("service_name", "infertap", None),
        ("", "x", Some("no label's name")),
        ("1a", "x", Some("no label's name")),
        ("a-b", "x", Some("no label's name")),
        ("ä", "x", Some("no label's name")),
        ("__name__", "x", Some("no label's name")),
        ("model", "x", Some("comes from the records")),
        ("a", "", Some("empty value")),
        ("a", &long, Some("2049 bytes")),
        (&long, "x", Some("2049 bytes")),
    ];
    for (name, value, reason) in cases {
        let found = invalid_labels(&[((*name).to_owned(), (*value).to_owned())].into());
        assert_eq!(found.len(), usize::from(reason.is_some()), "{name} {found:?}");
        if let (Some(reason), Some((_, why))) = (reason, found.first()) {
            assert!(why.contains(reason), "{why}");
        }
    }
    let many = |n: usize| {
        let labels = (0..n).map(|n| (format!("l{n}"), "x".to_owned()));
        invalid_labels(&labels.collect())
    };
    assert_eq!(many(10), []);
    assert_eq!(many(11).len(), 1);
}

#[test]
fn the_section_has_ranges() {
    let mut config = LokiSection::default();
    assert_eq!(config.invalid(), []);
    config.labels.insert("model".to_owned(), "x".to_owned());
    config.max_line = Size::bytes(1000);
    config.endpoint = "loki:3100".to_owned();
    let keys: Vec<String> = config.invalid().into_iter().map(|(key, _)| key).collect();
    assert_eq!(keys, ["loki.endpoint", "loki.labels", "loki.max_line"]);
}

#[test]
fn a_change_of_the_section_does_not_begin_the_caps_anew() {
    let metrics = MetricsConfig {
        max_models: 2,
        ..MetricsConfig::default()
    };
    let caps = Arc::new(Mutex::new(Cappers::new(&metrics)));
    let mut models = Vec::new();
    for model in ["a", "b", "c"] {
        let loki = Loki::under(&LokiSection::default(), Arc::clone(&caps), None);
        let mut kept = kept(1);
        kept.record.model = model.into();
        models.push(loki.labels(&kept)["model"].clone());
    }
    assert_eq!(models, ["a", "b", "other"]);
}

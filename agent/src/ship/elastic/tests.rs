//! Bodies, verdicts and setting up.

use super::*;
use crate::ship::samples::kept;

fn elastic() -> Elasticsearch {
    Elasticsearch::new(&ElasticsearchSection::default(), Some("node-1"))
}

fn answer(status: u16, body: &Value) -> HttpAnswer {
    HttpAnswer {
        status,
        body: body.to_string().into_bytes(),
        ..HttpAnswer::default()
    }
}

#[test]
fn a_body_is_an_action_and_a_document_a_record_each_line_ended() {
    let request = elastic().encode(&[kept(1), kept(2), kept(3)].map(Arc::new));
    assert!(
        request
            .path
            .starts_with("/logs-infertap-default/_bulk?filter_path=items."),
        "{}",
        request.path
    );
    assert_eq!(request.content_type, "application/x-ndjson");
    let body = String::from_utf8(request.body).expect("UTF-8");
    assert!(body.ends_with("}\n") && !body.contains("\n\n"));
    let lines: Vec<Value> = body
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(lines.len(), 6);
    assert_eq!(lines[2], json!({"create": {"_id": "0000000000000002"}}));
    assert_eq!(lines[3]["event"]["id"], "0000000000000002");
    assert_eq!(lines[3]["@timestamp"], "2026-05-28T20:26:40.002Z");
    assert_eq!(lines[3]["host"]["name"], "node-1");
}

#[test]
fn answers_are_judged_document_by_document() {
    let item = |status: u16| match status {
        200..=299 => json!({"create": {"status": status}}),
        _ => {
            json!({"create": {"status": status, "error": {"type": format!("t{status}"), "reason": "why"}}})
        }
    };
    let accepted = |rejected, reason: Option<&str>| Verdict::Accepted {
        rejected,
        reason: reason.map(ToOwned::to_owned),
    };
    let partly = |again: &[usize], rejected, reason: &str, fault| Verdict::Partly {
        again: again.to_vec(),
        rejected,
        reason: reason.to_owned(),
        after: None,
        fault,
    };
    let cases = [
        ([201, 201, 201], Verdict::ACCEPTED),
        ([201, 409, 200], Verdict::ACCEPTED),
        ([201, 400, 413], accepted(2, Some("t400: why"))),
        ([401, 403, 404], partly(&[0, 1, 2], 0, "t401: why", Fault::Load)),
        (
            [404, 201, 400],
            partly(&[0], 1, "t404: why; 1 are lost: t400: why", Fault::Load),
        ),
        ([429, 201, 503], partly(&[0, 2], 0, "t429: why", Fault::Load)),
        ([429, 201, 500], partly(&[0, 2], 0, "t429: why", Fault::Unclear)),
        (
            [400, 429, 409],
            partly(&[1], 1, "t429: why; 1 are lost: t400: why", Fault::Load),
        ),
    ];
    for (statuses, expected) in cases {
        let answer = json!({"items": statuses.map(item)}).to_string();
        assert_eq!(judge(3, answer.as_bytes()), expected, "{statuses:?}");
    }
    let two = json!({"items": [item(201), item(201)]}).to_string();
    for other in [&*two, "", "<html>", "{}", r#"{"items": [1, 2, 3]}"#] {
        let verdict = judge(3, other.as_bytes());
        assert!(matches!(verdict, Verdict::Retry { .. }), "{other}: {verdict:?}");
    }
}

#[test]
fn answers_about_the_batch_end_it_and_all_others_let_it_wait() {
    let judge = |status, records| elastic().judge(records, &answer(status, &json!({})));
    for (status, records) in [(413, 2), (413, 1), (400, 2)] {
        assert!(
            matches!(judge(status, records), Verdict::TooLarge { .. }),
            "{status} {records}"
        );
    }
    assert!(matches!(judge(400, 1), Verdict::Refused { .. }));
    // An answer that is not there whole can't be judged, and one about fewer documents is shorter.
    let cut = HttpAnswer {
        cut: true,
        ..answer(200, &json!({"items": []}))
    };
    assert!(matches!(elastic().judge(2, &cut), Verdict::TooLarge { .. }));
    assert!(matches!(elastic().judge(1, &cut), Verdict::TooLarge { .. }));
    for status in [301, 401, 403, 404, 406, 429, 500, 503] {
        assert!(matches!(judge(status, 1), Verdict::Retry { .. }), "{status}");
    }
}

#[test]
fn the_template_is_put_where_none_is_there_or_an_older_one() {
    let there = |version: u64| {
        answer(
            200,
            &json!({"index_templates": [{"index_template": {"version": version}}]}),
        )
    };
    let gone = answer(404, &json!({"error": {}}));
    let cases = [
        (gone, true),
        (answer(200, &json!({})), true),
        (there(TEMPLATE_VERSION - 1), true),
        (there(TEMPLATE_VERSION), false),
        (there(TEMPLATE_VERSION + 1), false),
    ];
    for (asked, put) in cases {
        let elastic = elastic();
        let ask = elastic.setup().expect("asks");
        let path = "/_index_template/infertap-logs-infertap-default";
        assert_eq!(
            (ask.method, ask.path.split('?').next()),
            (Method::GET, Some(path))
        );
        assert_eq!(elastic.judge_setup(&asked), Verdict::ACCEPTED);
        let next = elastic.setup();
        assert_eq!(next.is_some(), put, "{asked:?}");
        if let Some(next) = next {
            assert_eq!((next.method, &*next.path), (Method::PUT, path));
            let refused = elastic.judge_setup(&answer(403, &json!({"error": "no"})));
            assert!(
                refused
                    .reason()
                    .is_some_and(|reason| reason.contains("elasticsearch.template"))
            );
            assert!(elastic.setup().is_some(), "is tried again");
            assert_eq!(elastic.judge_setup(&answer(200, &json!({}))), Verdict::ACCEPTED);
            assert_eq!(elastic.setup(), None);
        }
    }
    let config = ElasticsearchSection {
        template: false,
        ..ElasticsearchSection::default()
    };
    assert_eq!(Elasticsearch::new(&config, None).setup(), None);
}

#[test]
fn names_of_indices() {
    for name in ["logs-infertap-default", "a", "llm.requests_2", "größe"] {
        assert_eq!(invalid_index(name), None, "{name}");
    }
    let long = "x".repeat(201);
    for name in [
        "", "Logs", "a b", "a/b", "a,b", "a*", "-a", "_a", ".a", "+a", "a:b", &long,
    ] {
        assert!(invalid_index(name).is_some(), "{name}");
    }
}

#[test]
fn the_section_has_ranges() {
    let mut config = ElasticsearchSection::default();
    assert_eq!(config.invalid(), []);
    config.index = "Logs".to_owned();
    config.batch_records = 0;
    let keys: Vec<String> = config.invalid().into_iter().map(|(key, _)| key).collect();
    assert_eq!(keys, ["elasticsearch.batch_records", "elasticsearch.index"]);
}

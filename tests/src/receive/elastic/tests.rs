//! The server refuses what Elasticsearch and OpenSearch refuse.

use super::*;

fn request(method: &str, path: &str, kind: &str, body: &str) -> Request {
    Request {
        method: method.to_owned(),
        path: path.to_owned(),
        headers: [("content-type".to_owned(), kind.to_owned())].into(),
        body: body.into(),
        ..Request::default()
    }
}

fn bulk(body: &str) -> Request {
    request("POST", "/requests/_bulk", "application/x-ndjson", body)
}

fn put(name: &str, body: &Value) -> Request {
    request(
        "PUT",
        &format!("/_index_template/{name}"),
        "application/json",
        &body.to_string(),
    )
}

fn stream_template() -> Value {
    json!({
        "index_patterns": ["requests"], "priority": 1, "version": 3, "data_stream": {},
        "template": {
            "settings": {"index": {"mapping": {"total_fields": {"limit": 6}}}},
            "mappings": {"properties": {
                "@timestamp": {"type": "date"},
                "n": {"type": "long"},
                "at": {"properties": {"ip": {"type": "ip"}}},
            }},
        },
    })
}

#[test]
fn requests_that_are_refused() {
    let good = "{\"create\":{\"_id\":\"1\"}}\n{\"a\":1}\n";
    let cases: [(Request, u16, &str); 14] = [
        (bulk(good), 200, "\"errors\":false"),
        (bulk(good.trim_end()), 400, "must be terminated by a newline"),
        (bulk(""), 400, "request body is required"),
        (bulk("\n"), 400, "no requests added"),
        (bulk("[1]\n{}\n"), 400, "Malformed action/metadata line [1]"),
        (bulk("{}\n{}\n"), 400, "Malformed action/metadata line [1]"),
        (bulk("{\"upsert\":{}}\n{}\n"), 400, "but found [upsert]"),
        (
            bulk("{\"create\":1}\n{}\n"),
            400,
            "Malformed action/metadata line [1]",
        ),
        (
            bulk("{\"create\":{\"_type\":\"doc\"}}\n{}\n"),
            400,
            "unknown parameter [_type]",
        ),
        (bulk("{\"create\":{}}\n"), 400, "no requests added"),
        (
            bulk(&format!(
                "{{\"create\":{{\"_id\":\"{}\"}}}}\n{{}}\n",
                "x".repeat(513)
            )),
            400,
            "no longer than 512",
        ),
        (
            request("POST", "/requests/_bulk", "text/plain", good),
            406,
            "[text/plain] is not supported",
        ),
        (
            request("POST", "/_bulk", "application/x-ndjson", good),
            400,
            "index is missing",
        ),
        (
            request("DELETE", "/requests", "application/json", ""),
            400,
            "no handler found",
        ),
    ];
    for (request, status, text) in cases {
        let reply = Elastic::default().handle(&request);
        assert_eq!(reply.status, status, "{text}: {}", reply.body);
        assert!(reply.body.contains(text), "{text}: {}", reply.body);
    }
    let small = Elastic::new(Settings {
        body: 10,
        authorization: Some("ApiKey abc".to_owned()),
        ..Settings::default()
    });
    assert_eq!(small.handle(&bulk(good)).status, 401);
    let mut known = bulk(good);
    known
        .headers
        .insert("authorization".to_owned(), "ApiKey abc".to_owned());
    assert_eq!(small.handle(&known).status, 413);
}

/// Statuses and kinds of the items that a body gets.
fn items(server: &Elastic, body: &str) -> Vec<(u64, String)> {
    let reply = server.handle(&bulk(body));
    assert_eq!(reply.status, 200, "{}", reply.body);
    let body: Value = serde_json::from_str(&reply.body).expect("JSON");
    let items = body["items"].as_array().expect("items").iter();
    items
        .map(|item| {
            let item = item
                .as_object()
                .and_then(|item| item.values().next())
                .expect("one action");
            let error = &item["error"];
            let text = format!(
                "{}: {}",
                error["type"].as_str().unwrap_or("-"),
                error["reason"].as_str().unwrap_or("-")
            );
            (item["status"].as_u64().expect("a status"), text)
        })
        .collect()
}

#[test]
fn documents_that_are_refused_spoil_no_other() {
    let server = Elastic::default();
    assert_eq!(server.handle(&put("t", &stream_template())).status, 200);
    let cases = [
        (
            r#""create":{"_id":"1"}"#,
            r#"{"@timestamp":"2026-05-28T20:26:40.007Z","n":1,"at":{"ip":"::1"}}"#,
            201,
            "-",
        ),
        (
            r#""create":{"_id":"1"}"#,
            r#"{"@timestamp":1}"#,
            409,
            "version_conflict_engine_exception",
        ),
        (
            r#""index":{"_id":"2"}"#,
            r#"{"@timestamp":1}"#,
            400,
            "op_type of create",
        ),
        (
            r#""create":{"_id":"3"}"#,
            r#"{"n":1}"#,
            400,
            "[@timestamp] is missing",
        ),
        (
            r#""create":{"_id":"4"}"#,
            r#"{"@timestamp":"yesterday"}"#,
            400,
            "failed to parse date field",
        ),
        (
            r#""create":{"_id":"5"}"#,
            r#"{"@timestamp":1,"n":"many"}"#,
            400,
            "For input string",
        ),
        (
            r#""create":{"_id":"6"}"#,
            r#"{"@timestamp":1,"n":{"of":1}}"#,
            400,
            "START_OBJECT",
        ),
        (
            r#""create":{"_id":"7"}"#,
            r#"{"@timestamp":1,"at":"::1"}"#,
            400,
            "found a concrete value",
        ),
        (
            r#""create":{"_id":"8"}"#,
            r#"{"@timestamp":1,"at":{"ip":"nowhere"}}"#,
            400,
            "type [ip]",
        ),
        (
            r#""create":{"_id":"9"}"#,
            r#"{"@timestamp":1,"new":1,"newer":1}"#,
            201,
            "-",
        ),
        (
            r#""create":{"_id":"10"}"#,
            r#"{"@timestamp":1,"newest":1}"#,
            400,
            "Limit of total fields [6]",
        ),
        (r#""create":{"_id":"11"}"#, "[1]", 400, "failed to parse"),
    ];
    let lines = cases
        .iter()
        .flat_map(|(action, document, ..)| ["{", action, "}\n", document, "\n"]);
    let body: String = lines.collect();
    let found = items(&server, &body);
    assert_eq!(found.len(), cases.len());
    for ((status, error), (action, _, expected, text)) in found.iter().zip(cases) {
        assert_eq!(*status, expected, "{action}: {error}");
        assert!(error.contains(text), "{action}: {error}");
    }
    let documents = server.documents("requests");
    let ids: Vec<&str> = documents.keys().map(String::as_str).collect();
    assert_eq!(ids, ["1", "9"]);
    assert_eq!(server.is_data_stream("requests"), Some(true));
}

#[test]
fn overload_answers_items_and_a_missing_index_may_stay_missing() {
    let server = Elastic::default();
    server.overload(1);
    let body = "{\"create\":{\"_id\":\"1\"}}\n{}\n{\"create\":{\"_id\":\"2\"}}\n{}\n";
    let statuses: Vec<u64> = items(&server, body)
        .into_iter()
        .map(|(status, _)| status)
        .collect();
    assert_eq!(statuses, [429, 201]);
    let strict = Elastic::new(Settings {
        auto_create: false,
        ..Settings::default()
    });
    assert_eq!(items(&strict, body)[0].0, 404);
    let misnamed = request("POST", "/Requests/_bulk", "application/x-ndjson", body);
    assert!(
        Elastic::default()
            .handle(&misnamed)
            .body
            .contains("invalid_index_name_exception")
    );
}

#[test]
fn templates_that_are_refused() {
    let with = |pointer: &str, key: &str, value: Value| {
        let mut template = stream_template();
        template.pointer_mut(pointer).expect("there")[key] = value;
        template
    };
    let cases = [
        (stream_template(), 200, 200, ""),
        (json!({"template": {}}), 400, 400, "index_patterns"),
        (with("", "order", json!(1)), 400, 400, "unknown field [order]"),
        (
            with("/template", "lifecycle", json!({"data_retention": "7d"})),
            200,
            400,
            "unknown field [lifecycle]",
        ),
        (
            with(
                "/template/mappings/properties",
                "x",
                json!({"type": "constant_keyword"}),
            ),
            200,
            400,
            "No handler for type",
        ),
        (
            with("/template/mappings/properties", "x", json!({"type": "kw"})),
            400,
            400,
            "No handler for type",
        ),
        (
            with("/template/mappings/properties", "x", json!({})),
            400,
            400,
            "No type specified",
        ),
        (
            with("/template/settings/index/mapping/total_fields", "limit", json!(2)),
            400,
            400,
            "Limit of total fields",
        ),
    ];
    for (template, elastic, opensearch, text) in cases {
        for (status, opensearch) in [(elastic, false), (opensearch, true)] {
            let server = Elastic::new(Settings {
                opensearch,
                ..Settings::default()
            });
            let reply = server.handle(&put("t", &template));
            assert_eq!(reply.status, status, "{text}: {}", reply.body);
            assert!(
                status == 200 || reply.body.contains(text),
                "{text}: {}",
                reply.body
            );
        }
    }
    let server = Elastic::default();
    assert_eq!(
        server
            .handle(&request("GET", "/_index_template/t", "", ""))
            .status,
        404
    );
    server.handle(&put("t", &stream_template()));
    assert_eq!(server.handle(&put("other", &stream_template())).status, 400);
    assert_eq!(server.template_version("t"), Some(3));
}

#[test]
fn answers_are_cut_down_to_what_is_asked_for() {
    let mut request = bulk("{\"create\":{\"_id\":\"1\"}}\n{}\n{\"index\":{\"_id\":\"2\"}}\n[]\n");
    let filter = "items.*.status,items.*.error.type";
    request.query.insert("filter_path".to_owned(), filter.to_owned());
    let body: Value = serde_json::from_str(&Elastic::default().handle(&request).body).expect("JSON");
    let failed = json!({"status": 400, "error": {"type": "document_parsing_exception"}});
    assert_eq!(
        body,
        json!({"items": [{"create": {"status": 201}}, {"index": failed}]})
    );
}

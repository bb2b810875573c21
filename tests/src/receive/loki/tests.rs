//! The server refuses what Loki refuses.

use super::*;
use serde_json::{Value as Json, json};

const NOW: i64 = 1_780_000_000 * SECOND;

fn server() -> Loki {
    Loki::new(Limits {
        now_ns: Some(NOW),
        body: 200_000,
        line: 1000,
        ..Limits::default()
    })
}

fn post(body: impl Into<Vec<u8>>) -> Request {
    Request {
        method: "POST".to_owned(),
        path: "/loki/api/v1/push".to_owned(),
        headers: [("content-type".to_owned(), "application/json".to_owned())].into(),
        body: body.into(),
        ..Request::default()
    }
}

fn push(labels: Json, values: Json) -> Request {
    post(json!({"streams": [{"stream": labels, "values": values}]}).to_string())
}

fn at(offset: i64) -> String {
    (NOW + offset).to_string()
}

#[test]
fn what_is_in_order_is_taken_once() {
    let loki = server();
    let labels = json!({"app": "a"});
    let good = push(
        labels.clone(),
        json!([[at(0), "one"], [at(1), "two", {"trace_id": "t"}]]),
    );
    assert_eq!(loki.handle(&good).status, 204);
    assert_eq!(loki.handle(&good).status, 204);
    let same_time = push(labels, json!([[at(1), "three"]]));
    assert_eq!(loki.handle(&same_time).status, 204);
    let streams = loki.streams("fake");
    let lines: Vec<&str> = streams[0].1.iter().map(|entry| &*entry.line).collect();
    assert_eq!(lines, ["one", "two", "three"]);
    assert_eq!(streams[0].1[1].metadata["trace_id"], "t");
    assert_eq!((loki.duplicates(), loki.answers()), (2, vec![204, 204, 204]));
}

#[test]
fn requests_that_are_refused() {
    let one = || push(json!({"app": "a"}), json!([[at(0), "x"]]));
    let header = |name: &str, value: &str| {
        let mut request = one();
        request.headers.insert(name.to_owned(), value.to_owned());
        request
    };
    let cases = [
        (one(), 204, ""),
        (
            Request {
                method: "GET".to_owned(),
                ..one()
            },
            405,
            "",
        ),
        (
            Request {
                path: "/".to_owned(),
                ..one()
            },
            404,
            "",
        ),
        (header("content-type", "text/plain"), 400, "snappy"),
        (header("content-type", ""), 400, "snappy"),
        (header("content-type", "application/json; charset=utf-8"), 204, ""),
        (header("content-encoding", "br"), 400, "not supported"),
        (header("content-encoding", "gzip"), 400, "gzip"),
        (post("{\"streams\":"), 400, "EOF"),
        (
            post(json!({"streams": []}).to_string()),
            422,
            "at least one valid stream",
        ),
        (
            push(json!({}), json!([[at(0), "x"]])),
            400,
            "at least one label pair",
        ),
        (
            push(json!({"a": ""}), json!([[at(0), "x"]])),
            400,
            "at least one label pair",
        ),
        (
            push(json!({"a-b": "x"}), json!([[at(0), "x"]])),
            400,
            "couldn't parse labels",
        ),
        (
            push(json!({"1a": "x"}), json!([[at(0), "x"]])),
            400,
            "couldn't parse labels",
        ),
        (push(json!({"a": 1}), json!([[at(0), "x"]])), 400, "invalid type"),
        (push(json!({"a": "x"}), json!([[1, "x"]])), 400, "did not match"),
        (
            push(json!({"a": "x"}), json!([["now", "x"]])),
            400,
            "invalid syntax",
        ),
        (
            push(json!({"a": "x"}), json!([[at(0), "x", {"n": 1}]])),
            400,
            "did not match",
        ),
        (
            push(json!({"a": "x".repeat(2049)}), json!([[at(0), "x"]])),
            400,
            "value too long",
        ),
        (
            push(json!({"a".repeat(1025): "x"}), json!([[at(0), "x"]])),
            400,
            "name too long",
        ),
        (
            push(json!({"a": "x"}), json!([[at(0), "x".repeat(1001)]])),
            400,
            "Max entry size",
        ),
        (
            push(json!({"a": "x"}), json!([[at(-8 * 86_400 * SECOND), "x"]])),
            400,
            "too old",
        ),
        (
            push(json!({"a": "x"}), json!([[at(601 * SECOND), "x"]])),
            400,
            "too new",
        ),
        (
            push(
                json!({"a": "x"}),
                json!([[at(0), "x", {"m": "x".repeat(65_536)}]]),
            ),
            400,
            "metadata too large",
        ),
        (post(" ".repeat(200_001)), 413, "request body too large"),
    ];
    for (request, status, text) in cases {
        let loki = server();
        let reply = loki.handle(&request);
        assert_eq!(reply.status, status, "{} {text}", reply.body);
        assert!(reply.body.contains(text), "{text}: {}", reply.body);
        let there = loki
            .streams("fake")
            .iter()
            .map(|(_, entries)| entries.len())
            .sum::<usize>();
        assert_eq!(there, usize::from(status == 204), "{text}");
    }
}

#[test]
fn labels_and_metadata_have_a_number() {
    let labels = |n: usize| -> Json {
        let labels = (0..n).map(|n| (format!("l{n}"), json!("x")));
        labels
            .chain([("service_name".to_owned(), json!("x"))])
            .collect::<serde_json::Map<_, _>>()
            .into()
    };
    let metadata = |n: usize| -> Json {
        (0..n)
            .map(|n| (format!("m{n}"), json!("x")))
            .collect::<serde_json::Map<_, _>>()
            .into()
    };
    let cases = [(15, 128, 204), (16, 0, 400), (1, 129, 400)];
    for (many, pairs, status) in cases {
        let reply = server().handle(&push(labels(many), json!([[at(0), "x", metadata(pairs)]])));
        assert_eq!(reply.status, status, "{}", reply.body);
    }
}

#[test]
fn what_is_far_behind_is_ignored_and_the_rest_of_the_batch_taken() {
    let loki = server();
    let behind = at(-3601 * SECOND);
    let reply = loki.handle(&push(
        json!({"a": "x"}),
        json!([[at(0), "1"], [behind, "2"], [at(-3600 * SECOND), "3"]]),
    ));
    assert_eq!(reply.status, 400);
    assert!(reply.body.contains("total ignored: 1 out of 3"), "{}", reply.body);
    assert_eq!(loki.streams("fake")[0].1.len(), 2);
    // Alone in a stream of its own it is not behind.
    assert_eq!(
        loki.handle(&push(json!({"a": "y"}), json!([[behind, "2"]])))
            .status,
        204
    );
}

#[test]
fn tenants_are_kept_apart_where_there_are_any() {
    let loki = Loki::new(Limits {
        tenants: true,
        now_ns: Some(NOW),
        ..Limits::default()
    });
    let mut request = push(json!({"a": "x"}), json!([[at(0), "1"]]));
    let reply = loki.handle(&request);
    assert_eq!((reply.status, &*reply.body), (401, "no org id\n"));
    request
        .headers
        .insert("x-scope-orgid".to_owned(), "team-a".to_owned());
    assert_eq!(loki.handle(&request).status, 204);
    assert_eq!((loki.streams("team-a").len(), loki.streams("fake").len()), (1, 0));
}

//! A record as a document for Elasticsearch or OpenSearch, and the index template that such documents need.
//!
//! Owns: names and types of fields: those of the Elastic Common Schema where it has one (and OpenTelemetry's for generative AI,
//! which it took over), else the record's own under `infertap`. Each value stands in one place. Refuses: requests and answers
//! (`elastic`).

use super::line::{fields, shorten};
use crate::store::tables::record::KeptRecord;
use infertap_core::Status;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

/// Version of the template; to be raised with every change of it.
pub(super) const TEMPLATE_VERSION: u64 = 2;
/// Fields that an index may have. Nothing that is not in the template becomes one, so this holds whatever records bring.
const MAX_FIELDS: u64 = 200;
/// Longest keyword that is indexed, characters; four bytes each is below what Lucene takes.
const MAX_KEYWORD: u64 = 1024;
/// Above what other templates have: Elasticsearch brings ones for `logs-*-*` at 100, Elastic's integrations use 200.
const PRIORITY: u64 = 500;

/// Fields that have another name in a document: the record's, and where it stands in the document.
const RENAMED: [(&str, &str, &str); 11] = [
    ("id", "event", "id"),
    ("trace_id", "trace", "id"),
    ("client", "client", "ip"),
    ("http_status", "http.response", "status_code"),
    ("request_bytes", "http.request", "bytes"),
    ("response_bytes", "http.response", "bytes"),
    ("model", "gen_ai.request", "model"),
    ("response_id", "gen_ai.response", "id"),
    ("finish_reason", "gen_ai.response", "finish_reasons"),
    ("input_tokens", "gen_ai.usage", "input_tokens"),
    ("output_tokens", "gen_ai.usage", "output_tokens"),
];

/// The document of a record; its own fields are of at most `max` bytes.
///
/// # Errors
/// Never in practice: a record is plain data.
pub(super) fn document(
    kept: &KeptRecord,
    host: Option<&str>,
    max: usize,
) -> serde_json::Result<Map<String, Value>> {
    let record = &kept.record;
    let mut own = fields(kept)?;
    shorten(&mut own, max);
    let mut out = Map::new();
    for (name, parent, member) in RENAMED {
        if let Some(value) = own.remove(name) {
            put(&mut out, parent, member, value);
        }
    }
    put(&mut out, "span", "id", record.id.clone().into());
    let end = kept.ended_unix_ms;
    own.remove("ended_unix_ms");
    if let Some(at) = rfc3339(end) {
        out.insert("@timestamp".to_owned(), at.clone().into());
        put(&mut out, "event", "end", at.into());
    }
    if let Some(seconds) = record.e2e_s {
        own.remove("e2e_s");
        put(
            &mut out,
            "event",
            "duration",
            ((seconds * 1e9).round() as u64).into(),
        );
        let start = end.saturating_sub((seconds * 1e3).round() as i64);
        if let Some(at) = rfc3339(start) {
            put(&mut out, "event", "start", at.into());
        }
    }
    put(&mut out, "event", "kind", "event".into());
    put(&mut out, "event", "dataset", "infertap".into());
    put(&mut out, "event", "outcome", outcome(record.status).into());
    if let Some(host) = host {
        put(&mut out, "host", "name", host.into());
    }
    out.insert("infertap".to_owned(), Value::Object(own));
    Ok(out)
}

/// ECS's word for how it ended.
const fn outcome(status: Status) -> &'static str {
    match status {
        Status::Ok => "success",
        Status::ClientError | Status::ServerError | Status::Timeout => "failure",
        Status::Cancelled | Status::Incomplete => "unknown",
    }
}

/// Puts a value at `parent` (names with dots between) under `member`.
fn put(out: &mut Map<String, Value>, parent: &str, member: &str, value: Value) {
    let mut at = out;
    for name in parent.split('.') {
        let next = at.entry(name).or_insert_with(|| Value::Object(Map::new()));
        let Value::Object(next) = next else {
            return;
        };
        at = next;
    }
    at.insert(member.to_owned(), value);
}

/// Milliseconds since 1970 as RFC 3339 in UTC; `None` beyond the years that it has.
fn rfc3339(ms: i64) -> Option<String> {
    Some(
        Timestamp::from_millisecond(ms)
            .ok()?
            .strftime("%Y-%m-%dT%H:%M:%S%.3fZ")
            .to_string(),
    )
}

/// The composable index template for what is written to `index`: a data stream of this name, or an index of this name and those
/// that follow it. Only what Elasticsearch 8 and 9 and OpenSearch 2 and 3 all know is in it.
pub(super) fn template(index: &str, data_stream: bool) -> Value {
    let keyword = json!({"type": "keyword", "ignore_above": MAX_KEYWORD});
    let of = |kind: &str, names: &[&str]| {
        let field = match kind {
            "keyword" => keyword.clone(),
            kind => json!({"type": kind}),
        };
        let fields = names.iter().map(|name| ((*name).to_owned(), field.clone()));
        fields.collect::<Map<String, Value>>()
    };
    let object = |parts: Vec<Map<String, Value>>| {
        let properties: Map<String, Value> = parts.into_iter().flatten().collect();
        json!({"properties": properties})
    };
    let one = |name: &str, value: Value| Map::from_iter([(name.to_owned(), value)]);
    let own = object(vec![
        of(
            "keyword",
            &[
                "engine",
                "scene",
                "protocol",
                "status",
                "rules",
                "incomplete",
                "parent_span_id",
                "trace_source",
                "omitted",
                "client_namespace",
                "client_pod",
                "client_workload",
                "client_workload_kind",
            ],
        ),
        of(
            "double",
            &[
                "queue_s",
                "prefill_s",
                "decode_s",
                "tokenize_s",
                "ttft_s",
                "tpot_s",
                "t1_error_s",
                "energy_j",
            ],
        ),
        of(
            "long",
            &[
                "cached_input_tokens",
                "reasoning_tokens",
                "chunks",
                "gpu_alloc_failures",
            ],
        ),
        of("boolean", &["streamed"]),
        one(
            "diagnosis",
            object(vec![
                of("keyword", &["cause"]),
                of("double", &["interference_s", "client_stall_s"]),
                of("long", &["in_flight_at_arrival", "running_at_arrival"]),
            ]),
        ),
        one(
            "cost",
            object(vec![of("keyword", &["currency"]), of("double", &["total"])]),
        ),
        // Kept as it came, not parsed: it is not for searching, and must not become fields.
        one("content", json!({"type": "object", "enabled": false})),
    ]);
    let properties = object(vec![
        of("date", &["@timestamp"]),
        one(
            "event",
            object(vec![
                of("keyword", &["id", "kind", "dataset", "outcome"]),
                of("date", &["start", "end"]),
                of("long", &["duration"]),
            ]),
        ),
        one("trace", object(vec![of("keyword", &["id"])])),
        one("span", object(vec![of("keyword", &["id"])])),
        one("host", object(vec![of("keyword", &["name"])])),
        one("client", object(vec![of("ip", &["ip"])])),
        one(
            "http",
            object(vec![
                one("request", object(vec![of("long", &["bytes"])])),
                one("response", object(vec![of("long", &["bytes", "status_code"])])),
            ]),
        ),
        one(
            "gen_ai",
            object(vec![
                one("request", object(vec![of("keyword", &["model"])])),
                one("response", object(vec![of("keyword", &["id", "finish_reasons"])])),
                one(
                    "usage",
                    object(vec![of("long", &["input_tokens", "output_tokens"])]),
                ),
            ]),
        ),
        one("infertap", own),
    ]);
    let patterns = if data_stream {
        vec![index.to_owned()]
    } else {
        vec![index.to_owned(), format!("{index}-*")]
    };
    let mut template = json!({
        "index_patterns": patterns,
        "priority": PRIORITY,
        "version": TEMPLATE_VERSION,
        "_meta": {"description": "Records of LLM requests, written by infertap"},
        "template": {
            "settings": {"index": {"mapping": {"total_fields": {"limit": MAX_FIELDS}}}},
            "mappings": {"dynamic": false, "date_detection": false, "properties": properties["properties"]},
        },
    });
    if data_stream {
        template["data_stream"] = json!({});
    }
    template
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ship::samples::kept;

    #[test]
    fn values_stand_under_the_names_of_the_schema_or_their_own_and_once() {
        let mut kept = kept(7);
        kept.record.status = Status::ServerError;
        kept.record.http_status = Some(503);
        let document = Value::Object(document(&kept, Some("node-1"), usize::MAX).expect("plain data"));
        let cases = [
            ("/@timestamp", json!("2026-05-28T20:26:40.007Z")),
            ("/event/id", json!("0000000000000007")),
            ("/event/start", json!("2026-05-28T20:26:38.757Z")),
            ("/event/end", json!("2026-05-28T20:26:40.007Z")),
            ("/event/duration", json!(1_250_000_000_u64)),
            ("/event/outcome", json!("failure")),
            ("/trace/id", json!("4bf92f3577b34da60000000000000007")),
            ("/span/id", json!("0000000000000007")),
            ("/host/name", json!("node-1")),
            ("/client/ip", json!("192.0.2.7")),
            ("/http/response/status_code", json!(503)),
            ("/http/request/bytes", json!(kept.record.request_bytes)),
            ("/gen_ai/request/model", json!("smollm2")),
            ("/gen_ai/response/id", json!("chatcmpl-7")),
            ("/gen_ai/response/finish_reasons", json!("length")),
            ("/gen_ai/usage/input_tokens", json!(38)),
            ("/infertap/status", json!("server_error")),
            ("/infertap/rules", json!(["slow_e2e"])),
            ("/infertap/ttft_s", json!(0.25)),
        ];
        for (pointer, expected) in cases {
            assert_eq!(document.pointer(pointer), Some(&expected), "{pointer}");
        }
        let own = document["infertap"].as_object().expect("an object");
        for (moved, ..) in RENAMED {
            assert_eq!(own.get(moved), None, "{moved}");
        }
        for moved in ["ended_unix_ms", "e2e_s", "token_gaps"] {
            assert_eq!(own.get(moved), None, "{moved}");
        }
    }

    #[test]
    fn what_is_not_known_is_absent() {
        let mut kept = kept(7);
        kept.record.e2e_s = None;
        kept.record.http_status = None;
        kept.ended_unix_ms = i64::MAX;
        let document = Value::Object(document(&kept, None, usize::MAX).expect("plain data"));
        for pointer in [
            "/@timestamp",
            "/event/start",
            "/event/duration",
            "/http/response/status_code",
            "/host",
        ] {
            assert_eq!(document.pointer(pointer), None, "{pointer}");
        }
    }

    #[test]
    fn the_template_in_the_repository_is_the_one_that_is_put() {
        let text = serde_json::to_string_pretty(&template("logs-infertap-default", true)).expect("JSON");
        expect_test::expect_file!["../../../deploy/elasticsearch/index-template.json"]
            .assert_eq(&(text + "\n"));
    }

    #[test]
    fn an_index_has_no_data_stream_and_its_successors_the_same_template() {
        let index = template("llm-requests", false);
        assert_eq!(index["index_patterns"], json!(["llm-requests", "llm-requests-*"]));
        assert_eq!(index.get("data_stream"), None);
        assert_eq!(template("x", true)["data_stream"], json!({}));
    }
}

//! Kept records sent as logs to servers that refuse what the real ones refuse: by the agent's own way of sending, over HTTP.
//!
//! Owns: what arrives, how often, and what is counted when something goes wrong. Refuses: which records are kept, and when they
//! are handed over (the live tests).

mod reload;

use infertap::config::Span;
use infertap::export::MetricsConfig;
use infertap::ship::{
    Destination, Elasticsearch, ElasticsearchSection, Http, JsonLines, JsonLinesSection, LinkConfig, Loki,
    LokiSection, Outcome, Outlet, Outlets,
};
use infertap::store::tables::record::KeptRecord;
use infertap_tests::receive::elastic::{self, Elastic};
use infertap_tests::receive::loki::{self, Limits};
use infertap_tests::receive::{Fault, Reply, Request, Server, Service as _};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

const DEADLINE: Duration = Duration::from_mins(1);
/// A time on the servers' clock, Unix time in milliseconds.
const NOW_MS: i64 = 1_780_000_000_000;
const HOUR_MS: i64 = 3_600_000;

const RECORD: &str = r#"{
    "engine": "llama-cpp-8080", "model": "smollm2", "scene": "chat", "client": "192.0.2.7", "protocol": "openai_chat",
    "streamed": true, "status": "ok", "http_status": 200, "finish_reason": "length",
    "t0_ns": 1, "t2_ns": 2, "t3_ns": 3, "t4_ns": 4, "decode_s": 0.25, "ttft_s": 0.25, "tpot_s": 0.05, "e2e_s": 1.25,
    "input_tokens": 38, "output_tokens": 6, "cached_input_tokens": 16, "chunks": 6, "request_bytes": 300, "response_bytes": 4000,
    "sources": {}, "incomplete": [], "energy_j": 12.5, "rules": ["slow_e2e"], "token_gaps": [[0.05, 5]]
}"#;

/// Record `n`, with some of its members as given.
fn record(n: u64, with: &Value) -> Arc<KeptRecord> {
    let mut record: Value = serde_json::from_str(RECORD).expect("JSON");
    let own = json!({
        "id": format!("{n:016x}"), "trace_id": format!("4bf92f3577b34da6{n:016x}"), "response_id": format!("chatcmpl-{n}"),
        "ended_unix_ms": NOW_MS + n as i64,
    });
    let own = own.as_object().into_iter().flatten();
    for (name, value) in own.chain(with.as_object().into_iter().flatten()) {
        record[name] = value.clone();
    }
    Arc::new(serde_json::from_value(record).expect("a record"))
}

fn records(n: u64) -> Vec<Arc<KeptRecord>> {
    (0..n).map(|n| record(n, &json!({}))).collect()
}

fn ids(n: u64) -> BTreeSet<String> {
    (0..n).map(|n| format!("{n:016x}")).collect()
}

/// Sends records, and waits until `done`.
fn send<D: Destination>(
    destination: D,
    link: &LinkConfig,
    records: &[Arc<KeptRecord>],
    done: impl Fn(&Outlet) -> bool,
) -> Counts {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let outlets = Outlets::default();
        let outlet = outlets.add(destination, link.limits(), link.attempt());
        for record in records {
            outlets.offer(record);
        }
        let begun = Instant::now();
        while !done(&outlet) {
            assert!(begun.elapsed() < DEADLINE, "{:?}", Counts::of(&outlet));
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Counts::of(&outlet)
    })
}

/// What became of records.
#[derive(Debug, PartialEq, Eq)]
struct Counts {
    waiting: usize,
    counted: Vec<(&'static str, u64)>,
}

impl Counts {
    fn of(outlet: &Outlet) -> Counts {
        let counted = Outcome::ALL
            .iter()
            .map(|outcome| (outcome.as_str(), outlet.counted(*outcome)));
        Counts {
            waiting: outlet.waiting().0,
            counted: counted.filter(|(_, count)| *count > 0).collect(),
        }
    }

    fn are(counted: &[(&'static str, u64)]) -> Counts {
        Counts {
            waiting: 0,
            counted: counted.to_vec(),
        }
    }
}

fn nothing_waits(outlet: &Outlet) -> bool {
    outlet.waiting().0 == 0
}

fn to_loki(server: &Server, change: impl FnOnce(&mut LokiSection)) -> (Http<Loki>, LinkConfig) {
    let mut section = LokiSection {
        endpoint: server.url(),
        batch_records: 16,
        batch_wait: Span::millis(20),
        ..LokiSection::default()
    };
    change(&mut section);
    assert_eq!(section.invalid(), []);
    let loki = Loki::new(&section, &MetricsConfig::default(), Some("node-1"));
    (Http::new(loki, &section.link()).expect("a URL"), section.link())
}

fn loki_server(limits: &Limits) -> (Arc<loki::Loki>, Server) {
    let loki = Arc::new(loki::Loki::new(Limits {
        now_ns: Some((NOW_MS + 1000) * 1_000_000),
        ..limits.clone()
    }));
    let server = Server::start(&loki).expect("serves");
    (loki, server)
}

/// Ids of the lines that a tenant has, each stream in order, and how many lines there are.
fn lines(loki: &loki::Loki, tenant: &str) -> (BTreeSet<String>, usize) {
    let (mut ids, mut count) = (BTreeSet::new(), 0);
    for (labels, entries) in loki.streams(tenant) {
        assert_eq!(labels["service_name"], "infertap");
        for entry in entries {
            let line: Value = serde_json::from_str(&entry.line).expect("JSON");
            let id = line["id"].as_str().expect("an id");
            assert_eq!(entry.metadata["span_id"], id);
            assert_eq!(
                entry.metadata["trace_id"],
                line["trace_id"].as_str().expect("a trace")
            );
            assert!(labels.keys().all(|name| !name.contains("id")), "{labels:?}");
            ids.insert(id.to_owned());
            count += 1;
        }
    }
    (ids, count)
}

#[test]
fn every_record_is_in_loki_once_whatever_goes_wrong_on_the_way() {
    for gzip in [true, false] {
        let (loki, server) = loki_server(&Limits::default());
        loki.faults().push(Fault::Answer(Reply::text(503, "not ready")));
        loki.faults().push(Fault::LoseAnswer);
        loki.faults().push(Fault::Answer(
            Reply::text(429, "rate limit").with("Retry-After", "1"),
        ));
        let (destination, link) = to_loki(&server, |section| section.gzip = gzip);
        let counts = send(destination, &link, &records(40), nothing_waits);
        assert_eq!(counts, Counts::are(&[("sent", 40)]));
        assert_eq!(lines(&loki, "fake"), (ids(40), 40));
        assert!(loki.faults().is_empty());
        let again = loki.duplicates();
        assert!(
            (1..=16).contains(&again),
            "the batch whose answer was lost came again: {again}"
        );
    }
}

#[test]
fn what_loki_refuses_is_lost_alone_and_counted() {
    let (loki, server) = loki_server(&Limits::default());
    let mut records = records(20);
    records[3] = record(3, &json!({"ended_unix_ms": NOW_MS - 8 * 24 * HOUR_MS}));
    records[18] = record(18, &json!({"ended_unix_ms": NOW_MS - 2 * HOUR_MS}));
    records[14] = record(14, &json!({"ended_unix_ms": NOW_MS + HOUR_MS}));
    let (destination, link) = to_loki(&server, |_| ());
    let counts = send(destination, &link, &records, nothing_waits);
    // Too old, too far behind the newest of its stream, too far ahead.
    assert_eq!(counts, Counts::are(&[("sent", 17), ("refused", 3)]));
    let mut expected = ids(20);
    for n in [3, 14, 18] {
        expected.remove(&format!("{n:016x}"));
    }
    assert_eq!(lines(&loki, "fake"), (expected, 17));
}

#[test]
fn batches_and_lines_are_cut_to_what_loki_takes() {
    let (loki, server) = loki_server(&Limits {
        body: 9_000,
        line: 64 << 10,
        ..Limits::default()
    });
    let mut records = records(30);
    records[4] = record(4, &json!({"rules": vec!["x".repeat(100); 1000]}));
    let (destination, link) = to_loki(&server, |section| {
        section.max_line = "64KiB".parse().expect("a size");
    });
    let counts = send(destination, &link, &records, nothing_waits);
    assert_eq!(counts, Counts::are(&[("sent", 30)]));
    assert_eq!(lines(&loki, "fake"), (ids(30), 30));
    assert!(loki.answers().contains(&413), "{:?}", loki.answers());
    let all = loki.streams("fake");
    let mut lines = all.iter().flat_map(|(_, entries)| entries);
    assert!(lines.any(|entry| entry.line.contains(r#""omitted":["rules"]"#)));
}

#[test]
fn records_wait_while_the_tenant_is_missing_and_reach_theirs() {
    let limits = || Limits {
        tenants: true,
        ..Limits::default()
    };
    let (loki, server) = loki_server(&limits());
    let (destination, link) = to_loki(&server, |_| ());
    let counts = send(destination, &link, &records(5), |outlet| outlet.failures() >= 2);
    assert_eq!((counts.waiting, counts.counted), (5, vec![]));
    assert!(loki.answers().iter().all(|status| *status == 401));

    let (destination, link) = to_loki(&server, |section| {
        section
            .headers
            .insert("X-Scope-OrgID".to_owned(), "team-a".to_owned());
    });
    send(destination, &link, &records(5), nothing_waits);
    assert_eq!(lines(&loki, "team-a"), (ids(5), 5));
}

const INDEX: &str = "logs-infertap-default";

fn to_elastic(
    server: &Server,
    change: impl FnOnce(&mut ElasticsearchSection),
) -> (Http<Elasticsearch>, LinkConfig) {
    let mut section = ElasticsearchSection {
        endpoint: server.url(),
        batch_records: 16,
        batch_wait: Span::millis(20),
        ..ElasticsearchSection::default()
    };
    change(&mut section);
    assert_eq!(section.invalid(), []);
    let elastic = Elasticsearch::new(&section, Some("node-1"));
    (
        Http::new(elastic, &section.link()).expect("a URL"),
        section.link(),
    )
}

fn elastic_server(settings: elastic::Settings) -> (Arc<Elastic>, Server) {
    let elastic = Arc::new(Elastic::new(settings));
    let server = Server::start(&elastic).expect("serves");
    (elastic, server)
}

fn document_ids(elastic: &Elastic, index: &str) -> BTreeSet<String> {
    elastic.documents(index).into_keys().collect()
}

#[test]
fn every_record_is_a_document_once_whatever_goes_wrong_on_the_way() {
    for (opensearch, data_stream) in [(false, true), (true, true), (true, false)] {
        let (elastic, server) = elastic_server(elastic::Settings {
            opensearch,
            ..elastic::Settings::default()
        });
        let (destination, link) = to_elastic(&server, |section| section.data_stream = data_stream);
        elastic.faults().push(Fault::Answer(Reply::text(503, "")));
        elastic.overload(7);
        let counts = send(destination, &link, &records(40), nothing_waits);
        assert_eq!(counts, Counts::are(&[("sent", 40)]));
        assert_eq!(document_ids(&elastic, INDEX), ids(40));
        assert_eq!(elastic.is_data_stream(INDEX), Some(data_stream));
        assert_eq!(
            elastic.template_version("infertap-logs-infertap-default"),
            Some(2)
        );
        let asked = elastic.answers();
        let bulk = asked.iter().filter(|(path, _)| path.ends_with("/_bulk")).count();
        assert!(bulk >= 4, "what was overloaded came again: {asked:?}");
        // Documents bring no fields of their own.
        let fields = elastic.fields(INDEX);
        assert!(fields < 100, "{fields}");
        let document = &elastic.documents(INDEX)["0000000000000001"];
        assert_eq!(document["trace"]["id"], "4bf92f3577b34da60000000000000001");
        assert_eq!(document["infertap"]["energy_j"], 12.5);
    }
}

#[test]
fn a_document_whose_answer_was_lost_is_there_once() {
    use infertap_tests::receive::Service as _;
    let (elastic, server) = elastic_server(elastic::Settings::default());
    let (destination, link) = to_elastic(&server, |section| section.template = false);
    elastic.faults().push(Fault::LoseAnswer);
    let counts = send(destination, &link, &records(10), nothing_waits);
    assert_eq!(counts, Counts::are(&[("sent", 10)]));
    assert_eq!(document_ids(&elastic, INDEX), ids(10));
    assert!(elastic.answers().len() > 1);
}

#[test]
fn documents_that_do_not_fit_are_lost_alone_and_counted() {
    let (elastic, server) = elastic_server(elastic::Settings {
        body: 6_000,
        ..elastic::Settings::default()
    });
    // Somebody else's template: a scene is a number here.
    let template = json!({
        "index_patterns": ["requests"], "priority": 900,
        "template": {"mappings": {"dynamic": false, "properties": {"infertap": {"properties": {"scene": {"type": "long"}}}}}},
    });
    let put = Request {
        method: "PUT".to_owned(),
        path: "/_index_template/theirs".to_owned(),
        headers: [("content-type".to_owned(), "application/json".to_owned())].into(),
        body: template.to_string().into_bytes(),
        ..Request::default()
    };
    assert_eq!(elastic.handle(&put).status, 200);
    let mut records: Vec<_> = (0..20).map(|n| record(n, &json!({"scene": "7"}))).collect();
    records[5] = record(5, &json!({"scene": "chat"}));
    let (destination, link) = to_elastic(&server, |section| {
        section.index = "requests".to_owned();
        section.template = false;
        section.gzip = false;
    });
    let counts = send(destination, &link, &records, nothing_waits);
    assert_eq!(counts, Counts::are(&[("sent", 19), ("rejected", 1)]));
    let mut expected = ids(20);
    expected.remove("0000000000000005");
    assert_eq!(document_ids(&elastic, "requests"), expected);
    assert!(elastic.answers().iter().any(|(_, status)| *status == 413));
}

#[test]
fn records_wait_while_credentials_are_wrong() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("key");
    std::fs::write(&file, "ApiKey d3Jvbmc=\n").expect("writes");
    let (elastic, server) = elastic_server(elastic::Settings {
        authorization: Some("ApiKey cmlnaHQ=".to_owned()),
        ..elastic::Settings::default()
    });
    let (destination, link) = to_elastic(&server, |section| {
        section
            .header_files
            .insert("Authorization".to_owned(), file.clone());
    });
    let counts = send(destination, &link, &records(5), |outlet| {
        if outlet.failures() >= 2 {
            std::fs::write(&file, "ApiKey cmlnaHQ=\n").expect("writes");
        }
        nothing_waits(outlet)
    });
    assert_eq!(counts, Counts::are(&[("sent", 5)]));
    assert_eq!(document_ids(&elastic, INDEX), ids(5));
    assert!(elastic.answers().iter().any(|(_, status)| *status == 401));
}

#[test]
fn json_lines_are_whole_and_there_once_and_wait_for_a_place() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("later/records.jsonl");
    let section = JsonLinesSection {
        path: path.display().to_string(),
        ..JsonLinesSection::default()
    };
    assert_eq!(section.invalid(), []);
    let destination = JsonLines::new(&section).expect("a thread");
    let link = LokiSection::default().link();
    let counts = send(destination, &link, &records(300), |outlet| {
        if outlet.failures() >= 1 {
            std::fs::create_dir_all(folder.path().join("later")).expect("a folder");
        }
        nothing_waits(outlet)
    });
    assert_eq!(counts, Counts::are(&[("sent", 300)]));
    let text = std::fs::read_to_string(&path).expect("there");
    let found: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(found.len(), 300);
    let found: BTreeSet<String> = found
        .iter()
        .filter_map(|line| Some(line["id"].as_str()?.to_owned()))
        .collect();
    assert_eq!(found, ids(300));
}

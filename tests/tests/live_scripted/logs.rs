//! Kept records as logs, from real requests to servers that take what Loki and Elasticsearch take, and to a file.
//!
//! Owns: that what was asked arrives in all of them, once, with the numbers that the agent's API tells. Refuses: what goes wrong
//! on the way (`tests/logs`).

use super::*;
use infertap_tests::receive::{Server, elastic::Elastic, loki::Loki};
use std::collections::BTreeMap;
use std::sync::Arc;

const REQUESTS: usize = 12;

/// Lines of JSON by the id of their request; each id is there once.
fn by_id<'a>(lines: impl Iterator<Item = &'a str>) -> BTreeMap<String, Value> {
    let mut out = BTreeMap::new();
    for line in lines {
        let line: Value = serde_json::from_str(line).unwrap();
        let id = line["id"].as_str().unwrap().to_owned();
        assert!(out.insert(id, line).is_none(), "twice");
    }
    out
}

#[test]
fn kept_records_arrive_as_logs_in_every_destination() {
    let (loki, elastic) = (Arc::new(Loki::default()), Arc::new(Elastic::default()));
    let (to_loki, to_elastic) = (Server::start(&loki).unwrap(), Server::start(&elastic).unwrap());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("records.jsonl");
    let set = [
        "records.head_rate=1.0".to_owned(),
        format!("loki.endpoint={}", to_loki.url()),
        format!("elasticsearch.endpoint={}", to_elastic.url()),
        format!("json_lines.path={}", file.display()),
    ];
    let arguments: Vec<&str> = set.iter().flat_map(|set| ["--set", set]).collect();
    let bench = bench(&[], &arguments);
    let mut connection = bench.connect();
    let truths: Vec<ClientTruth> = (0..REQUESTS)
        .map(|index| {
            let script = json!({"chunks": 2 + index});
            let plan = traced(scripted(&script, index % 2 == 0), index);
            connection.exchange(&Plan { index, ..plan })
        })
        .collect();
    let pairs = bench.assert_agree(&truths, "logs");
    let index = "logs-infertap-default";
    let start = Instant::now();
    let lines = || std::fs::read_to_string(&file).unwrap_or_default();
    while lines().lines().count() < REQUESTS
        || elastic.documents(index).len() < REQUESTS
        || loki
            .streams("fake")
            .iter()
            .map(|(_, entries)| entries.len())
            .sum::<usize>()
            < REQUESTS
    {
        assert!(
            start.elapsed() < Duration::from_mins(1),
            "{}",
            bench.agent.log_tail()
        );
        std::thread::sleep(Duration::from_millis(100));
    }
    let file_lines = lines();
    let in_file = by_id(file_lines.lines());
    let streams = loki.streams("fake");
    let in_loki = by_id(
        streams
            .iter()
            .flat_map(|(_, entries)| entries)
            .map(|entry| &*entry.line),
    );
    let documents = elastic.documents(index);
    assert_eq!(
        (in_file.len(), in_loki.len(), documents.len()),
        (REQUESTS, REQUESTS, REQUESTS)
    );
    for (truth, record) in pairs {
        for line in [&in_file[&record.id], &in_loki[&record.id]] {
            assert_eq!(line["trace_id"], record.trace_id, "{truth:?}");
            assert_eq!(line["output_tokens"].as_u64(), record.output_tokens);
            assert_eq!(line["e2e_s"].as_f64(), record.e2e_s);
            assert_eq!(line["rules"], json!(["head"]));
        }
        let document = &documents[&record.id];
        assert_eq!(document["trace"]["id"], record.trace_id);
        assert_eq!(
            document["gen_ai"]["usage"]["output_tokens"].as_u64(),
            record.output_tokens
        );
        assert_eq!(document["infertap"]["ttft_s"].as_f64(), record.ttft_s);
    }
    for (labels, _) in &streams {
        let names: Vec<&str> = labels.keys().map(String::as_str).collect();
        assert_eq!(
            names,
            ["engine", "host", "model", "scene", "service_name", "status"]
        );
        assert_eq!(labels["engine"], bench.engine);
    }
    assert_eq!(elastic.is_data_stream(index), Some(true));
    let metrics = bench.agent.metrics().unwrap();
    for exporter in ["loki", "elasticsearch", "json_lines"] {
        let labels = [("exporter", exporter), ("outcome", "sent")];
        let sent = metrics.sum("infertap_export_records_total", &labels);
        assert!((sent - REQUESTS as f64).abs() < 0.5, "{exporter}: {sent}");
    }
}

//! Golden replays: every recording in `tests/traces` through the core and the exporter, compared with what is written
//! beside it. `cargo xtask bless` (`UPDATE_EXPECT=1`) rewrites the expectations; `tests/traces/README.md` says how the
//! recordings were made.

use expect_test::expect_file;
use infertap::export::metrics::MetricsConfig;
use infertap::recording::{Ending, Reader, ReplayMetrics, Replayed, replay};
use infertap_core::{Anomaly, Observation, PipelineConfig, RequestRecord};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("traces")
}

fn names() -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder())
        .expect("tests/traces is there")
        .filter_map(|entry| entry.expect("readable").file_name().into_string().ok())
        .filter_map(|name| Some(name.strip_suffix(".infertap")?.to_owned()))
        .collect();
    names.sort();
    names
}

struct Replay {
    records: Vec<RequestRecord>,
    metrics: String,
    anomalies: BTreeMap<Anomaly, u64>,
}

fn replayed(name: &str) -> Replay {
    let path = folder().join(format!("{name}.infertap"));
    let mut reader = Reader::open(&path).unwrap_or_else(|error| panic!("{error}"));
    assert!(
        !reader.header().with_content,
        "{name} holds content: record it without --with-content"
    );
    let mut metrics = ReplayMetrics::new(&MetricsConfig::default()).expect("the default is valid");
    let (mut records, mut anomalies) = (Vec::new(), BTreeMap::new());
    let summary = replay(&mut reader, PipelineConfig::default(), &mut |item| {
        metrics.take(&item);
        match item {
            Replayed::Observation(Observation::Finished(finished)) => records.push(finished.record.clone()),
            Replayed::Observation(Observation::Anomaly { kind, count }) => {
                *anomalies.entry(*kind).or_default() += count;
            }
            _ => {}
        }
    })
    .unwrap_or_else(|error| panic!("{error}"));
    assert!(
        matches!(reader.ending(), Some(Ending::Complete(_))),
        "{name} is cut short"
    );
    assert_eq!(summary.lost_records, 0, "{name} has holes");
    assert!(
        summary.dropped.is_empty() && summary.undecodable.is_empty(),
        "{name}: {summary:?}"
    );
    Replay {
        records,
        metrics: metrics.metrics().golden(),
        anomalies,
    }
}

#[test]
fn recordings_replay_to_the_records_and_metrics_beside_them() {
    let names = names();
    for engine in ["llama-cpp", "vllm"] {
        assert!(
            names.iter().any(|name| name.starts_with(engine)),
            "no recording of {engine}"
        );
    }
    for name in &names {
        let Replay { records, metrics, .. } = replayed(name);
        let lines: Vec<String> = records
            .iter()
            .map(|record| serde_json::to_string(record).expect("serialises") + "\n")
            .collect();
        expect_file![folder().join(format!("{name}.records.jsonl"))].assert_eq(&lines.concat());
        expect_file![folder().join(format!("{name}.metrics.txt"))].assert_eq(&metrics);
    }
}

#[test]
fn every_expectation_has_its_recording() {
    let names = names();
    for entry in std::fs::read_dir(folder()).expect("tests/traces is there") {
        let file = entry.expect("readable").file_name().into_string().expect("UTF-8");
        let known = file == "README.md"
            || [".infertap", ".records.jsonl", ".metrics.txt"]
                .iter()
                .filter_map(|suffix| file.strip_suffix(suffix))
                .any(|name| names.iter().any(|known| known == name));
        assert!(known, "tests/traces/{file} belongs to no recording");
    }
}

/// What must hold for real traffic whatever the expectations say.
#[test]
fn recordings_hold_true_requests() {
    for name in names() {
        let Replay {
            records, anomalies, ..
        } = replayed(&name);
        assert!(records.len() >= 20, "{name} has {} requests", records.len());
        assert!(anomalies.is_empty(), "{name}: {anomalies:?}");
        for record in &records {
            let story = format!("{name}: {record:?}");
            assert!(record.incomplete.is_empty(), "{story}");
            let times = [
                record.t0_ns,
                record.t1_ns,
                record.t2_ns,
                record.t3_ns,
                record.t4_ns,
            ];
            assert!(times.iter().flatten().is_sorted(), "{story}");
            assert!(record.request_bytes > 0, "{story}");
            if record.streamed && record.chunks > 0 {
                assert!(record.ttft_s.is_some_and(|ttft| ttft > 0.0), "{story}");
            }
        }
        let statuses: std::collections::BTreeSet<&str> = records.iter().map(|r| r.status.as_str()).collect();
        assert_eq!(statuses, ["cancelled", "client_error", "ok"].into(), "{name}");
    }
}

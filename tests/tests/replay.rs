//! Golden replays: every recording in `tests/traces` through the core and the exporter, compared with what is written
//! beside it. `cargo xtask bless` (`UPDATE_EXPECT=1`) rewrites the expectations; `tests/traces/README.md` says how the
//! recordings were made.

use expect_test::expect_file;
use infertap::export::metrics::MetricsConfig;
use infertap::recording::{Ending, Reader, ReplayMetrics, Replayed, replay};
use infertap_core::{Anomaly, Observation, PipelineConfig, RequestRecord, Source, Status};
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
    /// Whether the engine's own messages were understood, each time that this changed.
    understood: Vec<bool>,
    /// Most requests that its scheduler said were waiting.
    waiting: Option<u64>,
}

fn replayed(name: &str) -> Replay {
    replayed_with(name, PipelineConfig::default())
}

fn replayed_with(name: &str, config: PipelineConfig) -> Replay {
    let path = folder().join(format!("{name}.infertap"));
    let mut reader = Reader::open(&path).unwrap_or_else(|error| panic!("{error}"));
    assert!(
        !reader.header().with_content,
        "{name} holds content: record it without --with-content"
    );
    let mut metrics = ReplayMetrics::new(&MetricsConfig::default()).expect("the default is valid");
    let (mut records, mut anomalies) = (Vec::new(), BTreeMap::new());
    let (mut understood, mut waiting) = (Vec::new(), None);
    let summary = replay(&mut reader, config, &mut |item| {
        metrics.take(&item);
        match item {
            Replayed::Observation(Observation::Finished(finished)) => records.push(finished.record.clone()),
            Replayed::Observation(Observation::Anomaly { kind, count }) => {
                *anomalies.entry(*kind).or_default() += count;
            }
            Replayed::Observation(Observation::EngineMessages { understood: now, .. }) => {
                understood.push(*now);
            }
            Replayed::Observation(Observation::Engine(report)) => {
                waiting = waiting.max(report.load.map(|load| load.waiting));
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
        understood,
        waiting,
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

#[test]
fn every_release_of_vllm_tells_the_same_kinds_of_facts() {
    let releases: Vec<String> = names()
        .into_iter()
        .filter(|name| name.starts_with("vllm-"))
        .collect();
    assert!(releases.len() >= 4, "{releases:?}");
    for name in &releases {
        let replay = replayed(name);
        assert_eq!(replay.understood, [true], "{name}");
        assert!(replay.waiting > Some(0), "{name}: nothing waited");
        let without_hooks = PipelineConfig {
            engine_hooks: false,
            ..PipelineConfig::default()
        };
        let outside: BTreeMap<_, _> = replayed_with(name, without_hooks)
            .records
            .into_iter()
            .map(|record| (record.response_id.clone(), record))
            .collect();
        let mut compared = 0;
        for record in &replay.records {
            let story = format!("{name}: {record:?}");
            if record.status == Status::ClientError {
                continue;
            }
            let sources = &record.sources;
            assert_eq!(
                [sources.t1, sources.t2, sources.input_tokens],
                [Some(Source::Engine); 3],
                "{story}"
            );
            assert!(record.queue_s.is_some() && record.prefill_s.is_some(), "{story}");
            assert!(record.cached_input_tokens <= record.input_tokens, "{story}");
            if record.status != Status::Ok {
                continue;
            }
            assert!(record.cached_input_tokens.is_some(), "{story}");
            // A stop string is found in the API server: the engine's count may be ahead of it.
            if record.finish_reason.as_deref() == Some("length") {
                assert_eq!(
                    [sources.t3, sources.output_tokens],
                    [Some(Source::Engine); 2],
                    "{story}"
                );
            }
            let outside = &outside[&record.response_id];
            assert!(
                outside.sources.t1.is_none_or(|source| source == Source::Estimate),
                "{story}"
            );
            if outside.sources.input_tokens == Some(Source::Usage) {
                compared += 1;
                assert_eq!(
                    (record.input_tokens, record.output_tokens),
                    (outside.input_tokens, outside.output_tokens),
                    "{story}"
                );
            }
        }
        assert!(compared >= 15, "{name}: {compared} responses had usage");
        let some = |fact: fn(&RequestRecord) -> bool| replay.records.iter().any(fact);
        assert!(some(|record| record.cached_input_tokens >= Some(256)), "{name}");
        assert!(some(|record| record.cached_input_tokens == Some(0)), "{name}");
        assert!(
            some(|record| record.status == Status::Cancelled && record.t2_ns.is_some()),
            "{name}"
        );
    }
}

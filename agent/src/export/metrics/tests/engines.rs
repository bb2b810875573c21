//! Series that come and go with engines.

use super::*;
use infertap_core::observation::{EngineLoad, EngineReport, EngineStep, StepKind};

pub(crate) fn engine(id: &str, pid: u32) -> EngineInfo {
    EngineInfo {
        id: id.into(),
        kind: EngineKind::LlamaCpp,
        model: Some("smollm2".into()),
        version: Some("b6000".into()),
        pid,
        pids: vec![pid],
        ports: vec![8080],
        container: None,
        pod_uid: None,
    }
}

/// What a scheduler with `waiting` requests in its queue tells.
pub(crate) fn engine_report(engine: &str, waiting: u64) -> Observation {
    Observation::Engine(Box::new(EngineReport {
        engine: engine.into(),
        model: Some("smollm2".into()),
        load: Some(EngineLoad {
            running: 2,
            waiting,
            kv_cache_usage: Some(0.25),
        }),
        prefix_queried_tokens: 54,
        prefix_hit_tokens: 48,
        preemptions: 1,
    }))
}

/// A step that ended at 1.04 s.
pub(super) fn engine_step(engine: &str, kind: Option<StepKind>, start: Option<u64>) -> EngineStep {
    EngineStep {
        engine: engine.into(),
        model: Some("smollm2".into()),
        start,
        end: 1_040_000_000,
        kind,
        prefill_tokens: None,
        decode_tokens: None,
        requests: Some(4),
        source: infertap_core::Source::Engine,
    }
}

#[test]
fn running_requests_are_paired_and_go_with_their_engine() {
    let metrics = metrics();
    let labels = labels("llama_cpp-8080", "m", "s");
    let running = || samples(&metrics, "llm_requests_running");
    let line = |n: i32| {
        vec![format!(
            r#"llm_requests_running{{engine="llama_cpp-8080",model="m"}} {n}"#
        )]
    };
    let start = Observation::Started(labels.clone());
    let end = finished(&labels, record(&labels, Status::Ok));

    metrics.apply(&end);
    assert_eq!(
        running(),
        [""; 0],
        "an end without a start is no request in flight"
    );
    metrics.engine_up(&engine("llama_cpp-8080", 7));
    metrics.apply_all(&[start.clone(), start.clone()]);
    assert_eq!(running(), line(2));
    metrics.apply(&end);
    assert_eq!(running(), line(1));
    metrics.engine_down("llama_cpp-8080");
    assert_eq!(running(), line(1), "its last request is still in flight");
    assert_eq!(samples(&metrics, "llm_engine_info"), [""; 0]);
    metrics.apply(&end);
    assert_eq!(running(), [""; 0]);

    metrics.engine_up(&engine("llama_cpp-8080", 8));
    metrics.apply_all(&[start, end]);
    assert_eq!(running(), line(0), "an idle engine that is there has a zero");
    metrics.engine_down("llama_cpp-8080");
    assert_eq!(running(), [""; 0]);
    metrics.engine_down("never seen");
}

#[test]
fn engine_info_follows_what_is_learned() {
    let metrics = metrics();
    let mut info = engine("vllm-8000", 7);
    info.model = None;
    info.version = Some("0.1\n\"x\"".into());
    metrics.engine_up(&info);
    assert_eq!(
        samples(&metrics, "llm_engine_info"),
        [
            r#"llm_engine_info{container="",engine="vllm-8000",gpus="",kind="llama_cpp",model="",namespace="",pid="7",pod="",version="0.1_\"x\""} 1"#
        ]
    );
    info.model = Some("smollm2".into());
    info.pod_uid = Some("1234".into());
    metrics.engine_up(&info);
    let samples = samples(&metrics, "llm_engine_info");
    assert_eq!(samples.len(), 1);
    assert!(
        samples[0].contains(r#"model="smollm2""#) && samples[0].contains(r#"pod="1234""#),
        "{samples:?}"
    );
}

#[test]
fn what_the_scheduler_tells_goes_with_its_engine() {
    let metrics = metrics();
    let value = |family: &str| {
        let samples = samples(&metrics, family);
        samples
            .first()
            .and_then(|line| Some(line.rsplit_once(' ')?.1.to_owned()))
    };
    let families = [
        ("llm_queue_length", "4"),
        ("llm_requests_scheduled", "2"),
        ("llm_kv_cache_usage_ratio", "0.25"),
        ("llm_preemptions_total", "2"),
        ("llm_prefix_cache_queried_tokens_total", "108"),
        ("llm_prefix_cache_hit_tokens_total", "96"),
    ];
    metrics.apply_all(&[engine_report("vllm-8000", 3), engine_report("vllm-8000", 4)]);
    for (family, expected) in families {
        assert_eq!(value(family).as_deref(), Some(expected), "{family}");
    }
    metrics.engine_down("vllm-8000");
    for (family, _) in families {
        assert_eq!(value(family), None, "{family}");
    }
}

#[test]
fn steps_are_timed_and_sized_by_kind() {
    let metrics = metrics();
    let step = |kind, start, requests| {
        Observation::Step(Box::new(EngineStep {
            requests,
            ..engine_step("vllm-8000", kind, start)
        }))
    };
    metrics.apply_all(&[
        step(Some(StepKind::Decode), Some(1_000_000_000), Some(3)),
        step(Some(StepKind::Decode), Some(1_000_000_000), Some(5)),
        // Neither when it began nor who was in it is known.
        step(Some(StepKind::Prefill), None, None),
        step(None, Some(1_000_000_000), None),
        step(Some(StepKind::Mixed), Some(2_000_000_000), None),
    ]);
    let golden = metrics.golden();
    let sums: Vec<&str> = golden
        .lines()
        .filter(|line| line.contains("_sum{") || line.contains("_count{"))
        .collect();
    assert_eq!(
        sums,
        [
            r#"llm_batch_size_sum{engine="vllm-8000",kind="decode"} 8"#,
            r#"llm_batch_size_count{engine="vllm-8000",kind="decode"} 2"#,
            r#"llm_engine_step_seconds_sum{engine="vllm-8000",kind="decode"} 0.08"#,
            r#"llm_engine_step_seconds_count{engine="vllm-8000",kind="decode"} 2"#,
            r#"llm_engine_step_seconds_sum{engine="vllm-8000",kind="unknown"} 0.04"#,
            r#"llm_engine_step_seconds_count{engine="vllm-8000",kind="unknown"} 1"#,
        ]
    );
    let refused = samples(&metrics, "infertap_anomalies_total")
        .into_iter()
        .find(|line| line.contains("time_went_back"));
    assert!(
        refused.is_some_and(|line| line.ends_with(" 1")),
        "it ended before it began"
    );
    metrics.engine_down("vllm-8000");
    assert!(!metrics.golden().contains("vllm-8000"));
}

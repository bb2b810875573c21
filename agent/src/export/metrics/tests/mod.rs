//! Tests of the metrics through their façade: requests, events and losses; fixtures for the other tests.

mod caps;
mod cost;
pub(crate) mod diagnosis;
pub(crate) mod engines;
mod exposition;
mod gpu_join;
pub(crate) mod pressure;

use super::*;
use crate::export::gpus::tests::{gpu, picture};
pub(crate) use engines::engine;
use engines::{engine_report, engine_step};
use expect_test::expect;
use infertap_core::{
    Cause, EngineKind, RequestRecord, Source, Status, TraceSource,
    event::{ConnId, Socket},
    observation::{Finished, Labels, StepKind, TokenDirection},
    request::Sources,
};
use std::sync::Arc;

pub(crate) fn labels(engine: &str, model: &str, scene: &str) -> Labels {
    Labels {
        engine: engine.into(),
        model: model.into(),
        scene: scene.into(),
    }
}

pub(crate) fn record(labels: &Labels, status: Status) -> RequestRecord {
    RequestRecord {
        id: "00000000000000a1".into(),
        trace_id: "4bf92f3577b34da6a3ce929d0e0e4736".into(),
        trace_source: TraceSource::Traceparent,
        parent_span_id: None,
        response_id: Some("chatcmpl-1".into()),
        engine: labels.engine.clone(),
        model: labels.model.clone(),
        scene: labels.scene.clone(),
        client: None,
        client_namespace: None,
        client_pod: None,
        client_workload: None,
        client_workload_kind: None,
        protocol: "openai_chat".into(),
        streamed: true,
        status,
        http_status: Some(200),
        finish_reason: Some("length".into()),
        t0_ns: Some(1_000_000_000),
        t1_ns: None,
        t2_ns: Some(1_250_000_000),
        t3_ns: Some(1_500_000_000),
        t4_ns: Some(1_510_000_000),
        queue_s: None,
        prefill_s: None,
        decode_s: Some(0.25),
        tokenize_s: None,
        ttft_s: Some(0.25),
        tpot_s: Some(0.05),
        e2e_s: Some(0.51),
        input_tokens: Some(38),
        output_tokens: Some(6),
        cached_input_tokens: Some(16),
        reasoning_tokens: None,
        chunks: 5,
        request_bytes: 300,
        response_bytes: 2000,
        sources: Sources::default(),
        t1_error_s: None,
        gpu_alloc_failures: None,
        incomplete: Vec::new(),
        diagnosis: None,
        cost: None,
        energy_j: None,
    }
}

pub(crate) fn finished(labels: &Labels, record: RequestRecord) -> Observation {
    Observation::Finished(Box::new(Finished {
        id: 1,
        labels: labels.clone(),
        record,
        gaps: vec![(0.05, 3), (0.1, 1), (0.05, 1)],
        gaps_from: None,
        in_flight_at_arrival: Some(4),
        content: None,
        token_sources: [
            (TokenDirection::Input, Some(Source::Usage)),
            (TokenDirection::Output, Some(Source::Usage)),
        ],
    }))
}

pub(crate) fn tokens(labels: &Labels, direction: TokenDirection, count: u64) -> Observation {
    Observation::Tokens {
        request: 1,
        labels: labels.clone(),
        client: None,
        direction,
        count,
    }
}

pub(crate) fn request(labels: &Labels, status: Status) -> Vec<Observation> {
    vec![
        Observation::Started(labels.clone()),
        tokens(labels, TokenDirection::Output, 4),
        tokens(labels, TokenDirection::Output, 2),
        tokens(labels, TokenDirection::Input, 38),
        finished(labels, record(labels, status)),
    ]
}

fn metrics() -> Metrics {
    Metrics::for_replay(&MetricsConfig::default()).expect("the defaults are valid")
}

fn samples(metrics: &Metrics, family: &str) -> Vec<String> {
    let text = metrics.encode(Format::Text).expect("encodes");
    let of_family = |line: &&str| {
        line.strip_prefix(family).is_some_and(|rest| {
            rest.starts_with(['{', ' ']) || rest.starts_with("_bucket{") || rest.starts_with("_count{")
        })
    };
    text.lines().filter(of_family).map(str::to_owned).collect()
}

/// Metrics with a value in every family that there is.
fn exercised(metrics: Metrics) -> Metrics {
    let info = Arc::new(engine("llama_cpp-8080", 7));
    metrics.event(&EventKind::EngineUp(Arc::clone(&info)));
    metrics.engine_up(&info);
    metrics.engine_coverage(&info.id, "socket", true);
    metrics.probe_up("socket", true);
    let labels = labels("llama_cpp-8080", "smollm2", "default");
    let mut full = record(&labels, Status::Ok);
    full.queue_s = Some(0.003);
    full.sources.t1 = Some(Source::Engine);
    full.prefill_s = Some(0.2);
    full.tokenize_s = Some(0.0004);
    full.reasoning_tokens = Some(2);
    full.diagnosis = Some(diagnosis::of(Some(Cause::Decode)));
    let mut observations = request(&labels, Status::Cancelled);
    observations.extend([Observation::Started(labels.clone()), finished(&labels, full)]);
    observations.extend([Observation::Started(labels), engine_report("llama_cpp-8080", 3)]);
    let step = engine_step("llama_cpp-8080", Some(StepKind::Mixed), Some(1_000_000_000));
    observations.push(Observation::Step(Box::new(step)));
    observations.push(diagnosis::capacity("llama_cpp-8080", Some(4)));
    observations.push(pressure::short_of_memory("llama_cpp-8080"));
    metrics.apply_all(&observations);
    let gpus = crate::export::gpus::Gpus::new(picture(vec![gpu("0")]), &|_| Some("llama_cpp-8080".into()));
    metrics.gpus(Arc::clone(&gpus.view), gpus.engines_on_gpus());
    metrics
}

#[test]
fn one_request_is_counted_and_timed() {
    let metrics = metrics();
    metrics.apply_all(&request(
        &labels("llama_cpp-8080", "smollm2", "default"),
        Status::Ok,
    ));
    expect![[r##"
        # TYPE llm_cached_input_tokens_total counter
        llm_cached_input_tokens_total{model="smollm2",scene="default"} 16
        # TYPE llm_decode_seconds histogram
        llm_decode_seconds_bucket{model="smollm2",scene="default",le="0.25"} 1
        llm_decode_seconds_bucket{model="smollm2",scene="default",le="+Inf"} 1
        llm_decode_seconds_sum{model="smollm2",scene="default"} 0.25
        llm_decode_seconds_count{model="smollm2",scene="default"} 1
        # TYPE llm_e2e_latency_seconds histogram
        llm_e2e_latency_seconds_bucket{model="smollm2",scene="default",le="1"} 1
        llm_e2e_latency_seconds_bucket{model="smollm2",scene="default",le="+Inf"} 1
        llm_e2e_latency_seconds_sum{model="smollm2",scene="default"} 0.51
        llm_e2e_latency_seconds_count{model="smollm2",scene="default"} 1
        # TYPE llm_input_tokens_total counter
        llm_input_tokens_total{model="smollm2",scene="default"} 38
        # TYPE llm_itl_seconds histogram
        llm_itl_seconds_bucket{model="smollm2",scene="default",le="0.025"} 3
        llm_itl_seconds_bucket{model="smollm2",scene="default",le="0.05"} 4
        llm_itl_seconds_bucket{model="smollm2",scene="default",le="0.1"} 5
        llm_itl_seconds_bucket{model="smollm2",scene="default",le="+Inf"} 5
        llm_itl_seconds_sum{model="smollm2",scene="default"} 0.2
        llm_itl_seconds_count{model="smollm2",scene="default"} 5
        # TYPE llm_output_tokens_total counter
        llm_output_tokens_total{model="smollm2",scene="default"} 6
        # TYPE llm_request_input_tokens histogram
        llm_request_input_tokens_bucket{model="smollm2",scene="default",le="64"} 1
        llm_request_input_tokens_bucket{model="smollm2",scene="default",le="+Inf"} 1
        llm_request_input_tokens_sum{model="smollm2",scene="default"} 38
        llm_request_input_tokens_count{model="smollm2",scene="default"} 1
        # TYPE llm_request_output_tokens histogram
        llm_request_output_tokens_bucket{model="smollm2",scene="default",le="16"} 1
        llm_request_output_tokens_bucket{model="smollm2",scene="default",le="+Inf"} 1
        llm_request_output_tokens_sum{model="smollm2",scene="default"} 6
        llm_request_output_tokens_count{model="smollm2",scene="default"} 1
        # TYPE llm_requests_running gauge
        llm_requests_running{engine="llama_cpp-8080",model="smollm2"} 0
        # TYPE llm_requests_total counter
        llm_requests_total{model="smollm2",scene="default",status="ok"} 1
        # TYPE llm_token_source_total counter
        llm_token_source_total{direction="input",model="smollm2",source="usage"} 1
        llm_token_source_total{direction="output",model="smollm2",source="usage"} 1
        # TYPE llm_tpot_seconds histogram
        llm_tpot_seconds_bucket{model="smollm2",scene="default",le="0.05"} 1
        llm_tpot_seconds_bucket{model="smollm2",scene="default",le="+Inf"} 1
        llm_tpot_seconds_sum{model="smollm2",scene="default"} 0.05
        llm_tpot_seconds_count{model="smollm2",scene="default"} 1
        # TYPE llm_ttft_by_concurrency_seconds histogram
        llm_ttft_by_concurrency_seconds_bucket{concurrency="4-7",engine="llama_cpp-8080",model="smollm2",le="1"} 1
        llm_ttft_by_concurrency_seconds_bucket{concurrency="4-7",engine="llama_cpp-8080",model="smollm2",le="+Inf"} 1
        llm_ttft_by_concurrency_seconds_sum{concurrency="4-7",engine="llama_cpp-8080",model="smollm2"} 0.25
        llm_ttft_by_concurrency_seconds_count{concurrency="4-7",engine="llama_cpp-8080",model="smollm2"} 1
        # TYPE llm_ttft_seconds histogram
        llm_ttft_seconds_bucket{model="smollm2",scene="default",le="0.25"} 1
        llm_ttft_seconds_bucket{model="smollm2",scene="default",le="+Inf"} 1
        llm_ttft_seconds_sum{model="smollm2",scene="default"} 0.25
        llm_ttft_seconds_count{model="smollm2",scene="default"} 1
    "##]]
    .assert_eq(&metrics.golden());
}

#[test]
fn an_incomplete_request_is_counted_but_not_timed() {
    let metrics = metrics();
    metrics.apply_all(&request(&labels("e", "m", "s"), Status::Incomplete));
    assert!(
        samples(&metrics, "llm_requests_total")
            .contains(&r#"llm_requests_total{model="m",scene="s",status="incomplete"} 1"#.to_owned())
    );
    assert_eq!(
        samples(&metrics, "llm_output_tokens_total"),
        [r#"llm_output_tokens_total{model="m",scene="s"} 6"#]
    );
    assert_eq!(
        samples(&metrics, "llm_cached_input_tokens_total"),
        [r#"llm_cached_input_tokens_total{model="m",scene="s"} 16"#]
    );
    let histograms = metrics
        .gather()
        .into_iter()
        .filter(|f| f.get_field_type() == prometheus::proto::MetricType::HISTOGRAM);
    assert_eq!(
        histograms.map(|f| f.name().to_owned()).collect::<Vec<_>>(),
        [""; 0]
    );
}

#[test]
fn what_is_unknown_is_absent() {
    let metrics = metrics();
    let labels = labels("e", "m", "s");
    let mut bare = record(&labels, Status::ServerError);
    bare.ttft_s = None;
    bare.tpot_s = None;
    bare.decode_s = None;
    bare.input_tokens = None;
    bare.output_tokens = None;
    bare.cached_input_tokens = None;
    let mut finished = finished(&labels, bare);
    if let Observation::Finished(finished) = &mut finished {
        finished.gaps.clear();
        finished.in_flight_at_arrival = None;
        finished.token_sources = [(TokenDirection::Input, None), (TokenDirection::Output, None)];
    }
    let nothing = tokens(&labels, TokenDirection::Output, 0);
    metrics.apply_all(&[Observation::Started(labels), nothing, finished]);
    let llm: Vec<_> = metrics
        .gather()
        .iter()
        .map(|f| f.name().to_owned())
        .filter(|n| n.starts_with("llm_"))
        .collect();
    assert_eq!(
        llm,
        [
            "llm_e2e_latency_seconds",
            "llm_requests_running",
            "llm_requests_total"
        ]
    );
}

#[test]
fn phases_tell_where_they_came_from() {
    let metrics = metrics();
    let labels = labels("e", "m", "s");
    for (source, prefill_s) in [(Source::Estimate, None), (Source::Engine, Some(0.2))] {
        let mut record = record(&labels, Status::Ok);
        record.queue_s = Some(0.01);
        record.prefill_s = prefill_s;
        record.sources.t1 = Some(source);
        metrics.apply(&finished(&labels, record));
    }
    assert_eq!(
        samples(&metrics, "llm_phase_source_total"),
        [
            r#"llm_phase_source_total{model="m",phase="prefill",source="engine"} 1"#,
            r#"llm_phase_source_total{model="m",phase="queue",source="engine"} 1"#,
            r#"llm_phase_source_total{model="m",phase="queue",source="estimate"} 1"#,
        ]
    );
    assert_eq!(
        samples(&metrics, "llm_queue_seconds_count"),
        [r#"llm_queue_seconds_count{model="m",scene="s"} 2"#]
    );
}

#[test]
fn impossible_durations_are_counted_and_not_observed() {
    for bad in [-0.001, f64::NAN, f64::INFINITY] {
        let metrics = metrics();
        let labels = labels("e", "m", "s");
        let mut record = record(&labels, Status::Ok);
        record.ttft_s = Some(bad);
        metrics.apply(&finished(&labels, record));
        assert_eq!(samples(&metrics, "llm_ttft_seconds"), [""; 0], "{bad}");
        assert!(
            samples(&metrics, "infertap_anomalies_total")
                .contains(&r#"infertap_anomalies_total{kind="time_went_back"} 1"#.to_owned()),
            "{bad}"
        );
    }
}

#[test]
fn a_chunk_of_many_tokens_is_many_gaps() {
    let metrics = metrics();
    let labels = labels("e", "m", "s");
    let mut finished = finished(&labels, record(&labels, Status::Ok));
    if let Observation::Finished(finished) = &mut finished {
        finished.gaps = vec![(0.25, 4), (0.25, 1), (0.5, 0)];
    }
    metrics.apply(&finished);
    assert_eq!(
        samples(&metrics, "llm_itl_seconds_sum"),
        [r#"llm_itl_seconds_sum{model="m",scene="s"} 0.5"#],
        "the decode time"
    );
    let samples = samples(&metrics, "llm_itl_seconds");
    for expected in [
        r#"llm_itl_seconds_bucket{model="m",scene="s",le="0.075"} 4"#,
        r#"llm_itl_seconds_bucket{model="m",scene="s",le="0.3"} 5"#,
        r#"llm_itl_seconds_count{model="m",scene="s"} 5"#,
    ] {
        assert!(samples.contains(&expected.to_owned()), "{expected}: {samples:?}");
    }
}

#[test]
fn events_and_losses() {
    let metrics = metrics();
    let socket = Socket {
        conn: ConnId(1),
        tgid: 1,
        tid: 1,
        fd: 3,
        transport: infertap_abi::Transport::Tcp,
        role: infertap_abi::Role::Accepted,
        late: false,
    };
    metrics.event(&EventKind::Open(socket));
    metrics.event(&EventKind::Eof(socket));
    metrics.event(&EventKind::Open(socket));
    let events = samples(&metrics, "infertap_events_total");
    assert_eq!(events.len(), EVENT_KINDS.len());
    assert!(events.contains(&r#"infertap_events_total{kind="open"} 2"#.to_owned()));

    metrics.kernel_drops(DropReason::RingFull, 5);
    metrics.kernel_drops(DropReason::RingFull, 7);
    metrics.kernel_drops(DropReason::RingFull, 6);
    metrics.agent_loss(AgentLoss::Decode, 2);
    let drops = samples(&metrics, "infertap_events_dropped_total");
    assert_eq!(drops.len(), DropReason::ALL.len() + AgentLoss::ALL.len());
    assert!(
        drops.contains(&r#"infertap_events_dropped_total{reason="ring_full"} 7"#.to_owned()),
        "never goes back"
    );
    assert!(drops.contains(&r#"infertap_events_dropped_total{reason="decode"} 2"#.to_owned()));

    metrics.apply(&Observation::Anomaly {
        kind: Anomaly::Tls,
        count: 3,
    });
    assert!(
        samples(&metrics, "infertap_anomalies_total")
            .contains(&r#"infertap_anomalies_total{kind="tls"} 3"#.to_owned())
    );
    metrics.probe_up("socket", true);
    metrics.probe_up("socket", false);
    assert_eq!(
        samples(&metrics, "infertap_probe_up"),
        [r#"infertap_probe_up{probe="socket"} 0"#]
    );
    metrics.open_connections(17);
    assert_eq!(
        samples(&metrics, "infertap_open_connections"),
        ["infertap_open_connections 17"]
    );
    metrics.export_failed("prometheus");
    assert_eq!(
        samples(&metrics, "infertap_export_failures_total"),
        [r#"infertap_export_failures_total{exporter="prometheus"} 1"#]
    );
}

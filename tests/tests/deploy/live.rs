//! The shipped queries on a real Prometheus that scrapes the agent's own exporter, fed with made-up observations.

use crate::money;
use infertap::export::metrics::CudaCalls;
use infertap::export::{Exporter, MetricsConfig, ServerConfig};
use infertap::sampler::nvml::{Gauge, GpuStatus, GpuView, NvmlState, Total};
use infertap_abi::DropReason;
use infertap_core::capacity::{Basis, CapacityReport, Knee};
use infertap_core::event::EventKind;
use infertap_core::gpu::{GpuShare, GpuState, TokenPhase, Uncharged};
use infertap_core::ledger::{ContextLimit, LimitSource};
use infertap_core::observation::{
    Anomaly, EngineLoad, EngineReport, Finished, Labels, Observation, TokenDirection,
};
use infertap_core::pressure::{
    CgroupMemory, CgroupVersion, GpuMemory, MemoryEvents, PressureReport, PressureState, Reason, ReasonKind,
    StallScope, Stalls,
};
use infertap_core::{EngineInfo, EngineKind, RequestRecord, Source, Status};
use infertap_tests::deployed::evaluate;
use infertap_tests::prometheus::Prometheus;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// The exporter, served on a port of its own, with traffic that never stops.
struct Agent {
    address: SocketAddr,
    // Dropping it ends the server and the traffic.
    _runtime: tokio::runtime::Runtime,
}

impl Agent {
    fn start() -> Agent {
        let exporter = Exporter::new(&MetricsConfig::default(), &ServerConfig::default())
            .expect("the defaults are valid");
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let listener = runtime
            .block_on(infertap::export::bind(SocketAddr::from(([127, 0, 0, 1], 0))))
            .expect("a free port");
        let address = listener.local_addr().expect("an address");
        exporter.engine_up(&engine());
        exporter.engine_coverage("vllm-8000", "socket", true);
        exporter.metrics().probe_up("socket", true);
        let limit = ContextLimit {
            tokens: 48,
            source: LimitSource::CommandLine,
        };
        exporter.context_limit(&labels().engine, Some(limit));
        runtime.spawn(Arc::clone(&exporter).serve(listener, std::future::pending()));
        runtime.spawn(traffic(exporter));
        Agent {
            address,
            _runtime: runtime,
        }
    }
}

fn engine() -> Arc<EngineInfo> {
    Arc::new(EngineInfo {
        id: "vllm-8000".into(),
        kind: EngineKind::Vllm,
        model: Some("m".into()),
        version: Some("0.32.0".into()),
        pid: 7,
        pids: vec![7],
        ports: vec![8000],
        container: Some("c".into()),
        pod_uid: Some("p".into()),
    })
}

/// Requests of every outcome, and some of everything that can go wrong, again and again.
async fn traffic(exporter: Arc<Exporter>) {
    for round in 1.. {
        for status in Status::ALL {
            exporter.apply(&request(status));
        }
        exporter.apply(&money::charges(&labels()));
        exporter.apply(&[money::prefix(&labels(), round)]);
        exporter.metrics().budgets(&money::budgets());
        // One stays in flight.
        exporter.apply(&[Observation::Started(labels())]);
        exporter.metrics().event(&EventKind::EngineUp(engine()));
        exporter.metrics().kernel_drops(DropReason::RingFull, round);
        exporter.gpus_read(&Arc::new(gpus(round)), &|_| None);
        let calls = CudaCalls {
            kernel_launches: 10,
            graph_launches: 2,
            ..CudaCalls::default()
        };
        exporter.metrics().cuda(&labels().engine, &calls, None);
        exporter.metrics().open_connections(3);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// A GPU of which every value is known, after so many readings.
fn gpus(reading: u64) -> GpuView {
    GpuView {
        state: NvmlState::Up,
        gpus: vec![GpuStatus {
            gpu: "0".into(),
            uuid: "GPU-1".into(),
            parent: None,
            name: Some("NVIDIA H100".to_owned()),
            pci: None,
            mig: false,
            away: None,
            losses: 0,
            read_at: reading,
            gauges: Gauge::ALL.iter().map(|&gauge| (gauge, 0.5)).collect(),
            totals: Total::ALL
                .iter()
                .map(|&total| (total, reading as f64 / 100.0))
                .collect(),
            xids: vec![(13, 1)],
            xids_told: true,
            not_supported: Vec::new(),
            failing: Vec::new(),
            energy_source: None,
            utilization_source: None,
            processes: None,
            process_sm: false,
        }],
        ..GpuView::default()
    }
}

fn labels() -> Labels {
    Labels {
        engine: "vllm-8000".into(),
        model: "m".into(),
        scene: "default".into(),
    }
}

fn request(status: Status) -> Vec<Observation> {
    let tokens = |direction, count| Observation::Tokens {
        request: 1,
        labels: labels(),
        client: None,
        direction,
        count,
    };
    vec![
        Observation::Started(labels()),
        tokens(TokenDirection::Input, 38),
        tokens(TokenDirection::Output, 6),
        Observation::Finished(Box::new(Finished {
            id: 1,
            labels: labels(),
            record: record(status),
            gaps: vec![(0.05, 5)],
            gaps_from: None,
            in_flight_at_arrival: Some(4),
            token_sources: [
                (TokenDirection::Input, Some(Source::Usage)),
                (TokenDirection::Output, Some(Source::Chunk)),
            ],
            content: None,
        })),
        Observation::Anomaly {
            kind: Anomaly::NotHttp,
            count: 1,
        },
        Observation::Gpu(GpuShare::Engine {
            engine: labels().engine,
            state: GpuState::Decode,
            seconds: 0.5,
            joules: Some(150.0),
        }),
        Observation::Gpu(GpuShare::Uncharged {
            engine: labels().engine,
            reason: Uncharged::Idle,
            seconds: 0.5,
            joules: 20.0,
        }),
        engine_report(),
        energy(TokenPhase::Prefill),
        energy(TokenPhase::Decode),
        Observation::Capacity(Box::new(CapacityReport {
            engine: labels().engine,
            model: Some(labels().model),
            knee: Some(Knee {
                concurrency: 4,
                free_up_to: 3,
                basis: Basis::Queue,
                below_s: 0.001,
                at_s: 0.5,
            }),
            by_concurrency: Vec::new(),
        })),
        pressure(),
    ]
}

/// An engine whose scheduler tells everything.
fn engine_report() -> Observation {
    Observation::Engine(Box::new(EngineReport {
        engine: labels().engine,
        model: Some(labels().model),
        load: Some(EngineLoad {
            running: 3,
            waiting: 1,
            kv_cache_usage: Some(0.5),
        }),
        prefix_queried_tokens: 38,
        prefix_hit_tokens: 16,
        preemptions: 1,
    }))
}

/// An engine that is short of memory, and of which everything is known.
fn pressure() -> Observation {
    Observation::Pressure(Box::new(PressureReport {
        engine: labels().engine,
        state: PressureState::Some,
        reasons: vec![Reason {
            kind: ReasonKind::StallSome,
            state: PressureState::Some,
            value: 0.2,
            threshold: 0.1,
            for_s: 60.0,
        }],
        gpu: Some(GpuMemory {
            gpu: "GPU-1".into(),
            used_bytes: 70,
            total_bytes: 80,
            headroom_bytes: 10,
            time_to_full_s: None,
        }),
        alloc_failures: None,
        cgroup: Some(CgroupMemory {
            version: CgroupVersion::V2,
            usage_bytes: Some(900),
            swap_bytes: None,
            limit_bytes: Some(1000),
            headroom_bytes: Some(100),
            events: MemoryEvents::default(),
            stalls: Some(Stalls {
                scope: StallScope::Cgroup,
                some_s: 0.2,
                full_s: 0.1,
            }),
        }),
    }))
}

fn energy(phase: TokenPhase) -> Observation {
    Observation::Gpu(GpuShare::Request {
        labels: labels(),
        phase,
        seconds: 0.25,
        joules: 65.0,
    })
}

/// A record with every number, those that only some engines tell among them.
fn record(status: Status) -> RequestRecord {
    let diagnosis = serde_json::json!({"cause": "decode", "queue": 0.2, "prefill": 0.3, "decode": 0.5, "interference": 0.0, "client": 0.0,
            "interference_s": 0.0, "interference_by": [], "client_stall_s": 0.0, "in_flight_at_arrival": 4,
            "running_at_arrival": 4, "source": "engine"});
    serde_json::from_value(serde_json::json!({
        "id": "1", "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736", "response_id": "chatcmpl-1",
        "engine": "vllm-8000", "model": "m", "scene": "default", "protocol": "openai_chat", "streamed": true,
        "status": status.as_str(), "http_status": 200, "finish_reason": "stop",
        "t0_ns": 1_000_000_000, "t1_ns": 1_100_000_000, "t2_ns": 1_250_000_000, "t3_ns": 1_500_000_000,
        "t4_ns": 1_510_000_000,
        "queue_s": 0.1, "prefill_s": 0.15, "decode_s": 0.25, "tokenize_s": 0.001,
        "ttft_s": 0.25, "tpot_s": 0.05, "e2e_s": 0.51,
        "input_tokens": 38, "output_tokens": 6, "cached_input_tokens": 16, "reasoning_tokens": 2, "chunks": 6,
        "request_bytes": 300, "response_bytes": 2000, "sources": {}, "incomplete": [],
        "diagnosis": diagnosis,
        "cost": null,
    }))
    .expect("a record")
}

#[test]
fn prometheus_answers_every_shipped_query_and_every_panel_shows_something() {
    let agent = Agent::start();
    let answers = evaluate(agent.address).unwrap_or_else(|e| panic!("{e:#}"));
    // An alert's expression answers only when it is about to fire; a panel's always.
    let empty: Vec<_> = answers
        .iter()
        .filter(|a| a.series == 0 && !a.query.origin.starts_with("rule "))
        .map(|a| &a.query)
        .collect();
    assert!(empty.is_empty(), "no answer to {empty:#?}");
    // Series for the long term answer wherever the metric is exported; these are fed with nothing here.
    let unfed = ["model_scene:llm_near_context_limit:increase5m"];
    let unanswered: Vec<_> = answers
        .iter()
        .filter(|a| a.series == 0 && a.query.origin.contains(':'))
        .map(|a| a.query.origin.trim_start_matches("rule "))
        .filter(|name| !unfed.contains(name))
        .collect();
    assert!(unanswered.is_empty(), "no answer to {unanswered:#?}");
    let firing = |name: &str| {
        answers
            .iter()
            .any(|a| a.query.origin == format!("rule {name}") && a.series > 0)
    };
    assert!(firing("InfertapErrorRateHigh"), "two in five requests fail");
    assert!(firing("InfertapEventsDropped"), "events are lost all the time");
    assert!(
        !firing("InfertapDown") && !firing("InfertapProbeDown"),
        "the agent and its probe are up"
    );
    assert!(
        firing("InfertapGpuXid") && !firing("InfertapGpuLost"),
        "an error was reported, and the GPU is there"
    );
    assert!(
        !firing("InfertapTtftHigh") && !firing("InfertapLabelOverflow"),
        "nothing is slow or past its cap"
    );
}

#[test]
fn a_query_that_prometheus_refuses_is_an_error_that_says_why() {
    let agent = Agent::start();
    let server = Prometheus::start(agent.address).unwrap_or_else(|e| panic!("{e:#}"));
    let error = server
        .query("sum by (model (up)")
        .expect_err("no PromQL")
        .to_string();
    assert!(error.contains("parse error"), "{error}");
    let up = server
        .query(r#"up{job="infertap"}"#)
        .unwrap_or_else(|e| panic!("{e:#}"));
    assert_eq!(up.len(), 1);
    assert_eq!(up[0].labels["instance"], agent.address.to_string());
}

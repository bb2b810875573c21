//! The agent, as root, with a real Prometheus that scrapes it: every shipped query is answered, with the labels that
//! the panels name, while requests of every outcome run.
//!
//! Run by `cargo xtask test`, which builds the agent and names it in `INFERTAP_BIN`. Needs Debian's package `prometheus`.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use infertap_tests::{
    agent::{Agent, BINARY_VARIABLE, Start},
    deployed::evaluate,
    gpu::{Gpu, Gpus, Script},
    load::{Load, Plan},
    prometheus::Prometheus,
    scripted::{Address, ServerProcess},
};
use serde_json::json;
use std::{
    collections::BTreeSet,
    path::Path,
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

/// Panels of what sockets alone cannot tell, of GPUs that work for an engine, and of what shows only where requests queue, as
/// they do not for this server; their descriptions say so.
const MAY_BE_SILENT: [&str; 19] = [
    "Capacity",
    "Cached share of input",
    "Cached and reasoning tokens",
    "Queue and prefill",
    "What the GPUs were doing",
    "Power by what it went into",
    "Joules a token",
    "CUDA launches",
    // This server has neither a GPU nor a limit of memory, so nothing is known of its headroom.
    "Memory headroom",
    "Memory pressure",
    // Its GPU works for nobody, it caches nothing, and its one model has a price.
    "Price of the GPU time",
    "Saved by cached tokens",
    "Unpriced tokens",
    // It is not known when a budget is used up before five minutes were watched.
    "Time until a budget is used up",
    // Its prompts are too short to share anything.
    "Shareable and hit share of prompts",
    "Prompt tokens that the cache lost",
    "Prompt tokens behind what breaks the prefix",
    "What a better prefix cache would save",
    "What breaks prefixes",
];

/// Queries of panels that are silent here though others of the same panel are not.
const SILENT_QUERIES: [(&str, &str); 12] = [
    // Cached and reasoning tokens, which this server reports none of, and what cached ones save.
    ("Tokens by model and scene", "D"),
    ("Tokens by model and scene", "E"),
    ("Money an hour by part", "B"),
    ("Cost by scene and model", "C"),
    ("Money a day: tokens beside GPUs", "D"),
    // GPU time of requests, and when a budget is used up.
    ("Cost by scene and model", "B"),
    ("Cost by scene and model", "E"),
    ("Money a day: tokens beside GPUs", "B"),
    ("Budgets", "B"),
    // Rates of GPUs that count no bytes; this one counts.
    ("PCIe and NVLink", "B"),
    ("PCIe and NVLink", "C"),
    // It has no XID error.
    ("GPU errors", "A"),
];

/// What its requests cost, and how long they may be: a prompt of it has seven tokens.
const CONFIG: &str = r#"
[[price]]
model = "model-a"
currency = "USD"
input = 1
output = 4

[gpu_price]
per_hour = 2.5

[[budget]]
name = "tokens"
limit = 1_000_000
period = "day"

[[budget]]
name = "money"
limit = 2
unit = "USD"
period = "day"

[[context_limit]]
model = "model-a"
tokens = 12
"#;

/// Requests that succeed, fail, are refused, and are given up, without end.
fn plans() -> impl Iterator<Item = Plan> + Send {
    let outcomes = [
        (json!({"chunks": 6, "gap_us": 500}), None),
        (json!({"chunks": 40, "gap_us": 2000}), Some(3)),
        (json!({"status": 500}), None),
        (json!({"status": 404}), None),
    ];
    (0..).map(move |index| {
        let (script, cancel_after) = &outcomes[index % outcomes.len()];
        let extra = json!({"stream": true, "stream_options": {"include_usage": true}, "script": script});
        Plan {
            index,
            cancel_after: *cancel_after,
            ..Plan::chat("mixed", "model-a", "hello", &extra)
        }
    })
}

#[test]
fn prometheus_gets_an_answer_to_every_shipped_query() {
    let folder = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(
        Path::new(env!("CARGO_BIN_EXE_scripted-server")),
        folder.path(),
        &[],
    )
    .unwrap();
    let pid = server.pid().to_string();
    let config = folder.path().join("infertap.toml");
    std::fs::write(&config, CONFIG).unwrap();
    let script = Script {
        gpus: vec![Gpu::datacenter(0)],
        ..Script::default()
    };
    let gpus = Gpus::start(folder.path(), script).unwrap();
    let config = config.to_str().unwrap();
    let arguments = ["--pid", &pid, "--config", config];
    let start = Start::for_test(folder.path(), &arguments).unwrap();
    let agent = Agent::start_on(&gpus, &start).unwrap();
    let Address::Tcp(target) = agent.address else {
        panic!("the agent listens on TCP");
    };
    let load = Load {
        address: server.address.clone(),
        concurrency: 3,
        core: None,
    };
    let stop = AtomicBool::new(false);
    let answers = thread::scope(|scope| {
        scope.spawn(|| load.run(plans(), &stop, &|_| {}));
        let answers = evaluate(target);
        stop.store(true, Ordering::Relaxed);
        answers
    })
    .unwrap_or_else(|error| panic!("{error:#}\n{}", agent.log_tail()));

    let silent: BTreeSet<_> = answers
        .iter()
        .filter(|answer| answer.series == 0)
        .filter_map(|answer| answer.query.origin.strip_prefix("panel ")?.split_once(", query "))
        .filter(|query| !SILENT_QUERIES.contains(query))
        .map(|(panel, _)| panel)
        .collect();
    let unexpected: Vec<_> = silent
        .iter()
        .filter(|panel| !MAY_BE_SILENT.contains(panel))
        .collect();
    assert!(
        unexpected.is_empty(),
        "nothing on the panels {unexpected:?}\n{}",
        agent.log_tail()
    );
    let firing = |name: &str| {
        answers
            .iter()
            .any(|answer| answer.query.origin == format!("rule {name}") && answer.series > 0)
    };
    assert!(firing("InfertapErrorRateHigh"), "a quarter of the requests fail");
    for quiet in [
        "InfertapDown",
        "InfertapProbeDown",
        "InfertapEngineNotObserved",
        "InfertapTtftHigh",
        "InfertapLabelOverflow",
    ] {
        assert!(!firing(quiet), "{quiet} without a cause");
    }
}

/// Histograms of requests on this server, whose requests have a time to their first token and gaps.
const WITH_EXEMPLARS: [&str; 6] = [
    "llm_ttft_seconds_bucket",
    "llm_tpot_seconds_bucket",
    "llm_itl_seconds_bucket",
    "llm_e2e_latency_seconds_bucket",
    "llm_decode_seconds_bucket",
    "llm_requests_total",
];

#[test]
fn the_exemplars_that_prometheus_stores_are_traces_that_can_be_shown() {
    let folder = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(
        Path::new(env!("CARGO_BIN_EXE_scripted-server")),
        folder.path(),
        &[],
    )
    .unwrap();
    let pid = server.pid().to_string();
    let config = folder.path().join("infertap.toml");
    // One in five is kept as the head; of the cancelled ones and failures few.
    let store = folder.path().join("store.db");
    let text = format!(
        "[store]\npath = {store:?}\n[records]\nhead_rate = 0.2\nunusual_after = 0\nper_minute = 20\n"
    );
    std::fs::write(&config, text).unwrap();
    let path = format!("store.path={}", store.display());
    let arguments = [
        "--pid",
        &pid,
        "--config",
        config.to_str().unwrap(),
        "--set",
        &path,
    ];
    let agent = Agent::start(&Start::for_test(folder.path(), &arguments).unwrap()).unwrap();
    let Address::Tcp(target) = agent.address else {
        panic!("the agent listens on TCP");
    };
    let load = Load {
        address: server.address.clone(),
        concurrency: 3,
        core: None,
    };
    let stop = AtomicBool::new(false);
    let exemplars = thread::scope(|scope| {
        scope.spawn(|| load.run(plans(), &stop, &|_| {}));
        let exemplars = Prometheus::start(target).and_then(|prometheus| {
            prometheus.wait_for_scrapes(4)?;
            prometheus.exemplars(r#"{__name__=~"llm_.+"}"#)
        });
        stop.store(true, Ordering::Relaxed);
        exemplars
    })
    .unwrap_or_else(|error| panic!("{error:#}\n{}", agent.log_tail()));

    let series: BTreeSet<&str> = exemplars.iter().map(|exemplar| &*exemplar.series).collect();
    for name in WITH_EXEMPLARS {
        assert!(series.contains(name), "{name} has no exemplar; {series:?} have");
    }
    let traces: BTreeSet<&str> = exemplars.iter().map(|exemplar| &*exemplar.trace_id).collect();
    assert!(traces.len() >= 5, "{traces:?}");
    let ended = agent.metrics().unwrap().sum("llm_requests_total", &[]);
    // What was handed over last is written within a tenth of a second.
    assert!(agent.stop(), "the agent ends when told to");
    for trace in &traces {
        let shown = Command::new(std::env::var_os(BINARY_VARIABLE).unwrap())
            .args(["show", trace, "--json", "--config"])
            .arg(&config)
            .output()
            .unwrap();
        assert!(
            shown.status.success(),
            "{trace}: {}",
            String::from_utf8_lossy(&shown.stderr)
        );
        assert!(String::from_utf8_lossy(&shown.stdout).contains(trace));
    }
    println!(
        "{} exemplars of {} traces, {ended} requests",
        exemplars.len(),
        traces.len()
    );
}

//! The agent, as root, on a server that runs short of memory: in a control group of its own whose limit it meets, on a GPU
//! that fills up.
//!
//! Run by `cargo xtask test`. On a host whose memory controller is in version 2 this is version 2; the kernel test's machine has
//! that in any case.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]
#![allow(clippy::float_cmp, reason = "counts and what a test has set are exact")]

mod gpu;

use infertap_tests::{
    agent::{Agent, Start},
    cgroup::Group,
    exposition::Exposition,
    load::{Connection, Outcome, Plan},
    scripted::ServerProcess,
};
use serde_json::{Value, json};
use std::{
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

const MIB: u64 = 1 << 20;

fn plan(script: &Value) -> Plan {
    Plan::chat(
        "memory",
        "model-a",
        "hello",
        &json!({"stream": true, "script": script}),
    )
}

/// Waits for metrics that `fit`; what there is at the end of the limit.
fn wait(agent: &Agent, limit: Duration, fit: impl Fn(&Exposition) -> bool) -> Exposition {
    let start = Instant::now();
    loop {
        let metrics = agent.metrics().unwrap();
        if fit(&metrics) || start.elapsed() > limit {
            return metrics;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn pressure(agent: &Agent, engine: &str) -> Value {
    let engines = agent.engines().unwrap();
    let all = engines["engines"].as_array().unwrap();
    let of = all.iter().find(|known| known["id"] == engine);
    of.map_or(Value::Null, |engine| engine["pressure"].clone())
}

/// A script that starts the agent.
fn executable(folder: &Path, script: &str) -> PathBuf {
    let path = folder.join("agent.sh");
    std::fs::write(&path, script).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// `namespace`: the agent is in a control group namespace of its own, as in a container, and sees the server's group above.
fn limits_waits_and_kills_are_seen(namespace: bool) {
    let folder = tempfile::tempdir().unwrap();
    let group = Group::make(&format!("infertap-test-{}-{namespace}", std::process::id())).unwrap();
    let server = ServerProcess::start(
        Path::new(env!("CARGO_BIN_EXE_scripted-server")),
        folder.path(),
        &[],
    )
    .unwrap();
    group.admit(server.pid()).unwrap();
    group.limit(96 * MIB).unwrap();

    let config = folder.path().join("infertap.toml");
    let section = "[pressure]\ninterval = \"500ms\"\nwindow = \"10s\"\nhold = \"1s\"\nstall_some = 0.001\n";
    std::fs::write(&config, section).unwrap();
    let pid = server.pid().to_string();
    let mut start = Start::for_test(
        folder.path(),
        &["--config", config.to_str().unwrap(), "--pid", &pid],
    )
    .unwrap();
    let home = namespace.then(|| Group::make(&format!("infertap-home-{}", std::process::id())).unwrap());
    if namespace {
        // The shell moves itself, and its namespace begins there.
        let procs = home.iter().flat_map(Group::procs);
        let moves: Vec<String> = procs
            .map(|procs| format!("echo $$ > {}\n", procs.display()))
            .collect();
        let moves = moves.concat();
        let agent = start.binary.display();
        let script = format!("#!/bin/sh\nset -e\n{moves}exec unshare --cgroup {agent} \"$@\"\n");
        start.binary = executable(folder.path(), &script);
    }
    let agent = Agent::start(&start).unwrap();
    let engine = agent.wait_serving(server.pid(), Duration::from_secs(20)).unwrap();
    let of = [("engine", engine.as_str())];

    let version = if group.is_version2() { "v2" } else { "v1" };
    let metrics = wait(&agent, Duration::from_secs(20), |metrics| {
        metrics
            .select("llm_engine_cgroup_memory_limit_bytes", &of)
            .count()
            == 1
    });
    assert_eq!(
        metrics.sum("llm_engine_cgroup_memory_limit_bytes", &of),
        (96 * MIB) as f64,
        "{}",
        agent.log_tail()
    );
    assert_eq!(pressure(&agent, &engine)["cgroup"]["version"], version);
    let none = [("engine", engine.as_str()), ("state", "none")];
    assert_eq!(metrics.sum("llm_memory_pressure", &none), 1.0);

    // More page cache than fits: the limit is met, and tasks wait for pages to be written and dropped.
    let mut connection = Connection::open(&server.address).unwrap();
    let truth = connection.exchange(&plan(&json!({"chunks": 2, "cache_mib": 400, "allocate_mib": 40})));
    assert_eq!(truth.outcome, Outcome::Complete);
    let max = [("engine", engine.as_str()), ("event", "max")];
    let waited = [("engine", engine.as_str()), ("scope", "cgroup"), ("kind", "some")];
    let stalls = "llm_engine_memory_pressure_seconds_total";
    let metrics = wait(&agent, Duration::from_secs(20), |metrics| {
        metrics.sum("llm_engine_cgroup_memory_events_total", &max) > 0.0 && metrics.sum(stalls, &waited) > 0.0
    });
    let met = metrics.sum("llm_engine_cgroup_memory_events_total", &max);
    let seconds = metrics.sum(stalls, &waited);
    println!("version {version}, namespace {namespace}: limit met {met} times, waited {seconds} s");
    assert!(met > 0.0 && seconds > 0.0, "{}", pressure(&agent, &engine));
    let usage = metrics.sum("llm_engine_cgroup_memory_bytes", &of);
    assert!(usage > 0.0 && usage <= (96 * MIB) as f64, "{usage}");
    assert_eq!(metrics.sum("llm_engine_oom_kills_total", &of), 0.0);

    // More than the limit of what can't be dropped: the kernel kills the server, and the agent tells of it afterwards.
    let truth = connection.exchange(&plan(&json!({"chunks": 2, "allocate_mib": 200})));
    assert_eq!(truth.outcome, Outcome::Broken);
    let metrics = wait(&agent, Duration::from_secs(20), |metrics| {
        metrics.sum("llm_engine_oom_kills_total", &of) > 0.0
            && metrics.select("llm_memory_pressure", &of).count() == 0
    });
    assert_eq!(
        metrics.sum("llm_engine_oom_kills_total", &of),
        1.0,
        "{}",
        agent.log_tail()
    );
    assert_eq!(
        metrics.select("llm_memory_pressure", &of).count(),
        0,
        "the engine is gone, and its series with it"
    );
    assert!(agent.stop());
    drop(server);
}

#[test]
fn limits_waits_and_kills_are_seen_from_the_host() {
    limits_waits_and_kills_are_seen(false);
}

#[test]
fn limits_waits_and_kills_are_seen_from_a_namespace_of_its_own() {
    limits_waits_and_kills_are_seen(true);
}

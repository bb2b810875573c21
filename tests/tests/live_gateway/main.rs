//! The agent, as root, on nginx before the scripted server and before a real engine.
//!
//! Run by `cargo xtask test`. Needs nginx (Debian: nginx-light).

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod spans;

use infertap_tests::{
    agent::{Agent, BINARY_VARIABLE, Start},
    load::{ClientTruth, Connection, Outcome, Plan},
    nginx::{self, Nginx},
    scripted::ServerProcess,
};
use serde_json::{Value, json};
use std::{
    io::Write as _,
    net::TcpStream,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

const LIMIT: Duration = Duration::from_secs(20);

/// The scripted server behind nginx, and the agent that watches both.
struct Bench {
    server: ServerProcess,
    nginx: Nginx,
    agent: Agent,
    config: PathBuf,
    folder: tempfile::TempDir,
}

/// A configuration that keeps all records, with these sections beside.
fn configuration(folder: &Path, more: &str) -> PathBuf {
    let path = folder.join("infertap.toml");
    let store = folder.join("store.db");
    let text = format!(
        "[store]\npath = \"{}\"\n[records]\nhead_rate = 1\nunusual_after = 0\nper_minute = 10000\n{more}",
        store.display()
    );
    std::fs::write(&path, text).unwrap();
    path
}

fn agent(folder: &Path, config: &Path, gateway: &Nginx, arguments: &[&str]) -> Agent {
    let store = format!("store.path={}", folder.join("store.db").display());
    let common = ["--config", config.to_str().unwrap(), "--set", &store];
    let start = Start::for_test(folder, &[&common[..], arguments].concat()).unwrap();
    let agent = Agent::start(&start).unwrap();
    wait(&agent, "the gateway is not watched", || {
        let all = agent.engines().unwrap();
        let gateways = all["gateways"].as_array().cloned().unwrap_or_default();
        gateways.iter().any(|found| found["id"] == *gateway.id)
    });
    agent
}

fn wait(agent: &Agent, otherwise: &str, mut is: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is() {
        assert!(start.elapsed() < LIMIT, "{otherwise}\n{}", agent.log_tail());
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn bench(upstreams: usize, buffering: bool, more: &str) -> Bench {
    let folder = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(
        Path::new(env!("CARGO_BIN_EXE_scripted-server")),
        folder.path(),
        &[],
    )
    .unwrap();
    let start = nginx::Start {
        upstream: vec![server.address.port(); upstreams],
        buffering,
        more,
    };
    let nginx = Nginx::start(folder.path(), &start).unwrap();
    let config = configuration(folder.path(), "");
    let pid = server.pid().to_string();
    let agent = agent(folder.path(), &config, &nginx, &["--pid", &pid]);
    agent.wait_serving(server.pid(), LIMIT).unwrap();
    Bench {
        server,
        nginx,
        agent,
        config,
        folder,
    }
}

/// What `infertap` prints as JSON of records; a line each.
fn records(config: &Path) -> Vec<Value> {
    let output = Command::new(std::env::var_os(BINARY_VARIABLE).unwrap())
        .args(["requests", "--json", "--limit", "1000", "--config"])
        .arg(config)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let all: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    let all = all["requests"].as_array().or(all.as_array()).cloned();
    all.unwrap_or_else(|| panic!("no list: {text}"))
}

impl Bench {
    /// Requests that the gateway served, by how their engine's part was found.
    fn served(&self, engine: &str) -> f64 {
        let labels = [("gateway", &*self.nginx.id), ("engine", engine)];
        self.agent
            .metrics()
            .unwrap()
            .sum("llm_gateway_requests_total", &labels)
    }

    /// Waits until the gateway's exchanges are told, and so many requests of the engine are; these.
    fn settle(&self, served: usize, requests: usize) -> Vec<Value> {
        let outcomes = ["joined", "none", "ambiguous"];
        wait(&self.agent, "not all exchanges are told", || {
            let all: f64 = outcomes.iter().map(|outcome| self.served(outcome)).sum();
            all + 0.5 > served as f64 && records(&self.config).len() >= requests
        });
        let found = records(&self.config);
        assert_eq!(found.len(), requests, "{found:#?}");
        let counted = self
            .agent
            .metrics()
            .unwrap()
            .sum("llm_requests_total", &[("model", "model-a")]);
        assert!(
            (counted - requests as f64).abs() < 0.5,
            "{counted} requests counted"
        );
        found
    }
}

fn scripted(script: &Value, stream: bool) -> Plan {
    let extra = json!({"stream": stream, "stream_options": {"include_usage": true}, "script": script});
    Plan::chat("scripted", "model-a", "hello", &extra)
}

fn trace_of(number: usize) -> String {
    format!("{:032x}", 0xabc_0000 + number)
}

fn traced(mut plan: Plan, number: usize) -> Plan {
    let value = format!("00-{}-00f067aa0ba902b7-01", trace_of(number));
    plan.headers.push(("traceparent".to_owned(), value));
    plan
}

fn seconds(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("no number: {value}"))
}

/// The gateway's part holds the request, and its times add up.
fn check_part(record: &Value, gateway: &str) {
    let part = &record["gateway"];
    assert_eq!(part["name"], gateway, "{record:#}");
    let at = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("no time in {record:#}"));
    let (came, t0) = (at(&part["t0_ns"]), at(&record["t0_ns"]));
    let (t4, went) = (at(&record["t4_ns"]), at(&part["t4_ns"]));
    assert!(came <= t0 && t0 <= t4 && t4 <= went, "{record:#}");
    let all = (went - came) as f64 / 1e9;
    let sum = seconds(&part["before_s"]) + seconds(&record["e2e_s"]) + seconds(&part["after_s"]);
    assert!((all - sum).abs() < 1e-6, "{all} is not {sum}: {record:#}");
}

#[test]
fn requests_have_their_gateway_s_part_however_it_passes_them_on() {
    for buffering in [false, true] {
        let bench = bench(1, buffering, "");
        let mut connection = Connection::open(&bench.nginx.address).unwrap();
        let script = json!({"chunks": 4, "first_gap_us": 20_000, "gap_us": 5_000});
        let mut truths = Vec::new();
        for number in 0..12 {
            let plan = scripted(&script, number % 2 == 0);
            let plan = if number % 3 == 0 {
                plan
            } else {
                traced(plan, number)
            };
            let truth = connection.exchange(&plan);
            assert_eq!(truth.outcome, Outcome::Complete, "{truth:?}");
            truths.push(truth);
        }
        let found = bench.settle(truths.len(), truths.len());
        for (number, truth) in truths.iter().enumerate() {
            let id = truth.response_id.as_deref();
            let record = found.iter().find(|record| record["response_id"].as_str() == id);
            let record = record.unwrap_or_else(|| panic!("{truth:?} is not among {found:#?}"));
            check_part(record, &bench.nginx.id);
            let part = &record["gateway"];
            assert_eq!(
                (&part["joined_by"], &part["http_status"]),
                (&json!("response"), &json!(200))
            );
            assert!(
                part["t0_ns"].as_u64() >= Some(truth.sent_ns),
                "{truth:?} {record:#}"
            );
            if number % 3 != 0 {
                assert_eq!(record["trace_id"], trace_of(number), "{record:#}");
                assert_eq!(part["parent_span_id"], "00f067aa0ba902b7", "{record:#}");
            }
        }
        assert!((bench.served("joined") - 12.0).abs() < 0.5);
    }
}

#[test]
fn what_has_no_id_is_joined_by_trace_or_body_and_not_when_two_are_the_same() {
    let bench = bench(1, false, "");
    let failing = || scripted(&json!({"status": 500}), false);
    let mut connection = Connection::open(&bench.nginx.address).unwrap();
    connection.exchange(&traced(failing(), 1));
    let mut connection = Connection::open(&bench.nginx.address).unwrap();
    connection.exchange(&failing());
    let found = bench.settle(2, 2);
    let by: Vec<&Value> = found
        .iter()
        .map(|record| &record["gateway"]["joined_by"])
        .collect();
    assert_eq!(
        by,
        [&json!("content"), &json!("trace")],
        "newest first: {found:#?}"
    );
    for record in &found {
        check_part(record, &bench.nginx.id);
    }

    // Two at once, of which nothing is different: both have begun at the gateway before either goes on to the engine, or the one
    // that came first would be told by that alone.
    let plan = scripted(&json!({"first_gap_us": 1_500_000}), false);
    let head = format!(
        "POST {} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        plan.path,
        bench.nginx.address,
        plan.body.len()
    );
    let (most, last) = plan.body.split_at(plan.body.len() - 1);
    let mut clients: Vec<TcpStream> = (0..2)
        .map(|_| {
            let mut client = TcpStream::connect(bench.nginx.address.to_string()).unwrap();
            client.write_all(&[head.as_bytes(), most].concat()).unwrap();
            client
        })
        .collect();
    thread::sleep(Duration::from_millis(200));
    for client in &mut clients {
        client.write_all(last).unwrap();
    }
    thread::sleep(Duration::from_millis(400));
    drop(clients);
    let found = bench.settle(4, 4);
    let joined = found.iter().filter(|record| record["gateway"].is_object());
    assert_eq!(joined.count(), 2, "{found:#?}");
    assert!((bench.served("ambiguous") - 2.0).abs() < 0.5);
}

#[test]
fn a_gateway_without_its_engine_answers_alone() {
    let bench = bench(1, false, "");
    let Bench {
        server,
        nginx,
        agent,
        config,
        folder,
    } = bench;
    let mut connection = Connection::open(&nginx.address).unwrap();
    let plan = scripted(&json!({"chunks": 2}), false);
    assert_eq!(connection.exchange(&plan).status, Some(200));
    server.kill();
    assert_eq!(connection.exchange(&plan).status, Some(502));
    let labels = [
        ("gateway", &*nginx.id),
        ("engine", "none"),
        ("status", "server_error"),
    ];
    wait(&agent, "the refusal is not told", || {
        agent
            .metrics()
            .unwrap()
            .sum("llm_gateway_requests_total", &labels)
            > 0.5
    });
    assert_eq!(records(&config).len(), 1);
    drop(folder);
}

#[test]
fn a_second_try_belongs_to_the_same_exchange() {
    let retry = "proxy_next_upstream error timeout http_503 non_idempotent;";
    let bench = bench(2, false, retry);
    let mut connection = Connection::open(&bench.nginx.address).unwrap();
    let truth: ClientTruth = connection.exchange(&scripted(&json!({"status": 503}), false));
    assert_eq!(truth.status, Some(503));
    let found = bench.settle(1, 2);
    let of: Vec<&Value> = found.iter().map(|record| &record["gateway"]["id"]).collect();
    assert!(of[0].is_string() && of[0] == of[1], "{found:#?}");
    assert!((bench.served("joined") - 1.0).abs() < 0.5);
}

#[test]
fn a_client_that_goes_is_cancelled_at_both() {
    let bench = bench(1, false, "");
    let mut connection = Connection::open(&bench.nginx.address).unwrap();
    let mut plan = traced(scripted(&json!({"chunks": 400, "gap_us": 10_000}), true), 7);
    plan.cancel_after = Some(5);
    connection.exchange(&plan);
    drop(connection);
    let found = bench.settle(1, 1);
    let record = &found[0];
    assert_eq!(record["status"], "cancelled", "{record:#}");
    assert_eq!(record["gateway"]["status"], "cancelled", "{record:#}");
    assert_eq!(record["trace_id"], trace_of(7));
}

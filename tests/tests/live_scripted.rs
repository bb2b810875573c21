//! The agent, as root, on the scripted server: a known schedule, every way of moving bytes, failures, garbage.
//!
//! Run by `cargo xtask test`, which builds the agent and names it in `INFERTAP_BIN`.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use infertap_tests::{
    agent::{Agent, Record, Start},
    bpf_census,
    compare::compare,
    load::{ClientTruth, Connection, Load, Outcome, Plan},
    scripted::{Calls, ServerProcess, Socket, garbage},
    stats::Distribution,
};
use serde_json::{Value, json};
use std::{
    path::Path,
    time::{Duration, Instant},
};

const CALLS: [(&str, Calls); 4] = [
    ("plain", Calls::Plain),
    ("socket", Calls::Socket),
    ("vector", Calls::Vector),
    ("message", Calls::Message),
];
const MODES: [&str; 2] = ["tracepoint", "uprobe"];

/// A server and the agent that watches it, in a folder of their own.
struct Bench {
    server: ServerProcess,
    agent: Agent,
    /// The server's id; the agent may find other engines on this host.
    engine: String,
    folder: tempfile::TempDir,
}

fn server(folder: &Path, arguments: &[&str]) -> ServerProcess {
    ServerProcess::start(
        Path::new(env!("CARGO_BIN_EXE_scripted-server")),
        folder,
        arguments,
    )
    .unwrap()
}

/// An agent that watches `server`, and the server's engine id.
fn watch(folder: &Path, server: &ServerProcess, arguments: &[&str]) -> (Agent, String) {
    let pid = server.pid().to_string();
    let start = Start::for_test(folder, &[&["--pid", &pid], arguments].concat()).unwrap();
    let agent = Agent::start(&start).unwrap();
    let engine = agent
        .wait_watching(server.pid(), Duration::from_secs(10))
        .unwrap();
    (agent, engine)
}

fn bench(server_arguments: &[&str], agent_arguments: &[&str]) -> Bench {
    let folder = tempfile::tempdir().unwrap();
    let server = server(folder.path(), server_arguments);
    let (agent, engine) = watch(folder.path(), &server, agent_arguments);
    // A uprobe does not see the return of a call that was entered before it was attached: this connection takes the
    // accept that the server was waiting in.
    drop(server.address.connect().unwrap());
    Bench {
        server,
        agent,
        engine,
        folder,
    }
}

impl Bench {
    fn connect(&self) -> Connection {
        Connection::open(&self.server.address).unwrap()
    }

    fn records(&self, count: usize) -> Vec<Record> {
        self.agent
            .wait_requests(count, Duration::from_secs(5), |record| {
                record.engine == self.engine
            })
            .unwrap()
    }

    /// Every truth has its record, and nothing is wrong with any.
    fn assert_agree(&self, truths: &[ClientTruth], what: &str) -> Vec<(ClientTruth, Record)> {
        let comparison = compare(truths, &self.records(truths.len()));
        let problems = comparison.problems.join("\n");
        assert!(
            problems.is_empty(),
            "{what}:\n{problems}\n{}",
            self.agent.log_tail()
        );
        comparison.pairs
    }
}

fn scripted(script: &Value, stream: bool) -> Plan {
    let extra = json!({"stream": stream, "stream_options": {"include_usage": true}, "script": script});
    Plan::chat("scripted", "model-a", "hello", &extra)
}

/// A trace id for requests that are refused, and so have no id of their own.
fn traced(plan: Plan, number: usize) -> Plan {
    plan.traced(format!("{:032x}", 0xabc_0000 + number))
}

#[test]
fn every_call_and_every_shape_of_writes_is_seen_in_both_modes() {
    for mode in MODES {
        for (calls, _) in CALLS {
            let bench = bench(&["--calls", calls], &["--socket-probe", mode]);
            let mut plans = Vec::new();
            for write in ["whole", "split", "vectored"] {
                for head in ["alone", "with_body"] {
                    for (stream, close) in [(true, false), (true, true), (false, false), (false, true)] {
                        let script = json!({"write": write, "head": head, "close": close, "chunks": 6,
                            "tokens_per_chunk": 2, "comments": true, "gap_us": 300});
                        plans.push(Plan {
                            index: plans.len(),
                            ..scripted(&script, stream)
                        });
                    }
                }
            }
            let truths = Load {
                address: bench.server.address.clone(),
                concurrency: 3,
                core: None,
            }
            .run_all(plans);
            bench.assert_agree(&truths, &format!("{mode}, {calls}"));
        }
    }
}

#[test]
fn times_are_those_of_the_server_itself() {
    for mode in MODES {
        let bench = bench(&[], &["--socket-probe", mode]);
        let script = json!({"chunks": 20, "first_gap_us": 8_000, "gap_us": 2_000});
        let plans = (0..40)
            .map(|index| Plan {
                index,
                ..scripted(&script, true)
            })
            .collect();
        let truths = Load {
            address: bench.server.address.clone(),
            concurrency: 4,
            core: None,
        }
        .run_all(plans);
        let pairs = bench.assert_agree(&truths, mode);
        let servers = bench.server.truths(40).unwrap();
        let difference =
            |of: &dyn Fn(&Record) -> Option<u64>,
             server: &dyn Fn(&infertap_tests::scripted::ServerTruth) -> u64| {
                Distribution::new(pairs.iter().map(|(client, record)| {
                    let id = client.response_id.as_deref().unwrap();
                    let truth = servers.iter().find(|truth| truth.response_id == id).unwrap();
                    of(record).unwrap().abs_diff(server(truth)) as f64 / 1e9
                }))
            };
        let t0 = difference(&|r| r.t0_ns, &|s| s.t0_ns);
        let t2 = difference(&|r| r.t2_ns, &|s| s.content_ns[0]);
        let t3 = difference(&|r| r.t3_ns, &|s| s.content_ns[19]);
        let t4 = difference(&|r| r.t4_ns, &|s| s.t4_ns);
        for (name, distribution) in [("T0", &t0), ("T2", &t2), ("T3", &t3), ("T4", &t4)] {
            println!(
                "{mode}: |{name} difference to the server's clock| us {}",
                distribution.in_units(1e-6)
            );
            assert!(
                distribution.percentile(95.0) <= 0.002,
                "{mode}: {name} is off by more than 2 ms at P95"
            );
        }
    }
}

#[test]
fn four_megabytes_each_way_are_accounted_to_the_byte() {
    for (calls, _) in CALLS {
        let bench = bench(&["--calls", calls], &[]);
        let long = "lorem ipsum \\\" dolor ".repeat(200_000);
        let mut truths = Vec::new();
        let mut connection = bench.connect();
        // 4 MB in; 4 MB out in chunks.
        for (index, script) in [json!({"chunks": 3}), json!({"chunks": 1000, "padding": 4096})]
            .iter()
            .enumerate()
        {
            let messages = if index == 0 { long.as_str() } else { "short" };
            // serde_json keeps the members sorted: `messages` comes before `model`.
            let body = json!({"messages": [{"role": "user", "content": messages}], "model": format!("late-{index}"),
                "script": script, "stream": true, "stream_options": {"include_usage": true}});
            let plan = Plan {
                index,
                ..Plan::json("four megabytes", "/v1/chat/completions", &body)
            };
            assert!(index > 0 || plan.body.len() > 4_000_000);
            truths.push(connection.exchange(&plan));
        }
        assert!(truths[1].response_bytes > 4_000_000);
        for (truth, record) in bench.assert_agree(&truths, calls) {
            assert_eq!(record.model, format!("late-{}", truth.index), "{calls}");
        }
    }
}

#[test]
fn one_call_larger_than_the_budget_is_counted_to_the_byte_and_never_called_complete() {
    let bench = bench(&[], &[]);
    let mut connection = bench.connect();
    // One write of 4 MB is more than one call's capture budget: the agent must know what it did not see.
    let large = traced(scripted(&json!({"chunks": 1, "padding": 4_200_000}), false), 0);
    let large = connection.exchange(&large);
    let after = connection.exchange(&scripted(&json!({}), true));
    let records = bench.records(2);
    let record = records
        .iter()
        .find(|record| Some(&record.trace_id) == large.trace_id.as_ref())
        .unwrap();
    assert_eq!(
        (record.request_bytes, record.response_bytes),
        (large.request_bytes, large.response_bytes)
    );
    if record.status == "ok" {
        assert_eq!(
            (record.output_tokens, &record.response_id),
            (large.completion_tokens, &large.response_id)
        );
    } else {
        assert_eq!(
            (record.status.as_str(), &record.incomplete[..]),
            ("incomplete", &["gap_out".to_owned()][..])
        );
    }
    let next: Vec<Record> = records
        .iter()
        .filter(|record| record.response_id == after.response_id)
        .cloned()
        .collect();
    let problems = compare(&[after], &next).problems;
    assert!(problems.is_empty(), "{problems:#?}");
}

#[test]
fn failures_are_told_apart() {
    let bench = bench(&[], &[]);
    let plans = [
        traced(scripted(&json!({"status": 429}), true), 0),
        traced(scripted(&json!({"status": 503}), true), 1),
        traced(scripted(&json!({"status": 504}), false), 2),
        scripted(&json!({"error_after": 2}), true),
        scripted(&json!({"chunks": 0}), true),
        Plan {
            cancel_after: Some(3),
            ..scripted(&json!({"chunks": 2000, "gap_us": 500}), true)
        },
        Plan {
            chunked: Some(9),
            ..scripted(&json!({}), true)
        },
        Plan::completion("completion", "model-b", "hello", &json!({"stream": true})),
    ];
    let truths: Vec<ClientTruth> = plans
        .into_iter()
        .enumerate()
        .map(|(index, plan)| bench.connect().exchange(&Plan { index, ..plan }))
        .collect();
    let pairs = bench.assert_agree(&truths, "failures");
    let statuses: Vec<&str> = pairs.iter().map(|(_, record)| record.status.as_str()).collect();
    let expected = [
        "client_error",
        "server_error",
        "timeout",
        "server_error",
        "ok",
        "cancelled",
        "ok",
        "ok",
    ];
    assert_eq!(statuses, expected);

    for stream in [true, false] {
        let broken = bench
            .connect()
            .exchange(&scripted(&json!({"break_after": 2}), stream));
        assert_eq!(broken.outcome, Outcome::Broken);
        let id = broken.response_id.clone();
        let count = truths.len() + if stream { 1 } else { 2 };
        let records = bench.records(count);
        assert_eq!(records.len(), count);
        assert_eq!(records[0].status, "server_error", "{broken:?} {:?}", records[0]);
        if stream {
            assert_eq!(records[0].response_id, id);
        }
    }
    let metrics = bench.agent.metrics().unwrap();
    assert!(
        metrics
            .sum("llm_requests_running", &[("engine", &bench.engine)])
            .abs()
            < 1e-9
    );
    let of = |status| metrics.sum("llm_requests_total", &[("model", "model-a"), ("status", status)]) as u64;
    assert_eq!(
        (of("ok"), of("server_error"), of("cancelled"), of("client_error")),
        (2, 4, 1, 1)
    );
}

#[test]
fn a_client_that_does_not_keep_up_changes_no_count() {
    let bench = bench(&[], &[]);
    let mut connection = bench.connect();
    connection.make_slow(300).unwrap();
    let truth = connection.exchange(&scripted(
        &json!({"chunks": 300, "padding": 8000, "nonblocking": true}),
        true,
    ));
    bench.assert_agree(&[truth], "a slow client");
}

#[test]
fn pipelined_requests_are_kept_apart() {
    let bench = bench(&[], &[]);
    let mut connection = bench.connect();
    let plans: Vec<Plan> = (0..6)
        .map(|index| Plan {
            index,
            chunked: (index % 2 == 0).then_some(11),
            ..scripted(&json!({"chunks": index + 1}), index != 3)
        })
        .collect();
    let mut truths = connection.send_together(&plans);
    for (plan, truth) in plans.iter().zip(&mut truths) {
        connection.receive(plan, truth);
    }
    bench.assert_agree(&truths, "pipelined");
}

#[test]
fn unix_sockets_are_sockets() {
    let folder = tempfile::tempdir().unwrap();
    let listen = format!("unix:{}", folder.path().join("socket").display());
    let bench = bench(&["--listen", &listen], &[]);
    let plans = (0..20)
        .map(|index| Plan {
            index,
            ..scripted(&json!({}), index % 2 == 0)
        })
        .collect();
    let truths = Load {
        address: bench.server.address.clone(),
        concurrency: 4,
        core: None,
    }
    .run_all(plans);
    bench.assert_agree(&truths, "unix");
}

#[test]
fn garbage_is_counted_and_harms_nothing() {
    for kind in garbage::Kind::ALL {
        let bench = bench(&["--garbage", kind.as_str()], &[]);
        let before = bench.agent.resident_bytes().unwrap();
        for round in 0..60 {
            let socket: Socket = bench.server.address.connect().unwrap();
            garbage::hold(&socket, garbage::Side::Client, kind, round).unwrap();
        }
        let start = Instant::now();
        let anomalies = loop {
            let metrics = bench.agent.metrics().unwrap();
            let anomalies = metrics.sum("infertap_anomalies_total", &[]);
            if anomalies >= 60.0 || start.elapsed() > Duration::from_secs(5) {
                break anomalies;
            }
            std::thread::sleep(Duration::from_millis(50));
        };
        let grown = bench.agent.resident_bytes().unwrap().saturating_sub(before);
        println!(
            "{}: {anomalies} anomalies, {:.1} MB grown",
            kind.as_str(),
            grown as f64 / 1e6
        );
        assert!(
            anomalies >= 60.0,
            "{}: {anomalies} anomalies on 60 connections",
            kind.as_str()
        );
        assert!(grown < 32 << 20, "{}: {grown} bytes grown", kind.as_str());
        assert_eq!(bench.records(0), [], "{}", kind.as_str());
        assert!(
            bench.agent.stop(),
            "the agent did not end well after {}",
            kind.as_str()
        );
    }
}

#[test]
fn an_agent_that_comes_late_says_so_and_gets_the_next_request_right() {
    for mode in MODES {
        let folder = tempfile::tempdir().unwrap();
        let server = server(folder.path(), &[]);
        let mut connection = Connection::open(&server.address).unwrap();
        let long = scripted(&json!({"chunks": 400, "gap_us": 10_000}), true);
        let mut first = connection.send(&long);
        std::thread::sleep(Duration::from_millis(500));
        let (agent, engine) = watch(folder.path(), &server, &["--socket-probe", mode]);
        connection.receive(&long, &mut first);
        assert_eq!(first.outcome, Outcome::Complete);
        let second = connection.exchange(&scripted(&json!({"chunks": 5, "gap_us": 1000}), true));
        let records = agent
            .wait_requests(2, Duration::from_secs(5), |record| record.engine == engine)
            .unwrap();
        let of = |truth: &ClientTruth| {
            records
                .iter()
                .filter(|record| record.response_id == truth.response_id)
                .collect::<Vec<_>>()
        };
        let [late] = of(&first)[..] else {
            panic!(
                "{mode}: the stream that was under way: {records:#?}\n{}",
                agent.log_tail()
            )
        };
        assert_eq!(late.status, "incomplete", "{mode}");
        assert!(
            late.incomplete.iter().any(|why| why == "late_join"),
            "{mode}: {late:?}"
        );
        assert_eq!(
            (late.ttft_s, late.e2e_s),
            (None, None),
            "{mode}: a time that nobody saw begin"
        );
        let second_record = of(&second);
        let problems = compare(&[second], &second_record.into_iter().cloned().collect::<Vec<_>>()).problems;
        assert!(problems.is_empty(), "{mode}: {problems:#?}");
        assert_eq!(records.len(), 2, "{mode}: {records:#?}");
    }
}

#[test]
fn a_killed_agent_disturbs_nothing_and_leaves_no_program() {
    for mode in MODES {
        let Bench {
            mut server,
            agent,
            folder: _folder,
            ..
        } = bench(&[], &["--socket-probe", mode]);
        let programs = bpf_census::programs_of(agent.pid()).unwrap();
        assert!(!programs.is_empty(), "{mode}: the agent holds no program");
        let mut connection = Connection::open(&server.address).unwrap();
        let plan = scripted(&json!({"chunks": 200, "gap_us": 5_000}), true);
        let mut truth = connection.send(&plan);
        std::thread::sleep(Duration::from_millis(300));
        agent.kill();
        connection.receive(&plan, &mut truth);
        assert_eq!(
            (truth.outcome, truth.content_ns.len()),
            (Outcome::Complete, 200),
            "{mode}: {truth:?}"
        );
        assert!(server.is_running(), "{mode}");
        let start = Instant::now();
        let left = loop {
            let left = &bpf_census::loaded_programs().unwrap() & &programs;
            if left.is_empty() || start.elapsed() > Duration::from_secs(5) {
                break left;
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        assert!(left.is_empty(), "{mode}: programs {left:?} are still loaded");
        let next = connection.exchange(&scripted(&json!({}), true));
        assert_eq!(next.outcome, Outcome::Complete, "{mode}");
    }
}

#[test]
fn a_restarted_server_is_watched_again_within_two_seconds() {
    let folder = tempfile::tempdir().unwrap();
    let first = server(folder.path(), &[]);
    let (port, listen) = (first.address.port().to_string(), first.address.to_string());
    let agent = Agent::start(&Start::for_test(folder.path(), &["--port", &port]).unwrap()).unwrap();
    agent.wait_watching(first.pid(), Duration::from_secs(10)).unwrap();
    let seen = |truth: &ClientTruth| {
        let id = &truth.response_id;
        agent
            .requests()
            .unwrap()
            .iter()
            .any(|record| record.response_id == *id && record.status == "ok")
    };
    let request = |server: &ServerProcess| {
        Connection::open(&server.address)
            .unwrap()
            .exchange(&scripted(&json!({"chunks": 2}), true))
    };
    let truth = request(&first);
    let records = agent
        .wait_requests(1, Duration::from_secs(5), |record| {
            record.response_id == truth.response_id
        })
        .unwrap();
    assert_eq!(records.len(), 1, "{}", agent.log_tail());
    first.kill();
    let second = server(folder.path(), &["--listen", &listen]);
    // Watched is what a request proves.
    let start = Instant::now();
    let mut sent = Vec::new();
    while !sent.iter().any(seen) {
        assert!(
            start.elapsed() < Duration::from_secs(10),
            "not watched again:\n{}",
            agent.log_tail()
        );
        sent.push(request(&second));
        std::thread::sleep(Duration::from_millis(20));
    }
    let first_seen = sent.iter().find(|truth| seen(truth)).unwrap();
    let took = Duration::from_nanos(first_seen.sent_ns.saturating_sub(sent[0].sent_ns));
    println!("a restarted server was watched again {took:?} after it listened");
    assert!(took < Duration::from_secs(2), "{took:?}\n{}", agent.log_tail());
}

//! The agent, as root, on the scripted server: a known schedule, every way of moving bytes, failures, garbage.
//!
//! Run by `cargo xtask test`, which builds the agent and names it in `INFERTAP_BIN`.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod budget;
mod clients;
mod content;
mod diagnosis;
mod disk;
mod lifetime;
mod logs;
mod money;
mod pods;
mod records;
mod traces;
mod trouble;
mod usage;

use infertap_tests::{
    agent::{Agent, Record, Start},
    bpf_census, clock,
    compare::compare,
    load::{ClientTruth, Connection, Load, Outcome, Plan},
    scripted::{Calls, ServerProcess, Socket, garbage},
    stats::Distribution,
};
use serde_json::{Value, json};
use std::{
    path::Path,
    sync::Arc,
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
    /// One agent watches several servers where it can: it is long in stopping.
    agent: Arc<Agent>,
    /// The server's id.
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

/// An agent that watches `server`, and no engine that this host may have besides; and the server's engine id.
fn watch(folder: &Path, server: &ServerProcess, arguments: &[&str]) -> (Agent, String) {
    let (agent, mut engines) = watch_all(folder, &[server], arguments);
    (agent, engines.remove(0))
}

/// As [`watch`], several servers at once.
fn watch_all(folder: &Path, servers: &[&ServerProcess], arguments: &[&str]) -> (Agent, Vec<String>) {
    let pids: Vec<String> = servers.iter().map(|server| server.pid().to_string()).collect();
    let mut all = vec!["--set", "discover.builtin_rules=false"];
    all.extend(pids.iter().flat_map(|pid| ["--pid", pid]));
    let start = Start::for_test(folder, &[&all, arguments].concat()).unwrap();
    let agent = Agent::start(&start).unwrap();
    let watched = |server: &&ServerProcess| {
        agent
            .wait_watching(server.pid(), Duration::from_secs(10))
            .unwrap()
    };
    let engines = servers.iter().map(watched).collect();
    (agent, engines)
}

fn bench(server_arguments: &[&str], agent_arguments: &[&str]) -> Bench {
    benches(&[server_arguments], agent_arguments).remove(0)
}

/// Servers, each in a folder of its own, and one agent.
fn benches(servers: &[&[&str]], agent_arguments: &[&str]) -> Vec<Bench> {
    let started = servers.iter().map(|arguments| {
        let folder = tempfile::tempdir().unwrap();
        (server(folder.path(), arguments), folder)
    });
    let started: Vec<(ServerProcess, tempfile::TempDir)> = started.collect();
    let servers: Vec<&ServerProcess> = started.iter().map(|(server, _)| server).collect();
    let (agent, engines) = watch_all(started[0].1.path(), &servers, agent_arguments);
    let agent = Arc::new(agent);
    let bench = |((server, folder), engine): ((ServerProcess, _), String)| {
        // A uprobe does not see the return of a call that was entered before it was attached: this connection takes
        // the accept that the server was waiting in.
        drop(server.address.connect().unwrap());
        Bench {
            server,
            agent: Arc::clone(&agent),
            engine,
            folder,
        }
    };
    started.into_iter().zip(engines).map(bench).collect()
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

/// Waits until something is so.
fn wait(agent: &Agent, what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(
            start.elapsed() < Duration::from_secs(40),
            "{what}:\n{}",
            agent.log_tail()
        );
        std::thread::sleep(Duration::from_millis(100));
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
        let arguments = CALLS.map(|(calls, _)| ["--calls", calls]);
        let benches = benches(
            &arguments.each_ref().map(<[_; 2]>::as_slice),
            &["--socket-probe", mode],
        );
        for (bench, (calls, _)) in benches.iter().zip(CALLS) {
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
        // Where arrivals are seen, the server reads later than the request begins; else its read is the beginning.
        let t0 = if mode == "tracepoint" {
            Distribution::new(pairs.iter().map(|(client, record)| {
                let t0 = record.t0_ns.unwrap();
                let id = client.response_id.as_deref().unwrap();
                let read = servers
                    .iter()
                    .find(|truth| truth.response_id == id)
                    .unwrap()
                    .t0_ns;
                assert!(
                    (client.sent_ns..=read).contains(&t0),
                    "{mode}: T0 is not between sending and reading"
                );
                (t0 - client.sent_ns) as f64 / 1e9
            }))
        } else {
            difference(&|r| r.t0_ns, &|s| s.t0_ns)
        };
        let t2 = difference(&|r| r.t2_ns, &|s| s.content_ns[0]);
        let t3 = difference(&|r| r.t3_ns, &|s| s.content_ns[19]);
        let t4 = difference(&|r| r.t4_ns, &|s| s.t4_ns);
        for (name, distribution) in [("T0", &t0), ("T2", &t2), ("T3", &t3), ("T4", &t4)] {
            println!("{mode}: |{name} difference| us {}", distribution.in_units(1e-6));
            assert!(
                distribution.percentile(95.0) <= 0.002,
                "{mode}: {name} is off by more than 2 ms at P95"
            );
        }
    }
}

#[test]
fn a_request_begins_when_it_arrives_at_a_server_that_is_too_busy_to_read() {
    let mut bench = bench(&[], &[]);
    let plan = |index| Plan {
        index,
        ..scripted(&json!({"chunks": 2}), true)
    };
    // One on a connection that is open, one on a connection that it has to accept first.
    let mut connections = vec![bench.connect()];
    let mut truths = vec![connections[0].exchange(&plan(0))];
    connections.push(bench.connect());
    bench.server.pause().unwrap();
    for (index, connection) in (1usize..).zip(&mut connections) {
        truths.push(connection.send(&plan(index)));
    }
    std::thread::sleep(Duration::from_millis(300));
    let woken = clock::monotonic_ns();
    bench.server.resume();
    for (index, connection) in (1usize..).zip(&mut connections) {
        connection.receive(&plan(index), &mut truths[index]);
    }
    for (truth, record) in bench.assert_agree(&truths, "paused") {
        let t0 = record.t0_ns.unwrap();
        assert!(t0 >= truth.sent_ns, "begins before it was sent");
        if truth.index > 0 {
            assert!(
                t0 < woken,
                "begins when it is read, {} ns after it was sent",
                t0 - truth.sent_ns
            );
            let ttft = record.ttft_s.unwrap();
            assert!(
                ttft >= 0.3,
                "{}: the wait is not in the {ttft} s to the first token",
                truth.index
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
    for (_, record) in bench.assert_agree(&truths, "unix") {
        assert_eq!(record.client, None, "a Unix socket has no address");
    }
}

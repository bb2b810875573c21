//! The scripted server and the load client against each other: both must be right before they may judge the agent.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use infertap_tests::{
    load::{ClientTruth, Connection, Load, Outcome, Plan},
    scripted::{Address, Calls, Options, Script, Server, ServerTruth},
};
use serde_json::json;
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

type Truths = Arc<Mutex<Vec<ServerTruth>>>;

fn server(calls: Calls) -> (Address, Truths) {
    let options = Options {
        calls,
        ..Options::default()
    };
    Server::spawn(options).unwrap()
}

fn plan(script: &serde_json::Value, stream: bool) -> Plan {
    let extra = json!({"stream": stream, "stream_options": {"include_usage": true}, "script": script});
    Plan::chat("scripted", "model-a", "hello", &extra)
}

fn exchange(address: &Address, plan: &Plan) -> ClientTruth {
    Connection::open(address).unwrap().exchange(plan)
}

/// The server's truth of a response that the client may have before the server has written it down.
fn truth_of(truths: &Truths, client: &ClientTruth) -> ServerTruth {
    let id = client.response_id.clone().unwrap_or_default();
    for _ in 0..1000 {
        if let Some(truth) = truths
            .lock()
            .unwrap()
            .iter()
            .find(|truth| truth.response_id == id)
        {
            return truth.clone();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("the server wrote down no `{id}`")
}

#[test]
fn both_sides_agree_whatever_the_calls_and_the_shape_of_writes() {
    for calls in [Calls::Plain, Calls::Socket, Calls::Vector, Calls::Message] {
        let (address, truths) = server(calls);
        for write in ["whole", "split", "vectored"] {
            for head in ["alone", "with_body"] {
                for (stream, close) in [(true, false), (true, true), (false, false), (false, true)] {
                    let script = json!({"write": write, "head": head, "close": close, "chunks": 5, "tokens_per_chunk": 3,
                        "comments": true, "padding": 100});
                    let client = exchange(&address, &plan(&script, stream));
                    let server = truth_of(&truths, &client);
                    let what = format!("{calls:?} {script} {client:?} {server:?}");
                    assert_eq!(client.outcome, Outcome::Complete, "{what}");
                    assert_eq!((client.status, server.status), (Some(200), 200), "{what}");
                    assert_eq!(client.request_bytes, server.request_bytes, "{what}");
                    assert_eq!(client.response_bytes, server.response_bytes, "{what}");
                    assert_eq!(client.completion_tokens, Some(15), "{what}");
                    assert_eq!(client.content_ns.len(), if stream { 5 } else { 1 }, "{what}");
                    assert_eq!(client.reusable, !close, "{what}");
                    assert!(
                        client.sent_ns < server.t0_ns && server.t4_ns <= client.last_ns,
                        "{what}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_schedule_is_kept() {
    let (address, truths) = server(Calls::Socket);
    let client = exchange(
        &address,
        &plan(
            &json!({"chunks": 4, "first_gap_us": 20_000, "gap_us": 5_000}),
            true,
        ),
    );
    let server = truth_of(&truths, &client);
    for (at, ns) in server.content_ns.iter().enumerate() {
        assert!(*ns >= server.t0_ns + 20_000_000 + at as u64 * 5_000_000);
    }
}

#[test]
fn failures_are_told_apart() {
    let (address, truths) = server(Calls::Plain);
    let refused = exchange(&address, &plan(&json!({"status": 429}), true));
    assert_eq!(
        (refused.status, refused.expected_status()),
        (Some(429), "client_error")
    );
    let misspelt = exchange(&address, &plan(&json!({"chunk": 4}), true));
    assert_eq!(misspelt.status, Some(400));
    let error = exchange(&address, &plan(&json!({"error_after": 2}), true));
    assert_eq!(
        (error.content_ns.len(), error.expected_status()),
        (2, "server_error")
    );
    for stream in [true, false] {
        let broken = exchange(&address, &plan(&json!({"break_after": 2}), stream));
        assert_eq!(
            (broken.outcome, broken.expected_status()),
            (Outcome::Broken, "server_error")
        );
    }
    let cancelled = exchange(
        &address,
        &Plan {
            cancel_after: Some(3),
            ..plan(&json!({"chunks": 1000, "gap_us": 500}), true)
        },
    );
    assert_eq!(
        (cancelled.content_ns.len(), cancelled.expected_status()),
        (3, "cancelled")
    );
    assert!(truth_of(&truths, &cancelled).broken);
}

#[test]
fn a_slow_client_blocks_a_server_that_does_not_wait() {
    let (address, truths) = server(Calls::Socket);
    let mut connection = Connection::open(&address).unwrap();
    connection.make_slow(200).unwrap();
    let client = connection.exchange(&plan(
        &json!({"chunks": 300, "padding": 8000, "nonblocking": true}),
        true,
    ));
    assert_eq!(
        (client.outcome, client.content_ns.len()),
        (Outcome::Complete, 300)
    );
    assert_eq!(client.response_bytes, truth_of(&truths, &client).response_bytes);
}

#[test]
fn pipelined_and_chunked_requests_are_answered_in_order() {
    let (address, _) = server(Calls::Vector);
    let mut connection = Connection::open(&address).unwrap();
    let plans: Vec<Plan> = (1..6)
        .map(|n| Plan {
            chunked: (n % 2 == 0).then_some(7),
            ..plan(&json!({"chunks": n}), n != 3)
        })
        .collect();
    let mut truths = connection.send_together(&plans);
    for (n, (plan, truth)) in (1..).zip(plans.iter().zip(&mut truths)) {
        connection.receive(plan, truth);
        assert_eq!(
            (truth.outcome, truth.completion_tokens),
            (Outcome::Complete, Some(n))
        );
    }
}

#[test]
fn a_load_carries_out_every_plan_once_and_unix_sockets_serve() {
    let folder = tempfile::tempdir().unwrap();
    let address = Address::Unix(folder.path().join("socket"));
    let server = Server::bind(
        &address,
        Options {
            script: Script::default(),
            ..Options::default()
        },
        Arc::new(|_| {}),
    )
    .unwrap();
    std::thread::spawn(move || server.serve());
    let plans = (0..100)
        .map(|index| Plan {
            index,
            close: index % 7 == 0,
            ..plan(&json!({}), index % 3 != 0)
        })
        .collect();
    let truths = Load {
        address,
        concurrency: 8,
        core: None,
    }
    .run_all(plans);
    assert_eq!(
        truths.iter().map(|truth| truth.index).collect::<Vec<_>>(),
        (0..100).collect::<Vec<_>>()
    );
    for truth in &truths {
        assert_eq!(
            (truth.outcome, truth.completion_tokens),
            (Outcome::Complete, Some(8)),
            "{truth:?}"
        );
    }
}

#[test]
fn a_client_that_leaves_early_is_no_failure_and_one_with_its_response_has_not_left() {
    let (address, _) = server(Calls::Socket);
    let script = json!({"head": "with_body", "role_chunk": false, "first_gap_us": 3_000_000});
    let leaving = Plan {
        leave_after_ms: Some(30),
        ..plan(&script, true)
    };
    let left = exchange(&address, &leaving);
    assert_eq!(
        (left.outcome, left.status, &left.error, left.reusable),
        (Outcome::Cancelled, None, &None, false)
    );
    assert!(left.last_ns - left.sent_ns >= 30_000_000);
    let patient = Plan {
        leave_after_ms: Some(60_000),
        ..plan(&json!({"chunks": 3}), true)
    };
    let stayed = exchange(&address, &patient);
    assert_eq!((stayed.outcome, stayed.content_ns.len()), (Outcome::Complete, 3));
}

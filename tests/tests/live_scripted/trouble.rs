//! Failures, loss and garbage: told apart, counted, and harmless.
//!
//! Owns: what is no plain success. Refuses: the life of agent and server (`lifetime`).

use super::*;

#[test]
fn one_call_larger_than_the_budget_is_counted_to_the_byte_and_never_called_complete() {
    let bench = bench(&[], &[]);
    let mut connection = bench.connect();
    // One write of 4 MB is more than one call's capture budget: the agent must know what it did not see.
    let large = traced(scripted(&json!({"chunks": 1, "padding": 4_200_000}), false), 0);
    let large = connection.exchange(&large);
    let after = connection.exchange(&scripted(&json!({}), true));
    let records = bench.records(2);
    let record = bench.agent.the_record(&records, &large, |record| {
        Some(&record.trace_id) == large.trace_id.as_ref()
    });
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
            Arc::into_inner(bench.agent).unwrap().stop(),
            "the agent did not end well after {}",
            kind.as_str()
        );
    }
}

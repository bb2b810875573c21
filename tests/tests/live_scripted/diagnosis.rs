//! Where the time went, on real sockets: a client that does not read is told from an engine that is slow.
//!
//! Owns: what needs real socket buffers. Refuses: the rules (the core's own tests).

use super::*;
use infertap_tests::agent::Diagnosis;

/// How long the client looks away.
const PAUSE: Duration = Duration::from_millis(1500);

fn diagnosis(bench: &Bench, truth: &ClientTruth) -> Diagnosis {
    let records = bench.records(1);
    let record = bench
        .agent
        .the_record(&records, truth, |record| record.response_id == truth.response_id);
    record
        .diagnosis
        .clone()
        .unwrap_or_else(|| panic!("not diagnosed: {record:?}"))
}

/// A client that looks away while the server has more to say than the buffers between them take.
fn looks_away(bench: &Bench, nonblocking: bool, story: &str) {
    let mut connection = bench.connect();
    connection.make_slow(0).unwrap();
    let script = json!({"chunks": 100, "padding": 10_000, "nonblocking": nonblocking});
    let plan = scripted(&script, true);
    let mut truth = connection.send(&plan);
    std::thread::sleep(PAUSE);
    connection.receive(&plan, &mut truth);
    let found = diagnosis(bench, &truth);
    assert_eq!(found.cause.as_deref(), Some("client"), "{story}: {found:?}");
    let counted = bench.agent.metrics().unwrap().sum(
        "llm_bottleneck_total",
        &[("model", "model-a"), ("cause", "client")],
    );
    assert!((counted - 1.0).abs() < 1e-9, "{story}: {counted} counted");
}

#[test]
fn a_server_that_is_told_to_wait_waits_for_its_client() {
    // Its small send buffer refuses writes, which libc's return value does not tell a uprobe.
    looks_away(&bench(&[], &[]), true, "nonblocking");
}

#[test]
fn a_server_whose_writes_wait_waits_for_its_client() {
    for mode in MODES {
        // The send buffer of a Unix socket does not grow.
        let folder = tempfile::tempdir().unwrap();
        let listen = format!("unix:{}", folder.path().join("socket").display());
        let bench = bench(&["--listen", &listen], &["--socket-probe", mode]);
        looks_away(&bench, false, mode);
    }
}

#[test]
fn an_engine_that_is_slow_is_not_its_client() {
    for mode in MODES {
        let bench = bench(&[], &["--socket-probe", mode]);
        let plan = scripted(&json!({"chunks": 40, "gap_us": 5_000, "nonblocking": true}), true);
        let truth = bench.connect().exchange(&plan);
        let found = diagnosis(&bench, &truth);
        assert_eq!(found.cause.as_deref(), Some("decode"), "{mode}: {found:?}");
        assert!(found.client.is_some_and(|share| share < 0.1), "{mode}: {found:?}");
    }
}

#[test]
fn a_client_that_stops_reading_and_leaves_was_waited_for() {
    let bench = bench(&[], &[]);
    let mut connection = bench.connect();
    connection.make_slow(0).unwrap();
    let plan = Plan {
        cancel_after: Some(1),
        ..scripted(
            &json!({"chunks": 1000, "padding": 16_000, "nonblocking": true}),
            true,
        )
    };
    let mut truth = connection.send(&plan);
    std::thread::sleep(PAUSE);
    connection.receive(&plan, &mut truth);
    drop(connection);
    let found = diagnosis(&bench, &truth);
    assert_eq!(found.cause.as_deref(), Some("client"), "{found:?}");
}

#[test]
fn requests_in_flight_are_counted_at_arrival() {
    let bench = bench(&[], &[]);
    // Each begins while those before it are still being answered.
    let script = json!({"chunks": 100, "gap_us": 20_000});
    let mut open: Vec<(Plan, Connection, ClientTruth)> = (0..4)
        .map(|index| {
            let plan = Plan {
                index,
                ..scripted(&script, true)
            };
            let mut connection = bench.connect();
            let truth = connection.send(&plan);
            std::thread::sleep(Duration::from_millis(50));
            (plan, connection, truth)
        })
        .collect();
    for (plan, connection, truth) in &mut open {
        connection.receive(plan, truth);
    }
    let records = bench.records(4);
    for (plan, _, truth) in &open {
        let record = bench
            .agent
            .the_record(&records, truth, |record| record.response_id == truth.response_id);
        let seen = record.diagnosis.as_ref().unwrap().in_flight_at_arrival;
        assert_eq!(seen, Some(plan.index as u64), "{record:?}");
    }
}

//! `infertap trace` on an engine and its GPU: the file is in the trace-event format, and says what the records and the
//! script say.

use super::join::{BUSY_W, IDLE_W, JOB, Job, Scene};
use super::*;
use infertap_tests::agent::{BINARY_VARIABLE, Record};
use infertap_tests::scripted::Address;
use infertap_tests::trace_event;
use std::process::{Command, Output};

/// `infertap trace` with these flags, asking this agent.
fn trace(address: &str, flags: &[&str]) -> Output {
    let binary = std::env::var_os(BINARY_VARIABLE).unwrap();
    Command::new(binary)
        .args(["trace", "--agent", address])
        .args(flags)
        .output()
        .unwrap()
}

fn events<'a>(trace: &'a Json, ph: &str) -> Vec<&'a Json> {
    let all = trace["traceEvents"].as_array().unwrap();
    all.iter().filter(|event| event["ph"] == ph).collect()
}

fn number(event: &Json, key: &str) -> u64 {
    event[key].as_u64().unwrap_or_else(|| panic!("no {key}: {event}"))
}

/// The slices of a request are where its record says, and nothing else is on its lane within it.
fn agrees(trace: &Json, record: &Record) {
    let slices = events(trace, "X");
    let of_request = |slice: &&&Json| slice["args"]["id"] == record.id.as_str();
    let slice = slices
        .iter()
        .find(of_request)
        .unwrap_or_else(|| panic!("no slice of {record:?}"));
    let micros = |at: Option<u64>| at.unwrap() / 1000;
    let (t0, t4) = (micros(record.t0_ns), micros(record.t4_ns));
    assert_eq!(
        (number(slice, "ts"), number(slice, "dur")),
        (t0, t4 - t0),
        "{slice}"
    );
    assert_eq!(slice["args"]["trace_id"], record.trace_id.as_str());
    assert_eq!(slice["args"]["output_tokens"].as_u64(), record.output_tokens);
    assert_eq!(slice["args"]["ttft_s"].as_f64(), record.ttft_s);
    assert_eq!(slice["args"]["energy_j"].as_f64(), record.energy_j);
    let inside = |event: &&&Json| {
        event["tid"] == slice["tid"]
            && event["pid"] == slice["pid"]
            && (t0..=t4).contains(&number(event, "ts"))
            && event["cat"] == "phase"
    };
    let phases: Vec<(&str, u64, u64)> = slices
        .iter()
        .filter(inside)
        .map(|phase| {
            let from = number(phase, "ts");
            (phase["name"].as_str().unwrap(), from, from + number(phase, "dur"))
        })
        .collect();
    let t1 = record.t1_ns.map(|at| at / 1000);
    let (t2, t3) = (micros(record.t2_ns), micros(record.t3_ns));
    let mut expected = match t1 {
        Some(t1) => vec![("queue", t0, t1), ("prefill", t1, t2)],
        None => vec![("to first token", t0, t2)],
    };
    expected.extend([("decode", t2, t3), ("response", t3, t4)]);
    assert_eq!(phases, expected, "{record:?}");
    let first: Vec<u64> = events(trace, "i")
        .into_iter()
        .filter(|event| event["tid"] == slice["tid"] && event["name"] == "first token sent")
        .map(|event| number(event, "ts"))
        .filter(|at| (t0..=t4).contains(at))
        .collect();
    let ttft = (record.ttft_s.unwrap() * 1e6) as u64;
    assert!(
        matches!(first[..], [at] if at.abs_diff(t0 + ttft) <= 1),
        "{first:?}, {record:?}"
    );
}

#[test]
fn requests_and_the_gpu_are_in_a_trace_that_viewers_open() {
    let mut scene = Scene::start(&[]);
    let overlapping = [0, 60, 120].map(|after_ms| Job { after_ms, ..JOB });
    scene.ask(&overlapping);
    let (_, records) = scene.settled();

    let address = match &scene.bench.agent.address {
        Address::Tcp(address) => address.to_string(),
        other @ Address::Unix(_) => panic!("{other:?}"),
    };
    let file = scene.bench.folder.path().join("out.json");
    let output = trace(&address, &["-o", file.to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    let notes = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        notes.contains("3 requests") && notes.contains("ui.perfetto.dev"),
        "{notes}"
    );
    let json = std::fs::read(&file).unwrap();
    let content = trace_event::check(&json).unwrap_or_else(|e| panic!("{e:#}"));
    assert_eq!(
        content.processes.iter().map(String::as_str).collect::<Vec<_>>(),
        ["GPU 0", scene.engine.as_str()]
    );
    let told: Json = serde_json::from_slice(&json).unwrap();
    assert_eq!(records.len(), 3);
    for record in &records {
        agrees(&told, record);
    }
    let lanes: std::collections::BTreeSet<u64> = events(&told, "X")
        .into_iter()
        .filter(|slice| slice["cat"] == "request")
        .map(|slice| number(slice, "tid"))
        .collect();
    assert_eq!(lanes.len(), 3, "all at once");
    // Power and utilization are the script's, while it worked and while it did not.
    let counter = |name: &str, unit: &str| -> Vec<f64> {
        let of_name = events(&told, "C")
            .into_iter()
            .filter(|event| event["name"] == name);
        of_name
            .map(|event| event["args"][unit].as_f64().unwrap())
            .collect()
    };
    let power = counter("power", "W");
    assert!(power.len() > 10, "read ten times a second: {power:?}");
    assert!(
        power
            .iter()
            .all(|watts| (IDLE_W - 1.0..=BUSY_W + 1.0).contains(watts)),
        "{power:?}"
    );
    assert!(
        power.iter().any(|watts| *watts > IDLE_W.midpoint(BUSY_W)),
        "{power:?}"
    );
    let busy = counter("utilization", "%");
    assert!(
        busy.contains(&0.0) && busy.iter().any(|percent| *percent > 50.0),
        "{busy:?}"
    );
    assert!(!counter("memory used", "MiB").is_empty());

    let one = trace(&address, &["-o", "-", "--engine", &scene.engine, "--since", "1m"]);
    trace_event::check(&one.stdout).unwrap_or_else(|e| panic!("{e:#}"));
    let none = trace(&address, &["-o", file.to_str().unwrap(), "--engine", "none"]);
    let error = String::from_utf8_lossy(&none.stderr).into_owned();
    assert!(
        !none.status.success() && error.contains("no engine none is up"),
        "{error}"
    );
    assert_eq!(std::fs::read(&file).unwrap(), json, "an error replaces nothing");
}

#[test]
fn without_an_agent_it_says_what_to_do_and_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("out.json");
    let port = infertap_tests::engines::free_port().unwrap();
    let output = trace(&format!("127.0.0.1:{port}"), &["-o", file.to_str().unwrap()]);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success() && error.contains("infertap run"),
        "{error}"
    );
    assert!(!file.exists());
}

//! `/api/v1/trace`.

use super::*;
use crate::clock::monotonic_ns;
use crate::sampler::nvml::Gauge;
use infertap_core::Observation;

/// A request that ended now.
fn just_ended(exporter: &Exporter, engine: &str) {
    let labels = labels(engine, "m", "s");
    let mut record = record(&labels, Status::Ok);
    let now = monotonic_ns();
    (record.t0_ns, record.t4_ns) = (Some(now - 2_000_000), Some(now));
    (record.t1_ns, record.t2_ns, record.t3_ns) = (None, Some(now - 1_000_000), Some(now));
    exporter.apply(&[Observation::Started(labels.clone()), finished(&labels, record)]);
}

fn named<'a>(trace: &'a Value, name: &str) -> Vec<&'a Value> {
    let events = trace["traceEvents"].as_array().expect("events");
    events.iter().filter(|event| event["name"] == name).collect()
}

fn processes(trace: &Value) -> Vec<String> {
    let names = named(trace, "process_name");
    names
        .into_iter()
        .map(|event| event["args"]["name"].as_str().expect("a name").to_owned())
        .collect()
}

#[tokio::test]
async fn requests_loads_and_gpus_of_the_last_time_are_told() {
    let server = server().await;
    let exporter = &server.exporter;
    exporter.engine_up(&Arc::new(engine("e1", 1)));
    exporter.engine_up(&Arc::new(engine("e2", 2)));
    let mut gpus = vec![gpu("0"), gpu("1")];
    for gpu in &mut gpus {
        gpu.read_at = monotonic_ns();
        gpu.gauges = vec![(Gauge::Power, 300.0)];
    }
    exporter.gpus_read(&picture(gpus), &|_| None);
    exporter.apply(&[engine_report("e1", 3)]);
    just_ended(exporter, "e1");
    just_ended(exporter, "e2");

    let answer = get(server.address, "/api/v1/trace").await;
    assert_eq!(answer.status, 200);
    let trace = answer.json();
    assert_eq!(processes(&trace), ["e1", "e2", "GPU 0", "GPU 1"]);
    assert_eq!(named(&trace, "m").len(), 2);
    assert_eq!(named(&trace, "requests")[0]["args"]["waiting"], 3);
    assert_eq!(named(&trace, "power")[0]["args"]["W"], 300.0);
    assert_eq!(trace["otherData"]["requests"], 2);

    let one = get(server.address, "/api/v1/trace?since=5s&engine=e2")
        .await
        .json();
    assert_eq!(processes(&one), ["e2"], "it is on no GPU");
}

#[tokio::test]
async fn nonsense_is_refused_with_what_would_be_right() {
    let server = server().await;
    for (query, told) in [
        ("since=soon", "since must be a time from 1s to 1h"),
        ("since=2h", "since must be a time from 1s to 1h"),
        ("until=5s", "unknown field `until`"),
        ("engine=none", "no engine none is up"),
    ] {
        let answer = get(server.address, &format!("/api/v1/trace?{query}")).await;
        assert_eq!(answer.status, 400, "{query}");
        let error = answer.json()["error"].as_str().expect("an error").to_owned();
        assert!(error.contains(told), "{query}: {error}");
    }
    let nothing = get(server.address, "/api/v1/trace?since=1h").await.json();
    assert_eq!(nothing["traceEvents"], json!([]));
}

#[test]
fn observations_are_kept_within_their_memory() {
    let config = ServerConfig {
        history_memory: crate::config::Size::bytes(0),
        ..ServerConfig::default()
    };
    let exporter = Exporter::new(&MetricsConfig::default(), &config).expect("valid");
    exporter.engine_up(&Arc::new(engine("e1", 1)));
    exporter.apply(&[engine_report("e1", 3)]);
    let trace = exporter
        .trace(Duration::from_mins(1), None)
        .expect("small enough");
    let trace: Value = serde_json::from_slice(&trace).expect("JSON");
    assert_eq!(named(&trace, "requests").len(), 0);
}

#[tokio::test]
async fn a_request_by_way_of_a_gateway_has_its_part() {
    let server = server().await;
    let labels = labels("a", "m", "chat");
    let mut record = record(&labels, Status::Ok);
    record.id = format!("{:016x}", 1);
    let now = crate::clock::monotonic_ns();
    (record.t0_ns, record.t4_ns) = (Some(now - 1000), Some(now));
    (record.t1_ns, record.t2_ns, record.t3_ns) = (None, None, None);
    server.exporter.apply(&[finished(&labels, record)]);
    server
        .exporter
        .apply(&crate::export::metrics::gateway_tests::told());
    let answer = get(server.address, "/api/v1/requests").await.json();
    let part = &answer["requests"][0]["gateway"];
    assert_eq!(
        (&part["name"], &part["before_s"]),
        (&json!("nginx-8080"), &json!(0.25))
    );
    let trace = get(server.address, "/api/v1/trace?since=1h").await.json();
    let events = trace["traceEvents"].as_array().expect("events");
    let named = |name: &str| {
        events
            .iter()
            .filter(|event| event["args"]["name"] == name)
            .count()
    };
    assert_eq!(named("nginx-8080"), 1, "{trace}");
}

/// The gateway tried another engine before, of which the trace has nothing else.
#[test]
fn a_gateway_s_exchange_is_told_whole_in_the_trace_of_one_engine() {
    let exporter = Exporter::new(&MetricsConfig::default(), &ServerConfig::default()).expect("valid");
    let now = monotonic_ns();
    let asks = [("a", 1, now - 8000, now - 6000), ("b", 2, now - 5000, now - 1000)];
    for (engine, n, from, to) in asks {
        let labels = labels(engine, "m", "chat");
        let mut record = record(&labels, Status::Ok);
        record.id = format!("{n:016x}");
        (record.t0_ns, record.t4_ns) = (Some(from), Some(to));
        (record.t1_ns, record.t2_ns, record.t3_ns) = (None, None, None);
        exporter.apply(&[finished(&labels, record)]);
        let mut joined = crate::export::metrics::gateway_tests::joined(n);
        joined.part.t0_ns = Some(now - 9000);
        (joined.part.first_byte_ns, joined.part.t4_ns) = (None, Some(now));
        exporter.apply(&[Observation::Joined(Box::new(joined))]);
    }
    for engine in [Some("b"), None] {
        let trace = exporter.trace(Duration::from_mins(1), engine).expect("small");
        let trace: Value = serde_json::from_slice(&trace).expect("JSON");
        let before = named(&trace, "before");
        assert_eq!((before.len(), &before[0]["dur"]), (1, &json!(1)), "{engine:?}");
        assert_eq!(named(&trace, "between").len(), 1, "{engine:?}");
        assert_eq!(named(&trace, "engine").len(), 2, "{engine:?}");
    }
    let trace = exporter.trace(Duration::from_mins(1), Some("b")).expect("small");
    let trace: Value = serde_json::from_slice(&trace).expect("JSON");
    assert_eq!(trace["otherData"]["requests"], 1);
    assert_eq!(processes(&trace), ["b", "nginx-8080"]);
}

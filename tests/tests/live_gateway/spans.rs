//! One request by way of nginx to a real engine as one trace, received and read by code that is not ours.

use super::*;
use infertap_tests::engines::{self, Engine, Kind, MODEL};
use serde::Deserialize;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

/// A span as the receiver prints it.
#[derive(Debug, Clone, Deserialize)]
struct Span {
    protocol: String,
    service: String,
    name: String,
    trace_id: String,
    #[serde(rename = "span_id")]
    id: String,
    parent_span_id: String,
    start: u64,
    end: u64,
    attributes: Value,
}

impl Span {
    fn holds(&self, other: &Span) -> bool {
        self.start <= other.start && other.start <= other.end && other.end <= self.end
    }
}

fn received(log: &Path) -> Vec<Span> {
    let text = std::fs::read_to_string(log).unwrap();
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("ready"), "{text}");
    lines
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect()
}

#[test]
fn a_request_by_way_of_nginx_to_a_real_engine_is_one_trace() {
    let target = std::env::var_os("INFERTAP_TEST_TARGET").expect("run live tests with `cargo xtask test`");
    let engines = engines::folder(Path::new(&target)).unwrap();
    let kind = std::env::var("INFERTAP_TEST_ENGINE").map_or(Kind::Llama, |name| name.parse().unwrap());
    let engine = Engine::start(kind, &engines, &engines::Start::default()).unwrap();
    for (protocol, streamed) in [("grpc", true), ("http", false)] {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("spans.jsonl");
        let (receiver, [grpc, http]) = engines::trace_receiver(&engines, &log).unwrap();
        let start = nginx::Start {
            upstream: vec![engine.address.port()],
            ..nginx::Start::default()
        };
        let nginx = Nginx::start(folder.path(), &start).unwrap();
        let address = if protocol == "grpc" { grpc } else { http };
        let otlp = format!("[otlp]\nendpoint = \"http://{address}\"\nprotocol = \"{protocol}\"\n");
        let config = configuration(folder.path(), &otlp);
        let agent = agent(folder.path(), &config, &nginx, &[]);
        let id = agent.wait_watching(engine.pid(), LIMIT).unwrap();
        let extra = json!({"stream": streamed, "max_tokens": 24, "ignore_eos": true, "temperature": 0});
        let mut plan = Plan::chat("traced", MODEL, "Tell me a long story.", &extra);
        let value = format!("00-{TRACE}-{PARENT}-01");
        plan.headers.push(("traceparent".to_owned(), value));
        let truth = Connection::open(&nginx.address).unwrap().exchange(&plan);
        assert_eq!(truth.outcome, Outcome::Complete, "{truth:?}");

        let mut spans = Vec::new();
        wait(&agent, "no trace was received", || {
            spans = received(&log);
            spans.iter().any(|span| span.trace_id == TRACE)
        });
        spans.retain(|span| span.trace_id == TRACE);
        assert!(spans.iter().all(|span| span.protocol == protocol), "{spans:#?}");
        let the = |service: &str, parent: &str| {
            let mut found = spans
                .iter()
                .filter(|span| span.service == service && span.parent_span_id == parent);
            let first = found
                .next()
                .unwrap_or_else(|| panic!("no span of {service}: {spans:#?}"));
            assert!(found.next().is_none(), "{spans:#?}");
            first.clone()
        };
        let gateway = the(&nginx.id, PARENT);
        let request = the(&id, &gateway.id);
        println!(
            "{protocol}: {} {} us, {} {} us, {} us before and {} us after it",
            gateway.name,
            (gateway.end - gateway.start) / 1000,
            request.name,
            (request.end - request.start) / 1000,
            (request.start - gateway.start) / 1000,
            (gateway.end - request.end) / 1000,
        );
        assert!(gateway.holds(&request), "{spans:#?}");
        assert_eq!(gateway.attributes["http.response.status_code"], 200);
        let phases: Vec<&Span> = spans
            .iter()
            .filter(|span| span.parent_span_id == request.id)
            .collect();
        assert!(
            phases.iter().any(|span| span.name == "decode") || !streamed,
            "{spans:#?}"
        );
        assert!(phases.iter().all(|span| request.holds(span)), "{spans:#?}");
        assert_eq!(spans.len(), 2 + phases.len(), "{spans:#?}");
        drop(receiver);
    }
    engine.stop();
}

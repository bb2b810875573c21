//! The shipped queries on a real Prometheus that scrapes a sample of what the agent exports.

use infertap_tests::deployed::evaluate;
use infertap_tests::prometheus::Prometheus;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// Counters that grow with every scrape; `@` stands for how much.
const COUNTERS: &[&str] = &[
    r#"llm_requests_total{model="m",scene="default",status="ok"}"#,
    r#"llm_requests_total{model="m",scene="default",status="server_error"}"#,
    r#"llm_requests_total{model="m",scene="default",status="cancelled"}"#,
    r#"llm_input_tokens_total{model="m",scene="default"}"#,
    r#"llm_output_tokens_total{model="m",scene="default"}"#,
    r#"llm_cached_input_tokens_total{model="m",scene="default"}"#,
    r#"llm_reasoning_tokens_total{model="m",scene="default"}"#,
    r#"llm_token_source_total{model="m",direction="input",source="usage"}"#,
    "infertap_events_total",
    r#"infertap_events_dropped_total{reason="ring_full"}"#,
    r#"infertap_anomalies_total{kind="not_http"}"#,
    r#"infertap_label_overflow_total{label="model"}"#,
    "infertap_cpu_seconds_total",
];
const GAUGES: &[&str] = &[
    r#"llm_requests_running{model="m",engine="e"}"#,
    r#"llm_engine_info{engine="e",model="m",kind="vllm",version="0.32.0",pid="7",container="",pod="",namespace="",gpus=""}"#,
    r#"infertap_probe_up{probe="socket"}"#,
    "infertap_open_connections",
    "infertap_memory_bytes",
    r#"infertap_build_info{version="0.1.0"}"#,
];
const HISTOGRAMS: &[&str] = &[
    "llm_ttft_seconds",
    "llm_tpot_seconds",
    "llm_itl_seconds",
    "llm_e2e_latency_seconds",
    "llm_queue_seconds",
    "llm_prefill_seconds",
    "llm_decode_seconds",
    "llm_request_input_tokens",
    "llm_request_output_tokens",
];

fn exposition(scrape: u64) -> String {
    let count = scrape * 10;
    let mut lines: Vec<String> = COUNTERS
        .iter()
        .map(|series| format!("{series} {count}"))
        .collect();
    lines.extend(GAUGES.iter().map(|series| format!("{series} 1")));
    for name in HISTOGRAMS {
        let labels = r#"model="m",scene="default""#;
        for le in ["1", "4", "+Inf"] {
            lines.push(format!("{name}_bucket{{{labels},le=\"{le}\"}} {count}"));
        }
        lines.push(format!("{name}_sum{{{labels}}} {scrape}"));
        lines.push(format!("{name}_count{{{labels}}} {count}"));
    }
    lines.push(String::new());
    lines.join("\n")
}

/// Answers every request with the next exposition until dropped.
struct Exporter {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Exporter {
    fn start() -> Exporter {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            for (scrape, stream) in listener.incoming().enumerate() {
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
                if let Ok(stream) = stream {
                    // A scraper that goes away is its own affair.
                    let _ = answer(stream, &exposition(scrape as u64));
                }
            }
        });
        Exporter {
            address,
            stop,
            thread: Some(thread),
        }
    }
}

fn answer(mut stream: TcpStream, body: &str) -> std::io::Result<()> {
    let mut head = BufReader::new(stream.try_clone()?);
    let mut line = String::new();
    while head.read_line(&mut line)? > 2 {
        line.clear();
    }
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // The thread waits in accept: wake it.
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[test]
fn prometheus_answers_every_shipped_query_and_every_panel_shows_something() {
    let exporter = Exporter::start();
    let answers = evaluate(exporter.address).unwrap_or_else(|e| panic!("{e:#}"));
    // An alert's expression answers only when it is about to fire; a panel's always.
    let empty: Vec<_> = answers
        .iter()
        .filter(|a| a.series == 0 && !a.query.origin.starts_with("rule "))
        .map(|a| &a.query)
        .collect();
    assert!(empty.is_empty(), "no answer to {empty:#?}");
    let firing = |name: &str| {
        answers
            .iter()
            .any(|a| a.query.origin == format!("rule {name}") && a.series > 0)
    };
    assert!(
        firing("InfertapErrorRateHigh") && firing("InfertapEventsDropped"),
        "half of the requests fail"
    );
    assert!(
        !firing("InfertapDown") && !firing("InfertapProbeDown"),
        "the exporter is up"
    );
}

#[test]
fn a_query_that_prometheus_refuses_is_an_error_that_says_why() {
    let exporter = Exporter::start();
    let server = Prometheus::start(exporter.address).unwrap_or_else(|e| panic!("{e:#}"));
    let error = server
        .query("sum by (model (up)")
        .expect_err("no PromQL")
        .to_string();
    assert!(error.contains("parse error"), "{error}");
    let up = server
        .query(r#"up{job="infertap"}"#)
        .unwrap_or_else(|e| panic!("{e:#}"));
    assert_eq!(up.len(), 1);
    assert_eq!(up[0].labels["instance"], exporter.address.to_string());
}

//! The server over real connections, with a client that writes and reads bytes: what the paths answer.

mod limits;
mod trace;
mod usage;

use super::*;
use crate::export::gpus::tests::{gpu, picture};
use crate::export::{
    MetricsConfig,
    metrics::tests::{
        diagnosis::capacity, engine, engines::engine_report, finished, labels, record, request,
    },
};
use infertap_core::Status;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::oneshot,
    task::JoinHandle,
};

struct Server {
    exporter: Arc<Exporter>,
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

async fn server_with(limits: Limits) -> Server {
    let exporter = Exporter::new(&MetricsConfig::default(), &ServerConfig::default()).expect("valid");
    let listener = bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
        .await
        .expect("a free port");
    let address = listener.local_addr().expect("bound");
    let (stop, stopped) = oneshot::channel();
    let shutdown = async move {
        let _ = stopped.await;
    };
    let task = tokio::spawn(serve(Arc::clone(&exporter), listener, shutdown, limits));
    Server {
        exporter,
        address,
        stop,
        task,
    }
}

async fn server() -> Server {
    server_with(LIMITS).await
}

struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).expect("JSON")
    }

    fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines
            .into_iter()
            .find(|(n, _)| n.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    }
}

fn parse(bytes: &[u8]) -> Answer {
    let text = String::from_utf8(bytes.to_vec()).expect("UTF-8");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    let status = head
        .split(' ')
        .nth(1)
        .expect("a status")
        .parse()
        .expect("a number");
    Answer {
        status,
        head: head.to_owned(),
        body: body.to_owned(),
    }
}

async fn send(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).await.expect("connects");
    // The server may have answered and closed before it has read all.
    let _ = stream.write_all(bytes).await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    answer
}

async fn ask(address: SocketAddr, method: &str, path: &str, headers: &str) -> Answer {
    let request = format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n");
    parse(&send(address, request.as_bytes()).await)
}

async fn get(address: SocketAddr, path: &str) -> Answer {
    ask(address, "GET", path, "").await
}

#[tokio::test]
async fn health_readiness_and_index() {
    let server = server().await;
    let address = server.address;
    assert_eq!(get(address, "/healthz").await.json(), json!({"status": "alive"}));
    let starting = get(address, "/readyz").await;
    assert_eq!(starting.status, 503);
    assert_eq!(
        starting.json(),
        json!({"ready": false, "reasons": ["starting: probes are not attached yet"]})
    );
    server
        .exporter
        .set_ready(true, vec!["tls: unsupported".to_owned()]);
    let ready = get(address, "/readyz").await;
    assert_eq!(ready.status, 200);
    assert_eq!(
        ready.json(),
        json!({"ready": true, "reasons": ["tls: unsupported"]})
    );
    let index = get(address, "/").await.body;
    for path in [
        "/metrics",
        "/healthz",
        "/readyz",
        "/api/v1/budgets",
        "/api/v1/engines",
        "/api/v1/requests",
    ] {
        assert!(index.contains(path), "{path}");
        assert_ne!(get(address, path).await.status, 404, "{path}");
    }
}

#[tokio::test]
async fn metrics_come_in_the_format_asked_for() {
    let server = server().await;
    server
        .exporter
        .apply(&request(&labels("e", "m", "s"), Status::Ok));
    let text = get(server.address, "/metrics").await;
    assert_eq!(text.status, 200);
    assert_eq!(
        text.header("content-type"),
        Some("text/plain; version=0.0.4; charset=utf-8")
    );
    assert!(text.body.contains("# TYPE llm_requests_total counter\n"));
    assert!(!text.body.contains("trace_id"));

    let accept = "Accept: application/openmetrics-text;version=1.0.0;q=0.5\r\nAccept: text/plain;version=0.0.4;q=0.2\r\n";
    let open = ask(server.address, "GET", "/metrics", accept).await;
    assert_eq!(
        open.header("content-type"),
        Some("application/openmetrics-text; version=1.0.0; charset=utf-8")
    );
    assert!(open.body.contains("# TYPE llm_requests counter\n"));
    assert!(open.body.contains(r#"llm_requests_total{model="m",scene="s",status="ok"} 1.0 # {trace_id="4bf92f3577b34da6a3ce929d0e0e4736"} 1.0 "#));
    assert!(open.body.ends_with("# EOF\n"));

    let head = ask(server.address, "HEAD", "/metrics", "").await;
    assert_eq!((head.status, head.body.as_str()), (200, ""));
}

#[tokio::test]
async fn gpus_are_told_with_the_engines_on_them() {
    let server = server().await;
    assert_eq!(
        get(server.address, "/api/v1/gpus").await.json(),
        json!({"nvml": {"state": "off", "driver_version": null, "nvml_version": null}, "gpus": []})
    );
    server.exporter.engine_up(&Arc::new(engine("vllm-8000", 100)));
    let view = picture(vec![gpu("0"), gpu("1")]);
    let of = |pid| (pid == 100).then(|| "vllm-8000".into());
    server.exporter.gpus_read(&view, &of);
    let gpus = get(server.address, "/api/v1/gpus").await.json();
    assert_eq!(gpus["gpus"][1]["processes"][0]["engine"], "vllm-8000");
    let engines = get(server.address, "/api/v1/engines").await.json();
    assert_eq!(engines["engines"][0]["gpus"], json!(["0", "1"]));
    let metrics = get(server.address, "/metrics").await.body;
    for line in [
        r#"gpu_process_memory_bytes{engine="vllm-8000",gpu="1"} 1000"#,
        r#"gpu_process_memory_bytes{engine="other",gpu="0"} 570"#,
        r#"gpu_xid_errors_total{gpu="0",uuid="GPU-0",xid="79"} 1"#,
        r#"gpus="0,1""#,
    ] {
        assert!(metrics.contains(line), "{line}");
    }
    server.exporter.gpus_read(&picture(Vec::new()), &of);
    let metrics = get(server.address, "/metrics").await.body;
    assert!(
        !metrics.contains("\ngpu_") && metrics.contains(r#"gpus="""#),
        "{metrics}"
    );
}

#[tokio::test]
async fn budgets_are_told_as_they_stand() {
    let server = server().await;
    let empty = get(server.address, "/api/v1/budgets").await.json();
    assert_eq!(empty, json!({"budgets": []}));
    let config = crate::budget::BudgetConfig {
        name: "b".to_owned(),
        limit: 8.0,
        ..Default::default()
    };
    let budgets = crate::budget::budgets(&[config]).expect("valid");
    server.exporter.budgets().configure(budgets);
    server
        .exporter
        .apply(&request(&labels("e", "m", "default"), Status::Ok));
    let told = get(server.address, "/api/v1/budgets").await.json();
    let budget = &told["budgets"][0];
    assert_eq!(budget["name"], "b");
    assert_eq!(budget["used"], 44.0, "38 of input and 6 of output");
    assert_eq!(budget["ratio"], 5.5);
    assert!(budget["exhausted_at"].is_number(), "{budget}");
    assert!(
        budget["period_rate"].is_null(),
        "not measured for long enough: {budget}"
    );
}

#[tokio::test]
async fn engines_come_and_go() {
    let server = server().await;
    assert_eq!(
        get(server.address, "/api/v1/engines").await.json(),
        json!({"engines": [], "gateways": []})
    );
    server.exporter.engine_up(&Arc::new(engine("vllm-8000", 7)));
    server.exporter.engine_up(&Arc::new(engine("llama_cpp-8080", 8)));
    server.exporter.engine_coverage("vllm-8000", "socket", true);
    server.exporter.engine_coverage("vllm-8000", "tls", false);
    server
        .exporter
        .apply(&[engine_report("vllm-8000", 3), engine_report("gone", 1)]);
    server.exporter.engine_up(&Arc::new(engine("vllm-8000", 9)));
    let engines = get(server.address, "/api/v1/engines").await.json();
    assert_eq!(engines["engines"][0]["id"], "llama_cpp-8080");
    assert_eq!(engines["engines"][0]["load"], json!(null));
    assert_eq!(
        engines["engines"][1],
        json!({
            "id": "vllm-8000", "kind": "llama_cpp", "model": "smollm2", "version": "b6000", "pid": 9, "pids": [9],
            "ports": [8080], "container": null, "pod_uid": null, "coverage": {"socket": true, "tls": false},
            "load": {"running": 2, "waiting": 3, "kv_cache_usage": 0.25},
            "gpus": [], "capacity": null,
            "pressure": null, "cuda": null,
        })
    );
    server
        .exporter
        .apply(&[capacity("vllm-8000", Some(4)), capacity("not there", None)]);
    let engines = get(server.address, "/api/v1/engines").await.json();
    assert_eq!(
        engines["engines"][1]["capacity"],
        json!({
            "knee": {"concurrency": 4, "free_up_to": 3, "basis": "queue", "below_s": 0.001, "at_s": 0.5},
            "by_concurrency": [],
        })
    );
    server.exporter.engine_down("vllm-8000");
    server.exporter.engine_coverage("vllm-8000", "socket", true);
    let engines = get(server.address, "/api/v1/engines").await.json();
    assert_eq!(engines["engines"].as_array().map(Vec::len), Some(1));
    let metrics = get(server.address, "/metrics").await.body;
    assert!(!metrics.contains("vllm-8000"), "what is gone has no series");
}

#[tokio::test]
async fn requests_are_newest_first_and_filtered() {
    let server = server().await;
    for (id, engine, model, scene, status) in [
        ("1", "a", "m", "chat", Status::Ok),
        ("2", "a", "n", "chat", Status::Cancelled),
        ("3", "b", "m", "rag", Status::Ok),
    ] {
        let labels = labels(engine, model, scene);
        let mut record = record(&labels, status);
        record.id = id.into();
        server.exporter.apply(&[finished(&labels, record)]);
    }
    for (query, expected) in [
        ("", vec!["3", "2", "1"]),
        ("?limit=2", vec!["3", "2"]),
        ("?model=m", vec!["3", "1"]),
        ("?engine=a&model=m", vec!["1"]),
        ("?scene=rag", vec!["3"]),
        ("?status=cancelled", vec!["2"]),
        ("?model=m%2Fx", vec![]),
    ] {
        let answer = get(server.address, &format!("/api/v1/requests{query}"))
            .await
            .json();
        let requests = answer["requests"].as_array().expect("a list");
        let ids: Vec<&str> = requests
            .iter()
            .filter_map(|request| request["id"].as_str())
            .collect();
        assert_eq!(ids, expected, "{query}");
    }
    let answer = get(server.address, "/api/v1/requests?limit=1").await.json();
    assert_eq!(
        answer["requests"][0]["queue_s"],
        Value::Null,
        "what is unknown is null"
    );
    assert_eq!(answer["requests"][0]["ttft_s"], 0.25);
    assert!(answer["requests"][0].get("gateway").is_none());
}

#[tokio::test]
async fn bad_requests_are_told_what_is_wrong() {
    let server = server().await;
    for (method, path, status, error) in [
        (
            "GET",
            "/api/v1/requests?limit=0",
            400,
            "limit must be a number from 1 to 10000",
        ),
        (
            "GET",
            "/api/v1/requests?limit=-1",
            400,
            "limit must be a number from 1 to 10000",
        ),
        (
            "GET",
            "/api/v1/requests?limit=10001",
            400,
            "limit must be a number from 1 to 10000",
        ),
        (
            "GET",
            "/api/v1/requests?limit=",
            400,
            "limit must be a number from 1 to 10000",
        ),
        (
            "GET",
            "/api/v1/requests?limit=99999999999999999999999",
            400,
            "limit must be a number from 1 to 10000",
        ),
        (
            "GET",
            "/api/v1/requests?status=fine",
            400,
            "status must be one of ok, client_error, server_error, cancelled, timeout, incomplete",
        ),
        (
            "GET",
            "/api/v1/requests?user=me",
            400,
            "unknown field `user`, expected one of `limit`, `engine`, `model`, `scene`, `status`",
        ),
        (
            "GET",
            "/api/v1/requests?limit=1&limit=2",
            400,
            "duplicate field `limit`",
        ),
        (
            "GET",
            "/nothing",
            404,
            "no such path: /nothing; / lists what is here",
        ),
        ("POST", "/metrics", 405, "POST is not allowed; use GET"),
        (
            "DELETE",
            "/api/v1/requests",
            405,
            "DELETE is not allowed; use GET",
        ),
    ] {
        let answer = ask(server.address, method, path, "").await;
        assert_eq!(answer.status, status, "{path}");
        assert_eq!(answer.header("content-type"), Some("application/json"), "{path}");
        let told = answer.json()["error"].as_str().expect("an error").to_owned();
        assert!(told.contains(error), "{path}: {told}");
    }
    let refused = ask(server.address, "POST", "/metrics", "").await;
    assert_eq!(refused.header("allow"), Some("GET,HEAD"));
}

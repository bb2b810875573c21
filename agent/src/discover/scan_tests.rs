//! Tests of discovery as a whole, on hosts made of files: the process trees of real servers, as they come and go.

use super::config::DiscoverConfig;
use super::fake::FakeHost;
use super::found::{FoundEngine, Part, Scan, diff};
use expect_test::{Expect, expect};
use std::fmt::Write as _;
use std::fs;

pub(super) const PYTHON: &str = "/v/bin/python";
pub(super) const ID: &str = "3f4e5a6b7c8d9e0f3f4e5a6b7c8d9e0f3f4e5a6b7c8d9e0f3f4e5a6b7c8d9e0f";

fn line(engine: &FoundEngine) -> String {
    let info = &engine.info;
    let processes: Vec<String> = engine
        .processes
        .iter()
        .map(|p| {
            format!(
                "{}{}",
                p.pid,
                match p.part {
                    Part::Server => "s",
                    Part::Worker => "w",
                    Part::Helper => "h",
                }
            )
        })
        .collect();
    let mut line = format!(
        "{} {} pid={} ports={:?} [{}] model={} version={}",
        info.id,
        info.kind.as_str(),
        info.pid,
        info.ports,
        processes.join(" "),
        info.model.as_deref().unwrap_or("-"),
        info.version.as_deref().unwrap_or("-")
    );
    for (name, value) in [("container", &info.container), ("pod", &info.pod_uid)] {
        if let Some(value) = value {
            write!(line, " {name}={}", &value[..8]).expect("String");
        }
    }
    for note in &engine.notes {
        write!(line, "\n  {note}").expect("String");
    }
    line
}

pub(super) fn show(scan: &Scan) -> String {
    let engines = scan.engines.iter().map(line);
    engines
        .chain(scan.problems.iter().map(|problem| format!("! {problem}")))
        .collect::<Vec<_>>()
        .join("\n")
}

pub(super) fn check(host: &FakeHost, discover: DiscoverConfig, expected: &Expect) {
    expected.assert_eq(&show(&host.scanner(discover).scan()));
}

/// API server, resource tracker, engine core and worker, as vLLM 0.32 has them.
pub(super) fn vllm(host: &FakeHost, pid: u32, port: u16, netns: u64) {
    let site = "/v/lib/python3.11/site-packages";
    let options = ["--port", &port.to_string(), "--served-model-name", "smollm2"].map(str::to_owned);
    let mut argv = vec![PYTHON, "/v/bin/vllm", "serve", "/models/m"];
    argv.extend(options.iter().map(String::as_str));
    host.process(pid, 1, u64::from(pid), &argv)
        .comm("vllm")
        .exe("/usr/bin/python3.11")
        .netns(netns)
        .maps(&["/usr/bin/python3.11", &format!("{site}/torch/lib/libtorch.so")])
        .listen(10, u64::from(pid) * 10, port)
        .directory(&format!("{site}/vllm-0.32.0+cpu.dist-info"))
        .directory(&format!("{site}/vllm_flash_attn-9.9.dist-info"));
    host.process(
        pid + 1,
        pid,
        u64::from(pid),
        &[
            PYTHON,
            "-c",
            "from multiprocessing.resource_tracker import main;main(32)",
        ],
    )
    .exe("/usr/bin/python3.11");
    host.process(pid + 2, pid, u64::from(pid), &[PYTHON])
        .exe("/usr/bin/python3.11")
        .title("VLLM::EngineCore");
    host.process(pid + 3, pid + 2, u64::from(pid), &[PYTHON])
        .exe("/usr/bin/python3.11")
        .title("VLLM::Worker")
        .listen(20, u64::from(pid) * 10 + 1, 33_000 + pid as u16);
}

#[test]
fn vllm_is_one_engine() {
    let host = FakeHost::new(1000);
    host.process(1, 0, 0, &["/sbin/init"]);
    vllm(&host, 100, 8000, 7);
    check(
        &host,
        DiscoverConfig::default(),
        &expect![
            "vllm-8000 vllm pid=100 ports=[8000] [100s 101h 102w 103w] model=smollm2 version=0.32.0+cpu"
        ],
    );
}

#[test]
fn several_api_servers_are_one_engine_and_two_servers_are_two() {
    let host = FakeHost::new(1000);
    vllm(&host, 100, 8000, 7);
    vllm(&host, 200, 8001, 7);
    for pid in [210, 211] {
        host.process(pid, 200, 200, &[PYTHON])
            .exe("/usr/bin/python3.11")
            .title("VLLM::APIServer_0")
            .netns(7)
            .listen(10, 2000, 8001);
    }
    check(
        &host,
        DiscoverConfig::default(),
        &expect![[r#"
        vllm-8000 vllm pid=100 ports=[8000] [100s 101h 102w 103w] model=smollm2 version=0.32.0+cpu
        vllm-8001 vllm pid=200 ports=[8001] [200s 201h 202w 203w 210s 211s] model=smollm2 version=0.32.0+cpu"#]],
    );
}

#[test]
fn two_namespaces_may_share_a_port() {
    let host = FakeHost::new(1000);
    vllm(&host, 200, 8000, 8);
    vllm(&host, 100, 8000, 7);
    let mut scanner = host.scanner(DiscoverConfig::default());
    let ids = |scan: &Scan| {
        scan.engines
            .iter()
            .map(|e| format!("{}={}", e.info.id, e.root))
            .collect::<Vec<_>>()
    };
    let first = scanner.scan();
    assert_eq!(ids(&first), ["vllm-8000=100", "vllm-8000-2=200"]);
    // The older one restarts: it gets its own id again, and the other keeps its own.
    for pid in 100..104 {
        host.end(pid);
    }
    let between = scanner.scan();
    assert_eq!(ids(&between), ["vllm-8000-2=200"]);
    vllm(&host, 300, 8000, 7);
    let last = scanner.scan();
    assert_eq!(ids(&last), ["vllm-8000=300", "vllm-8000-2=200"]);
    let changes = |old: &Scan, new: &Scan| {
        diff(&old.engines, &new.engines)
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
    };
    assert_eq!(changes(&first, &between), ["vllm-8000 is gone"]);
    assert_eq!(changes(&between, &last), ["vllm-8000 is here (pid 300)"]);
    assert_eq!(
        changes(&first, &last),
        ["vllm-8000 is gone", "vllm-8000 is here (pid 300)"]
    );
    assert!(changes(&last, &scanner.scan()).is_empty());
}

#[test]
fn a_restart_within_one_look_keeps_the_id() {
    let host = FakeHost::new(1000);
    vllm(&host, 100, 8000, 7);
    let mut scanner = host.scanner(DiscoverConfig::default());
    scanner.scan();
    for pid in 100..104 {
        host.end(pid);
    }
    vllm(&host, 300, 8000, 7);
    assert_eq!(&*scanner.scan().engines[0].info.id, "vllm-8000");
}

#[test]
fn llama_cpp_in_python_is_found_when_it_listens() {
    let host = FakeHost::new(1000);
    let site = "/v/lib/python3.11/site-packages";
    let process = host
        .process(50, 1, 990, &[PYTHON, "serve.py", "/models/m.gguf"])
        .maps(&[&format!("{site}/xllamacpp/xllamacpp.abi3.so")])
        .directory(&format!("{site}/xllamacpp-2026.10.11549.dist-info"));
    let mut scanner = host.scanner(DiscoverConfig::default());
    assert!(scanner.scan().engines.is_empty());
    let maps = fs::read_to_string(process.path("maps")).expect("read")
        + "7f00-7f01 r--s 00000000 fe:00 1 /models/m.gguf\n";
    process.file("maps", maps).listen(5, 500, 8080);
    let scan = scanner.scan();
    expect!["llama-cpp-8080 llama_cpp pid=50 ports=[8080] [50s] model=/models/m.gguf version=2026.10.11549"]
        .assert_eq(&show(&scan));
}

#[test]
fn a_server_that_loads_for_minutes_is_found_within_seconds_of_listening() {
    let host = FakeHost::new(1000);
    let process = host
        .process(50, 1, 700, &[PYTHON, "serve.py"])
        .maps(&["/x/libllama.so"]);
    let mut scanner = host.scanner(DiscoverConfig::default());
    assert!(scanner.scan().engines.is_empty());
    process.listen(5, 500, 8080);
    host.set_uptime(1006);
    assert_eq!(scanner.scan().engines.len(), 1);
    // One that is older is looked at once a minute, or when something is said about it.
    let process = host
        .process(60, 1, 1, &[PYTHON, "serve.py"])
        .maps(&["/x/libllama.so"]);
    assert_eq!(scanner.scan().engines.len(), 1);
    process.listen(5, 600, 8081);
    host.set_uptime(1016);
    assert_eq!(scanner.scan().engines.len(), 1);
    scanner.touch(60);
    assert_eq!(scanner.scan().engines.len(), 2);
}

#[test]
fn a_shell_that_executes_a_server_is_looked_at_again() {
    let host = FakeHost::new(10_000);
    host.process(50, 1, 1, &["/bin/sh", "start.sh"]);
    let mut scanner = host.scanner(DiscoverConfig::default());
    assert!(scanner.scan().engines.is_empty());
    host.process(50, 1, 1, &["/app/llama-server", "--port", "8090", "--alias", "m"]);
    expect![[r#"
        llama-cpp-8090 llama_cpp pid=50 ports=[] [50s] model=m version=-
          it listens on no TCP port (yet)"#]]
    .assert_eq(&show(&scanner.scan()));
}

#[test]
fn the_other_servers() {
    let host = FakeHost::new(1000);
    host.process(
        100,
        1,
        100,
        &[
            "python3",
            "-m",
            "sglang.launch_server",
            "--model-path",
            "org/m",
            "--port",
            "30001",
        ],
    )
    .listen(3, 1, 30_001)
    .maps(&["/usr/lib/python3/dist-packages/torch/x.so"])
    .directory("/usr/lib/python3/dist-packages/sglang-0.5.23.dist-info");
    host.process(101, 100, 100, &["python3"])
        .title("sglang::scheduler_TP0");
    host.process(102, 100, 100, &["python3"])
        .title("sglang::detokenizer");

    host.process(200, 1, 200, &["/usr/local/bin/ollama", "serve"])
        .listen(3, 2, 11_434);
    host.process(
        201,
        200,
        200,
        &[
            "/usr/local/bin/ollama",
            "runner",
            "--model",
            "/b",
            "--port",
            "40001",
        ],
    )
    .listen(3, 3, 40_001)
    .maps(&["/x/libllama.so"]);

    host.process(
        300,
        1,
        300,
        &["text-generation-launcher", "--model-id", "org/tgi"],
    );
    host.process(301, 300, 300, &["text-generation-router", "--port", "80"])
        .listen(3, 4, 80);
    host.process(
        302,
        300,
        300,
        &[
            "/opt/conda/bin/python3",
            "/opt/conda/bin/text-generation-server",
            "serve",
            "org/tgi",
        ],
    )
    .directory("/opt/conda/lib/python3.11/site-packages/text_generation_server-2.0.5.dist-info");

    host.process(
        400,
        1,
        400,
        &["/opt/tritonserver/bin/tritonserver", "--model-repository=/m"],
    )
    .listen(3, 5, 8000)
    .listen(4, 6, 8001)
    .listen(5, 7, 8002);
    host.process(
        401,
        400,
        400,
        &["/opt/tritonserver/backends/python/triton_python_backend_stub"],
    );

    host.process(
        500,
        1,
        500,
        &[
            "/usr/bin/python3",
            "/usr/local/bin/trtllm-serve",
            "org/trt",
            "--port",
            "8100",
        ],
    )
    .listen(3, 8, 8100);
    host.process(600, 1, 600, &["/app/llama-server", "-m", "/models/q.gguf"]);
    host.process(
        700,
        1,
        700,
        &[
            "/usr/bin/python3",
            "/usr/bin/lmdeploy",
            "serve",
            "api_server",
            "org/lm",
        ],
    )
    .listen(3, 9, 23_333);
    check(
        &host,
        DiscoverConfig::default(),
        &expect![[r#"
        generic-23333 generic pid=700 ports=[23333] [700s] model=- version=-
        llama-cpp-8080 llama_cpp pid=600 ports=[] [600s] model=/models/q.gguf version=-
          it listens on no TCP port (yet)
        ollama-11434 ollama pid=200 ports=[11434] [200s 201w] model=- version=-
        sglang-30001 sglang pid=100 ports=[30001] [100s 101w 102w] model=org/m version=0.5.23
        tensorrt-llm-8000 tensorrt_llm pid=400 ports=[8000, 8001, 8002] [400s 401h] model=- version=-
        tensorrt-llm-8100 tensorrt_llm pid=500 ports=[8100] [500s] model=org/trt version=-
        tgi-80 tgi pid=301 ports=[80] [300s 301s 302w] model=org/tgi version=2.0.5"#]],
    );
}

#[test]
fn containers_are_told() {
    let host = FakeHost::new(1000);
    let pod = "6f3b1a2c_9d8e_4f70_a1b2_c3d4e5f60718";
    for (pid, cgroup) in [
        (
            100,
            format!(
                "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{pod}.slice/cri-containerd-{ID}.scope\n"
            ),
        ),
        (200, format!("4:memory:/docker/{ID}\n0::/\n")),
    ] {
        host.process(pid, 1, 100, &["/app/llama-server"])
            .netns(u64::from(pid))
            .listen(3, u64::from(pid), 8080)
            .file("cgroup", cgroup);
    }
    check(
        &host,
        DiscoverConfig::default(),
        &expect![[r#"
        llama-cpp-8080 llama_cpp pid=100 ports=[8080] [100s] model=- version=- container=3f4e5a6b pod=6f3b1a2c
        llama-cpp-8080-2 llama_cpp pid=200 ports=[8080] [200s] model=- version=- container=3f4e5a6b"#]],
    );
}

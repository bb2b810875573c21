//! Tests of discovery as a whole, on hosts made of files: the process trees of real servers, and hostile ones.

use super::config::{DiscoverConfig, RuleConfig};
use super::fake::FakeHost;
use super::found::{FoundEngine, Part, Scan, diff};
use expect_test::{Expect, expect};
use std::fs;

const PYTHON: &str = "/v/bin/python";
const ID: &str = "3f4e5a6b7c8d9e0f3f4e5a6b7c8d9e0f3f4e5a6b7c8d9e0f3f4e5a6b7c8d9e0f";

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
            line.push_str(&format!(" {name}={}", &value[..8]));
        }
    }
    for note in &engine.notes {
        line.push_str(&format!("\n  {note}"));
    }
    line
}

fn show(scan: &Scan) -> String {
    let engines = scan.engines.iter().map(line);
    engines
        .chain(scan.problems.iter().map(|problem| format!("! {problem}")))
        .collect::<Vec<_>>()
        .join("\n")
}

fn check(host: &FakeHost, discover: DiscoverConfig, expected: &Expect) {
    expected.assert_eq(&show(&host.scanner(discover).scan()));
}

/// API server, resource tracker, engine core and worker, as vLLM 0.32 has them.
fn vllm(host: &FakeHost, pid: u32, port: u16, netns: u64) {
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

#[test]
fn what_the_operator_names_is_found() {
    let host = FakeHost::new(10_000);
    host.process(1, 0, 0, &["/sbin/init"]);
    host.process(50, 1, 1, &["/opt/unheard-of", "--model", "m"])
        .listen(3, 1, 9000);
    host.process(51, 50, 1, &["/opt/unheard-of-worker"])
        .listen(3, 1, 9000);
    host.process(60, 1, 1, &["/opt/other"]).listen(3, 2, 9001);
    host.process(70, 1, 1, &["/opt/third"]).comm("my) (name");
    host.process(80, 1, 1, &["/opt/proxy"])
        .comm("docker-proxy")
        .listen(3, 3, 9000);
    let discover = DiscoverConfig {
        pids: vec![60, 999],
        ports: vec![9000, 9999],
        comms: vec!["my*".to_owned(), "nobody".to_owned()],
        ..DiscoverConfig::default()
    };
    check(
        &host,
        discover,
        &expect![[r#"
        generic-9000 generic pid=50 ports=[9000] [50s 51s] model=m version=-
        generic-9001 generic pid=60 ports=[9001] [60s] model=- version=-
        generic-pid70 generic pid=70 ports=[] [70s] model=- version=-
          it listens on no TCP port (yet)
        ! pid 999: there is no such process (any more)
        ! comm nobody: no process has this name
        ! port 9999: nobody listens on it"#]],
    );
}

#[test]
fn a_named_port_is_found_later_and_again() {
    let host = FakeHost::new(10_000);
    let process = host.process(50, 1, 1, &["/opt/unheard-of"]);
    let mut scanner = host.scanner(DiscoverConfig {
        ports: vec![9000],
        ..DiscoverConfig::default()
    });
    assert!(scanner.scan().engines.is_empty());
    process.listen(3, 1, 9000);
    assert_eq!(scanner.scan().engines[0].root, 50);
    assert_eq!(scanner.scan().engines[0].root, 50);
    host.end(50);
    assert!(scanner.scan().engines.is_empty());
}

#[test]
fn a_named_wrapper_gives_way_to_the_engine_that_it_starts() {
    let host = FakeHost::new(1000);
    host.process(90, 1, 1, &["/usr/bin/uv", "run", "vllm"]);
    vllm(&host, 100, 8000, 7);
    host.process(100, 90, 100, &[PYTHON, "/v/bin/vllm", "serve", "m"])
        .comm("vllm");
    let scan = host
        .scanner(DiscoverConfig {
            pids: vec![90],
            ..DiscoverConfig::default()
        })
        .scan();
    assert_eq!(scan.engines.iter().map(|e| e.root).collect::<Vec<_>>(), [100]);
}

#[test]
fn configured_rules_name_kind_and_model() {
    let host = FakeHost::new(1000);
    host.process(50, 1, 1, &[PYTHON, "-m", "my_server.main"])
        .listen(3, 1, 9000);
    let rule = RuleConfig {
        name: "mine".to_owned(),
        kind: infertap_core::EngineKind::Sglang,
        cmdline: vec!["-m my_server*".to_owned()],
        model: Some("house-model".to_owned()),
        ..RuleConfig::default()
    };
    let discover = DiscoverConfig {
        rule: vec![rule],
        builtin_rules: false,
        ..DiscoverConfig::default()
    };
    check(
        &host,
        discover,
        &expect!["sglang-9000 sglang pid=50 ports=[9000] [50s] model=house-model version=-"],
    );
}

#[test]
fn a_launcher_whose_child_serves_is_one_server() {
    let host = FakeHost::new(1000);
    host.process(50, 1, 1, &["/app/llama-server"]);
    host.process(51, 50, 1, &["/app/child"]).listen(3, 1, 8080);
    check(
        &host,
        DiscoverConfig::default(),
        &expect!["llama-cpp-8080 llama_cpp pid=51 ports=[8080] [50s 51s] model=- version=-"],
    );
}

#[test]
fn hostile_and_vanishing_processes_are_no_reason_to_stop() {
    let host = FakeHost::new(1000);
    vllm(&host, 100, 8000, 7);
    host.process(2, 3, 1, &["a"]).comm("circle");
    host.process(3, 2, 1, &["b"]).comm("circle");
    host.process(4, 4, 1, &["c"]).comm(") S 1 1 (");
    host.process(5, 1, 1, &["x"])
        .cmdline(&[0xff, 0xfe, 0, b'\n', 0])
        .comm("new\nline");
    host.process(6, 1, 1, &["x"]).cmdline(&vec![b'x'; 5_000_000]);
    host.process(7, 1, 1, &["x"]).file("stat", "");
    host.process(8, 1, 1, &["x"]).file("stat", "8 (x S 1");
    host.process(9, 1, 1, &["vllm"])
        .cmdline(b"vllm\0serve\0--served-model-name")
        .file("cgroup", [0xff; 9])
        .file("maps", [0xfe; 100_000]);
    host.process(10, 1, 1, &["x"])
        .link("fd/3", "socket:[99999999999999999999999]")
        .link("fd/4", "socket:[")
        .link("ns/net", "net:[x]");
    fs::create_dir(host.root().join("11")).expect("mkdir");
    fs::create_dir(host.root().join("4294967296")).expect("mkdir");
    fs::write(host.root().join("12"), "a file").expect("write");
    check(
        &host,
        DiscoverConfig::default(),
        &expect![[r#"
            vllm-8000 vllm pid=100 ports=[8000] [100s 101h 102w 103w] model=smollm2 version=0.32.0+cpu
            vllm-8000-2 vllm pid=9 ports=[] [9s] model=- version=-
              it listens on no TCP port (yet)"#]],
    );
}

#[test]
fn versions_come_from_names_that_are_versions_below_the_process_root() {
    let host = FakeHost::new(1000);
    host.process(50, 1, 1, &["/v/bin/python", "/v/bin/vllm", "serve", "m"])
        .maps(&["/v/../../../site-packages/x.so"])
        .directory("/v/lib/python3.12/site-packages/vllm-<script>.dist-info")
        .directory(&format!(
            "/v/lib/python3.12/site-packages/vllm-1{}.dist-info",
            "0".repeat(100)
        ))
        .directory("/v/lib/python3.12/site-packages/VLLM-0.9.1.dist-info");
    assert_eq!(
        host.scanner(DiscoverConfig::default()).scan().engines[0]
            .info
            .version
            .as_deref(),
        Some("0.9.1")
    );
}

#[test]
fn a_root_that_is_no_procfs_is_said() {
    let mut scanner = super::Scanner::new(super::ScannerConfig {
        root: "/nonexistent".into(),
        discover: DiscoverConfig::default(),
        exclude: None,
    });
    let scan = scanner.scan();
    assert!(
        scan.engines.is_empty()
            && scan.problems[0]
                .to_string()
                .contains("/nonexistent can't be listed")
    );
}

#[test]
fn the_report_tells_what_would_be_probed_and_what_not() {
    let host = FakeHost::new(1000);
    vllm(&host, 100, 8000, 7);
    host.process(
        100,
        1,
        100,
        &[PYTHON, "/v/bin/vllm", "serve", "m", "--ssl-keyfile", "k"],
    )
    .comm("vllm")
    .netns(7)
    .maps(&["/usr/lib/libssl.so.3", "/usr/lib/libc.so.6"])
    .file("cgroup", format!("0::/system.slice/docker-{ID}.scope\n"))
    .link("fd/30", "anon_inode:[io_uring]");
    let mut scanner = host.scanner(DiscoverConfig {
        ports: vec![5],
        ..DiscoverConfig::default()
    });
    let scan = scanner.scan();
    let report = super::report::report(scanner.host(), &scan, crate::config::SocketProbe::Tracepoint);
    let mut text = Vec::new();
    super::report::print(&report, &mut text).expect("Vec");
    expect![[r#"
        vllm-8000: vllm 0.32.0+cpu, pid 100
          found by    rule vllm-serve
          model       m
          listens on  8000
          container   3f4e5a6b7c8d9e0f3f4e5a6b7c8d9e0f3f4e5a6b7c8d9e0f3f4e5a6b7c8d9e0f
          would probe reads and writes on the stream sockets of these processes, at system call tracepoints:
                          100 vllm            server (rule vllm-serve): listens on 8000, 0 TCP, 0 Unix
                          101 python          helper (descends from 100): 0 TCP, 0 Unix
                          102 VLLM::EngineCor worker (rule vllm-worker): 0 TCP, 0 Unix
                          103 VLLM::Worker    worker (rule vllm-worker): listens on 33100, 0 TCP, 0 Unix
          not seen    it was started with TLS options: bytes on encrypted connections are not understood
                      whatever pid 100 may read or write through its io_uring: no system call is made for it (uvloop uses one for polling only, which loses nothing)
          tls         /usr/lib/libssl.so.3
                      (loaded, not probed: encrypted connections are counted, not understood)
        note: port 5: nobody listens on it
    "#]].assert_eq(&String::from_utf8(text).expect("text"));
    let json = serde_json::to_value(&report).expect("JSON");
    assert_eq!(json["engines"][0]["id"], "vllm-8000");
    assert_eq!(json["engines"][0]["processes"][0]["listens_on"][0], 8000);
}

#[test]
fn no_engine_is_said_with_what_to_do() {
    let host = FakeHost::new(1000);
    host.process(1, 0, 0, &["/sbin/init"]);
    let mut scanner = host.scanner(DiscoverConfig::default());
    let scan = scanner.scan();
    let mut text = Vec::new();
    super::report::print(
        &super::report::report(scanner.host(), &scan, crate::config::SocketProbe::Uprobe),
        &mut text,
    )
    .expect("Vec");
    expect![[r#"
        No engine found among 1 processes.
        Name a server that is not recognised with --port, --pid or --comm, or write a [[discover.rule]].
    "#]]
    .assert_eq(&String::from_utf8(text).expect("text"));
}

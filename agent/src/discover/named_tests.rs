//! Tests of discovery as a whole, on hosts made of files: what operators name, hostile processes, and the report.

use super::config::{DiscoverConfig, RuleConfig};
use super::fake::FakeHost;
use super::scan_tests::{ID, PYTHON, check, vllm};
use expect_test::expect;
use std::fs;

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
    host.set_uptime(10_005);
    assert_eq!(scanner.scan().engines[0].root, 50);
    assert_eq!(scanner.scan().engines[0].root, 50);
    // It ends, and another one takes its place at once.
    host.end(50);
    host.process(51, 1, 10_005, &["/opt/unheard-of"])
        .listen(3, 2, 9000);
    assert_eq!(scanner.scan().engines[0].root, 51);
    host.end(51);
    assert!(scanner.scan().engines.is_empty());
    host.process(52, 1, 10_005, &["/opt/unheard-of"])
        .listen(3, 3, 9000);
    assert_eq!(scanner.scan().engines[0].root, 52);
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
        .file("maps", vec![0xfe; 100_000]);
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

//! The agent, as root, on CUDA calls: a driver and runtimes with CUDA's functions and arguments, made of C here, and a
//! program that makes known numbers of calls. What is counted equals what was called, whichever way it went.
//!
//! Run by `cargo xtask test`, which builds the agent; needs a C compiler.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use infertap_tests::{agent::Agent, agent::Start, exposition::Exposition};
use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

const PATIENCE: Duration = Duration::from_secs(20);

/// Compiles what a test needs into `folder`.
fn compile(folder: &Path) {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/live_cuda");
    let gcc = |output: &str, source: &str, more: &[&str]| {
        let mut command = Command::new("gcc");
        // Functions that do the same must not become one.
        command
            .args(["-O2", "-fno-ipa-icf", "-w", "-o"])
            .arg(folder.join(output));
        command.arg(sources.join(source)).args(more).current_dir(folder);
        assert!(command.status().expect("gcc is needed").success(), "{source}");
    };
    let library = ["-fPIC", "-shared"];
    gcc(
        "libcuda.so.1",
        "driver.c",
        &[&library[..], &["-Wl,-soname,libcuda.so.1"]].concat(),
    );
    gcc(
        "libcudart.so.12",
        "runtime.c",
        &[&library[..], &["./libcuda.so.1"]].concat(),
    );
    gcc(
        "libcudart-behind.so.12",
        "runtime.c",
        &[&library[..], &["-DBYPASS", "./libcuda.so.1"]].concat(),
    );
    gcc("program", "program.c", &["-ldl", "-lpthread"]);
}

/// The program, which does what it is told.
struct Program {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Program {
    fn start(folder: &Path) -> Program {
        let mut child = Command::new(folder.join("program"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .env("LD_LIBRARY_PATH", folder)
            .spawn()
            .unwrap();
        Program {
            input: child.stdin.take(),
            output: BufReader::new(child.stdout.take().unwrap()),
            child,
        }
    }

    fn tell(&mut self, line: &str) {
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
        let mut answer = String::new();
        self.output.read_line(&mut answer).unwrap();
        assert_eq!(answer.trim(), "done", "{line}");
    }

    fn call(&mut self, name: &str, count: u64, bytes: u64) {
        self.tell(&format!("call {name} {count} {bytes}"));
    }

    /// Lets it end by itself.
    fn end(&mut self) {
        self.input = None;
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An agent that counts the calls of a program with this runtime.
struct Scene {
    agent: Agent,
    program: Program,
    engine: String,
    _folder: tempfile::TempDir,
}

impl Scene {
    fn new(runtime: &str) -> Scene {
        let folder = tempfile::tempdir().unwrap();
        compile(folder.path());
        let mut program = Program::start(folder.path());
        let pid = program.child.id();
        let agent =
            Agent::start(&Start::for_test(folder.path(), &["--pid", &pid.to_string()]).unwrap()).unwrap();
        let engine = agent.wait_watching(pid, Duration::from_secs(10)).unwrap();
        // Loaded after the agent came, as by an engine that starts.
        let path = |name: &str| folder.path().join(name).display().to_string();
        program.tell(&format!("load {} {}", path("libcuda.so.1"), path(runtime)));
        let scene = Scene {
            agent,
            program,
            engine,
            _folder: folder,
        };
        scene.wait("its coverage", |metrics| {
            let labels = [("engine", scene.engine.as_str()), ("aspect", "cuda")];
            metrics.sum("infertap_engine_coverage", &labels) > 0.5
        });
        scene
    }

    fn wait(&self, what: &str, is: impl Fn(&Exposition) -> bool) {
        let start = Instant::now();
        loop {
            let metrics = self.agent.metrics().unwrap();
            if is(&metrics) {
                return;
            }
            assert!(
                start.elapsed() < PATIENCE,
                "{what} does not come: {:?}\n{}",
                self.counts(&metrics),
                self.agent.log_tail()
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn counts(&self, metrics: &Exposition) -> Counts {
        let of = |name: &str, labels: &[(&str, &str)]| {
            let labels = [&[("engine", self.engine.as_str())], labels].concat();
            metrics.sum(name, &labels).round() as u64
        };
        let directions = [
            "host_to_device",
            "device_to_host",
            "device_to_device",
            "peer",
            "unknown",
        ];
        let copies = |name| directions.map(|direction| of(name, &[("direction", direction)]));
        Counts {
            kernels: of("cuda_kernel_launches_total", &[]),
            graphs: of("cuda_graph_launches_total", &[]),
            copies: copies("cuda_memcpy_total"),
            bytes: copies("cuda_memcpy_bytes_total"),
            allocations: of("cuda_allocations_total", &[]),
            failures: of("cuda_alloc_failures_total", &[]),
            held: of("cuda_allocated_bytes", &[]),
            syncs: of("cuda_sync_total", &[]),
        }
    }

    /// Waits for the counts, and for a moment longer, so that a surplus shows too.
    fn expect(&self, expected: &Counts) -> Exposition {
        let start = Instant::now();
        while self.counts(&self.agent.metrics().unwrap()) != *expected && start.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(50));
        }
        std::thread::sleep(Duration::from_millis(1500));
        let metrics = self.agent.metrics().unwrap();
        assert_eq!(self.counts(&metrics), *expected, "{}", self.agent.log_tail());
        let dropped = metrics.sum("infertap_events_dropped_total", &[]);
        assert!(dropped.abs() < 0.5, "{dropped} events were dropped");
        metrics
    }
}

/// What is counted. Copies in the order: to the device, from it, within it, between two, unknown.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Counts {
    kernels: u64,
    graphs: u64,
    copies: [u64; 5],
    bytes: [u64; 5],
    allocations: u64,
    failures: u64,
    held: u64,
    syncs: u64,
}

const MILLION: u64 = 1_000_000;
const MIB: u64 = 1 << 20;
/// More than the driver has.
const TOO_MUCH: u64 = 1 << 41;

fn events(metrics: &Exposition, kind: &str) -> u64 {
    metrics.sum("infertap_events_total", &[("kind", kind)]).round() as u64
}

#[test]
fn a_million_launches_of_the_driver_are_a_million() {
    let mut scene = Scene::new("libcudart.so.12");
    scene.program.call("driver_launch", MILLION, 0);
    scene.program.call("driver_launch_ptsz", 1000, 0);
    scene.program.call("driver_launch_ex", 1000, 0);
    scene.program.call("driver_graph", 500, 0);
    scene.expect(&Counts {
        kernels: MILLION + 2000,
        graphs: 500,
        ..Counts::default()
    });
    let engines = scene.agent.engines().unwrap();
    let streams = engines["engines"][0]["cuda"]["streams"].as_array().unwrap();
    let launches: u64 = streams
        .iter()
        .map(|s| s["kernel_launches"].as_u64().unwrap())
        .sum();
    assert_eq!(launches, MILLION + 2000, "{engines}");
    assert_eq!(streams.len(), 4, "three streams and the default one: {engines}");
}

#[test]
fn a_million_launches_of_the_runtime_are_a_million_whichever_way_it_enters_the_driver() {
    for runtime in ["libcudart.so.12", "libcudart-behind.so.12"] {
        let mut scene = Scene::new(runtime);
        // In pieces, over the time in which the probes on the runtime go where they are not needed.
        for _ in 0..10 {
            scene.program.call("launch", MILLION / 10, 0);
            scene.program.call("launch_ex", 100, 0);
            scene.program.call("graph", 100, 0);
            std::thread::sleep(Duration::from_millis(1300));
        }
        scene.expect(&Counts {
            kernels: MILLION + 1000,
            graphs: 1000,
            ..Counts::default()
        });
    }
}

#[test]
fn both_at_once_on_four_threads_lose_and_double_nothing() {
    for runtime in ["libcudart.so.12", "libcudart-behind.so.12"] {
        let mut scene = Scene::new(runtime);
        for _ in 0..2 {
            scene.program.tell(&format!("threads {}", MILLION / 8));
            std::thread::sleep(Duration::from_millis(1300));
        }
        scene.expect(&Counts {
            kernels: MILLION,
            ..Counts::default()
        });
    }
}

#[test]
fn copies_are_counted_by_direction_in_bytes() {
    let mut scene = Scene::new("libcudart.so.12");
    for (name, count, bytes) in [
        ("driver_h2d", 100, 1000),
        ("driver_any", 10, 7),
        ("driver_d2d", 20, 11),
        ("driver_peer", 30, 13),
        // Two rows, host to device; two planes of two rows, device to host.
        ("driver_2d", 5, 100),
        ("driver_3d", 6, 50),
        ("h2d", 200, 3),
        ("d2h", 300, 5),
        ("d2h_async", 400, 9),
        // Not probed at the runtime, and seen at the driver.
        ("to_symbol", 50, 21),
    ] {
        scene.program.call(name, count, bytes);
    }
    scene.expect(&Counts {
        copies: [100 + 5 + 200 + 50, 6 + 300 + 400, 20, 30, 10],
        bytes: [
            100 * 1000 + 5 * 200 + 200 * 3 + 50 * 21,
            6 * 200 + 300 * 5 + 400 * 9,
            20 * 11,
            30 * 13,
            10 * 7,
        ],
        ..Counts::default()
    });
}

#[test]
fn memory_is_what_was_allocated_and_not_freed_and_failures_are_told() {
    for runtime in ["libcudart.so.12", "libcudart-behind.so.12"] {
        let mut scene = Scene::new(runtime);
        scene.program.call("driver_alloc", 10, MIB);
        scene.program.call("driver_alloc_managed", 5, MIB);
        // 1000 bytes a row become 1024, of three rows.
        scene.program.call("driver_alloc_pitch", 1, 1000);
        scene.program.call("driver_alloc", 2, TOO_MUCH);
        scene.program.call("alloc", 100, 2 * MIB);
        scene.program.call("alloc", 3, TOO_MUCH);
        let mut expected = Counts {
            allocations: 116,
            failures: 5,
            held: 15 * MIB + 3 * 1024 + 200 * MIB,
            ..Counts::default()
        };
        let metrics = scene.expect(&expected);
        assert_eq!(events(&metrics, "alloc_failure"), 5, "each once");
        // The runtime frees its own, then the driver's functions some of theirs; some frees are of nothing that was seen.
        scene.program.call("free_nothing", 10, 0);
        scene.program.call("free", 100, 0);
        scene.program.call("driver_free", 6, 0);
        scene.program.call("driver_free_unknown", 7, 0);
        expected.held = 10 * MIB;
        scene.expect(&expected);
        let engines = scene.agent.engines().unwrap();
        assert_eq!(engines["engines"][0]["cuda"]["unknown_frees"], 7, "{engines}");
        // Physical memory, given back as soon as it is mapped, is held until it is unmapped.
        scene.program.call("driver_create", 8, 2 * MIB);
        expected.allocations += 8;
        expected.held += 16 * MIB;
        scene.expect(&expected);
        scene.program.call("driver_unmap", 8, 2 * MIB);
        expected.held -= 16 * MIB;
        scene.expect(&expected);
    }
}

#[test]
fn a_wait_is_timed_and_ends_a_burst_only_when_something_was_launched() {
    for runtime in ["libcudart.so.12", "libcudart-behind.so.12"] {
        let mut scene = Scene::new(runtime);
        for _ in 0..20 {
            scene.program.call("launch", 3, 0);
            scene.program.call("driver_launch", 2, 0);
            scene.program.call("graph", 1, 0);
            scene.program.call("sync", 1, 0);
            // Nothing was launched since.
            scene.program.call("sync", 1, 0);
            scene.program.call("driver_sync", 1, 0);
        }
        let metrics = scene.expect(&Counts {
            kernels: 100,
            graphs: 20,
            syncs: 60,
            ..Counts::default()
        });
        assert_eq!(events(&metrics, "cuda_burst"), 20);
        let seconds = metrics.sum("cuda_sync_seconds_total", &[("engine", scene.engine.as_str())]);
        assert!(
            seconds >= 60.0 * 0.002,
            "each wait took two milliseconds or more: {seconds}"
        );
    }
}

#[test]
fn what_a_process_did_last_is_counted_after_its_end_and_its_memory_is_free() {
    let mut scene = Scene::new("libcudart.so.12");
    scene.program.call("alloc", 1, MIB);
    scene.program.call("launch", 12_345, 0);
    scene.program.end();
    // The engine is gone with its only process, and so are its series.
    scene.wait("the end of its series", |metrics| {
        scene.counts(metrics) == Counts::default()
    });
}

#[test]
fn nothing_is_attached_or_exported_when_it_is_switched_off() {
    let folder = tempfile::tempdir().unwrap();
    compile(folder.path());
    let config = folder.path().join("infertap.toml");
    std::fs::write(&config, "[gpu]\ncuda = false\n").unwrap();
    let mut program = Program::start(folder.path());
    let pid = program.child.id();
    let arguments = [
        "--pid",
        &pid.to_string(),
        "--config",
        &config.display().to_string(),
    ];
    let agent = Agent::start(&Start::for_test(folder.path(), &arguments).unwrap()).unwrap();
    agent.wait_watching(pid, Duration::from_secs(10)).unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    program.tell(&format!(
        "load {} {}",
        path("libcuda.so.1"),
        path("libcudart.so.12")
    ));
    program.call("launch", 1000, 0);
    std::thread::sleep(Duration::from_secs(3));
    let metrics = agent.metrics().unwrap();
    assert!(metrics.sum("cuda_kernel_launches_total", &[]).abs() < 0.5);
    assert!(
        metrics
            .sum("infertap_engine_coverage", &[("aspect", "cuda")])
            .abs()
            < 0.5
    );
}

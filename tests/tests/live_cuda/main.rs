//! The agent, as root, on CUDA calls: the stand-in driver and runtime, and a program that makes known numbers of calls on
//! them. What is counted equals what was called, whichever way it went.
//!
//! Run by `cargo xtask test`, which builds the agent.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod ends;
mod memory;
mod slow;

use infertap_tests::{
    agent::{Agent, Start},
    exposition::Exposition,
    gpu::{
        Cuda, Drivers, RuntimeCalls,
        calls::{Counts, Kind},
        program::{CudaProgram, Report},
    },
};
use std::{
    fs,
    path::Path,
    sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

const PATIENCE: Duration = Duration::from_mins(1);
const MILLION: u64 = 1_000_000;
/// Both ways of a runtime to the driver.
const WAYS: [RuntimeCalls; 2] = [RuntimeCalls::Exported, RuntimeCalls::ProcAddress];

/// One agent for all tests: the kernel takes many seconds to detach from all of CUDA's functions, at an agent's end.
struct Bench {
    agent: Agent,
    drivers: Drivers,
    /// Has the libraries mapped, so that they stay attached to from one test to the next.
    _keeper: CudaProgram,
}

static BENCH: LazyLock<Bench> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("live_cuda");
    let _ = fs::remove_dir_all(&folder);
    let drivers = Drivers::install(&folder.join("drivers")).unwrap();
    let arguments = ["--comm", "cuda-program", "--comm", "scripted-server"];
    let agent = Agent::start(&Start::for_test(&folder, &arguments).unwrap()).unwrap();
    let keeper = CudaProgram::start(program(), &folder, &drivers, &Cuda::default(), &[]).unwrap();
    Bench {
        agent,
        drivers,
        _keeper: keeper,
    }
});

fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_cuda-program"))
}

/// A program whose calls the agent counts.
struct Scene {
    program: CudaProgram,
    engine: String,
    /// What the program says that it made.
    made: Counts,
    _folder: tempfile::TempDir,
}

impl Scene {
    fn new(runtime: RuntimeCalls, arguments: &[&str]) -> Scene {
        let settings = Cuda {
            runtime,
            ..Cuda::default()
        };
        Scene::with(&BENCH.drivers, &settings, arguments)
    }

    fn with(drivers: &Drivers, settings: &Cuda, arguments: &[&str]) -> Scene {
        let bench = &*BENCH;
        let folder = tempfile::tempdir().unwrap();
        let all = [&["--late"], arguments].concat();
        let program = CudaProgram::start(program(), folder.path(), drivers, settings, &all).unwrap();
        let engine = bench.agent.wait_watching(program.pid(), PATIENCE).unwrap();
        let mut scene = Scene {
            program,
            engine,
            made: Counts::new(),
            _folder: folder,
        };
        // The libraries are loaded after the agent came, as by an engine that starts.
        scene.make("go");
        scene.wait("its coverage", |metrics| {
            let labels = [("engine", scene.engine.as_str()), ("aspect", "cuda")];
            metrics.sum("infertap_engine_coverage", &labels) > 0.5
        });
        scene
    }

    /// What the API tells of the engine.
    fn api(&self) -> serde_json::Value {
        let engines = BENCH.agent.engines().unwrap();
        let mut all = engines["engines"].as_array().unwrap().iter();
        all.find(|engine| engine["id"] == self.engine.as_str())
            .unwrap()
            .clone()
    }

    /// Lets the program make calls.
    fn make(&mut self, orders: &str) -> Report {
        let report = self.program.order(orders).unwrap();
        for (kind, made) in &report.made {
            let sum = self.made.entry(*kind).or_default();
            sum.calls += made.calls;
            sum.bytes += made.bytes;
            sum.failures += made.failures;
        }
        report
    }

    fn wait(&self, what: &str, is: impl Fn(&Exposition) -> bool) {
        let start = Instant::now();
        loop {
            let metrics = BENCH.agent.metrics().unwrap();
            if is(&metrics) {
                return;
            }
            assert!(
                start.elapsed() < PATIENCE,
                "{what} does not come: {:?}\n{}",
                self.counts(&metrics),
                BENCH.agent.log_tail()
            );
            thread::sleep(Duration::from_millis(50));
        }
    }

    fn counts(&self, metrics: &Exposition) -> Told {
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
        Told {
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
    fn expect(&self, expected: &Told) -> Exposition {
        let start = Instant::now();
        while self.counts(&BENCH.agent.metrics().unwrap()) != *expected && start.elapsed() < PATIENCE {
            thread::sleep(Duration::from_millis(50));
        }
        thread::sleep(Duration::from_millis(1200));
        let metrics = BENCH.agent.metrics().unwrap();
        assert_eq!(self.counts(&metrics), *expected, "{}", BENCH.agent.log_tail());
        let dropped = metrics.sum("infertap_events_dropped_total", &[]);
        assert!(dropped.abs() < 0.5, "{dropped} events were dropped");
        metrics
    }

    /// As [`Scene::expect`], of all that the program made, with `held` bytes not given back.
    fn expect_made(&self, held: u64) -> Exposition {
        self.expect(&Told::of(&self.made, held))
    }
}

/// What is counted. Copies in the order: to the device, from it, within it, between two, unknown.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Told {
    kernels: u64,
    graphs: u64,
    copies: [u64; 5],
    bytes: [u64; 5],
    allocations: u64,
    failures: u64,
    held: u64,
    syncs: u64,
}

impl Told {
    /// What should be told of what was made.
    fn of(made: &Counts, held: u64) -> Told {
        let mut told = Told {
            held,
            ..Told::default()
        };
        for (kind, made) in made {
            let direction = match kind {
                Kind::Launch | Kind::LaunchCooperative | Kind::LaunchEx => {
                    told.kernels += made.calls;
                    continue;
                }
                Kind::Graph => {
                    told.graphs += made.calls;
                    continue;
                }
                Kind::Alloc
                | Kind::AllocAsync
                | Kind::AllocFromPool
                | Kind::AllocManaged
                | Kind::AllocPitch
                | Kind::Map
                | Kind::MapOnly => {
                    told.allocations += made.calls - made.failures;
                    told.failures += made.failures;
                    continue;
                }
                Kind::StreamSynchronize | Kind::EventSynchronize | Kind::ContextSynchronize => {
                    told.syncs += made.calls;
                    continue;
                }
                Kind::Free
                | Kind::FreeAsync
                | Kind::FreeUnknown
                | Kind::Unmap
                | Kind::UnmapOnly
                | Kind::EventQuery => continue,
                Kind::HostToDevice | Kind::HostToDeviceAsync | Kind::Copy2d | Kind::ToSymbol => 0,
                Kind::DeviceToHost | Kind::DeviceToHostAsync | Kind::Copy2dAsync | Kind::Copy3dAsync => 1,
                Kind::DeviceToDevice | Kind::DeviceToDeviceAsync => 2,
                Kind::Peer | Kind::PeerAsync => 3,
                Kind::Copy | Kind::CopyAsync => 4,
            };
            told.copies[direction] += made.calls;
            told.bytes[direction] += made.bytes;
        }
        told
    }
}

/// Events of the agent so far.
fn events(kind: &str) -> u64 {
    let metrics = BENCH.agent.metrics().unwrap();
    metrics.sum("infertap_events_total", &[("kind", kind)]).round() as u64
}

/// Carries out cases at the same time, each on a program of its own.
fn side_by_side<T: Send>(cases: impl IntoIterator<Item = T>, each: impl Fn(T) + Sync) {
    let each = &each;
    thread::scope(|scope| {
        for case in cases {
            scope.spawn(move || each(case));
        }
    });
}

#[test]
fn launches_of_either_api_are_counted_once_and_by_stream() {
    let cases = [
        (WAYS[0], "driver", false),
        (WAYS[0], "driver", true),
        (WAYS[0], "runtime", false),
        (WAYS[1], "runtime", false),
        (WAYS[1], "runtime", true),
    ];
    side_by_side(cases, |(runtime, by, per_thread)| {
        let mut arguments = vec!["--streams=3"];
        arguments.extend(per_thread.then_some("--per-thread"));
        let mut scene = Scene::new(runtime, &arguments);
        let kinds =
            "--make=launch=20000 --make=launch_cooperative=1000 --make=launch_ex=1000 --make=graph=500";
        let report = scene.make(&format!("--by={by} {kinds}"));
        assert_eq!(
            report.entered[2] > 0,
            by == "runtime" && runtime == RuntimeCalls::ProcAddress,
            "{report:?}"
        );
        scene.expect_made(0);
        let engine = scene.api();
        let streams = engine["cuda"]["streams"].as_array().unwrap();
        let launches: u64 = streams
            .iter()
            .map(|stream| stream["kernel_launches"].as_u64().unwrap())
            .sum();
        assert_eq!(launches, 22_000, "{engine}");
        assert_eq!(streams.len(), 3, "{engine}");
    });
}

#[test]
fn a_million_launches_by_both_apis_on_four_threads_are_a_million_while_probes_come_and_go() {
    let all = AtomicU64::new(0);
    side_by_side(WAYS, |runtime| {
        // Libraries that no other program has, so that the probes on the runtime go where this one needs them no longer.
        let folder = tempfile::tempdir().unwrap();
        let drivers = Drivers::install(folder.path()).unwrap();
        let settings = Cuda {
            runtime,
            ..Cuda::default()
        };
        let mut scene = Scene::with(&drivers, &settings, &["--streams=3"]);
        // In pieces, over the time in which that happens.
        for _ in 0..10 {
            let begun = Instant::now();
            let each = MILLION / 2 / 10 / 4;
            scene.make(&format!("--by=mixed --threads=4 --make=launch={each}"));
            scene.make("--by=runtime --make=graph=100");
            thread::sleep(Duration::from_millis(1300).saturating_sub(begun.elapsed()));
        }
        let told = Told::of(&scene.made, 0);
        assert_eq!(told.graphs, 1000);
        scene.expect(&told);
        all.fetch_add(told.kernels, Ordering::Relaxed);
    });
    assert_eq!(all.into_inner(), MILLION);
}

#[test]
fn copies_are_counted_by_direction_in_bytes() {
    side_by_side(WAYS, |runtime| {
        let mut scene = Scene::new(runtime, &["--streams=2"]);
        for by in ["driver", "runtime"] {
            for (count, bytes, kinds) in [
                (100, 1000, &["host_to_device", "host_to_device_async"][..]),
                (30, 5, &["device_to_host", "device_to_host_async"]),
                (20, 11, &["device_to_device", "device_to_device_async"]),
                (30, 13, &["peer", "peer_async"]),
                (10, 7, &["copy", "copy_async"]),
                (5, 100, &["copy2d", "copy2d_async"]),
                // The driver's alone.
                (6, 50, &["copy3d_async"]),
            ] {
                for kind in kinds {
                    scene.make(&format!("--by={by} --bytes={bytes} --make={kind}={count}"));
                }
            }
        }
        let mut to_device = 410;
        if runtime == RuntimeCalls::Exported {
            // Not probed at the runtime, and seen at the driver's exported function.
            scene.make("--by=runtime --bytes=21 --make=to_symbol=50");
            to_device += 50;
        }
        let told = Told::of(&scene.made, 0);
        assert_eq!(told.copies, [to_device, 142, 80, 120, 40]);
        scene.expect(&told);
    });
}

#[test]
fn a_wait_is_timed_and_ends_a_burst_only_when_something_was_launched() {
    let before = events("cuda_burst");
    side_by_side(WAYS, |runtime| {
        let mut scene = Scene::new(runtime, &["--kernel-us=1000"]);
        for _ in 0..20 {
            scene.make("--by=runtime --make=launch=3");
            scene.make("--by=driver --make=launch=2");
            // Ten kernels in a graph; nothing is launched between the two waits.
            scene.make("--by=runtime --make=graph=1 --make=stream_synchronize=2");
            scene.make("--by=driver --make=stream_synchronize=1");
        }
        let metrics = scene.expect_made(0);
        let seconds = metrics.sum("cuda_sync_seconds_total", &[("engine", scene.engine.as_str())]);
        // The graph is launched right before the wait for it.
        assert!(seconds >= 20.0 * 0.009, "{seconds} s of waits");
    });
    assert_eq!(events("cuda_burst") - before, 40);
}

#[test]
fn nothing_is_attached_or_exported_when_it_is_switched_off() {
    let folder = tempfile::tempdir().unwrap();
    let drivers = Drivers::install(&folder.path().join("drivers")).unwrap();
    let settings = Cuda::default();
    let mut program = CudaProgram::start(program(), folder.path(), &drivers, &settings, &["--late"]).unwrap();
    let pid = program.pid().to_string();
    let start = Start::for_test(folder.path(), &["--pid", &pid, "--set", "gpu.cuda=false"]).unwrap();
    let agent = Agent::start(&start).unwrap();
    agent.wait_watching(program.pid(), PATIENCE).unwrap();
    program.order("--by=mixed --make=launch=1000").unwrap();
    thread::sleep(Duration::from_secs(3));
    let metrics = agent.metrics().unwrap();
    assert_eq!(metrics.select("cuda_kernel_launches_total", &[]).count(), 0);
    let coverage = metrics.select("infertap_engine_coverage", &[("aspect", "cuda")]);
    assert_eq!(coverage.count(), 0);
}

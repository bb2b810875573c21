//! Attaching that takes as long as the test wants: what goes on meanwhile, and that nothing of it is lost.

use super::*;
use infertap_tests::{
    compare::compare,
    gate::Gate,
    load::{Load, Plan},
    scripted::ServerProcess,
};
use serde_json::json;

/// What the driver's library is called.
const DRIVER: &str = "libcuda.so.1";

/// A program of CUDA calls on libraries of its own.
struct Program {
    program: CudaProgram,
    drivers: Drivers,
    folder: tempfile::TempDir,
}

impl Program {
    fn start() -> Program {
        let folder = tempfile::tempdir().unwrap();
        let drivers = Drivers::install(&folder.path().join("drivers")).unwrap();
        let settings = Cuda::default();
        let program = CudaProgram::start(program(), folder.path(), &drivers, &settings, &["--late"]).unwrap();
        Program {
            program,
            drivers,
            folder,
        }
    }

    fn pid(&self) -> String {
        self.program.pid().to_string()
    }
}

/// An agent of its own: what holds it up must not hold up the other tests.
fn agent(folder: &Path, pids: &[String]) -> Agent {
    let mut arguments = vec!["--set", "discover.builtin_rules=false"];
    arguments.extend(pids.iter().flat_map(|pid| ["--pid", pid]));
    Agent::start(&Start::for_test(folder, &arguments).unwrap()).unwrap()
}

fn wait(agent: &Agent, what: &str, is: impl Fn(&Exposition) -> bool) {
    let begun = Instant::now();
    while !is(&agent.metrics().unwrap()) {
        assert!(
            begun.elapsed() < PATIENCE,
            "{what} does not come\n{}",
            agent.log_tail()
        );
        thread::sleep(Duration::from_millis(50));
    }
}

fn counted(metrics: &Exposition, engine: &str) -> u64 {
    let of_engine = [("engine", engine)];
    metrics.sum("cuda_kernel_launches_total", &of_engine).round() as u64
}

fn covered(metrics: &Exposition, engine: &str) -> bool {
    let labels = [("engine", engine), ("aspect", "cuda")];
    metrics.sum("infertap_engine_coverage", &labels) > 0.5
}

#[test]
fn while_attaching_blocks_requests_and_calls_are_told_and_what_ends_is_let_go() {
    let (mut first, mut second) = (Program::start(), Program::start());
    let folder = tempfile::tempdir().unwrap();
    let binary = Path::new(env!("CARGO_BIN_EXE_scripted-server"));
    let server = ServerProcess::start(binary, folder.path(), &[]).unwrap();
    let agent = agent(
        folder.path(),
        &[first.pid(), second.pid(), server.pid().to_string()],
    );
    let serving = agent.wait_serving(server.pid(), PATIENCE).unwrap();
    let engines = [&first, &second].map(|of| agent.wait_watching(of.program.pid(), PATIENCE).unwrap());
    first.program.order("go").unwrap();
    wait(&agent, "the first program's coverage", |metrics| {
        covered(metrics, &engines[0])
    });

    let gate = Gate::close(&second.drivers.library(DRIVER), agent.pid()).unwrap();
    second.program.order("--by=driver --make=launch=1").unwrap();
    gate.wait_held(PATIENCE).unwrap();

    // The agent stands at the second program's library, and reads on.
    let extra = json!({
        "stream": true,
        "stream_options": {"include_usage": true},
        "script": {"chunks": 20, "gap_us": 5000},
    });
    let plan = |index| Plan {
        index,
        ..Plan::chat("scripted", "model-a", "hello", &extra)
    };
    let load = Load {
        address: server.address.clone(),
        concurrency: 8,
        core: None,
    };
    let truths = load.run_all((0..64).map(plan).collect());
    let of_server = |record: &infertap_tests::agent::Record| record.engine == serving;
    let records = agent.wait_requests(truths.len(), PATIENCE, of_server).unwrap();
    let problems = compare(&truths, &records).problems;
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    first.program.order("--by=driver --make=launch=1000").unwrap();
    wait(&agent, "the first program's calls", |metrics| {
        counted(metrics, &engines[0]) == 1000
    });
    let metrics = agent.metrics().unwrap();
    assert!(!covered(&metrics, &engines[1]), "nothing is attached to it yet");
    let of_second = [("engine", engines[1].as_str()), ("aspect", "cuda")];
    assert_eq!(metrics.select("infertap_engine_coverage", &of_second).count(), 0);
    first.program.tell("--exit").unwrap();
    first.program.wait_end().unwrap();
    wait(&agent, "what waits for the second program", |metrics| {
        metrics.sum("infertap_attach_waiting_processes", &[]) > 0.5
    });
    wait(&agent, "the first engine's end", |metrics| {
        let of_first = [("engine", engines[0].as_str())];
        metrics.select("llm_engine_info", &of_first).count() == 0
    });

    drop(gate);
    wait(&agent, "the second program's coverage", |metrics| {
        covered(metrics, &engines[1])
    });
    second.program.order("--by=driver --make=launch=500").unwrap();
    wait(&agent, "the second program's calls", |metrics| {
        counted(metrics, &engines[1]) == 500
    });
    wait(&agent, "an end of waiting", |metrics| {
        metrics.sum("infertap_attach_waiting_processes", &[]) < 0.5
    });
    let metrics = agent.metrics().unwrap();
    let dropped = metrics.sum("infertap_events_dropped_total", &[]);
    assert!(dropped.abs() < 0.5, "{dropped} events were dropped");
    assert_eq!(
        counted(&metrics, &engines[0]),
        0,
        "an engine that is gone has no series"
    );
    assert!(agent.stop());
}

#[test]
fn an_agent_stops_in_order_while_attaching_blocks() {
    let mut of = Program::start();
    let agent = agent(of.folder.path(), &[of.pid()]);
    agent.wait_watching(of.program.pid(), PATIENCE).unwrap();
    let gate = Gate::close(&of.drivers.library(DRIVER), agent.pid()).unwrap();
    of.program.order("go").unwrap();
    gate.wait_held(PATIENCE).unwrap();
    assert!(agent.stop(), "it ends by itself, and with success");
}

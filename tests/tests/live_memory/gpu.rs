//! A GPU of the stand-in driver that fills up, and one that is full and stays so.

use super::*;
use infertap_tests::gpu::{Gpu, Gpus, Memory, Process, Script, Value as Scripted};

const GIB: f64 = 1_073_741_824.0;
const TOTAL: f64 = 80.0 * GIB;
/// Bytes a second.
const LEAK: f64 = 100e6;

/// A GPU with the server on it.
fn gpu(index: u32, pid: u32, used: Scripted) -> Gpu {
    let mut gpu = Gpu::datacenter(index);
    gpu.memory = Some(Memory {
        total: TOTAL as u64,
        reserved: 0,
        used,
    });
    gpu.processes = Some(vec![Process {
        pid,
        ..Process::default()
    }]);
    gpu
}

/// The agent on these GPUs. A generic server's GPU may be as full as the configuration says.
fn watch(folder: &Path, server: &ServerProcess, gpus: &Gpus) -> (Agent, String) {
    let config = folder.join("infertap.toml");
    let text = "[gpu]\nperiod = \"500ms\"\n[pressure]\ntrend_window = \"2m\"\n";
    std::fs::write(&config, text).unwrap();
    let pid = server.pid().to_string();
    let start = Start::for_test(folder, &["--config", config.to_str().unwrap(), "--pid", &pid]).unwrap();
    let agent = Agent::start_on(gpus, &start).unwrap();
    let engine = agent.wait_serving(server.pid(), Duration::from_secs(20)).unwrap();
    (agent, engine)
}

#[test]
fn a_gpu_that_fills_up_is_told_before_it_is_full() {
    let folder = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(
        Path::new(env!("CARGO_BIN_EXE_scripted-server")),
        folder.path(),
        &[],
    )
    .unwrap();
    let leaking = Scripted::Ramp {
        ramp: vec![(0.0, 60.0 * GIB), (150.0, 60.0 * GIB + 150.0 * LEAK)],
    };
    let script = Script {
        gpus: vec![
            gpu(0, server.pid(), leaking),
            gpu(1, server.pid(), Scripted::Constant(70.0 * GIB)),
        ],
        ..Script::default()
    };
    let gpus = Gpus::start(folder.path(), script).unwrap();
    let (agent, engine) = watch(folder.path(), &server, &gpus);
    let of = [("engine", engine.as_str())];
    let headroom = "llm_gpu_memory_headroom_bytes";
    let metrics = wait(&agent, Duration::from_secs(20), |metrics| {
        metrics.select(headroom, &of).count() == 1
    });
    assert_eq!(
        metrics.sum(headroom, &of),
        10.0 * GIB,
        "that of the GPU with the least room: {}",
        agent.log_tail()
    );
    let severe = [("engine", engine.as_str()), ("state", "severe")];
    assert_eq!(metrics.sum("llm_memory_pressure", &severe), 0.0);

    let metrics = wait(&agent, Duration::from_secs(90), |metrics| {
        metrics.sum("llm_memory_pressure", &severe) > 0.0
    });
    let second = gpus.second();
    let to_full = metrics.sum("llm_gpu_memory_time_to_full_seconds", &of);
    let left = (20.0 * GIB - second * LEAK) / LEAK;
    println!("after {second:.1} s: {to_full:.1} s to full, in truth {left:.1} s");
    // Reports are a few seconds apart.
    assert!(
        (to_full - left).abs() < 0.1 * left,
        "{}",
        pressure(&agent, &engine)
    );
    let reasons = pressure(&agent, &engine)["reasons"].clone();
    assert_eq!(reasons[0]["reason"], "gpu_time_to_full", "{reasons}");
    let reason = [("engine", engine.as_str()), ("reason", "gpu_time_to_full")];
    assert_eq!(metrics.sum("llm_memory_pressure_reason", &reason), 2.0);
    assert!(agent.stop());
}

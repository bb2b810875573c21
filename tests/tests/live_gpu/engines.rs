//! Whose processes are on a GPU, whole or split.

use super::*;
use infertap_tests::{gpu::Process, scripted::ServerProcess};
use std::path::Path;

fn process(pid: u32, memory: Option<f64>, sm: Option<f64>) -> Process {
    Process {
        pid,
        memory: memory.map(Into::into),
        sm: sm.map(Into::into),
        ..Process::default()
    }
}

/// No process has this id: it is above the kernel's limit.
const NOBODY: u32 = 4_194_400;

#[test]
fn memory_and_shares_are_their_engines_or_nobodys() {
    let folder = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(
        Path::new(env!("CARGO_BIN_EXE_scripted-server")),
        folder.path(),
        &[],
    )
    .unwrap();
    let pid = server.pid().to_string();
    let mut gpu = Gpu::datacenter(0);
    gpu.processes = Some(vec![
        process(server.pid(), Some(6e9), Some(60.0)),
        process(std::process::id(), Some(1e9), Some(20.0)),
        process(NOBODY, Some(5e8), None),
    ]);
    let mut split = Gpu::datacenter(1).with_instances(2);
    let mut on_instance = process(server.pid(), Some(2e9), None);
    on_instance.instance = Some(1);
    split.processes = Some(vec![on_instance]);
    let bench = bench(vec![gpu, split], &["--pid", &pid]);
    let engine = bench.agent.wait_serving(server.pid(), SOON).unwrap();
    bench.wait("GPUs of the engine", |now| {
        now.select("llm_engine_info", &[("engine", &engine), ("gpus", "0,1:1")])
            .count()
            == 1
    });
    let metrics = bench.settle();
    for (gpu, engine, memory, sm) in [
        ("0", engine.as_str(), Some(6e9), Some(0.6)),
        ("0", "other", Some(1e9), Some(0.2)),
        ("0", "unknown", Some(5e8), Some(0.0)),
        ("1:1", &engine, Some(2e9), None),
        ("1", &engine, None, None),
    ] {
        let labels = [("gpu", gpu), ("engine", engine)];
        assert_eq!(
            value(&metrics, "gpu_process_memory_bytes", &labels),
            memory,
            "{labels:?}"
        );
        assert_eq!(value(&metrics, "gpu_process_sm_ratio", &labels), sm, "{labels:?}");
    }
    assert_eq!(
        value(&metrics, "gpu_memory_total_bytes", &[("gpu", "1:0")]),
        Some(10.0 * 1_073_741_824.0)
    );
    assert_eq!(
        value(&metrics, "gpu_power_watts", &[("gpu", "1:0")]),
        None,
        "of the whole GPU only"
    );

    let api = bench.api();
    let of = |name: &str| {
        let gpus = api["gpus"].as_array().unwrap();
        gpus.iter().find(|gpu| gpu["gpu"] == name).cloned().unwrap()
    };
    let owners = of("0");
    let processes = owners["processes"].as_array().unwrap();
    let owner = |pid| {
        processes
            .iter()
            .find(|process| process["pid"] == pid)
            .map(|process| &process["engine"])
    };
    assert_eq!(owner(server.pid()), Some(&Json::from(engine.as_str())));
    assert_eq!(owner(NOBODY), Some(&Json::from("unknown")));
    assert!(of("0")["notes"][0].as_str().unwrap().contains("not here"));
    assert!(of("1")["notes"][0].as_str().unwrap().contains("MIG"));
    assert_eq!(of("1:1")["parent"], of("1")["uuid"]);

    // The engine ends, and its share with it.
    drop(server);
    let gone = bench.wait("end of the engine", |now| {
        now.select("llm_engine_info", &[("engine", &engine)]).count() == 0
    });
    drop(gone);
    let metrics = bench.settle();
    assert_eq!(
        metrics
            .select("gpu_process_memory_bytes", &[("engine", &engine)])
            .count(),
        0
    );
    assert!(bench.agent.stop());
}

#[test]
fn a_driver_that_tells_no_processes_leaves_their_use_unknown() {
    let mut gpu = Gpu::datacenter(0);
    gpu.processes = None;
    let bench = bench(vec![gpu], &[]);
    let metrics = bench.settle();
    assert_eq!(metrics.select("gpu_process_memory_bytes", &[]).count(), 0);
    let api = bench.api();
    assert_eq!(api["gpus"][0]["processes"], Json::Null);
    assert!(
        api["gpus"][0]["notes"][0]
            .as_str()
            .unwrap()
            .contains("does not tell its processes")
    );
    assert!(bench.agent.stop());
}

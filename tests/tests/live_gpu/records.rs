//! What the GPU was like while a request ran, on its record.

use super::*;
use infertap_tests::{
    agent::BINARY_VARIABLE,
    gpu::{Process, Value},
    load::{Connection, Outcome, Plan},
    scripted::ServerProcess,
};
use serde_json::json;
use std::{path::Path, process::Command};

/// What `infertap show` prints of a response.
fn show(config: &Path, id: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(std::env::var_os(BINARY_VARIABLE).unwrap())
        .args(["show", id, "--config"])
        .arg(config)
        .args(arguments)
        .output()
        .unwrap();
    output
        .status
        .success()
        .then(|| String::from_utf8(output.stdout).unwrap())
}

#[test]
fn a_record_tells_what_its_engines_gpu_was_like() {
    let folder = tempfile::tempdir().unwrap();
    let binary = Path::new(env!("CARGO_BIN_EXE_scripted-server"));
    let server = ServerProcess::start(binary, folder.path(), &[]).unwrap();
    let mut used = Gpu::datacenter(0);
    used.processes = Some(vec![Process {
        pid: server.pid(),
        ..Process::default()
    }]);
    used.power_mw = Some(Value::Constant(321_000.0));
    used.temperature_c = Some(Value::Constant(71.0));
    used.clocks_mhz.sm = Some(Value::Constant(1230.0));
    used.utilization.as_mut().unwrap().gpu = Value::Constant(64.0);
    used.memory.as_mut().unwrap().used = Value::Constant(f64::from(1 << 30) * 12.0);
    // It is nobody's, and quite another.
    let mut unused = Gpu::datacenter(1);
    unused.processes = Some(Vec::new());
    unused.power_mw = Some(Value::Constant(50_000.0));
    let script = Script {
        gpus: vec![used, unused],
        ..Script::default()
    };
    let config = folder.path().join("records.toml");
    let store = folder.path().join("store.db");
    let text = format!("[store]\npath = {store:?}\n[records]\nhead_rate = 1\nunusual_after = 0\n");
    std::fs::write(&config, text).unwrap();
    let pid = server.pid().to_string();
    let path = format!("store.path={}", store.display());
    let gpus = Gpus::start(folder.path(), script).unwrap();
    let arguments = [
        "--config",
        config.to_str().unwrap(),
        "--pid",
        &pid,
        "--set",
        &path,
    ];
    let bench = bench_on(gpus, folder, &arguments);
    bench.agent.wait_serving(server.pid(), SOON).unwrap();
    bench.settle();

    let ask = |chunks: u32| {
        let extra = json!({"stream": true, "script": {"chunks": chunks, "gap_us": 20_000}});
        let plan = Plan::chat("gpu", "model-a", "hello", &extra);
        let truth = Connection::open(&server.address).unwrap().exchange(&plan);
        assert_eq!(truth.outcome, Outcome::Complete);
        truth.response_id.unwrap()
    };
    let near = |value: &Json, expected: f64| {
        let value = value.as_f64().unwrap_or(-1.0);
        assert!(
            (value - expected).abs() <= expected * 0.01,
            "{value} is not {expected}"
        );
    };
    // Longer and shorter than the time between readings.
    for chunks in [50, 1] {
        let id = ask(chunks);
        let begun = Instant::now();
        let record: Json = loop {
            let shown = show(&config, &id, &["--json"]);
            let record = shown.map(|text| serde_json::from_str::<Json>(&text).unwrap());
            if let Some(record) = record.filter(|record| !record["gpu"].is_null()) {
                break record;
            }
            assert!(
                begun.elapsed() < SOON,
                "nothing is told of its GPU:\n{}",
                bench.log()
            );
            std::thread::sleep(Duration::from_millis(100));
        };
        let gpus = record["gpu"].as_array().unwrap();
        assert_eq!(gpus.len(), 1, "{gpus:?}");
        let gpu = &gpus[0];
        assert_eq!(gpu["gpu"], "0");
        near(&gpu["power_watts"], 321.0);
        near(&gpu["temperature_max_celsius"], 71.0);
        near(&gpu["sm_clock_min_hertz"], 1.23e9);
        near(&gpu["utilization_ratio"], 0.64);
        near(&gpu["memory_used_max_bytes"], f64::from(1 << 30) * 12.0);
        near(&gpu["covered_s"], record["e2e_s"].as_f64().unwrap());
        let text = show(&config, &id, &[]).unwrap();
        assert!(
            text.contains("GPU 0: busy 64 %, 321 W, memory up to 12.0 GiB, 1230 MHz at least, 71 °C at most"),
            "{text}"
        );
    }
}

//! `infertap doctor` on the stand-in driver.

use super::*;
use infertap_tests::agent::BINARY_VARIABLE;
use infertap_tests::gpu::{Code, Failure, FailureTime, SCRIPT_VARIABLE};
use std::process::Command;

/// The checks by name: verdict and why.
fn doctor(gpus: &Gpus, library: &str) -> impl Fn(&str) -> (String, String) + use<> {
    let binary = std::env::var_os(BINARY_VARIABLE).expect("run live tests with `cargo xtask test`");
    let output = Command::new(binary)
        .args(["doctor", "--json", "--set", "discover.builtin_rules=false"])
        .args(["--set", &format!("gpu.nvml_library={library}")])
        .env(SCRIPT_VARIABLE, gpus.path())
        .output()
        .unwrap();
    let answer: Json = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    move |name| {
        let checks = answer["checks"].as_array().unwrap();
        let check = checks
            .iter()
            .find(|check| check["name"] == name)
            .unwrap_or_else(|| panic!("no {name} in {answer}"));
        let text = |key: &str| check[key].as_str().unwrap().to_owned();
        (text("verdict"), text("why"))
    }
}

#[test]
fn the_doctor_tells_which_gpus_there_are_and_what_is_amiss_with_them() {
    let folder = tempfile::tempdir().unwrap();
    let script = Script {
        gpus: vec![Gpu::datacenter(0), Gpu::older(1)],
        ..Script::default()
    };
    let mut gpus = Gpus::start(folder.path(), script).unwrap();
    let library = gpus.nvml().display().to_string();
    let check = doctor(&gpus, &library);
    let (verdict, why) = check("gpu");
    assert_eq!(verdict, "works", "{why}");
    assert!(why.starts_with("2 NVIDIA GPUs (Stand-in "), "{why}");
    assert!(why.contains("Stand-in P100 16GB), driver "), "{why}");
    assert_eq!(check("gpu counters").1, "of GPU 0 alone (GPM)");
    assert_eq!(check("cuda calls").0, "works", "{:?}", check("cuda calls"));

    let lost = FailureTime {
        from_s: 0.0,
        to_s: None,
        code: Code::GpuIsLost,
    };
    gpus.script.gpus[1]
        .errors
        .insert("nvmlDeviceGetName".to_owned(), Failure::At(vec![lost]));
    gpus.write().unwrap();
    let (verdict, why) = doctor(&gpus, &library)("gpu");
    assert_eq!(verdict, "degraded");
    assert!(why.contains("GPU 1: "), "{why}");

    let (verdict, why) = doctor(&gpus, "/nonexistent/libnvidia-ml.so.1")("gpu");
    assert_eq!(verdict, "degraded");
    assert!(why.starts_with("gpu.nvml_library: "), "{why}");
}

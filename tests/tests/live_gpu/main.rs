//! The agent, as root, on the stand-in GPU driver, which it loads as it loads the real one: what the script says is what
//! the metrics say.
//!
//! Run by `cargo xtask test`, which builds the agent and names it in `INFERTAP_BIN`.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod doctor;
mod engines;
mod join;
mod readings;
mod records;
mod trace;
mod trouble;
mod values;

use infertap_tests::{
    agent::{Agent, Start},
    exposition::Exposition,
    gpu::{Gpu, Gpus, Script},
    http,
};
use serde_json::Value as Json;
use std::time::{Duration, Instant};

/// GPUs and the agent that reads them, in a folder of their own.
struct Bench {
    gpus: Gpus,
    agent: Agent,
    folder: tempfile::TempDir,
}

/// How long to wait for what the agent should soon tell.
const SOON: Duration = Duration::from_secs(20);

fn bench(gpus: Vec<Gpu>, arguments: &[&str]) -> Bench {
    bench_with(
        Script {
            gpus,
            ..Script::default()
        },
        arguments,
    )
}

fn bench_with(script: Script, arguments: &[&str]) -> Bench {
    let folder = tempfile::tempdir().unwrap();
    let gpus = Gpus::start(folder.path(), script).unwrap();
    bench_on(gpus, folder, arguments)
}

/// The agent on GPUs that are there, its files in `folder`.
fn bench_on(gpus: Gpus, folder: tempfile::TempDir, arguments: &[&str]) -> Bench {
    let mut all = vec![
        "--set",
        "discover.builtin_rules=false",
        "--set",
        "gpu.period=100ms",
    ];
    all.extend(arguments);
    let start = Start::for_test(folder.path(), &all).unwrap();
    let agent = Agent::start_on(&gpus, &start).unwrap();
    let bench = Bench { gpus, agent, folder };
    bench.wait("a first reading", |now| {
        now.0.iter().any(|sample| sample.name == "gpu_up") || bench.gpus.script.gpus.is_empty()
    });
    bench
}

impl Bench {
    /// Waits until the metrics are so, and gives them.
    fn wait(&self, what: &str, so: impl Fn(&Exposition) -> bool) -> Exposition {
        let begun = Instant::now();
        loop {
            let metrics = self.agent.metrics().unwrap();
            if so(&metrics) {
                return metrics;
            }
            assert!(
                begun.elapsed() < SOON,
                "no {what}; of GPUs there is:\n{}\nthe log:\n{}",
                metrics
                    .0
                    .iter()
                    .filter(|sample| sample.name.contains("gpu"))
                    .map(|sample| format!("{sample:?}"))
                    .collect::<Vec<_>>()
                    .join("\n"),
                self.log()
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Two more sweeps after now have been told.
    fn settle(&self) -> Exposition {
        let read = |metrics: &Exposition| metrics.sum("infertap_events_total", &[("kind", "gpu")]);
        let gpus = self.gpus.script.gpus.len().max(1) as f64;
        let before = read(&self.agent.metrics().unwrap());
        self.wait("further sweep", |now| read(now) >= before + 2.0 * gpus)
    }

    fn api(&self) -> Json {
        http::get(&self.agent.address, "/api/v1/gpus")
            .unwrap()
            .json()
            .unwrap()
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("agent.log")).unwrap_or_default()
    }

    /// Lines of the log that contain this.
    fn logged(&self, what: &str) -> Vec<String> {
        self.log()
            .lines()
            .filter(|line| line.contains(what))
            .map(str::to_owned)
            .collect()
    }
}

/// The value of the one series of this name with these labels.
fn value(metrics: &Exposition, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
    let mut all = metrics.select(name, labels);
    let first = all.next().map(|sample| sample.value);
    assert!(
        all.next().is_none(),
        "{name} with {labels:?} is there more than once"
    );
    first
}

fn near(actual: Option<f64>, expected: f64, what: &str) {
    let limit = 1e-6 * expected.abs().max(1e-3);
    assert!(
        actual.is_some_and(|actual| (actual - expected).abs() <= limit),
        "{what} is {actual:?}, not {expected}"
    );
}

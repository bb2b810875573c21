//! The engine that is checked: a Python program that computes on the GPU, serves over HTTP and keeps an account of itself.
//!
//! Owns: starting it, asking it. Refuses: comparing what it says.

use crate::{
    child::Child,
    engines::{free_port, python::script},
    http,
    load::{Load, Plan},
    scripted::Address,
};
use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::json;
use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

/// Requests that run at once: `gpu_device.SLOTS`.
pub(super) const SLOTS: usize = 4;

/// What it says of one request, CLOCK_MONOTONIC nanoseconds.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Served {
    pub(super) id: String,
    pub(super) scheduled_ns: u64,
    pub(super) first_ns: u64,
    pub(super) last_ns: u64,
    pub(super) prompt_tokens: u64,
    pub(super) output_tokens: u64,
}

/// One step.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Step {
    pub(super) kind: String,
    pub(super) begin_ns: u64,
    pub(super) end_ns: u64,
}

/// Its account of all that it served.
#[derive(Debug, Deserialize)]
pub(super) struct Account {
    requests: Vec<Served>,
    pub(super) steps: Vec<Step>,
}

impl Account {
    pub(super) fn by_id(&self) -> HashMap<&str, &Served> {
        self.requests
            .iter()
            .map(|served| (served.id.as_str(), served))
            .collect()
    }
}

/// Calls of which it knows the number.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Known {
    pub(super) kernels: u64,
    pub(super) graphs: u64,
    pub(super) host_to_device_bytes: u64,
    pub(super) allocated_bytes: u64,
    pub(super) failures: u64,
    pub(super) kernel_ns: f64,
    pub(super) graph_ns: f64,
}

/// Launches that torch's profiler counted.
#[derive(Debug, Deserialize)]
pub(super) struct Profiled {
    pub(super) kernels: u64,
    pub(super) prompts: u64,
}

/// The running program.
pub(super) struct Program {
    child: Child,
    pub(super) address: Address,
}

impl Program {
    /// `device` is `torch` or `driver`; `environment` is what its libraries need.
    pub(super) fn start(
        python: &Path,
        device: &str,
        environment: &[(&str, PathBuf)],
        log: &Path,
    ) -> Result<Program> {
        let port = free_port()?;
        let mut command = Command::new(python);
        command
            .arg(script("gpu_engine.py"))
            .args([&port.to_string(), device])
            .envs(environment.iter().map(|(name, value)| (name, value)));
        let mut child = Child::spawn("the engine on the GPU", command, log)?;
        let address = Address::loopback(port);
        child.wait_ready(Duration::from_secs(90), || {
            http::get(&address, "/").is_ok_and(|response| response.status == 200)
        })?;
        Ok(Program { child, address })
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// What it computes on.
    pub(super) fn description(&self) -> Result<String> {
        let answer = http::get(&self.address, "/")?.json()?;
        Ok(answer["device"].as_str().unwrap_or_default().to_owned())
    }

    pub(super) fn account(&self) -> Result<Account> {
        self.ask("/account")
    }

    pub(super) fn known(&self, query: &str) -> Result<Known> {
        self.ask(&format!("/known?{query}"))
    }

    pub(super) fn profiled(&self) -> Result<Profiled> {
        self.ask("/profiled")
    }

    fn ask<T: serde::de::DeserializeOwned>(&self, path: &str) -> Result<T> {
        let answer = http::get(&self.address, path).with_context(|| self.failed(path))?;
        ensure!(answer.status == 200, self.failed(path));
        serde_json::from_value(answer.json()?).with_context(|| self.failed(path))
    }

    fn failed(&self, path: &str) -> String {
        format!(
            "the engine did not answer {path}; its log ends with:\n{}",
            self.child.log_tail()
        )
    }

    pub(super) fn load(&self, concurrency: usize) -> Load {
        Load {
            address: self.address.clone(),
            concurrency,
            core: None,
        }
    }
}

/// A streamed request: prompts and answers of so many tokens.
pub(super) fn plan(index: usize, name: &str, prompt: usize, tokens: usize) -> Plan {
    let extra = json!({"stream": true, "stream_options": {"include_usage": true}, "max_tokens": tokens});
    Plan {
        index,
        ..Plan::completion(
            name,
            "gpu-check",
            &format!("{index} {}", "word ".repeat(prompt - 1)),
            &extra,
        )
    }
}

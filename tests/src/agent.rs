//! The agent as a process under test: started, asked through its own port, stopped or killed.
//!
//! Owns: its command line and its API as a user sees them. Refuses: the agent's own types: what it prints is checked
//! from outside.

use crate::{
    child::Child,
    engines::free_port,
    exposition::Exposition,
    gpu::{Gpus, SCRIPT_VARIABLE},
    http,
    scripted::Address,
};
use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::Value;
use std::{
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

/// Names the agent's executable for the live tests; `cargo xtask test` sets it.
pub const BINARY_VARIABLE: &str = "INFERTAP_BIN";

/// One request as the agent tells it: DESIGN's JSON shape, as far as the tests look.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[allow(missing_docs, reason = "the names are those of the documented JSON shape")]
pub struct Record {
    pub id: String,
    pub trace_id: String,
    pub trace_source: Option<String>,
    pub parent_span_id: Option<String>,
    pub response_id: Option<String>,
    pub engine: String,
    pub model: String,
    pub scene: Option<String>,
    pub client: Option<String>,
    pub client_namespace: Option<String>,
    pub client_pod: Option<String>,
    pub client_workload: Option<String>,
    pub client_workload_kind: Option<String>,
    pub protocol: String,
    pub streamed: bool,
    pub status: String,
    pub http_status: Option<u16>,
    pub finish_reason: Option<String>,
    pub t0_ns: Option<u64>,
    pub t1_ns: Option<u64>,
    pub t2_ns: Option<u64>,
    pub t3_ns: Option<u64>,
    pub t4_ns: Option<u64>,
    pub tokenize_s: Option<f64>,
    pub queue_s: Option<f64>,
    pub prefill_s: Option<f64>,
    pub decode_s: Option<f64>,
    pub ttft_s: Option<f64>,
    pub e2e_s: Option<f64>,
    pub input_tokens: Option<u64>,
    pub output_tokens: Option<u64>,
    pub cached_input_tokens: Option<u64>,
    pub chunks: u64,
    pub request_bytes: u64,
    pub response_bytes: u64,
    pub sources: Sources,
    pub energy_j: Option<f64>,
    pub gpu_alloc_failures: Option<u64>,
    pub incomplete: Vec<String>,
    pub diagnosis: Option<Diagnosis>,
    pub cost: Option<Value>,
}

/// Where its time went.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[allow(missing_docs, reason = "the names are those of the documented JSON shape")]
pub struct Diagnosis {
    pub cause: Option<String>,
    pub decode: Option<f64>,
    pub client: Option<f64>,
    pub client_stall_s: Option<f64>,
    pub in_flight_at_arrival: Option<u64>,
}

/// Where its counts came from.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[allow(missing_docs, reason = "the names are those of the documented JSON shape")]
pub struct Sources {
    pub t1: Option<String>,
    pub t2: Option<String>,
    pub t3: Option<String>,
    pub input_tokens: Option<String>,
    pub output_tokens: Option<String>,
}

/// How to start the agent.
#[derive(Debug, Clone)]
pub struct Start {
    /// The executable.
    pub binary: PathBuf,
    /// Arguments after `run`, the listening address excepted.
    pub arguments: Vec<String>,
    /// Port of its API; 0 takes a free one.
    pub port: u16,
    /// Its log.
    pub log: PathBuf,
    /// Words to put before the command, to get root.
    pub through: Vec<String>,
    /// Whoever drops it does not wait until the kernel has closed its probes, one after the other, which takes seconds. For
    /// tests, the next of which may begin meanwhile; a measurement must not.
    pub leave: bool,
}

impl Start {
    /// For a live test: the executable that `cargo xtask test` built, its log in `folder`.
    pub fn for_test(folder: &Path, arguments: &[&str]) -> Result<Start> {
        let binary = std::env::var_os(BINARY_VARIABLE).with_context(|| {
            format!("{BINARY_VARIABLE} names no agent: run live tests with `cargo xtask test`")
        })?;
        Ok(Start {
            binary: binary.into(),
            arguments: arguments.iter().map(|argument| (*argument).to_owned()).collect(),
            port: 0,
            log: folder.join("agent.log"),
            through: Vec::new(),
            leave: true,
        })
    }
}

/// A running agent. Stopped when dropped.
#[derive(Debug)]
pub struct Agent {
    /// Its API.
    pub address: Address,
    child: Child,
    leave: bool,
}

impl Drop for Agent {
    fn drop(&mut self) {
        if self.leave {
            self.child.leave();
        }
    }
}

impl Agent {
    /// Starts it and waits until `/readyz` agrees.
    pub fn start(start: &Start) -> Result<Agent> {
        Agent::start_with(start, &[])
    }

    /// As [`Agent::start`], with the stand-in driver in the place of the host's: it reads these GPUs.
    pub fn start_on(gpus: &Gpus, start: &Start) -> Result<Agent> {
        let mut start = start.clone();
        let library = format!("gpu.nvml_library={}", gpus.nvml().display());
        start.arguments.extend(["--set".to_owned(), library]);
        Agent::start_with(&start, &[(SCRIPT_VARIABLE, gpus.path().to_owned())])
    }

    /// As [`Agent::start`], with these variables in its environment.
    pub fn start_with(start: &Start, environment: &[(&str, PathBuf)]) -> Result<Agent> {
        let port = if start.port == 0 { free_port()? } else { start.port };
        let mut words = start
            .through
            .iter()
            .map(std::ffi::OsString::from)
            .collect::<Vec<_>>();
        words.push(start.binary.clone().into());
        let mut command = Command::new(&words[0]);
        command
            .args(&words[1..])
            .args(["run", "--listen", &format!("127.0.0.1:{port}")])
            // The host's own store is none of a test's; one that wants a store names it after this.
            .args(["--set", "store.path="])
            .args(&start.arguments)
            .envs(environment.iter().map(|(name, value)| (name, value)));
        let mut child = Child::spawn("the agent", command, &start.log)?;
        child.privileged = !start.through.is_empty();
        let address = Address::loopback(port);
        child.wait_ready(Duration::from_secs(20), || {
            http::get(&address, "/readyz").is_ok_and(|r| r.status == 200)
        })?;
        let leave = start.leave;
        Ok(Agent {
            address,
            child,
            leave,
        })
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// An error with the end of its log when it has ended.
    pub fn check_running(&mut self) -> Result<()> {
        let ended = self.child.ended();
        ensure!(
            ended.is_none(),
            "the agent ended ({ended:?}); its log ends with:\n{}",
            self.child.log_tail()
        );
        Ok(())
    }

    /// The end of its log.
    pub fn log_tail(&self) -> String {
        self.child.log_tail()
    }

    /// Its metrics.
    pub fn metrics(&self) -> Result<Exposition> {
        let response = http::get(&self.address, "/metrics")?;
        ensure!(
            response.status == 200,
            "/metrics answered {}: {}",
            response.status,
            response.body
        );
        Exposition::parse(&response.body)
    }

    /// The requests that it remembers, newest first.
    pub fn requests(&self) -> Result<Vec<Record>> {
        #[derive(Deserialize)]
        struct Answer {
            requests: Vec<Record>,
        }
        let response = http::get(&self.address, "/api/v1/requests?limit=10000")?;
        ensure!(
            response.status == 200,
            "/api/v1/requests answered {}: {}",
            response.status,
            response.body
        );
        let answer: Answer =
            serde_json::from_str(&response.body).context("/api/v1/requests has another shape")?;
        Ok(answer.requests)
    }

    /// The engines that it watches.
    pub fn engines(&self) -> Result<Value> {
        http::get(&self.address, "/api/v1/engines")?.json()
    }

    /// Waits until it watches process `pid`, at most `limit`; the id of the engine that the process belongs to. A program
    /// that is going to listen has another id once it does: for those there is [`Agent::wait_serving`].
    pub fn wait_watching(&self, pid: u32, limit: Duration) -> Result<String> {
        self.wait_engine(pid, limit, "watched", |_| true)
    }

    /// As [`Agent::wait_watching`], of a process whose engine listens on a TCP port, and until that is known: an engine of
    /// no known kind is named after its port, and after its process as long as it has none.
    pub fn wait_serving(&self, pid: u32, limit: Duration) -> Result<String> {
        let listens = |engine: &Value| engine["ports"].as_array().is_some_and(|ports| !ports.is_empty());
        self.wait_engine(pid, limit, "watched and known to listen", listens)
    }

    fn wait_engine(
        &self,
        pid: u32,
        limit: Duration,
        what: &str,
        is: impl Fn(&Value) -> bool,
    ) -> Result<String> {
        let start = Instant::now();
        loop {
            let engines = self.engines()?;
            let all = engines["engines"].as_array().map_or(&[][..], Vec::as_slice);
            let of_pid = |engine: &&Value| {
                engine["pids"]
                    .as_array()
                    .is_some_and(|pids| pids.iter().any(|p| p == pid))
                    && engine["coverage"]["socket"] == true
                    && is(engine)
            };
            if let Some(id) = all.iter().find(of_pid).and_then(|engine| engine["id"].as_str()) {
                return Ok(id.to_owned());
            }
            ensure!(
                start.elapsed() < limit,
                "process {pid} is not {what} after {limit:?}: {engines}\nthe agent's log ends with:\n{}",
                self.log_tail()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until it remembers at least `count` requests that `of` accepts, and for a moment longer, so that a surplus
    /// shows too. What there is when `limit` passes is returned as well: the caller's checks then tell what is missing.
    pub fn wait_requests(
        &self,
        count: usize,
        limit: Duration,
        of: impl Fn(&Record) -> bool,
    ) -> Result<Vec<Record>> {
        let start = Instant::now();
        loop {
            let found = self.requests()?.into_iter().filter(&of).count();
            let enough = found >= count;
            if enough || start.elapsed() > limit {
                std::thread::sleep(Duration::from_millis(if enough { 300 } else { 0 }));
                return Ok(self.requests()?.into_iter().filter(&of).collect());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The one record of `records` that `is` accepts; a panic that tells them all, when there is none or several.
    pub fn the_record<'a>(
        &self,
        records: &'a [Record],
        what: &dyn std::fmt::Debug,
        is: impl Fn(&Record) -> bool,
    ) -> &'a Record {
        let found: Vec<&Record> = records.iter().filter(|record| is(record)).collect();
        match found[..] {
            [record] => record,
            _ => panic!(
                "{} records of {what:?} among these:\n{records:#?}\nall engines: {:?}\nthe agent's log ends with:\n{}",
                found.len(),
                self.engines(),
                self.log_tail()
            ),
        }
    }

    /// Resident memory in bytes.
    pub fn resident_bytes(&self) -> Result<u64> {
        let path = format!("/proc/{}/status", self.pid());
        let status = std::fs::read_to_string(&path).with_context(|| format!("can't read {path}"))?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .context("no VmRSS")?;
        let kib: u64 = line
            .trim()
            .trim_end_matches(" kB")
            .parse()
            .context("VmRSS is no number")?;
        Ok(kib * 1024)
    }

    /// `kill -9`.
    pub fn kill(mut self) {
        self.child.kill();
    }

    /// Stops it in order; whether it ended with success.
    pub fn stop(mut self) -> bool {
        self.child.stop().is_some_and(|status| status.success())
    }
}

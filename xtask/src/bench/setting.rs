//! What the live measurements share: the executables, a running server, an agent in one of its modes.
//!
//! Owns: starting them alike every time. Refuses: measuring.

use anyhow::{Result, ensure};
use infertap_tests::{
    agent::{Agent, Start},
    bpf_census,
    scripted::ServerProcess,
};
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    io,
    path::PathBuf,
    time::{Duration, Instant},
};

/// Executables and a folder for logs.
pub(super) struct Setting {
    pub(super) agent: PathBuf,
    pub(super) server: PathBuf,
    pub(super) folder: PathBuf,
}

impl Setting {
    pub(super) fn start_server(&self) -> Result<ServerProcess> {
        ServerProcess::start_without_truth(&self.server, &self.folder, &[])
    }

    /// The agent on `server`; `None` is no agent.
    pub(super) fn start_agent(&self, server: &ServerProcess, mode: Option<&str>) -> Result<Option<Agent>> {
        let Some(mode) = mode else {
            return Ok(None);
        };
        let arguments = ["--pid", &server.pid().to_string(), "--socket-probe", mode]
            .map(str::to_owned)
            .to_vec();
        let start = Start {
            binary: self.agent.clone(),
            arguments,
            port: 0,
            log: self.folder.join("agent.log"),
            through: Vec::new(),
            leave: false,
        };
        let agent = Agent::start(&start)?;
        agent.wait_watching(server.pid(), Duration::from_secs(10))?;
        Ok(Some(agent))
    }
}

/// The body of a streamed chat request that carries this script.
pub(super) fn streamed(script: &Value) -> Value {
    json!({"messages": [{"role": "user", "content": "go"}], "model": "bench", "stream": true, "script": script})
}

/// A thousand streams take more descriptors than the usual soft limit allows; children inherit it.
pub(super) fn raise_descriptor_limit() -> Result<()> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is a valid rlimit for the calls to fill and to read.
    let result = unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
        limit.rlim_cur = limit.rlim_max;
        libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit)
    };
    ensure!(
        result == 0,
        "can't raise the limit of open files: {}",
        io::Error::last_os_error()
    );
    ensure!(
        limit.rlim_cur >= 4096,
        "{} open files are too few for 1,000 streams",
        limit.rlim_cur
    );
    Ok(())
}

/// The kernel frees programs a moment after their last user has ended.
pub(super) fn wait_gone(programs: &BTreeSet<u32>) -> Result<()> {
    let start = Instant::now();
    while !bpf_census::loaded_programs()?.is_disjoint(programs) {
        ensure!(
            start.elapsed() < Duration::from_secs(10),
            "the agent has ended and its BPF programs are still loaded"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

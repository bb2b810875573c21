//! An agent on the engine that is checked.
//!
//! Owns: its arguments, waiting until all that is checked is attached. Refuses: reading what it says.

use super::{Options, program::Program};
use crate::agent::{Agent, Start};
use anyhow::{Context, Result, ensure};
use std::{
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

/// Probes take a moment to be attached; the first reading of the GPUs comes within a second.
const PATIENCE: Duration = Duration::from_secs(20);

/// The agent, and its name for the engine.
pub(super) struct Watch {
    pub(super) agent: Agent,
    pub(super) engine: String,
}

impl Watch {
    /// `gpus`: more of its configuration, as `key=value`; `environment` is what its libraries need.
    pub(super) fn start(
        options: &Options,
        program: &Program,
        gpus: &[String],
        environment: &[(&str, PathBuf)],
    ) -> Result<Watch> {
        let mut arguments = vec!["--pid".to_owned(), program.pid().to_string()];
        for set in gpus {
            arguments.extend(["--set".to_owned(), set.clone()]);
        }
        let start = Start {
            binary: options.agent.clone(),
            arguments,
            port: 0,
            log: options.logs.join("agent.log"),
            through: Vec::new(),
            leave: false,
        };
        let agent = Agent::start_with(&start, environment)?;
        let engine = agent.wait_watching(program.pid(), PATIENCE)?;
        let watch = Watch { agent, engine };
        watch.wait_attached()?;
        Ok(watch)
    }

    fn wait_attached(&self) -> Result<()> {
        let start = Instant::now();
        loop {
            let metrics = self.agent.metrics()?;
            let labels = [("engine", self.engine.as_str())];
            let mut launches = metrics.select("cuda_kernel_launches_total", &labels);
            let missing = match (launches.next(), metrics.select("gpu_up", &[]).next()) {
                (None, _) => "the engine's CUDA calls are not counted",
                (_, None) => "no GPU is read",
                _ => return Ok(()),
            };
            ensure!(
                start.elapsed() < PATIENCE,
                "{missing} after {PATIENCE:?}; the agent's log ends with:\n{}",
                self.agent.log_tail()
            );
            thread::sleep(Duration::from_millis(50));
        }
    }

    pub(super) fn stop(self) {
        self.agent.stop();
    }

    /// The first GPU and its driver, as the agent names them.
    pub(super) fn gpus(&self) -> Result<String> {
        let metrics = self.agent.metrics()?;
        let info = metrics.select("gpu_info", &[]).next().context("no gpu_info")?;
        Ok(format!(
            "{}, driver {}",
            info.label("name").unwrap_or_default(),
            info.label("driver").unwrap_or_default()
        ))
    }
}

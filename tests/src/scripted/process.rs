//! The scripted server as a child process, with what it wrote down.
//!
//! Owns: starting `scripted-server` and reading its truth file. Refuses: serving (the executable's work).

use super::{Address, ServerTruth, engine::Step};
use crate::{child::Child, gpu::Drivers};
use anyhow::{Context, Result};
use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

/// A running scripted server. Ends when dropped.
#[derive(Debug)]
pub struct ServerProcess {
    /// Where it listens.
    pub address: Address,
    truth: Option<PathBuf>,
    steps: Option<PathBuf>,
    child: Child,
}

impl ServerProcess {
    /// Starts `binary` with `arguments`; its truth file is in `folder`.
    pub fn start(binary: &Path, folder: &Path, arguments: &[&str]) -> Result<ServerProcess> {
        Self::start_with(binary, folder, arguments, &[], Some(folder.join("truth.jsonl")))
    }

    /// As [`ServerProcess::start`], with an engine on the stand-in GPU: [`ServerProcess::steps`] tells what it did.
    /// `environment` is for the libraries.
    pub fn start_on_gpu(
        binary: &Path,
        folder: &Path,
        drivers: &Drivers,
        arguments: &[&str],
        environment: &[(&str, PathBuf)],
    ) -> Result<ServerProcess> {
        let gpu = drivers.folder().display().to_string();
        let steps = folder.join("steps.jsonl").display().to_string();
        let more = ["--gpu", &gpu, "--steps", &steps];
        let truth = Some(folder.join("truth.jsonl"));
        let mut server = Self::start_with(binary, folder, &[&more, arguments].concat(), environment, truth)?;
        server.steps = Some(folder.join("steps.jsonl"));
        Ok(server)
    }

    /// The steps that its engine has made, complete up to every token that has been answered with.
    pub fn steps(&self) -> Result<Vec<Step>> {
        let path = self.steps.as_ref().context("it has no engine")?;
        let text = fs::read_to_string(path)?;
        let complete = text.rfind('\n').map_or("", |end| &text[..=end]);
        Ok(complete
            .lines()
            .map(serde_json::from_str)
            .collect::<Result<_, _>>()?)
    }

    /// As [`ServerProcess::start`], for measurements in which writing the truth down would be part of the cost.
    pub fn start_without_truth(binary: &Path, folder: &Path, arguments: &[&str]) -> Result<ServerProcess> {
        Self::start_with(binary, folder, arguments, &[], None)
    }

    fn start_with(
        binary: &Path,
        folder: &Path,
        arguments: &[&str],
        environment: &[(&str, PathBuf)],
        truth: Option<PathBuf>,
    ) -> Result<ServerProcess> {
        let mut command = Command::new(binary);
        command.args(arguments).envs(environment.iter().cloned());
        if let Some(truth) = &truth {
            command.arg("--truth").arg(truth);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = Child::spawn_as_is("the scripted server", command, &folder.join("server.log"))?;
        let mut line = String::new();
        BufReader::new(child.take_stdout().context("no standard output")?).read_line(&mut line)?;
        let hello: serde_json::Value =
            serde_json::from_str(&line).with_context(|| format!("the scripted server said `{line}`"))?;
        let address = hello["listening"]
            .as_str()
            .context("it names no address")?
            .parse()?;
        Ok(ServerProcess {
            address,
            truth,
            steps: None,
            child,
        })
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// What it wrote down, once there are `count` lines; an error after ten seconds.
    pub fn truths(&self, count: usize) -> Result<Vec<ServerTruth>> {
        let start = Instant::now();
        loop {
            let text = self
                .truth
                .as_ref()
                .and_then(|truth| fs::read_to_string(truth).ok())
                .unwrap_or_default();
            let complete = text.rfind('\n').map_or("", |end| &text[..=end]);
            let truths: Vec<ServerTruth> = complete
                .lines()
                .map(serde_json::from_str)
                .collect::<Result<_, _>>()?;
            if truths.len() >= count {
                return Ok(truths);
            }
            anyhow::ensure!(
                start.elapsed() < Duration::from_secs(10),
                "{} of {count} truths after 10 s",
                truths.len()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        self.child.ended().is_none()
    }

    /// Stops its threads where they are, and waits until they have; an error after ten seconds.
    pub fn pause(&mut self) -> Result<()> {
        self.child.signal(libc::SIGSTOP);
        let start = Instant::now();
        let stopped = |task: &procfs::process::Task| task.stat().is_ok_and(|stat| stat.state == 'T');
        let process = procfs::process::Process::new(self.pid() as i32)?;
        while !process.tasks()?.flatten().all(|task| stopped(&task)) {
            anyhow::ensure!(start.elapsed() < Duration::from_secs(10), "it does not stop");
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Lets its threads go on.
    pub fn resume(&mut self) {
        self.child.signal(libc::SIGCONT);
    }

    /// Ends it as a crash would.
    pub fn kill(mut self) {
        self.child.kill();
    }
}

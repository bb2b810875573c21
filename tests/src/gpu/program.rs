//! `cuda-program` as a child process.
//!
//! Owns: starting it, letting it begin, what it tells. Refuses: making calls (the executable's work).

use super::{CUDA_VARIABLE, Cuda, Drivers, calls::Counts};
use crate::child::Child;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{ChildStdin, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

/// How long its end is waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the program made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// By kind.
    pub made: Counts,
    /// Calls that entered the stand-in driver by exported symbols, by those for per-thread default streams, and by pointers
    /// of `cuGetProcAddress`.
    pub entered: [u64; 3],
}

/// A program that is ready, and waits. Ends when dropped.
#[derive(Debug)]
pub struct CudaProgram {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl CudaProgram {
    /// Starts `binary` on the libraries; `arguments` say what it is to make.
    pub fn start(
        binary: &Path,
        folder: &Path,
        drivers: &Drivers,
        settings: &Cuda,
        arguments: &[&str],
    ) -> Result<CudaProgram> {
        let mut command = Command::new(binary);
        command
            .arg("--drivers")
            .arg(drivers.folder())
            .args(arguments)
            .env(CUDA_VARIABLE, settings.to_environment())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = Child::spawn_as_is("the CUDA program", command, &folder.join("cuda-program.log"))?;
        let input = child.take_stdin().context("no standard input")?;
        let output = BufReader::new(child.take_stdout().context("no standard output")?);
        let mut program = CudaProgram { child, input, output };
        program.line()?;
        Ok(program)
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// Lets it make its calls; what it made. The program stays until it is dropped.
    pub fn run(&mut self) -> Result<Report> {
        self.order("go")
    }

    /// Lets it make these calls, in the words of its command line; what it made.
    pub fn order(&mut self, orders: &str) -> Result<Report> {
        self.tell(orders)?;
        Ok(serde_json::from_str(&self.line()?)?)
    }

    /// Tells it what to make, without waiting for what it made.
    pub fn tell(&mut self, orders: &str) -> Result<()> {
        let line = format!("{orders}\n");
        let told = self.input.write_all(line.as_bytes());
        told.context("the CUDA program reads nothing")
    }

    /// Waits until it has ended by itself; an error after ten seconds.
    pub fn wait_end(&mut self) -> Result<()> {
        let begun = Instant::now();
        while self.child.ended().is_none() {
            anyhow::ensure!(begun.elapsed() < PATIENCE, "the CUDA program does not end");
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        anyhow::ensure!(
            !line.is_empty(),
            "the CUDA program ended; its log ends with:\n{}",
            self.child.log_tail()
        );
        Ok(line)
    }
}

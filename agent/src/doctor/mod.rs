//! What works on this host, what does not, and what to do about it.
//!
//! Owns: `infertap doctor`: its checks, their order and their printing. Refuses: changing anything on the host; what it
//! tries (a BPF map, a mount in a namespace of its own) is gone when it has answered.

mod facts;
mod judge;
mod judge_gpu;
mod kubernetes;
mod live;
mod store;

pub use facts::{BpfFailure, CudaFacts, Facts, GpuDevice, GpuFacts, Nvml, Tracefs};
pub use judge::judge;
pub use kubernetes::KubernetesFacts;
pub use store::StoreFacts;

use crate::config::{Config, SocketProbe};
use serde::Serialize;
use std::io::{self, Write};

/// How a check came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It works.
    Works,
    /// `infertap run` works, but something is missing.
    Degraded,
    /// `infertap run` can't work.
    Fails,
}

impl Verdict {
    /// The word that is printed.
    pub const fn as_str(self) -> &'static str {
        match self {
            Verdict::Works => "works",
            Verdict::Degraded => "degraded",
            Verdict::Fails => "fails",
        }
    }
}

/// One line of the answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What was checked.
    pub name: &'static str,
    /// How it came out.
    pub verdict: Verdict,
    /// What was seen, and what follows from it.
    pub why: String,
    /// What to do, where something can be done.
    pub advice: Option<String>,
}

/// The whole answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Diagnosis {
    /// Whether `infertap run` can work.
    pub able: bool,
    /// How sockets would be read.
    pub socket_probe: SocketProbe,
    /// Every check.
    pub checks: Vec<Check>,
}

impl Diagnosis {
    /// Judges what was found.
    pub fn of(facts: &Facts, socket_probe: SocketProbe) -> Diagnosis {
        let checks = judge(facts, socket_probe);
        let able = checks.iter().all(|check| check.verdict != Verdict::Fails);
        Diagnosis {
            able,
            socket_probe,
            checks,
        }
    }

    /// Prints for people.
    ///
    /// # Errors
    /// The output can't be written.
    pub fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        for check in &self.checks {
            writeln!(
                out,
                "{:<9} {:<14} {}",
                check.verdict.as_str(),
                check.name,
                check.why
            )?;
            if let Some(advice) = &check.advice {
                writeln!(out, "{:<24} → {advice}", "")?;
            }
        }
        let count = |verdict| {
            self.checks
                .iter()
                .filter(|check| check.verdict == verdict)
                .count()
        };
        let (degraded, fails) = (count(Verdict::Degraded), count(Verdict::Fails));
        match (fails, degraded) {
            (0, 0) => writeln!(out, "\n`infertap run` works here."),
            (0, n) => writeln!(
                out,
                "\n`infertap run` works here, with {n} restriction{}.",
                plural(n)
            ),
            (n, _) => writeln!(
                out,
                "\n`infertap run` can't work here: {n} check{} above fail{}.",
                plural(n),
                if n == 1 { "s" } else { "" }
            ),
        }
    }
}

fn plural(n: usize) -> &'static str {
    if n == 1 { "" } else { "s" }
}

/// `infertap doctor`; whether `infertap run` can work.
///
/// # Errors
/// The output can't be written.
pub fn doctor_command(config: &Config, json: bool, out: &mut dyn Write) -> anyhow::Result<bool> {
    let diagnosis = Diagnosis::of(&Facts::gather(config), config.capture.socket_probe);
    if json {
        writeln!(out, "{}", serde_json::to_string_pretty(&diagnosis)?)?;
    } else {
        diagnosis.print(out)?;
    }
    Ok(diagnosis.able)
}

//! Real serving engines for the live tests and the demo, set up under `target/engines/` from PyPI alone.
//!
//! Owns: installing, starting, waiting, stopping. Refuses: anything outside the engines folder. `INFERTAP_ENGINES` names
//! another folder of the same layout to use and fill.

pub mod compute;
mod gguf;
mod llama;
pub mod processes;
pub(crate) mod python;
mod vllm;

use crate::{child::Child, http, scripted::Address};
use anyhow::{Context, Result};
use std::{
    ffi::OsString,
    fs::{self, File},
    net::TcpListener,
    path::{Path, PathBuf},
    process::Command,
    str::FromStr,
    time::Duration,
};

/// Which engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// llama.cpp's server, as the `xllamacpp` wheel carries it.
    Llama,
    /// vLLM's v1 engine on the CPU.
    Vllm,
}

impl FromStr for Kind {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Kind> {
        match text {
            "llama" => Ok(Kind::Llama),
            "vllm" => Ok(Kind::Vllm),
            _ => anyhow::bail!("`{text}` is neither llama nor vllm"),
        }
    }
}

/// Name under which the engines serve their model.
pub const MODEL: &str = "smollm2";

/// The folder of the engines, made if it does not exist.
pub fn folder(target: &Path) -> Result<PathBuf> {
    let folder = std::env::var_os("INFERTAP_ENGINES").map_or_else(|| target.join("engines"), PathBuf::from);
    fs::create_dir_all(&folder).with_context(|| format!("can't make {}", folder.display()))?;
    Ok(fs::canonicalize(folder)?)
}

/// Installs `kind` into `folder` where it is not there yet. Says what it does on standard error.
pub fn install(kind: Kind, folder: &Path) -> Result<()> {
    // Two runs at once must not write the same files.
    let lock = File::create(folder.join("lock"))?;
    lock.lock()
        .with_context(|| format!("can't lock {}", folder.display()))?;
    match kind {
        Kind::Llama => llama::install(folder),
        Kind::Vllm => {
            llama::install(folder)?;
            vllm::install(folder)
        }
    }
}

/// How to start an engine.
#[derive(Debug, Clone, Default)]
pub struct Start {
    /// Port; 0 takes a free one.
    pub port: u16,
    /// Where its log goes; inside the engines folder by default.
    pub log: Option<PathBuf>,
    /// More arguments for its command line: vLLM's options, or `name=number` for a member of llama.cpp's parameters.
    pub arguments: Vec<String>,
    /// More variables for its environment.
    pub environment: Vec<(String, OsString)>,
}

/// A running engine. Ends when dropped.
#[derive(Debug)]
pub struct Engine {
    /// Which.
    pub kind: Kind,
    /// Where it listens.
    pub address: Address,
    child: Child,
}

impl Engine {
    /// Starts an installed engine and waits until it serves.
    pub fn start(kind: Kind, folder: &Path, start: &Start) -> Result<Engine> {
        let port = if start.port == 0 { free_port()? } else { start.port };
        let (mut command, limit) = match kind {
            Kind::Llama => (llama::command(folder, port), Duration::from_mins(2)),
            Kind::Vllm => (vllm::command(folder, port), Duration::from_mins(10)),
        };
        command
            .args(&start.arguments)
            .envs(start.environment.iter().map(|(name, value)| (name, value)));
        let log = start
            .log
            .clone()
            .unwrap_or_else(|| folder.join(format!("{kind:?}-{port}.log").to_lowercase()));
        let mut child = Child::spawn(&format!("{kind:?}"), command, &log)?;
        let address = Address::loopback(port);
        child.wait_ready(limit, || {
            http::get(&address, "/health").is_ok_and(|response| response.status == 200)
        })?;
        Ok(Engine { kind, address, child })
    }

    /// Its main process.
    pub fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        self.child.ended().is_none()
    }

    /// Ends it and waits, with its child processes: vLLM's engine core can outlive a front end that is ended.
    pub fn stop(mut self) {
        let processes = processes::descendants(self.pid());
        self.child.stop();
        for process in processes {
            // SAFETY: a plain system call. Children that have ended with their parent are gone; a process id is not used
            // again within the moment that passed.
            unsafe { libc::kill(process as i32, libc::SIGKILL) };
        }
    }
}

/// A server that tokenizes and does nothing else, with what an installed [`Kind::Llama`] has. Ends when dropped.
pub fn tokenizing_server(folder: &Path, log: &Path) -> Result<(Child, Address)> {
    let port = free_port()?;
    let mut child = Child::spawn("tokenizing", llama::tokenizing_command(folder, port), log)?;
    let address = Address::loopback(port);
    child.wait_ready(Duration::from_secs(30), || {
        http::get(&address, "/").is_ok_and(|response| response.status == 200)
    })?;
    Ok((child, address))
}

/// A receiver of OTLP traces, which reads them as OpenTelemetry's own messages, with what an installed [`Kind::Llama`] has.
/// Ends when dropped. Each span that it received is a line of JSON in `log`.
pub fn trace_receiver(folder: &Path, log: &Path) -> Result<(Child, [Address; 2])> {
    let ports = [free_port()?, free_port()?];
    let mut child = Child::spawn("the trace receiver", llama::receiver_command(folder, ports), log)?;
    let ready = || std::fs::read_to_string(log).is_ok_and(|text| text.starts_with("ready"));
    child.wait_ready(Duration::from_secs(30), ready)?;
    Ok((child, ports.map(Address::loopback)))
}

/// The program that calls tokenizers in loops and times them, with what an installed [`Kind::Llama`] has.
pub fn call_cost_command(folder: &Path) -> Command {
    llama::call_cost_command(folder)
}

/// A TCP port of the loopback interface that nobody listens on now.
pub fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

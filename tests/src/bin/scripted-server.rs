//! The scripted server as a process, so that the agent can watch it as it would any other.
//!
//! Prints one JSON line when it listens, then serves until it is killed.

use anyhow::Result;
use clap::Parser;
use infertap_tests::scripted::{
    Address, Calls, Options, Server,
    engine::{Engine, Settings, step_lines},
    garbage::Kind,
    json_lines,
};
use std::{path::PathBuf, sync::Arc};

/// Answers OpenAI-style requests on the schedule that each one carries.
#[derive(Debug, Parser)]
struct Cli {
    /// IP:PORT (port 0: any free one) or unix:PATH
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: Address,
    /// System calls that move the bytes: plain, socket, vector or message
    #[arg(long, default_value = "socket")]
    calls: Calls,
    /// Hold this dialogue instead of HTTP: urandom, tls, http2, redis or postgres
    #[arg(long)]
    garbage: Option<Kind>,
    /// Append one JSON line a request: what was done, by this process's clock
    #[arg(long)]
    truth: Option<PathBuf>,
    /// Compute requests on the stand-in GPU whose libraries are in this folder
    #[arg(long)]
    gpu: Option<PathBuf>,
    /// Append one JSON line a step of the engine
    #[arg(long, requires = "gpu")]
    steps: Option<PathBuf>,
    /// Requests that the engine runs at once
    #[arg(long, default_value_t = 4)]
    max_running: usize,
    /// Microseconds that the scheduler takes to start a request, with the GPU idle
    #[arg(long, default_value_t = 0)]
    think_us: u64,
    /// Prefill in one step with decoding
    #[arg(long)]
    mixed: bool,
    /// Call the CUDA runtime instead of the driver
    #[arg(long)]
    by_runtime: bool,
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    let append = |path| std::fs::OpenOptions::new().create(true).append(true).open(path);
    let sink = match &cli.truth {
        Some(path) => json_lines(append(path)?),
        None => Arc::new(|_| {}),
    };
    let engine = match &cli.gpu {
        None => None,
        Some(drivers) => {
            let settings = Settings {
                max_running: cli.max_running,
                think_us: cli.think_us,
                mixed: cli.mixed,
                by_runtime: cli.by_runtime,
            };
            let steps = match &cli.steps {
                Some(path) => step_lines(append(path)?),
                None => Box::new(|_: &_| {}),
            };
            Some(Engine::start(drivers, settings, steps)?)
        }
    };
    let options = Options {
        calls: cli.calls,
        garbage: cli.garbage,
        engine,
        ..Options::default()
    };
    let server = Server::bind(&cli.listen, options, sink)?;
    let address = server.address();
    println!(
        "{}",
        serde_json::json!({"listening": address.to_string(), "port": address.port(), "pid": std::process::id()})
    );
    server.serve()
}

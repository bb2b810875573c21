//! The scripted server as a process, so that the agent can watch it as it would any other.
//!
//! Prints one JSON line when it listens, then serves until it is killed.

use anyhow::Result;
use clap::Parser;
use infertap_tests::scripted::{Address, Calls, Options, Server, garbage::Kind, json_lines};
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
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    let sink = match &cli.truth {
        Some(path) => json_lines(std::fs::OpenOptions::new().create(true).append(true).open(path)?),
        None => Arc::new(|_| {}),
    };
    let options = Options {
        calls: cli.calls,
        garbage: cli.garbage,
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

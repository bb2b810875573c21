//! `cargo xtask run`: builds the agent and runs it as root, on what is on this host or on a demonstration.
//!
//! Owns: the choice. Refuses: the demonstration itself (`demo`).

use crate::{build, demo, privilege, sh};
use anyhow::Result;
use std::process::Command;

/// Run the agent.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Set up a real llama.cpp server with a small model under target/, drive mixed traffic at it, and show the numbers
    #[arg(long)]
    demo: bool,
    /// Stop the demonstration after this many seconds [default: at Ctrl-C]
    #[arg(long, requires = "demo")]
    seconds: Option<u64>,
    /// Connections that the demonstration uses at once
    #[arg(long, default_value_t = 4, requires = "demo")]
    concurrency: usize,
    /// Arguments of `infertap run`, after `--`
    #[arg(last = true)]
    agent: Vec<String>,
}

/// Entry of the command.
pub(crate) fn run(args: &Args) -> Result<()> {
    let through = privilege::words("the agent")?;
    let binary = build::agent()?;
    if args.demo {
        let options = demo::Options {
            binary,
            through,
            seconds: args.seconds,
            concurrency: args.concurrency,
            agent: args.agent.clone(),
        };
        return demo::run(&options);
    }
    let mut words = through;
    words.push(binary.display().to_string());
    words.push("run".to_owned());
    words.extend(args.agent.iter().cloned());
    // In the terminal's foreground group, so that Ctrl-C reaches the agent itself.
    sh::run(Command::new(&words[0]).args(&words[1..]))
}

//! `cargo xtask bench`: what the agent can take, what it costs the watched server, what memory it needs.
//!
//! Owns: the order of the measurements and the printed tables. Refuses: absolute verdicts across machines: the live
//! numbers are ratios of runs that were interleaved on one machine.

mod calls;
mod cuda;
mod engine;
mod engine_table;
mod live;
mod loops;
mod memory;
mod setting;

use crate::{build, privilege, sh};
use anyhow::{Result, ensure};
use setting::Setting;

/// Measure.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    alone: Option<Alone>,
    /// Only these measurements
    #[arg(value_enum)]
    only: Vec<What>,
    /// Rounds of the live measurement; each measures every mode once
    #[arg(long, default_value_t = 9)]
    rounds: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum What {
    /// SSE chunks a second through the core on replay, one core
    Replay,
    /// A server that streams at full speed, and one at an engine's pace, with and without the agent
    Live,
    /// The agent's resident memory at 1, 100 and 1,000 open streams
    Memory,
}

/// What is measured only when it is asked for.
#[derive(Debug, clap::Subcommand)]
enum Alone {
    /// Output tokens a second of a real engine, with all probes of the agent on and without it
    Engine(engine::Args),
    /// Nanoseconds that probes add to a call of a tokenizer
    Calls(calls::Args),
    /// Nanoseconds that probes add to a CUDA call
    Cuda(cuda::Args),
}

/// Entry of the command.
pub(crate) fn run(args: &Args) -> Result<()> {
    if let Some(alone) = &args.alone {
        ensure!(
            privilege::is_root(),
            "the measurements load BPF programs and pin threads: run them as root"
        );
        return match alone {
            Alone::Engine(args) => engine::measure(args),
            Alone::Calls(args) => calls::measure(args),
            Alone::Cuda(args) => cuda::measure(args),
        };
    }
    let chosen = |what| args.only.is_empty() || args.only.contains(&what);
    if chosen(What::Replay) {
        println!("\n## Replay through the core, one core\n");
        sh::run(sh::cargo().args([
            "run",
            "--release",
            "--quiet",
            "--package",
            "infertap-core",
            "--example",
            "replay_rate",
        ]))?;
    }
    if !chosen(What::Live) && !chosen(What::Memory) {
        return Ok(());
    }
    ensure!(
        privilege::is_root(),
        "the live measurements pin cores and read the agent's memory: run them as root"
    );
    let setting = Setting {
        agent: build::agent()?,
        server: build::binary("infertap-tests", "scripted-server", &["--release"])?,
        folder: build::target_folder()?.join("bench"),
    };
    std::fs::create_dir_all(&setting.folder)?;
    setting::raise_descriptor_limit()?;
    if chosen(What::Live) {
        live::measure(&setting, args.rounds)?;
    }
    if chosen(What::Memory) {
        memory::measure(&setting)?;
    }
    Ok(())
}

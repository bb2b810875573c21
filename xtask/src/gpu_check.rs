//! `cargo xtask gpu-check`: the agent on a machine with an NVIDIA GPU, held against everything else that knows what the GPU
//! does. Ends within four minutes.
//!
//! Owns: building, the exit code. Refuses: comparing (`infertap_tests::gpu_check`).

use crate::{build, privilege};
use anyhow::{Result, bail, ensure};
use infertap_tests::gpu_check::{self, Options};
use std::path::PathBuf;

/// Compare the agent with nvidia-smi, PyTorch and an engine's own account on this machine's GPU.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A Python that has PyTorch for this GPU
    #[arg(long, value_name = "FILE", default_value = "python3")]
    python: PathBuf,
    /// An agent that is built already
    #[arg(long, value_name = "FILE")]
    agent: Option<PathBuf>,
    /// Run the same comparisons on the tests' stand-in driver: needs neither a GPU nor PyTorch, and tells nothing about one
    #[arg(long)]
    stand_in: bool,
}

/// Entry of the command.
pub(crate) fn run(args: &Args) -> Result<()> {
    ensure!(
        privilege::is_root(),
        "the check loads BPF programs: run it as root"
    );
    let options = Options {
        agent: match &args.agent {
            Some(agent) => agent.clone(),
            None => build::agent()?,
        },
        python: args.python.clone(),
        logs: build::target_folder()?.join("gpu-check"),
        stand_in: args.stand_in,
    };
    let broken = gpu_check::run(&options)?;
    println!("logs are in {}", options.logs.display());
    if !broken.is_empty() {
        bail!("{} bounds are broken", broken.len());
    }
    Ok(())
}

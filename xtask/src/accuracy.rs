//! `cargo xtask accuracy`: the agent against a real engine's own account of a load that makes it queue.
//!
//! Owns: building, setting the engine up, the exit code. Refuses: comparing (`infertap_tests::accuracy`).

use crate::{build, privilege};
use anyhow::{Result, bail, ensure};
use infertap_tests::{
    accuracy::{self, Options, TokenOptions},
    engines::{self, Kind},
};
use std::path::PathBuf;

/// Compare the agent with a real engine's own account.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// llama or vllm
    engine: Kind,
    /// Requests to send [default: 120 for llama, 100 for vllm; 300 with --tokens]
    #[arg(long)]
    requests: Option<usize>,
    /// Compare prompt tokens alone: the agent's own count of as many prompts with the engine's
    #[arg(long)]
    tokens: bool,
    /// Compare the prefix advisor with vLLM's prefix cache alone
    #[arg(long, conflicts_with = "tokens")]
    prefix: bool,
    /// Seed of the load
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// An agent that is built already
    #[arg(long, value_name = "FILE")]
    agent: Option<PathBuf>,
}

/// Entry of the command.
pub(crate) fn run(args: &Args) -> Result<()> {
    ensure!(
        privilege::is_root(),
        "the comparison pins cores and loads BPF programs: run it as root"
    );
    let target = build::target_folder()?;
    let folder = engines::folder(&target)?;
    engines::install(args.engine, &folder)?;
    if args.tokens {
        return tokens(args, folder);
    }
    let options = Options {
        kind: args.engine,
        agent: match &args.agent {
            Some(agent) => agent.clone(),
            None => build::agent()?,
        },
        engines: folder,
        logs: target.join("accuracy"),
        requests: args.requests.unwrap_or(match args.engine {
            Kind::Llama => 120,
            Kind::Vllm => 100,
        }),
        seed: args.seed,
    };
    let broken = if args.prefix {
        ensure!(
            args.engine == Kind::Vllm,
            "only vLLM's cache is compared: write `accuracy vllm --prefix`"
        );
        accuracy::prefix(&options)?
    } else {
        accuracy::run(&options)?
    };
    println!("logs and the engine's account are in {}", options.logs.display());
    if !broken.is_empty() {
        bail!("{} bounds are broken", broken.len());
    }
    Ok(())
}

fn tokens(args: &Args, folder: PathBuf) -> Result<()> {
    let options = TokenOptions {
        kind: args.engine,
        agent: match &args.agent {
            Some(agent) => agent.clone(),
            None => build::agent()?,
        },
        engines: folder,
        prompts: args.requests.unwrap_or(300),
        seed: args.seed,
    };
    let differences = accuracy::tokens(&options)?;
    for difference in &differences {
        println!("{difference}");
    }
    if !differences.is_empty() {
        bail!("{} of {} counts differ", differences.len(), options.prompts);
    }
    Ok(())
}

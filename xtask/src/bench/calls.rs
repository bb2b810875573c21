//! What the probes on the functions of engines and tokenizers cost a call: all have the same, one on the entry or one on the
//! entry and one on the return.
//!
//! Owns: the program and what must be attached. Refuses: calls that take long enough to drown a probe's microseconds, as
//! those of llama.cpp do.

use super::loops::{Comparison, Program, table};
use crate::build;
use anyhow::Result;
use infertap_tests::{
    engines::{self, Kind},
    exposition::Exposition,
};
use std::path::PathBuf;

/// Nanoseconds that probes add to a call of a tokenizer.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Rounds; each measures once without the agent and once with it
    #[arg(long, default_value_t = 15)]
    rounds: usize,
    /// An agent that is built already
    #[arg(long, value_name = "FILE")]
    agent: Option<PathBuf>,
}

/// Functions that are called, and their probes.
const CALLS: [(&str, &str); 1] = [("hf_tokenizers_encode", "entry and return")];

/// Entry of the measurement.
pub(super) fn measure(args: &Args) -> Result<()> {
    let target = build::target_folder()?;
    let folder = engines::folder(&target)?;
    engines::install(Kind::Llama, &folder)?;
    let agent = match &args.agent {
        Some(agent) => agent.clone(),
        None => build::agent()?,
    };
    let logs = target.join("bench");
    std::fs::create_dir_all(&logs)?;
    let command = engines::call_cost_command(&folder);
    let mut program = Program::start("the program that tokenizes", command, &logs.join("calls.log"))?;
    let rounds = Comparison {
        agent: &agent,
        logs: &logs,
        rounds: args.rounds,
        attached: &attached,
        seen: &|metrics| metrics.sum("infertap_tokenizer_calls_total", &[]),
    }
    .run(&mut program)?;
    println!(
        "\n## Calls of functions, with probes and without, {} interleaved rounds",
        args.rounds
    );
    for line in table(&rounds, &CALLS)? {
        println!("{line}");
    }
    Ok(())
}

fn attached(metrics: &Exposition) -> Result<(), String> {
    for (name, _) in CALLS {
        let probe = format!("call_{name}");
        if metrics.sum("infertap_probe_up", &[("probe", &probe)]) < 0.5 {
            return Err(format!("{probe} is not up"));
        }
    }
    Ok(())
}

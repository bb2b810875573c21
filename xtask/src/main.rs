//! Developer commands of infertap: `cargo xtask <command>`, one file a command.
//!
//! Owns: the command line. Refuses: doing any of the work; what live tests and the demo share lives in
//! `infertap-tests`.

mod accuracy;
mod bench;
mod bless;
mod build;
mod demo;
mod ebpf;
mod fuzz;
mod gpu_check;
mod interrupt;
mod privilege;
mod run;
mod sh;
mod test;
mod tidy;
mod times;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Developer commands of infertap.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Build the BPF programs into agent/bpf/infertap.bpf.o, the object that the agent embeds
    Ebpf(ebpf::Args),
    /// Run the agent on this host, or with --demo on a real llama.cpp server with real traffic
    Run(run::Args),
    /// Run the tests, layer by layer; fails where this machine should be able and is not
    Test(test::Args),
    /// Measure throughput, live overhead and memory
    Bench(bench::Args),
    /// Compare the agent with a real engine's own account of a load that makes it queue; fails where a bound is broken
    Accuracy(accuracy::Args),
    /// Compare the agent with nvidia-smi, PyTorch and an engine's own account on this machine's GPU, in four minutes
    GpuCheck(gpu_check::Args),
    /// Run every fuzz target for a while
    Fuzz(fuzz::Args),
    /// Rewrite the expectations of snapshot and golden tests
    Bless(bless::Args),
    /// Check formatting, lints, file sizes, file headers and dependency licences
    Tidy(tidy::Args),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Ebpf(args) => ebpf::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Test(args) => test::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Accuracy(args) => accuracy::run(&args),
        Command::GpuCheck(args) => gpu_check::run(&args),
        Command::Fuzz(args) => fuzz::run(&args),
        Command::Bless(args) => bless::run(&args),
        Command::Tidy(args) => tidy::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

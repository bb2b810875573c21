//! `cargo xtask fuzz`: runs every fuzz target of the core for a while.
//!
//! Owns: building the targets with coverage feedback on the stable compiler, and dividing the time. Refuses: the targets
//! themselves (`agent/core/fuzz`). `cargo fuzz`, on nightly, runs the same targets with sanitizers.

use crate::sh;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// What `cargo fuzz` passes too, less the sanitizer, which only nightly has: the core has no `unsafe` for it to watch.
const FLAGS: &[&str] = &[
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "--cfg=fuzzing",
];

/// Run every fuzz target.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Seconds for each target
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Only these targets
    targets: Vec<String>,
}

/// Entry of the command.
pub(crate) fn run(args: &Args) -> Result<()> {
    fuzz(args.seconds, &args.targets)
}

/// Every target for `seconds` each.
pub(crate) fn all(seconds: u64) -> Result<()> {
    fuzz(seconds, &[])
}

fn fuzz(seconds: u64, chosen: &[String]) -> Result<()> {
    let folder = sh::root().join("agent/core/fuzz");
    let targets = build(&folder)?;
    let names: Vec<&str> = targets.iter().map(|(name, _)| name.as_str()).collect();
    if let Some(unknown) = chosen.iter().find(|name| !names.contains(&name.as_str())) {
        bail!("no fuzz target `{unknown}`; there are: {}", names.join(", "));
    }
    let mut failed = Vec::new();
    for (name, executable) in targets
        .iter()
        .filter(|(name, _)| chosen.is_empty() || chosen.contains(name))
    {
        let corpus = folder.join("corpus").join(name);
        let artifacts = folder.join("artifacts").join(name);
        fs::create_dir_all(&corpus)?;
        fs::create_dir_all(&artifacts)?;
        let mut command = Command::new(executable);
        command
            .current_dir(&folder)
            .arg(format!("-max_total_time={seconds}"))
            .args(["-max_len=4096", "-timeout=10", "-rss_limit_mb=512"]);
        command
            .arg(format!("-artifact_prefix={}/", artifacts.display()))
            .arg("-print_final_stats=1")
            .arg(&corpus);
        let seeds = folder.join("seeds").join(name);
        if seeds.is_dir() {
            command.arg(seeds);
        }
        if let Err(error) = sh::run(&mut command) {
            failed.push(format!(
                "{name}: {error:#}; the input is in {}",
                artifacts.display()
            ));
        }
    }
    if failed.is_empty() {
        Ok(())
    } else {
        bail!("{}", failed.join("; "))
    }
}

/// Builds all targets; name and executable of each.
fn build(folder: &Path) -> Result<Vec<(String, PathBuf)>> {
    let host = sh::probe(Command::new("rustc").arg("-vV")).context("rustc -vV failed")?;
    let host = host
        .lines()
        .find_map(|line| line.strip_prefix("host: "))
        .context("rustc names no host")?;
    let mut command = sh::cargo();
    // With a target given, the flags don't reach build scripts and procedural macros.
    command
        .current_dir(folder)
        .args(["build", "--release", "--bins", "--target", host]);
    command
        .args(["--message-format", "json-render-diagnostics"])
        .env("CARGO_ENCODED_RUSTFLAGS", FLAGS.join("\u{1f}"));
    let messages =
        sh::output(&mut command).context("fuzz targets need a C++ compiler (Debian: apt-get install g++)")?;
    let executables = messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter_map(|message| {
            Some((
                message["target"]["name"].as_str()?.to_owned(),
                PathBuf::from(message["executable"].as_str()?),
            ))
        });
    Ok(executables.collect())
}

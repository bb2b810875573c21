//! `cargo xtask fuzz`: runs every fuzz target of the core for a while.
//!
//! Owns: building the targets with coverage feedback on the stable compiler, and dividing the time. Refuses: the targets
//! themselves (`agent/core/fuzz`). `cargo fuzz`, on nightly, runs the same targets with sanitizers.

use crate::sh;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::{
    fs,
    num::NonZero,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
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
    fuzz(&build()?, args.seconds, &args.targets)
}

/// A fuzz target: name and executable.
pub(crate) type Target = (String, PathBuf);

/// Fuzzes `targets`, only the chosen ones if any are chosen, for `seconds` each: as many at once as there are processors.
pub(crate) fn fuzz(targets: &[Target], seconds: u64, chosen: &[String]) -> Result<()> {
    let names: Vec<&str> = targets.iter().map(|(name, _)| name.as_str()).collect();
    if let Some(unknown) = chosen.iter().find(|name| !names.contains(&name.as_str())) {
        bail!("no fuzz target `{unknown}`; there are: {}", names.join(", "));
    }
    let targets: Vec<&Target> = targets
        .iter()
        .filter(|(name, _)| chosen.is_empty() || chosen.contains(name))
        .collect();
    let lanes = thread::available_parallelism()
        .map_or(1, NonZero::get)
        .min(targets.len());
    let next = AtomicUsize::new(0);
    let failed = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..lanes {
            scope.spawn(|| {
                while let Some((name, executable)) = targets.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(error) = fuzz_one(name, executable, seconds, lanes > 1) {
                        let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
                        failed.push(format!("{name}: {error:#}"));
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    if failed.is_empty() {
        Ok(())
    } else {
        bail!("{}", failed.join("; "))
    }
}

/// Fuzzes one target. What it prints is kept back when others print too, and told whole when it fails.
fn fuzz_one(name: &str, executable: &Path, seconds: u64, quiet: bool) -> Result<()> {
    let folder = folder();
    let corpus = folder.join("corpus").join(name);
    let artifacts = folder.join("artifacts").join(name);
    fs::create_dir_all(&corpus)?;
    fs::create_dir_all(&artifacts)?;
    let mut command = Command::new(executable);
    command
        .current_dir(&folder)
        .arg(format!("-max_total_time={seconds}"))
        .args(["-max_len=4096", "-timeout=10", "-rss_limit_mb=512"])
        .arg(format!("-artifact_prefix={}/", artifacts.display()))
        .arg("-print_final_stats=1")
        .arg(&corpus);
    let seeds = folder.join("seeds").join(name);
    if seeds.is_dir() {
        command.arg(seeds);
    }
    let input = || format!("the input is in {}", artifacts.display());
    if !quiet {
        return sh::run(&mut command).with_context(input);
    }
    let output = command
        .output()
        .with_context(|| format!("can't start `{}`", sh::display(&command)))?;
    let told = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        eprint!("{told}");
        bail!(
            "`{}` failed: {}; {}",
            sh::display(&command),
            output.status,
            input()
        );
    }
    let runs = told
        .lines()
        .find(|line| line.starts_with("Done "))
        .unwrap_or("it does not say what it did");
    eprintln!("fuzz {name}: {runs}");
    Ok(())
}

fn folder() -> PathBuf {
    sh::root().join("agent/core/fuzz")
}

/// Builds all targets.
pub(crate) fn build() -> Result<Vec<Target>> {
    let host = sh::probe(Command::new("rustc").arg("-vV")).context("rustc -vV failed")?;
    let host = host
        .lines()
        .find_map(|line| line.strip_prefix("host: "))
        .context("rustc names no host")?;
    let mut command = sh::cargo();
    // With a target given, the flags don't reach build scripts and procedural macros.
    command
        .current_dir(folder())
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

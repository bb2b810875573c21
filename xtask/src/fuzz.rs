//! `cargo xtask fuzz`: runs every fuzz target of the core for a while.
//!
//! Owns: listing the targets and dividing the time. Refuses: the targets themselves (`agent/core/fuzz`).

use crate::sh;
use anyhow::{Context, Result, bail};
use std::process::{Command, Stdio};

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
    let folder = sh::root().join("agent/core/fuzz");
    let cargo_fuzz = || {
        let mut command = Command::new("rustup");
        command
            .args(["run", "nightly", "cargo", "fuzz"])
            .current_dir(sh::root().join("agent/core"));
        command
            .env_remove("RUSTUP_TOOLCHAIN")
            .env_remove("CARGO")
            .env_remove("RUSTC");
        command
    };
    sh::probe(cargo_fuzz().arg("--version").stderr(Stdio::null())).context(
        "fuzzing needs `rustup toolchain install nightly` and `cargo install cargo-fuzz`; the properties that the targets \
         assert also run, on random inputs, in `cargo test -p infertap-core`",
    )?;
    let all: Vec<String> = std::fs::read_dir(folder.join("fuzz_targets"))
        .with_context(|| format!("no fuzz targets under {}", folder.display()))?
        .filter_map(|entry| entry.ok()?.path().file_stem()?.to_str().map(str::to_owned))
        .collect();
    let chosen = if args.targets.is_empty() {
        &all
    } else {
        &args.targets
    };
    for target in chosen {
        if !all.contains(target) {
            bail!("no fuzz target `{target}`; there are: {}", all.join(", "));
        }
        sh::run(cargo_fuzz().args(["run", target, "--", &format!("-max_total_time={}", args.seconds)]))?;
    }
    Ok(())
}

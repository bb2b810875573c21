//! `cargo xtask bless`: rewrites what snapshot and golden tests expect, from what the code does now.
//!
//! Owns: the environment that makes them rewrite. Refuses: judging the change: read the diff before committing it.

use crate::sh;
use anyhow::Result;

/// Rewrite the expectations.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only these packages
    #[arg(short, long)]
    package: Vec<String>,
}

/// Entry of the command.
pub(crate) fn run(args: &Args) -> Result<()> {
    let mut command = sh::cargo();
    // `UPDATE_EXPECT` is expect-test's own switch; the golden replays read it too.
    command.arg("test").env("UPDATE_EXPECT", "1");
    if args.package.is_empty() {
        command.args(["--workspace", "--exclude", "xtask"]);
    }
    for package in &args.package {
        command.args(["--package", package]);
    }
    sh::run(&mut command)?;
    sh::run(
        std::process::Command::new("git")
            .current_dir(sh::root())
            .args(["status", "--short"]),
    )
}

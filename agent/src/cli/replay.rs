//! `infertap replay`: its flags.
//!
//! Owns: their names and help texts. Refuses: doing anything.

use super::by;
use clap::{Args, ValueHint};
use infertap_core::ledger::By;
use std::path::PathBuf;

/// `infertap replay`.
#[derive(Debug, Clone, Args)]
pub struct ReplayArgs {
    /// Recording.
    #[arg(value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// Print one JSON object a request, and a summary at the end; with --by the sums.
    #[arg(long, conflicts_with = "metrics")]
    pub json: bool,
    /// Print the metrics as they stand at the end, in Prometheus text format.
    #[arg(long)]
    pub metrics: bool,
    /// Print who used how much instead of the requests, as `infertap cost` does.
    #[arg(long, value_parser = by(), conflicts_with = "metrics")]
    pub by: Option<By>,
    /// Take prices, scenes, context limits and bounds from this configuration file. Without it nothing has a price.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub config: Option<PathBuf>,
    /// Use only what was on the sockets of clients, as engine.hooks = false does live: shows what inference makes of a
    /// recording in which the engine told more.
    #[arg(long)]
    pub no_hooks: bool,
}

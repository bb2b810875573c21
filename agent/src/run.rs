//! `infertap run`: wiring of discovery, probes, core and exporters.

use crate::config::Config;
use std::path::PathBuf;
use std::time::Duration;

/// What `infertap record` was asked for.
#[derive(Debug, Clone)]
pub struct RecordOptions {
    /// File to write.
    pub file: PathBuf,
    /// Keep the text of prompts and answers.
    pub with_content: bool,
    /// Stop after this time.
    pub duration: Option<Duration>,
}

/// Watches until interrupted.
///
/// # Errors
/// The probes can't be attached, or the address can't be bound.
pub fn run(_config: Config) -> anyhow::Result<()> {
    anyhow::bail!("`run` is not built into this version")
}

/// Records until interrupted or the time is over.
///
/// # Errors
/// The probes can't be attached, or the file can't be written.
pub fn record(_config: Config, _options: RecordOptions) -> anyhow::Result<()> {
    anyhow::bail!("`record` is not built into this version")
}

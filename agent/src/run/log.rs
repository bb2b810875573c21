//! The agent's own log: text or JSON lines on standard error.

use crate::config::{LogConfig, LogFormat};
use anyhow::Context as _;
use std::io::IsTerminal as _;
use tracing_subscriber::EnvFilter;

/// Starts logging as configured. Once a process.
pub(super) fn start(config: &LogConfig) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(&config.level)
        .with_context(|| format!("log.level: {:?} is no level and no filter", config.level))?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    let result = match config.format {
        LogFormat::Text => builder
            .with_ansi(std::io::stderr().is_terminal())
            .with_target(false)
            .try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
    // A program that embeds the agent may have a log of its own; then that one is used.
    let _ = result;
    Ok(())
}

//! procfs: which processes are engines.
//!
//! Owns: reading of procfs (bounded, never trusting), rules, grouping of processes into engine instances, identity of
//! sockets and containers. Refuses: attaching to what was found (the probes) and its meaning (the core).

mod config;
pub mod host;
pub mod sockets;

pub use config::{DiscoverConfig, RuleConfig};
pub use host::Host;
pub use sockets::{FdKind, SocketFd, fd_kind, stream_sockets};

/// `infertap engines`.
///
/// # Errors
/// procfs can't be listed, or the output can't be written.
pub fn engines_command(
    _config: &crate::config::Config,
    _json: bool,
    _out: &mut dyn std::io::Write,
) -> anyhow::Result<()> {
    anyhow::bail!("`engines` is not built into this version")
}

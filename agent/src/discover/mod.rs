//! procfs: which processes are engines.
//!
//! Owns: reading of procfs (bounded, never trusting), rules, grouping of processes into engine instances, identity of
//! sockets and containers. Refuses: attaching to what was found (the probes) and its meaning (the core).

pub mod host;
pub mod sockets;

pub use host::Host;
pub use sockets::{FdKind, SocketFd, fd_kind, stream_sockets};

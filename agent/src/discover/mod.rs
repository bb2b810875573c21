//! procfs: which processes are engines.
//!
//! Owns: reading of procfs (bounded, never trusting), rules, grouping of processes into engine instances, identity of
//! sockets and containers. Refuses: attaching to what was found (the probes) and its meaning (the core).

mod assemble;
mod config;
mod container;
mod detail;
mod found;
mod group;
pub mod host;
mod listeners;
mod model;
mod named;
mod process;
mod report;
mod rules;
mod scan;
pub mod sockets;

pub use config::{DiscoverConfig, RuleConfig};
pub use found::{Change, FoundEngine, FoundProcess, Part, Scan, ScanProblem, diff};
pub use host::Host;
pub(crate) use model::flag_value;
pub use report::{EngineReport, ProcessReport, Report, engines_command};
pub use scan::{Scanner, ScannerConfig};
pub use sockets::{FdKind, SocketFd, fd_kind, stream_sockets};

#[cfg(test)]
mod fake;
#[cfg(test)]
mod gateway_tests;
#[cfg(test)]
mod named_tests;
#[cfg(test)]
mod real_tests;
#[cfg(test)]
mod scan_tests;

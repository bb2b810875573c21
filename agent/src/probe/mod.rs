//! The kernel side, seen from the agent: aya lives only here.
//!
//! Owns: loading and attaching the committed BPF object, its maps, and the ring buffer. Refuses: the meaning of
//! records (the core's) and the choice of processes (discovery's). Dropping [`Probes`] detaches everything, and so does
//! the end of the process, however it ends: nothing is pinned.

pub mod attach;
mod calls;
pub mod cuda;
mod detach;
mod error;
pub mod functions;
mod libc;
mod loader;
pub mod mapped;
mod ring;
pub mod symbols;
mod targets;
mod tracefs;

use std::collections::BTreeSet;

pub use cuda::CudaSums;
pub use error::ProbeError;
pub use loader::{OBJECT, ProbeOptions, Probes};
pub use ring::Ring;
pub use targets::Targets;
pub use tracefs::{Tracefs, field_of, fork_child_offset};

/// What was counted of one kind of CUDA call on one stream of a process, since its calls are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CudaRow {
    /// Which calls.
    pub call: infertap_abi::CudaCall,
    /// The stream's handle; see [`infertap_abi::CudaKey`].
    pub stream: u64,
    /// The sums.
    pub count: infertap_abi::CudaCount,
}

/// What of one process is probed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Coverage {
    /// Numbers of the functions of engines and tokenizers that are; `None` until all that it has mapped was looked at.
    pub functions: Option<BTreeSet<u32>>,
    /// Whether its CUDA calls are counted; `None` while it has no CUDA mapped, as far as is known.
    pub cuda: Option<bool>,
}

impl Coverage {
    /// Each aspect of [`functions::ASPECTS`], and whether these functions cover it.
    pub fn aspects(functions: &BTreeSet<u32>) -> Vec<(&'static str, bool)> {
        calls::covered_by(functions)
    }
}

/// Whether a probe runs; exported as `infertap_probe_up{probe}` and shown by `infertap doctor`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeState {
    /// Family and mode, as in `socket_tracepoint`.
    pub probe: &'static str,
    /// All its required parts are attached.
    pub up: bool,
    /// What is missing, and what to do.
    pub detail: Option<String>,
}

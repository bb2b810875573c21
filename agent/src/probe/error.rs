//! Why probes could not be loaded or attached, in words that say what to do.

use std::path::PathBuf;

/// Loading or attaching failed.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// No tracefs, and none could be mounted.
    #[error(
        "no tracefs: {source}. Run as root (sudo infertap …), which can mount it for itself; or mount it (mount -t tracefs nodev \
         /sys/kernel/tracing) and let the agent read it. `infertap doctor` tells what else is missing"
    )]
    Tracefs {
        /// What the kernel said.
        source: std::io::Error,
    },
    /// A file of tracefs did not look as expected.
    #[error("{path}: {reason}")]
    TracefsFormat {
        /// Which file.
        path: PathBuf,
        /// What was wrong.
        reason: String,
    },
    /// The kernel refused the object.
    #[error(
        "the kernel refused the BPF object: {0}. `infertap doctor` tells which privilege or feature is missing"
    )]
    Load(#[from] Box<aya::EbpfError>),
    /// The kernel refused a program.
    #[error(
        "program {program} on {target}: {source}. `infertap doctor` tells which privilege or feature is missing"
    )]
    Attach {
        /// Program name in the object.
        program: &'static str,
        /// Tracepoint or symbol.
        target: String,
        /// What the kernel said.
        source: Box<aya::programs::ProgramError>,
    },
    /// The object lacks a program or a map that the loader names (the contract test makes this impossible for a release).
    #[error("the BPF object has no {kind} named {name}: rebuild it with `cargo xtask ebpf`")]
    Missing {
        /// `program` or `map`.
        kind: &'static str,
        /// Its name.
        name: &'static str,
    },
    /// A map operation failed.
    #[error("map {map}: {source}")]
    Map {
        /// Which map.
        map: &'static str,
        /// What the kernel said.
        source: Box<aya::maps::MapError>,
    },
    /// What a process has open or mapped could not be read.
    #[error(
        "{path}: {source}. Other users' processes take CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH to be read"
    )]
    Process {
        /// What was to be read.
        path: PathBuf,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// Uprobes have nothing to go on.
    #[error("it has no C library mapped (a static binary?): use --socket-probe tracepoint")]
    NoLibc,
    /// The ring could not be waited on.
    #[error("ring buffer: {0}")]
    Ring(#[from] std::io::Error),
}

impl ProbeError {
    /// For `map_err` on map operations.
    pub(super) fn map(map: &'static str) -> impl Fn(aya::maps::MapError) -> ProbeError {
        move |source| ProbeError::Map {
            map,
            source: Box::new(source),
        }
    }
}

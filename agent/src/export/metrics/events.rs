//! `kind` of `infertap_events_total`.
//!
//! Owns: its values. Refuses: counting. The match is exhaustive, so a new kind of event without a value does not compile.

use infertap_core::EventKind;

/// Kinds of events, in the order of [`kind_index`].
pub(super) const EVENT_KINDS: [&str; 22] = [
    "open",
    "data",
    "eof",
    "shutdown",
    "error",
    "stall",
    "close",
    "fd_unknown",
    "exec",
    "fork",
    "exit",
    "engine_up",
    "engine_down",
    "call",
    "gpu",
    "cuda_burst",
    "alloc_failure",
    "memory",
    "cuda_mapping",
    "counted",
    "peer",
    "pod",
];

pub(super) const fn kind_index(kind: &EventKind<'_>) -> usize {
    match kind {
        EventKind::Open(_) => 0,
        EventKind::Data { .. } => 1,
        EventKind::Eof(_) => 2,
        EventKind::Shutdown(_) => 3,
        EventKind::Error { .. } => 4,
        EventKind::Stall(_) => 5,
        EventKind::Close(_) => 6,
        EventKind::FdUnknown(_) => 7,
        EventKind::Exec { .. } => 8,
        EventKind::Fork { .. } => 9,
        EventKind::Exit { .. } => 10,
        EventKind::EngineUp(_) => 11,
        EventKind::EngineDown { .. } => 12,
        EventKind::Call(_) => 13,
        EventKind::Gpu(_) => 14,
        EventKind::CudaBurst(_) => 15,
        EventKind::AllocFailure(_) => 16,
        EventKind::Memory(_) => 17,
        EventKind::CudaMapping(_) => 18,
        EventKind::Counted(_) => 19,
        EventKind::Peer { .. } => 20,
        EventKind::Pod(_) => 21,
    }
}

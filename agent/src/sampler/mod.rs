//! Polled sources: what has to be asked for again and again, because nobody tells when it changes.
//!
//! Owns: one module a source, with its bounds; NVML has its own thread and section, control groups are read by the watch
//! thread. Refuses: what readings mean for requests (the core) and how they are exported (`export`).

pub mod cgroup;
pub mod memory;
pub mod nvml;
pub mod psi;

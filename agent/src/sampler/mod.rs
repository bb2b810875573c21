//! Polled sources: what has to be asked for again and again, because nobody tells when it changes.
//!
//! Owns: one module a source, each with its own thread, its section of the configuration, and its bounds. Refuses: what
//! readings mean for requests (the core) and how they are exported (`export`).

pub mod nvml;

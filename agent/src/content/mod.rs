//! Content of requests at the edge: what the operator asked to be kept, and making it off the hot path.
//!
//! Owns: the content of a kept record. Refuses: what is redacted and how (the core's `redact` and `content`).

mod kept;

pub use kept::KeptContent;

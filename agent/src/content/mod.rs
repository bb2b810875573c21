//! Content of requests at the edge: what the operator asked to be kept, and making it off the hot path.
//!
//! Owns: the section, the key of hashes, the content of a kept record. Refuses: what is redacted and how (the core's `redact`
//! and `content`).

mod config;
mod keeper;
mod kept;
mod key;
mod maker;

pub use config::{ContentConfig, ContentMode, ContentPattern, ContentScene};
pub(crate) use keeper::Contents;
pub use kept::KeptContent;

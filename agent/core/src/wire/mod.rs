//! Framing: where messages begin and end. Meaning is `protocol`'s.
//!
//! Every decoder here is push-driven and bounded: bytes may arrive split anywhere, `gap` says that bytes are missing,
//! and the same bytes split differently give the same messages.

pub mod encoding;
pub mod http1;
pub mod json_scan;
pub mod msgpack;
pub mod pickle;
pub mod sse;
pub mod zmtp;

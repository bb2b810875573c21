//! vLLM's v1 engine: what its API servers and its engine cores say to each other.
//!
//! Owns: facts from their messages ([`VllmReader`]), the layouts of its releases, and what a message's start looks
//! like. Refuses: framing (`wire::zmtp`), tensors, keeping prompts (token ids are handed on where they lie), and guessing: a
//! message that does not fit a layout is a [`ShapeError`], never a fact.
//!
//! The API server binds both sockets. It writes requests (`[type][body][tensors…]`) and reads one message per engine
//! step (`[body][tensors…]`). Structs travel as arrays whose layout differs between releases, and what they hold as maps.

mod array;
mod harmless;
mod ids;
mod layouts;
mod outputs;
mod requests;
mod starts;
#[cfg(test)]
mod tests;

pub use harmless::{Passes, Place};
pub use ids::{Opaque, TokenIds};
pub use outputs::{
    FinishReason, Iteration, Lifecycle, LifecycleEvent, Output, SchedulerStats, Step, StopReason,
};
pub use requests::{Added, Request};

use crate::wire::{
    msgpack::MsgpackError,
    zmtp::{Message, StartCheck},
};
use layouts::Version;

/// Why a message gave no facts. The layout may be unknown, or the bytes no message of vLLM's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// No layout of the release has this many fields.
    #[error("an array of {0} fields fits no known layout")]
    Fields(u32),
    /// A field holds what it never holds.
    #[error("field {index} holds {found:?}")]
    Field {
        /// Its position.
        index: u32,
        /// What is there.
        found: crate::wire::msgpack::Kind,
    },
    /// A value that its field never has.
    #[error("{0} has a value that it never has")]
    Value(&'static str),
    /// A request type that is not known.
    #[error("request type {0} is not known")]
    RequestType(u8),
    /// Parts are missing.
    #[error("the message has too few parts")]
    Parts,
    /// The encoding is broken, or the message ends too early.
    #[error(transparent)]
    Msgpack(#[from] MsgpackError),
}

/// Reads the messages of one engine.
#[derive(Debug, Clone, Copy)]
pub struct VllmReader {
    release: Option<Version>,
}

impl VllmReader {
    /// For an engine of this version (as in `0.32.0+cpu`). Without one, every layout is tried, the newest first.
    pub fn new(version: Option<&str>) -> VllmReader {
        VllmReader {
            release: version.and_then(layouts::version),
        }
    }

    /// What the API server tells the engine core.
    pub fn request<'a>(&self, message: Message<'a>) -> Result<Request<'a>, ShapeError> {
        requests::read(message, self.release)
    }

    /// What the engine core tells the API server.
    pub fn step<'a>(&self, message: Message<'a>) -> Result<Step<'a>, ShapeError> {
        outputs::read(message, self.release)
    }
}

/// The id of the response to a request that chose its own (`X-Request-Id`), by the name of its protocol.
pub(crate) fn expected_response_id(protocol: &str, chosen: &str) -> Option<String> {
    let prefix = match protocol {
        "openai_chat" => "chatcmpl-",
        "openai_completions" => "cmpl-",
        _ => return None,
    };
    Some(format!("{prefix}{chosen}"))
}

/// Judges starts of what an API server writes to an engine core.
pub const REQUESTS: StartCheck = starts::requests_start;
/// Judges starts of what an API server reads from an engine core.
pub const OUTPUTS: StartCheck = starts::outputs_start;

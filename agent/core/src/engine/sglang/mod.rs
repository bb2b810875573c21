//! SGLang: what its tokenizer manager, scheduler and detokenizer say to each other.
//!
//! Owns: facts from their messages ([`SglangReader`]), the layouts of its releases, and what a message's start looks
//! like. Refuses: framing (`wire::zmtp`), executing pickles (they are data), prompts and texts (lengths are read), and
//! guessing: a message that does not fit is a [`ShapeError`], never a fact.
//!
//! Each message is one object, and names its class. By default it is a pickle, which names its fields too; with
//! `SGLANG_USE_PICKLE_IPC=0` (since 0.5.15) it is a MessagePack array that begins with the class name, with fields by
//! position. The counts in outputs are totals so far, so a message that two processes pass on tells the same twice.

mod layouts;
mod pickled;
mod starts;
mod tagged;
#[cfg(test)]
mod tests;

use crate::{
    Nanos,
    wire::{
        msgpack::{Kind, MsgpackError},
        pickle::PickleError,
        zmtp::{self, StartCheck},
    },
};

/// Why a message gave no facts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// It begins like none of the two encodings.
    #[error("neither a pickle nor a tagged array")]
    Encoding,
    /// A field is missing that this message always has.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// A field holds what it never holds.
    #[error("{0} has a value that it never has")]
    Value(&'static str),
    /// A field of a tagged array holds what it never holds.
    #[error("{field} holds {found:?}")]
    Field {
        /// Its name.
        field: &'static str,
        /// What is there.
        found: Kind,
    },
    /// No layout has this many fields.
    #[error("an array of {0} fields fits no known layout")]
    Fields(u32),
    /// The message ends before anything could be read.
    #[error("the message is cut before its first facts")]
    Cut,
    /// The pickle is broken.
    #[error(transparent)]
    Pickle(#[from] PickleError),
    /// The array is broken.
    #[error(transparent)]
    Msgpack(#[from] MsgpackError),
}

/// One message.
#[derive(Debug, Clone, PartialEq)]
pub enum Told<'a> {
    /// Requests enter the scheduler.
    Added(Vec<Added<'a>>),
    /// A request was given up; an empty id: all were.
    Aborted(&'a str),
    /// What requests have got so far.
    Outputs(Outputs<'a>),
    /// Something about the engine itself, or embeddings.
    Other,
}

/// A request that enters the scheduler.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Added<'a> {
    /// Its id, which outputs repeat and the HTTP response shows.
    pub rid: &'a str,
    /// Prompt tokens; absent where the prompt came as embeddings or the message was cut before them.
    pub prompt_tokens: Option<u64>,
}

/// What several requests have got so far.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Outputs<'a> {
    /// One for each request.
    pub outputs: Vec<Output<'a>>,
    /// The message's end is missing, or it has more requests than are read: some facts may be missing.
    pub cut: bool,
}

/// What one request has got so far. All counts are totals.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Output<'a> {
    /// The request's id.
    pub rid: &'a str,
    /// It is finished, for this reason: `stop`, `length`, `abort`.
    pub finished: Option<&'a str>,
    /// Prompt tokens.
    pub prompt_tokens: Option<u64>,
    /// Generated tokens, reasoning included.
    pub output_tokens: Option<u64>,
    /// Those of them that were reasoning.
    pub reasoning_tokens: Option<u64>,
    /// Prompt tokens that were in the cache.
    pub cached_tokens: Option<u64>,
    /// How often the scheduler put it back into the queue.
    pub retractions: Option<u64>,
    /// When it went through the scheduler.
    pub times: Times,
}

/// Stages of a request's way through the scheduler, which SGLang tells when it runs with `--enable-metrics`. They are
/// `time.perf_counter()`, which reads CLOCK_MONOTONIC on Linux.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Times {
    /// It joined the queue (`wait_queue_entry_time`).
    pub queued: Option<Nanos>,
    /// The scheduler took it (`forward_entry_time`).
    pub scheduled: Option<Nanos>,
    /// Its prompt was done, and its first token existed (`prefill_finished_time`).
    pub prefilled: Option<Nanos>,
    /// Its last token existed (`completion_time`); no release looked at sends it yet.
    pub completed: Option<Nanos>,
}

/// Requests read of one message; a scheduler runs fewer at once.
const MAX_REQUESTS: usize = 4096;

/// Reads the messages of one engine. It keeps nothing: each message says what it is.
#[derive(Debug, Clone, Copy, Default)]
pub struct SglangReader;

impl SglangReader {
    /// What a message tells.
    pub fn read<'a>(&self, message: zmtp::Message<'a>) -> Result<Told<'a>, ShapeError> {
        let body = message.part(0).ok_or(ShapeError::Cut)?;
        let cut = !body.is_whole() || !message.complete;
        match body.bytes {
            [] => Err(ShapeError::Cut),
            [0x80, ..] if !matches!(body.bytes, [0x80]) => pickled::read(body.bytes, cut),
            [0x91..=0x9f | 0xdc | 0xdd, ..] => tagged::read(body.bytes, cut),
            _ => Err(ShapeError::Encoding),
        }
    }
}

/// Seconds of a clock as nanoseconds; zero is how SGLang says that a stage was not reached.
fn nanos(seconds: f64) -> Option<Nanos> {
    let believable = seconds.is_finite() && seconds > 0.0 && seconds < 1e9;
    believable.then(|| (seconds * 1e9).round() as Nanos)
}

/// Judges starts of what SGLang's processes write to each other, in either encoding and direction.
pub const MESSAGES: StartCheck = starts::start;

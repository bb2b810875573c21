//! What the decoder tells, and its bounds.
//!
//! Owns: the types. Refuses: making them (`ZmtpDecoder`).

/// Bounds of a decoder.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes kept of one message, all parts together; what is beyond is stepped over.
    pub message: usize,
    /// Parts told of one message; later ones are stepped over.
    pub parts: usize,
    /// Bytes searched for a message start before the direction is given up.
    pub search: u64,
}

impl Default for Limits {
    /// A prompt of 50,000 tokens is kept whole; a larger message keeps its beginning, where all counts are. A search
    /// may have to cross the tensors of a multimodal request.
    fn default() -> Self {
        Limits {
            message: 256 * 1024,
            parts: 16,
            search: 64 * 1024 * 1024,
        }
    }
}

/// One part of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part<'a> {
    /// Its first bytes: all of them, unless it was over the limit or a hole came.
    pub bytes: &'a [u8],
    /// Its true length.
    pub len: u64,
}

impl Part<'_> {
    /// All its bytes are here.
    pub fn is_whole(&self) -> bool {
        self.bytes.len() as u64 == self.len
    }
}

/// A part: where its kept bytes lie in the message, and its true length.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    pub(super) start: usize,
    pub(super) kept: usize,
    pub(super) len: u64,
}

/// One message.
#[derive(Debug, Clone, Copy)]
pub struct Message<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) spans: &'a [Span],
    /// Its last part was seen: no part is missing but those over the limit.
    pub complete: bool,
}

impl<'a> Message<'a> {
    /// Part `index`, from 0.
    pub fn part(&self, index: usize) -> Option<Part<'a>> {
        let span = self.spans.get(index)?;
        Some(Part {
            bytes: self.bytes.get(span.start..span.start + span.kept)?,
            len: span.len,
        })
    }

    /// How many parts there are to tell of.
    pub fn parts(&self) -> usize {
        self.spans.len()
    }
}

/// What the decoder found.
#[derive(Debug, Clone, Copy)]
pub enum ZmtpEvent<'a> {
    /// The greeting is over; nothing is encrypted.
    Greeting {
        /// Minor version of ZMTP 3.
        minor: u8,
    },
    /// A command, by name: `READY`, `SUBSCRIBE`, `PING`, …
    Command {
        /// Its name; empty when a hole or the limit took it.
        name: &'a [u8],
    },
    /// A message.
    Message(Message<'a>),
    /// The place in the stream is lost; the search for the next message has begun.
    Lost,
    /// A message start was found, so many bytes after the search began.
    Found {
        /// Bytes stepped over, holes left out.
        skipped: u64,
    },
}

/// Why a direction is not read any further.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Dead {
    /// The first bytes are no greeting.
    #[error("no ZMTP greeting")]
    NotZmtp,
    /// A major version other than 3.
    #[error("ZMTP {0} is not read here")]
    Version(u8),
    /// A security mechanism that encrypts.
    #[error("the connection is encrypted")]
    Encrypted,
    /// No message start in all the bytes that a search may take.
    #[error("no message found")]
    NothingFound,
}

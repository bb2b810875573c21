//! Finding the next message in the middle of a stream.
//!
//! Owns: trying every position in order, so that the same bytes split differently give the same answer. Refuses:
//! judging bodies (the [`StartCheck`]).

use super::frame::{COMMAND, FrameHeader};

/// May a message start like this?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// It does, beyond reasonable doubt.
    Yes,
    /// It does not.
    No,
    /// More bytes are needed to tell.
    Unsure,
}

/// Judges a message's first frame: its flags, its length, and the bytes of the stream behind its header (up to 320 of
/// them, which may go on into further frames). It must not change its mind from yes or no when more bytes follow.
pub type StartCheck = fn(more: bool, len: u64, following: &[u8]) -> Start;

/// Bytes behind a header that a check may look at.
const LOOK_AHEAD: usize = 320;

/// The end of a search within some bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// A message.
    Start,
    /// What is left may be a start, once more bytes are there.
    NotYet,
}

/// Bytes to pass over, and what comes then.
pub fn find(bytes: &[u8], check: StartCheck) -> (usize, Found) {
    for at in 0..bytes.len() {
        match judge(&bytes[at..], check) {
            Start::Yes => return (at, Found::Start),
            Start::Unsure => return (at, Found::NotYet),
            Start::No => {}
        }
    }
    (bytes.len(), Found::NotYet)
}

fn judge(bytes: &[u8], check: StartCheck) -> Start {
    match FrameHeader::read(bytes) {
        FrameHeader::Impossible => Start::No,
        FrameHeader::Short => Start::Unsure,
        FrameHeader::Frame { flags, .. } if flags & COMMAND != 0 => Start::No,
        // The eight-byte length is for what does not fit into one.
        FrameHeader::Frame { len, taken: 9, .. } if len < 256 => Start::No,
        FrameHeader::Frame { flags, len, taken } => {
            let following = &bytes[taken..];
            let following = &following[..following.len().min(LOOK_AHEAD)];
            match check(flags & super::MORE != 0, len, following) {
                // Whoever is not sure by then never will be.
                Start::Unsure if following.len() == LOOK_AHEAD => Start::No,
                start => start,
            }
        }
    }
}

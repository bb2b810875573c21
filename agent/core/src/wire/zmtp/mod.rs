//! ZeroMQ's transport (ZMTP 3.x, RFC 23 and 37): greeting, commands and multi-part messages of one direction.
//!
//! Owns: frames of both lengths, the bound on what is kept of a message, exact skipping of a hole within a frame, and
//! finding the next message after a larger hole or a late start. Refuses: encrypted connections, and what a message
//! means: a [`StartCheck`] tells whether bytes may be the start of one.

mod event;
mod frame;
mod search;
#[cfg(test)]
mod tests;

use event::Span;
pub use event::{Dead, Limits, Message, Part, ZmtpEvent};
pub use frame::{COMMAND, FrameHeader, MORE};
pub use search::{Found, Start, StartCheck, find};

/// The first ten bytes of a greeting. Those between the first and the last are a length to what came before ZMTP 3 (one
/// more than that of the socket's identity), and padding since.
pub const SIGNATURE: [u8; 10] = [0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0x7f];

/// Whether a stream that starts like this may be ZMTP; HTTP and TLS never do.
pub fn is_signature(bytes: &[u8]) -> bool {
    bytes.first() == Some(&SIGNATURE[0]) && bytes.get(9).is_none_or(|byte| *byte == SIGNATURE[9])
}

/// Bytes of a greeting.
pub const GREETING_LEN: usize = 64;

/// Where the bytes of a frame go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Into {
    Part,
    Command,
    Nowhere,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Greeting,
    /// At a frame's first byte.
    Header,
    /// Within a frame, so many bytes before its end.
    Body {
        flags: u8,
        left: u64,
        into: Into,
    },
    Search {
        skipped: u64,
    },
    Dead(Dead),
}

/// Push decoder of one direction of one connection.
#[derive(Debug)]
pub struct ZmtpDecoder {
    limits: Limits,
    check: StartCheck,
    state: State,
    /// The beginning of what the next bytes complete: at most a greeting, or what a start check asks for.
    held: Vec<u8>,
    /// The parts of the message so far, one behind the other.
    message: Vec<u8>,
    spans: Vec<Span>,
    /// The first bytes of a command: it may stand between a message's parts.
    command: Vec<u8>,
}

/// Buffers that grew past this are given back once their message is out.
const KEEP_CAPACITY: usize = 16 * 1024;
/// What is kept of a command: its name has at most 255 bytes behind one for its length.
const COMMAND_KEPT: usize = 256;

impl ZmtpDecoder {
    /// From a connection's first byte.
    pub fn new(check: StartCheck) -> ZmtpDecoder {
        ZmtpDecoder::with_limits(check, Limits::default())
    }

    /// Likewise, with other bounds.
    pub fn with_limits(check: StartCheck, limits: Limits) -> ZmtpDecoder {
        ZmtpDecoder {
            limits,
            check,
            state: State::Greeting,
            held: Vec::new(),
            message: Vec::new(),
            spans: Vec::new(),
            command: Vec::new(),
        }
    }

    /// From now on, searches judge by this check.
    pub fn judge_by(&mut self, check: StartCheck) {
        self.check = check;
    }

    /// Forgets its place and searches the next message start: the connection was joined late, or what it told made no
    /// sense.
    pub fn resync(&mut self) {
        if !matches!(self.state, State::Dead(_)) {
            self.held.clear();
            self.clear_message();
            self.state = State::Search { skipped: 0 };
        }
    }

    /// Why it reads no further.
    pub fn dead(&self) -> Option<Dead> {
        match self.state {
            State::Dead(why) => Some(why),
            _ => None,
        }
    }

    /// Heap bytes.
    pub fn buffered(&self) -> usize {
        self.held.capacity()
            + self.message.capacity()
            + self.command.capacity()
            + self.spans.capacity() * size_of::<Span>()
    }

    /// The next bytes.
    pub fn push(&mut self, bytes: &[u8], sink: &mut dyn FnMut(ZmtpEvent<'_>)) {
        let mut joined = std::mem::take(&mut self.held);
        let mut rest = bytes;
        if !joined.is_empty() {
            joined.extend_from_slice(bytes);
            rest = &joined;
        }
        while !rest.is_empty() {
            let taken = match self.state {
                State::Greeting => self.greeting(rest, sink),
                State::Header => self.header(rest, sink),
                State::Body { flags, left, into } => Some(self.body(rest, flags, left, into, sink)),
                State::Search { skipped } => {
                    let (passed, decided) = self.search(rest, skipped, sink);
                    rest = rest.get(passed..).unwrap_or_default();
                    decided.then_some(0)
                }
                State::Dead(_) => return,
            };
            let Some(taken) = taken else {
                self.held.extend_from_slice(rest);
                return;
            };
            rest = rest.get(taken..).unwrap_or_default();
        }
    }

    /// `len` bytes are missing here. Within a frame they are stepped over exactly.
    pub fn gap(&mut self, len: u64, sink: &mut dyn FnMut(ZmtpEvent<'_>)) {
        if len == 0 {
            return;
        }
        match self.state {
            State::Dead(_) => {}
            State::Search { .. } => self.held.clear(),
            State::Body { flags, left, .. } if len < left => {
                self.state = State::Body {
                    flags,
                    left: left - len,
                    into: Into::Nowhere,
                };
            }
            State::Body { flags, left, .. } => {
                self.end_frame(flags, sink);
                if len > left {
                    self.lose(sink);
                }
            }
            State::Greeting | State::Header => self.lose(sink),
        }
    }

    /// The place is lost. What is known of a message is told: its first parts are often all that matters.
    fn lose(&mut self, sink: &mut dyn FnMut(ZmtpEvent<'_>)) {
        if !self.spans.is_empty() {
            self.tell_message(false, sink);
        }
        self.resync();
        sink(ZmtpEvent::Lost);
    }

    fn die(&mut self, why: Dead) {
        self.state = State::Dead(why);
        self.held = Vec::new();
        self.message = Vec::new();
        self.spans = Vec::new();
        self.command = Vec::new();
    }

    /// Each step answers how many bytes it took; `None` where it needs more than there are.
    fn greeting(&mut self, rest: &[u8], sink: &mut dyn FnMut(ZmtpEvent<'_>)) -> Option<usize> {
        let major = rest.get(10).copied().unwrap_or(3);
        if !is_signature(rest) {
            self.die(Dead::NotZmtp);
        } else if major != 3 {
            self.die(Dead::Version(major));
        } else if let Some(greeting) = rest.first_chunk::<GREETING_LEN>() {
            let mechanism = greeting[12..32].split(|byte| *byte == 0).next();
            if matches!(mechanism, Some(b"NULL" | b"PLAIN")) {
                self.state = State::Header;
                sink(ZmtpEvent::Greeting { minor: greeting[11] });
            } else {
                self.die(Dead::Encrypted);
            }
        } else {
            return None;
        }
        Some(GREETING_LEN)
    }

    fn header(&mut self, rest: &[u8], sink: &mut dyn FnMut(ZmtpEvent<'_>)) -> Option<usize> {
        match FrameHeader::read(rest) {
            FrameHeader::Short => None,
            FrameHeader::Impossible => {
                self.lose(sink);
                Some(0)
            }
            FrameHeader::Frame { flags, len, taken } => {
                let into = if flags & COMMAND != 0 {
                    self.command.clear();
                    Into::Command
                } else if self.spans.len() < self.limits.parts {
                    self.spans.push(Span {
                        start: self.message.len(),
                        kept: 0,
                        len,
                    });
                    Into::Part
                } else {
                    Into::Nowhere
                };
                self.state = State::Body {
                    flags,
                    left: len,
                    into,
                };
                if len == 0 {
                    self.end_frame(flags, sink);
                }
                Some(taken)
            }
        }
    }

    fn body(
        &mut self,
        rest: &[u8],
        flags: u8,
        left: u64,
        into: Into,
        sink: &mut dyn FnMut(ZmtpEvent<'_>),
    ) -> usize {
        let taken = usize::try_from(left).unwrap_or(usize::MAX).min(rest.len());
        match into {
            Into::Part => {
                let room = self.limits.message.saturating_sub(self.message.len()).min(taken);
                self.message.extend_from_slice(&rest[..room]);
                if let Some(span) = self.spans.last_mut() {
                    span.kept += room;
                }
            }
            Into::Command => {
                let room = COMMAND_KEPT.saturating_sub(self.command.len()).min(taken);
                self.command.extend_from_slice(&rest[..room]);
            }
            Into::Nowhere => {}
        }
        let left = left - taken as u64;
        self.state = State::Body { flags, left, into };
        if left == 0 {
            self.end_frame(flags, sink);
        }
        taken
    }

    fn end_frame(&mut self, flags: u8, sink: &mut dyn FnMut(ZmtpEvent<'_>)) {
        self.state = State::Header;
        if flags & COMMAND != 0 {
            let name = match self.command.split_first() {
                Some((len, rest)) => rest.get(..usize::from(*len)).unwrap_or_default(),
                None => &[],
            };
            sink(ZmtpEvent::Command { name });
            self.command.clear();
        } else if flags & MORE == 0 {
            self.tell_message(true, sink);
        }
    }

    fn tell_message(&mut self, complete: bool, sink: &mut dyn FnMut(ZmtpEvent<'_>)) {
        sink(ZmtpEvent::Message(Message {
            bytes: &self.message,
            spans: &self.spans,
            complete,
        }));
        self.clear_message();
    }

    fn clear_message(&mut self) {
        self.message.clear();
        self.spans.clear();
        self.command.clear();
        if self.message.capacity() > KEEP_CAPACITY {
            self.message = Vec::new();
        }
    }

    /// Answers how many bytes it passed over, and whether it could decide on what follows them.
    fn search(&mut self, rest: &[u8], skipped: u64, sink: &mut dyn FnMut(ZmtpEvent<'_>)) -> (usize, bool) {
        let (passed, found) = find(rest, self.check);
        let skipped = skipped.saturating_add(passed as u64);
        match found {
            Found::Start => {
                self.state = State::Header;
                sink(ZmtpEvent::Found { skipped });
                (passed, true)
            }
            Found::NotYet if skipped > self.limits.search => {
                self.die(Dead::NothingFound);
                (rest.len(), true)
            }
            Found::NotYet => {
                self.state = State::Search { skipped };
                (passed, false)
            }
        }
    }
}

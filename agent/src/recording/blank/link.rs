//! Blanks a connection between vLLM's API server and its engine core.
//!
//! Owns: following ZMTP's frames in both directions, so that their headers stay and every body goes to the machine that
//! knows what may pass of it; finding a message again after bytes were lost. Refuses: layouts (the core's `Place`), and
//! what is not a message of a known release: zeros.

use super::packed::PackedBlank;
use super::side::{Piece, piece};
use infertap_abi::Direction;
use infertap_core::engine::vllm::{OUTPUTS, Place, REQUESTS};
use infertap_core::wire::zmtp::{
    COMMAND, Found, FrameHeader, GREETING_LEN, MORE, SIGNATURE, StartCheck, find,
};

/// Both directions of one connection that the API server accepted.
#[derive(Debug)]
pub(super) struct Link {
    requests: LinkSide,
    outputs: LinkSide,
}

impl Link {
    /// `joined`: its beginning was not seen.
    pub(super) fn new(joined: bool) -> Link {
        Link {
            requests: LinkSide::new(false, joined),
            outputs: LinkSide::new(true, joined),
        }
    }

    /// No message of either direction has shown yet that this is what it is taken for.
    pub(super) fn is_unproven(&self) -> bool {
        self.requests.unproven && self.outputs.unproven
    }

    /// Blanks the captured bytes of a piece that stands for `len` stream bytes from `offset` on; `version`: of the
    /// engine.
    pub(super) fn piece(
        &mut self,
        direction: Direction,
        offset: u64,
        len: u64,
        captured: &mut [u8],
        version: Option<&str>,
    ) {
        match direction {
            Direction::In => self.outputs.piece(offset, len, captured, version),
            _ => self.requests.piece(offset, len, captured, version),
        }
    }
}

/// One direction.
#[derive(Debug)]
struct LinkSide {
    /// It carries outputs.
    outputs: bool,
    /// The place was found by searching, and no message has confirmed it yet.
    unproven: bool,
    /// Stream offset of the next byte; `None` before the first of a connection that was joined.
    expected: Option<u64>,
    at: At,
    /// Bytes of a frame's header that came in earlier pieces.
    header: Vec<u8>,
    /// Parts of the current message that are over.
    parts: usize,
    /// Type of the current request.
    kind: Option<u8>,
    /// A part of the current message did not fit.
    misfit: bool,
}

#[derive(Debug)]
enum At {
    /// Within the greeting; whether its mechanism encrypts nothing, as far as it has come.
    Greeting { seen: usize, mechanism: Vec<u8> },
    /// Within a frame's header.
    Header,
    /// Within its body.
    Body { flags: u8, left: u64, body: Body },
    /// The place is lost.
    Lost,
    /// It is no ZMTP that is read.
    Closed,
}

#[derive(Debug)]
enum Body {
    /// A request's type.
    Kind,
    Packed(Box<PackedBlank>),
    /// The length of a command's name, and so many bytes of the name before its end.
    Command(Option<usize>),
    Blank,
}

impl LinkSide {
    fn new(outputs: bool, joined: bool) -> LinkSide {
        LinkSide {
            outputs,
            unproven: joined,
            expected: (!joined).then_some(0),
            at: if joined {
                At::Lost
            } else {
                At::Greeting {
                    seen: 0,
                    mechanism: Vec::new(),
                }
            },
            header: Vec::new(),
            parts: 0,
            kind: None,
            misfit: false,
        }
    }

    fn piece(&mut self, offset: u64, len: u64, captured: &mut [u8], version: Option<&str>) {
        let expected = self.expected.unwrap_or(offset);
        let Piece {
            again,
            fresh,
            before,
            after,
            end,
        } = piece(expected, offset, len, captured);
        again.fill(0);
        self.missing(before);
        self.feed(fresh, version);
        self.missing(after);
        self.expected = Some(end);
    }

    /// Bytes are missing. Within a frame they are stepped over exactly, as the core does.
    fn missing(&mut self, len: u64) {
        if len == 0 {
            return;
        }
        match &mut self.at {
            At::Closed | At::Lost => {}
            At::Body { left, body, .. } if len < *left => {
                *left -= len;
                *body = Body::Blank;
            }
            At::Body { flags, left, body } => {
                *body = Body::Blank;
                let (flags, more) = (*flags, len - *left);
                self.end_frame(flags);
                if more > 0 {
                    self.lose();
                }
            }
            At::Greeting { .. } | At::Header => self.lose(),
        }
    }

    fn feed(&mut self, mut rest: &mut [u8], version: Option<&str>) {
        while !rest.is_empty() {
            let taken = match &mut self.at {
                At::Greeting { .. } => self.greeting(rest),
                At::Header => self.header(rest, version),
                At::Body { flags, left, body } => {
                    let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(rest.len());
                    let (here, _) = rest.split_at_mut(taken);
                    if let (Body::Kind, [kind]) = (&*body, &*here) {
                        self.kind = Some(*kind);
                    }
                    body.feed(here);
                    *left -= taken as u64;
                    if *left == 0 {
                        if let Body::Packed(packed) = body {
                            self.misfit |= !packed.is_done();
                        }
                        let flags = *flags;
                        self.end_frame(flags);
                    }
                    taken
                }
                At::Lost => self.search(rest),
                At::Closed => {
                    rest.fill(0);
                    rest.len()
                }
            };
            rest = &mut rest[taken..];
        }
    }

    /// Each step answers how many bytes it took.
    fn greeting(&mut self, rest: &mut [u8]) -> usize {
        let At::Greeting { seen, mechanism } = &mut self.at else {
            return 0;
        };
        for (index, byte) in rest.iter_mut().enumerate() {
            let fits = match *seen {
                0 | 9 => *byte == SIGNATURE[*seen],
                10 => *byte == 3,
                11 => true,
                12..32 => {
                    mechanism.push(*byte);
                    *byte == 0 || byte.is_ascii_uppercase()
                }
                // A length to what came before ZMTP 3; whether it is a server; padding.
                _ => {
                    *byte &= 1;
                    true
                }
            };
            *seen += 1;
            let whole = *seen == GREETING_LEN;
            let plain = matches!(mechanism.split(|b| *b == 0).next(), Some(b"NULL" | b"PLAIN"));
            if !fits || (whole && !plain) {
                *byte = 0;
                self.at = At::Closed;
                return index + 1;
            }
            if whole {
                self.at = At::Header;
                return index + 1;
            }
        }
        rest.len()
    }

    fn header(&mut self, rest: &[u8], version: Option<&str>) -> usize {
        let held = self.header.len();
        // A header has nine bytes at most.
        self.header
            .extend_from_slice(&rest[..rest.len().min(9 - held.min(9))]);
        match FrameHeader::read(&self.header) {
            FrameHeader::Short => rest.len(),
            FrameHeader::Impossible => {
                self.lose();
                0
            }
            FrameHeader::Frame { flags, len, taken } => {
                self.header.clear();
                let body = self.body_of(flags, len, version);
                self.at = At::Body {
                    flags,
                    left: len,
                    body,
                };
                if len == 0 {
                    self.end_frame(flags);
                }
                taken - held
            }
        }
    }

    fn body_of(&self, flags: u8, len: u64, version: Option<&str>) -> Body {
        let packed = |place| Body::Packed(Box::new(PackedBlank::new(place)));
        if flags & COMMAND != 0 {
            return Body::Command(None);
        }
        match (self.outputs, self.parts, self.kind) {
            (true, 0, _) => packed(Place::step(version)),
            (false, 0, _) if len == 1 => Body::Kind,
            (false, 1, Some(0)) => packed(Place::addition(version)),
            (false, 1, Some(1)) => packed(Place::abort()),
            _ => Body::Blank,
        }
    }

    fn end_frame(&mut self, flags: u8) {
        self.at = At::Header;
        if flags & COMMAND != 0 {
            return;
        }
        self.parts += 1;
        if flags & MORE != 0 {
            return;
        }
        let misfit = self.misfit;
        self.start_message();
        if self.unproven && misfit {
            self.at = At::Lost;
        } else {
            self.unproven = false;
        }
    }

    fn start_message(&mut self) {
        self.parts = 0;
        self.kind = None;
        self.misfit = false;
    }

    fn lose(&mut self) {
        self.header.clear();
        self.start_message();
        self.at = At::Lost;
    }

    /// A message that begins where its start can't be judged from one piece alone is left out: what was passed or
    /// blanked of it before can't be taken back.
    fn search(&mut self, rest: &mut [u8]) -> usize {
        let check: StartCheck = if self.outputs { OUTPUTS } else { REQUESTS };
        let (passed, found) = find(rest, check);
        match found {
            Found::Start => {
                rest[..passed].fill(0);
                self.unproven = true;
                self.at = At::Header;
                passed
            }
            Found::NotYet => {
                rest.fill(0);
                rest.len()
            }
        }
    }
}

impl Body {
    fn feed(&mut self, bytes: &mut [u8]) {
        match self {
            Body::Kind => {}
            Body::Packed(packed) => packed.feed(bytes),
            Body::Blank => bytes.fill(0),
            Body::Command(name) => {
                for byte in bytes {
                    match name {
                        None => *name = Some(usize::from(*byte)),
                        Some(left) if *left > 0 && byte.is_ascii_uppercase() => *left -= 1,
                        Some(left) => {
                            *left = 0;
                            *byte = 0;
                        }
                    }
                }
            }
        }
    }
}

//! HTTP/1.x framing, both directions, over `httparse`.
//!
//! Owns: heads, body framing (length, chunked, until close), informational responses, upgrade, resynchronising after a
//! gap. Refuses: pairing of requests with responses (`exchange`) and the meaning of bodies (`protocol`).
//! Body bytes are never copied: every slice given to the sink lies within the bytes that were fed.

mod chunked;
mod detect;
mod event;
mod head;
#[cfg(test)]
mod properties;
mod search;
mod steps;
#[cfg(test)]
mod tests;

use crate::Anomaly;
use chunked::Chunked;
pub use event::{Head, HttpEvent, RequestHead, ResponseHead};
use head::Line;
pub(crate) use head::is_credential;
use search::Search;
use std::collections::VecDeque;

/// Largest head, in bytes; a larger one is [`Anomaly::BadRequestHead`] or [`Anomaly::BadResponseHead`].
pub const MAX_HEAD: usize = 64 * 1024;
/// Most header fields of one head.
pub const MAX_HEADERS: usize = 128;
/// Most request methods remembered ahead of their responses.
const MAX_EXPECTED: usize = 1024;

/// Receiver of events.
type Sink<'s> = dyn FnMut(HttpEvent<'_>) + 's;

/// Which heads a decoder reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Request,
    Response,
}

impl Side {
    fn bad_head(self) -> Anomaly {
        match self {
            Side::Request => Anomaly::BadRequestHead,
            Side::Response => Anomaly::BadResponseHead,
        }
    }
}

/// What a request's method says about its response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Expected {
    #[default]
    Ordinary,
    Head,
    Connect,
}

#[derive(Debug)]
enum State {
    /// Between messages, or within a head.
    Head,
    /// Bytes left of a body of known length; never 0.
    Length(u64),
    UntilClose,
    Chunked(Chunked),
    /// Place lost: looking for the next head.
    Searching(Box<Search>),
    Upgraded,
    /// Not HTTP.
    Dead,
    Ended,
}

/// Push decoder of one direction of one connection.
#[derive(Debug)]
pub struct Decoder {
    side: Side,
    state: State,
    /// Nothing has been recognised yet: the first bytes decide whether this is HTTP at all.
    fresh: bool,
    /// At least one head was decoded.
    proven: bool,
    /// Head bytes seen so far, when they came in several pieces.
    head: Vec<u8>,
    line: Line,
    expected: VecDeque<Expected>,
    in_message: bool,
    in_gap: bool,
    skipped: u64,
}

impl Decoder {
    fn new(side: Side) -> Decoder {
        Decoder {
            side,
            state: State::Head,
            fresh: true,
            proven: false,
            head: Vec::new(),
            line: Line::default(),
            expected: VecDeque::new(),
            in_message: false,
            in_gap: false,
            skipped: 0,
        }
    }

    /// A decoder of requests.
    pub fn request() -> Decoder {
        Decoder::new(Side::Request)
    }

    /// A decoder of responses. Tell it each request's method with [`Decoder::expect`].
    pub fn response() -> Decoder {
        Decoder::new(Side::Response)
    }

    /// Response side: a request with this method was sent; its response has no body if it is `HEAD`, and turns the
    /// stream opaque if it is `CONNECT` and succeeds. Order is pipelining order.
    pub fn expect(&mut self, method: &str) {
        // Beyond the bound a method is forgotten; only HEAD and CONNECT differ from the default.
        if self.expected.len() < MAX_EXPECTED {
            self.expected.push_back(match method {
                "HEAD" => Expected::Head,
                "CONNECT" => Expected::Connect,
                _ => Expected::Ordinary,
            });
        }
    }

    /// The stream is joined in the middle: the decoder looks for the next plausible head, and ignores what comes before.
    /// A message under way is dropped without an `End`.
    pub fn resync(&mut self) {
        self.skipped += self.head.len() as u64;
        self.head = Vec::new();
        self.in_message = false;
        // A stream that has shown no head yet may still turn out to be another protocol.
        self.state = State::Searching(Box::new(Search::new(!self.proven)));
        self.fresh = false;
    }

    /// Request side: the response turned the connection into something else (101, CONNECT); nothing more is decoded.
    pub fn upgrade(&mut self) {
        if !matches!(self.state, State::Dead | State::Ended) {
            self.skipped += self.head.len() as u64;
            self.head = Vec::new();
            self.in_message = false;
            self.state = State::Upgraded;
        }
    }

    /// The next bytes of the stream.
    pub fn feed(&mut self, bytes: &[u8], sink: &mut dyn FnMut(HttpEvent<'_>)) {
        if !bytes.is_empty() {
            self.in_gap = false;
        }
        let mut rest = bytes;
        while !rest.is_empty() {
            let used = match &mut self.state {
                State::Head => self.feed_head(rest, sink),
                State::Length(left) => {
                    let used = usize::try_from(*left).unwrap_or(usize::MAX).min(rest.len());
                    *left -= used as u64;
                    let done = *left == 0;
                    sink(HttpEvent::Body(&rest[..used]));
                    if done {
                        self.finish(false, sink);
                    }
                    used
                }
                State::UntilClose => {
                    sink(HttpEvent::Body(rest));
                    rest.len()
                }
                State::Chunked(_) => self.feed_chunked(rest, sink),
                State::Searching(_) => self.feed_search(rest, sink),
                State::Upgraded | State::Dead | State::Ended => {
                    self.skipped += rest.len() as u64;
                    rest.len()
                }
            };
            rest = &rest[used..];
        }
    }

    /// The next `len` bytes of the stream were not seen. Within a body whose framing says where it ends the decoder keeps
    /// its place; anywhere else it ends the message as truncated, with all of the gap counted as the message's, and looks
    /// for the next head.
    pub fn gap(&mut self, len: u64, sink: &mut dyn FnMut(HttpEvent<'_>)) {
        if len == 0 {
            return;
        }
        let first = !std::mem::replace(&mut self.in_gap, true);
        if first && !matches!(self.state, State::Upgraded | State::Dead | State::Ended) {
            sink(HttpEvent::Anomaly(Anomaly::Gap));
        }
        match &mut self.state {
            State::Length(left) => {
                let inside = len.min(*left);
                *left -= inside;
                let done = *left == 0;
                sink(HttpEvent::BodyGap(inside));
                if done {
                    self.finish(false, sink);
                }
                if inside < len {
                    self.lose(len - inside, sink);
                }
            }
            State::UntilClose => sink(HttpEvent::BodyGap(len)),
            State::Chunked(chunked) => {
                if chunked.skip_data(len) {
                    sink(HttpEvent::BodyGap(len));
                } else {
                    self.lose(len, sink);
                }
            }
            State::Head => self.lose(len, sink),
            State::Searching(search) => {
                search.gap();
                self.skipped = self.skipped.saturating_add(len);
            }
            State::Upgraded | State::Dead | State::Ended => self.skipped = self.skipped.saturating_add(len),
        }
    }

    /// The stream ended: completes a body that runs until close, truncates any other.
    pub fn end(&mut self, sink: &mut dyn FnMut(HttpEvent<'_>)) {
        match self.state {
            State::Head if !self.head.is_empty() => {
                let anomaly = if self.fresh {
                    Anomaly::NotHttp
                } else {
                    self.side.bad_head()
                };
                sink(HttpEvent::Anomaly(anomaly));
            }
            State::UntilClose => self.finish(false, sink),
            State::Length(_) | State::Chunked(_) => self.finish(true, sink),
            _ => {}
        }
        self.skipped += self.head.len() as u64;
        self.head = Vec::new();
        if !matches!(self.state, State::Dead) {
            self.state = State::Ended;
        }
    }

    /// Whether a message is under way: its `Head` was reported and its `End` was not.
    pub fn in_message(&self) -> bool {
        self.in_message
    }

    /// Whether the stream turned out not to be HTTP/1: nothing more will be decoded, and its bytes need not be fed.
    pub fn is_dead(&self) -> bool {
        matches!(self.state, State::Dead)
    }

    /// Bytes of a head that is not complete yet: above zero from a message's first byte until its `Head`. Servers that
    /// read in small pieces make this common, and it is how a caller knows when a message really began.
    pub fn buffered(&self) -> usize {
        self.head.len()
    }

    /// Bytes that it holds on the heap.
    pub fn heap_bytes(&self) -> usize {
        let search = match &self.state {
            State::Searching(search) => size_of::<Search>() + search.heap_bytes(),
            _ => 0,
        };
        self.head.capacity() + self.expected.capacity() + search
    }

    /// Bytes, fed or missing, that belong to no message: blank lines between messages, heads that do not parse, what was
    /// passed over while searching, everything after an upgrade. With the sizes in the events and
    /// [`Decoder::buffered`] they add up to all bytes fed and missing.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }
}

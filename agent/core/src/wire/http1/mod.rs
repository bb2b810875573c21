//! HTTP/1.x framing, both directions, over `httparse`.
//!
//! Owns: heads, body framing (length, chunked, until close), informational responses, upgrade, resynchronising after a
//! gap. Refuses: pairing of requests with responses (`exchange`) and the meaning of bodies (`protocol`).
//! Body bytes are never copied: every slice given to the sink lies within the bytes that were fed.

mod chunked;
mod detect;
mod head;
mod search;
#[cfg(test)]
mod tests;

use crate::Anomaly;
use chunked::{Chunked, Step};
use detect::Verdict;
use head::{Framing, Line};
use search::{Found, Search};
use std::collections::VecDeque;

/// Largest head, in bytes; a larger one is [`Anomaly::BadRequestHead`] or [`Anomaly::BadResponseHead`].
pub const MAX_HEAD: usize = 64 * 1024;
/// Most header fields of one head.
pub const MAX_HEADERS: usize = 128;
/// Most request methods remembered ahead of their responses.
const MAX_EXPECTED: usize = 1024;

/// Facts of a request head.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RequestHead {
    /// `POST`, …
    pub method: String,
    /// Request target as sent, query included; the values of query parameters that carry credentials (`key`,
    /// `api_key`, `access_token`, …) are replaced by `REDACTED`.
    pub target: String,
    /// Names in lower case, values trimmed; in order. Credentials are dropped here and never leave the decoder.
    pub headers: Vec<(String, String)>,
}

/// Facts of a response head.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ResponseHead {
    /// Status code, 100–999.
    pub status: u16,
    /// As for [`RequestHead::headers`].
    pub headers: Vec<(String, String)>,
}

/// Either head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Head {
    /// Of a request.
    Request(RequestHead),
    /// Of a response.
    Response(ResponseHead),
}

/// What the decoder found, in stream order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HttpEvent<'a> {
    /// A message began. `bytes` is the size of its head on the wire. 1xx heads other than 101 are reported too, without an `End`.
    Head {
        /// The head.
        head: Head,
        /// Its size on the wire.
        bytes: u64,
    },
    /// Body bytes, framing removed.
    Body(&'a [u8]),
    /// Body bytes that were not seen: how many (of the stream, framing included).
    BodyGap(u64),
    /// Framing bytes that belong to the current message (chunk sizes, trailers), for byte accounting.
    Framing(u64),
    /// The message is complete. `truncated` when the stream ended or lost its place first.
    End {
        /// The stream ended, or its place was lost, before the message was complete.
        truncated: bool,
    },
    /// The bytes are no longer HTTP (101, CONNECT): nothing more is decoded.
    Upgraded,
    /// Something did not fit.
    Anomaly(Anomaly),
}

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

    /// Bytes, fed or missing, that belong to no message: blank lines between messages, heads that do not parse, what was
    /// passed over while searching, everything after an upgrade. With the sizes in the events and
    /// [`Decoder::buffered`] they add up to all bytes fed and missing.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Takes bytes while between messages or in a head; returns how many.
    fn feed_head(&mut self, bytes: &[u8], sink: &mut Sink<'_>) -> usize {
        if self.head.is_empty() {
            // RFC 9112 2.2: empty lines before a message are ignored.
            let blank = bytes.iter().take_while(|b| matches!(b, b'\r' | b'\n')).count();
            if blank > 0 {
                self.skipped += blank as u64;
                return blank;
            }
            self.line = Line::default();
        }
        let window = &bytes[..bytes.len().min(MAX_HEAD - self.head.len())];
        let end = self.line.find_blank(window);
        let used = end.unwrap_or(window.len());
        let mut buffer = std::mem::take(&mut self.head);
        let seen = if buffer.is_empty() && end.is_some() {
            &window[..used]
        } else {
            buffer.extend_from_slice(&window[..used]);
            &buffer[..]
        };
        let full = seen.len() >= MAX_HEAD;
        if self.fresh {
            match detect::first_bytes(self.side, seen) {
                Verdict::Http => self.fresh = false,
                Verdict::More if end.is_none() && !full => {}
                Verdict::More => return self.die(Anomaly::NotHttp, seen.len(), used, sink),
                Verdict::Other(anomaly) => return self.die(anomaly, seen.len(), used, sink),
            }
        }
        if end.is_some() {
            if !self.begin(seen, sink) {
                self.skipped += seen.len() as u64;
                sink(HttpEvent::Anomaly(self.side.bad_head()));
                self.state = State::Searching(Box::new(Search::new(false)));
            }
        } else if full {
            self.skipped += seen.len() as u64;
            sink(HttpEvent::Anomaly(self.side.bad_head()));
            self.state = State::Searching(Box::new(Search::new(false)));
        } else {
            self.head = buffer;
        }
        used
    }

    fn feed_chunked(&mut self, bytes: &[u8], sink: &mut Sink<'_>) -> usize {
        let State::Chunked(chunked) = &mut self.state else {
            return 0;
        };
        let (mut used, mut framing) = (0, 0);
        let truncated = loop {
            let rest = &bytes[used..];
            if rest.is_empty() {
                if framing > 0 {
                    sink(HttpEvent::Framing(framing));
                }
                return used;
            }
            match chunked.step(rest) {
                Step::Data(n) => {
                    sink(HttpEvent::Body(&rest[..n]));
                    used += n;
                }
                Step::Framing(n) => {
                    framing += n as u64;
                    used += n;
                }
                Step::End(n) => {
                    framing += n as u64;
                    used += n;
                    break false;
                }
                Step::Bad(n) => {
                    framing += n as u64;
                    used += n;
                    break true;
                }
            }
        };
        if framing > 0 {
            sink(HttpEvent::Framing(framing));
        }
        if truncated {
            sink(HttpEvent::Anomaly(Anomaly::BadChunk));
        }
        self.finish(truncated, sink);
        if truncated {
            self.state = State::Searching(Box::new(Search::new(false)));
        }
        used
    }

    fn feed_search(&mut self, bytes: &[u8], sink: &mut Sink<'_>) -> usize {
        let State::Searching(search) = &mut self.state else {
            return 0;
        };
        let (used, found) = search.feed(self.side, bytes);
        self.skipped += used as u64;
        match found {
            Found::Nothing => {}
            Found::Head(head) => {
                let len = head.len() as u64;
                // A head that does not parse was no head: the search goes on.
                if self.begin(&head, sink) {
                    self.skipped -= len;
                }
            }
            Found::Other(anomaly) => {
                self.die(anomaly, 0, used, sink);
            }
        }
        used
    }

    /// Reports the message that `bytes`, a whole head, begins. `false` when it does not parse.
    fn begin(&mut self, bytes: &[u8], sink: &mut Sink<'_>) -> bool {
        let Some((head, headers)) = head::parse(self.side, bytes) else {
            return false;
        };
        let informational =
            matches!(&head, Head::Response(r) if (100..200).contains(&r.status) && r.status != 101);
        let framing = match &head {
            Head::Request(_) => headers.request_framing(),
            Head::Response(_) if informational => Some(Framing::None),
            Head::Response(r) => {
                headers.response_framing(r.status, self.expected.pop_front().unwrap_or_default())
            }
        };
        let Some(framing) = framing else {
            return false;
        };
        self.proven = true;
        let bytes = bytes.len() as u64;
        sink(HttpEvent::Head { head, bytes });
        self.state = State::Head;
        if informational {
            return true;
        }
        self.in_message = true;
        match framing {
            Framing::None | Framing::Length(0) => self.finish(false, sink),
            Framing::Length(len) => self.state = State::Length(len),
            Framing::Chunked => self.state = State::Chunked(Chunked::default()),
            Framing::UntilClose => self.state = State::UntilClose,
            Framing::Upgrade => {
                self.finish(false, sink);
                sink(HttpEvent::Upgraded);
                self.state = State::Upgraded;
            }
        }
        true
    }

    /// Ends the message under way.
    fn finish(&mut self, truncated: bool, sink: &mut Sink<'_>) {
        self.in_message = false;
        self.state = State::Head;
        sink(HttpEvent::End { truncated });
    }

    /// `len` missing bytes took the place with them.
    fn lose(&mut self, len: u64, sink: &mut Sink<'_>) {
        if self.in_message {
            sink(HttpEvent::BodyGap(len));
            self.finish(true, sink);
        } else {
            self.skipped = self.skipped.saturating_add(len);
        }
        // Which requests the missing responses answered is unknown, so what was expected can't be matched any more.
        self.expected.clear();
        self.resync();
    }

    /// The stream is not HTTP; `seen` bytes of it were held as a head, of which `used` were in the last feed.
    fn die(&mut self, anomaly: Anomaly, seen: usize, used: usize, sink: &mut Sink<'_>) -> usize {
        self.skipped += seen as u64;
        self.head = Vec::new();
        self.expected = VecDeque::new();
        self.state = State::Dead;
        sink(HttpEvent::Anomaly(anomaly));
        used
    }
}

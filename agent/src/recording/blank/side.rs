//! Blanks one direction of one connection.
//!
//! Owns: running the core's decoder beside the line and body machines, and comparing what the two find. Where they agree,
//! each byte goes to the machine that knows what it is; where they don't, or where bytes are missing, nothing passes
//! until the decoder finds a whole head again, but the facts of stream events that certainly are some. Refuses: trusting
//! either alone.

use super::body::BodyBlank;
use super::head::{LineBlank, Signal};
use super::marks::{Mark, Parts, Told, note};
use super::sse::SseBlank;
use infertap_core::wire::http1::{Decoder, HttpEvent};
use memchr::{memchr_iter, memmem};
use std::collections::VecDeque;

/// State of one direction.
#[derive(Debug)]
pub(super) struct Side {
    decoder: Decoder,
    requests: bool,
    lines: LineBlank,
    body: BodyBlank,
    /// For what is written while the place is lost.
    rest: SseBlank,
    place: Place,
    /// Stream offset of the next byte.
    expected: u64,
    /// The bytes as they were, while they are being blanked.
    original: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Machines and decoder agree on the place.
    Known,
    /// They don't, until the decoder finds a head. Responses may be the rest of a stream that was joined late.
    Lost,
    /// Not HTTP, or no longer: zeros for good.
    Closed,
}

impl Side {
    /// A direction that carries requests, or responses. `late`: its beginning was not seen.
    pub(super) fn new(requests: bool, late: bool) -> Side {
        let mut decoder = if requests {
            Decoder::request()
        } else {
            Decoder::response()
        };
        if late {
            decoder.gap(1, &mut |_| {});
        }
        Side {
            decoder,
            requests,
            lines: LineBlank::new(requests),
            body: BodyBlank::Opaque,
            rest: SseBlank::unsure(),
            place: if late { Place::Lost } else { Place::Known },
            expected: 0,
            original: Vec::new(),
        }
    }

    /// Whether it carries requests.
    pub(super) fn carries_requests(&self) -> bool {
        self.requests
    }

    /// Nothing more on this connection is HTTP.
    pub(super) fn close(&mut self) {
        self.place = Place::Closed;
    }

    /// The direction carries responses, and a request of this method was seen.
    pub(super) fn expect(&mut self, method: &str) {
        self.decoder.expect(method);
    }

    /// The first bytes of a direction whose beginning is not known were seen at this offset.
    pub(super) fn begin_at(&mut self, offset: u64) {
        self.expected = offset;
    }

    /// Blanks the captured bytes of a piece: it stands for `len` stream bytes from `offset` on.
    pub(super) fn piece(&mut self, offset: u64, len: u64, captured: &mut [u8]) -> Told {
        let mut told = Told::default();
        let Piece {
            again,
            fresh,
            before,
            after,
            end,
        } = piece(self.expected, offset, len, captured);
        zero(again);
        self.missing(before, &mut told);
        if !fresh.is_empty() {
            self.feed(fresh, &mut told);
        }
        self.missing(after, &mut told);
        self.expected = end;
        told
    }

    fn missing(&mut self, len: u64, told: &mut Told) {
        if len == 0 || self.place == Place::Closed {
            return;
        }
        let mut marks = VecDeque::new();
        self.decoder.gap(len, &mut |event| {
            note(event, told, &mut marks);
        });
        self.rest.gap();
        if self.place == Place::Lost {
            return;
        }
        let inside = matches!(marks.front(), Some(Mark::Missing(n)) if *n == len) && self.lines.body();
        marks.pop_front();
        match (inside, marks.pop_front()) {
            (true, None) => self.body.gap(),
            (true, Some(Mark::End { truncated: false })) => self.lines.message_done(),
            _ => self.place = Place::Lost,
        }
    }

    fn feed(&mut self, bytes: &mut [u8], told: &mut Told) {
        if self.place == Place::Closed {
            zero(bytes);
            return;
        }
        let mut original = std::mem::take(&mut self.original);
        original.clear();
        original.extend_from_slice(bytes);
        let mut parts = Parts::default();
        self.decoder.feed(&original, &mut |event| match event {
            HttpEvent::Body(slice) => parts.body(&original, slice),
            other => note(other, told, &mut parts.current),
        });
        if self.place == Place::Lost {
            self.find_place(bytes, &original, parts);
        } else {
            self.walk(bytes, 0, parts);
        }
        if told.upgraded {
            self.close();
        }
        self.original = original;
    }

    /// Gives each byte from `from` on to the machine that the marks say it belongs to.
    fn walk(&mut self, bytes: &mut [u8], from: usize, parts: Parts) {
        let mut at = from;
        let end = bytes.len();
        for (range, mut marks) in parts.done {
            if range.start < at || range.end > end || !self.framing(&mut bytes[at..range.start], &mut marks) {
                return self.lose(&mut bytes[at..]);
            }
            if !self.lines.body() {
                return self.lose(&mut bytes[range.start..]);
            }
            self.body.feed(&mut bytes[range.clone()]);
            at = range.end;
        }
        let mut marks = parts.current;
        if parts.strange || !self.framing(&mut bytes[at..], &mut marks) {
            return self.lose(&mut bytes[at..]);
        }
        if marks.iter().any(|mark| matches!(mark, Mark::Foreign)) {
            // The core gave up on the stream within these bytes.
            zero(bytes);
            self.place = Place::Closed;
        }
    }

    /// Blanks bytes that are no body, checking each end that the lines show against the decoder's marks.
    fn framing(&mut self, bytes: &mut [u8], marks: &mut VecDeque<Mark>) -> bool {
        if !self.settle(marks) {
            return false;
        }
        for byte in bytes {
            let (answer, signal) = self.lines.byte(*byte);
            *byte = answer;
            match signal {
                Signal::None => continue,
                Signal::Bad => return false,
                Signal::HeadEnd(len) => {
                    let Some(Mark::Head {
                        body,
                        bytes,
                        informational,
                    }) = marks.pop_front()
                    else {
                        return false;
                    };
                    if bytes != len {
                        return false;
                    }
                    if informational {
                        self.lines.message_done();
                    } else {
                        self.body = *body;
                    }
                }
                Signal::MessageEnd => {
                    while let Some(Mark::Framing) = marks.front() {
                        marks.pop_front();
                    }
                    let Some(Mark::End { truncated: false }) = marks.pop_front() else {
                        return false;
                    };
                    self.lines.message_done();
                }
            }
            if !self.settle(marks) {
                return false;
            }
        }
        // Framing may be told before all of it was seen; all else must have been met.
        marks
            .iter()
            .all(|mark| matches!(mark, Mark::Framing | Mark::Foreign))
    }

    /// Takes the marks that need no further byte: the end of a message without chunks, an upgrade.
    fn settle(&mut self, marks: &mut VecDeque<Mark>) -> bool {
        loop {
            match marks.front() {
                Some(Mark::End { truncated: false }) if self.lines.may_end_here() => {
                    self.lines.message_done();
                }
                Some(Mark::Upgraded) => {}
                Some(Mark::Broken | Mark::End { truncated: true } | Mark::Missing(_)) => return false,
                _ => return true,
            }
            marks.pop_front();
        }
    }

    fn lose(&mut self, rest: &mut [u8]) {
        zero(rest);
        self.rest.gap();
        self.place = Place::Lost;
    }

    /// Blanks bytes of which only the direction is known. The core reads the rest of a stream that it joined late; so
    /// do we, from the first event that certainly is one.
    fn unplaced(&mut self, bytes: &mut [u8]) {
        if self.requests || signature(bytes) > 0 {
            zero(bytes);
            return;
        }
        if begins_event(bytes) {
            self.rest = SseBlank::new();
        }
        for byte in bytes {
            *byte = self.rest.byte(*byte);
        }
    }

    /// After the place was lost: goes on from a head that the decoder has found, or that may begin here.
    fn find_place(&mut self, bytes: &mut [u8], original: &[u8], mut parts: Parts) {
        let found = parts.first_head();
        for start in starts(self.requests, original) {
            let mut lines = LineBlank::new(self.requests);
            let end =
                original[start..]
                    .iter()
                    .enumerate()
                    .find_map(|(index, byte)| match lines.byte(*byte).1 {
                        Signal::HeadEnd(len) => Some(len == index as u64 + 1 && Some(len) == found),
                        Signal::Bad | Signal::MessageEnd => Some(false),
                        Signal::None => None,
                    });
            // A head of which only the beginning is here may be one: lines alone pass nothing but listed words. It is
            // believed once its end agrees with the decoder's.
            if end == Some(true) || (end.is_none() && found.is_none() && start == 0) {
                self.unplaced(&mut bytes[..start]);
                parts.drop_before_head();
                self.rest.gap();
                self.place = Place::Known;
                self.lines = LineBlank::new(self.requests);
                self.walk(bytes, start, parts);
                return;
            }
        }
        self.unplaced(bytes);
        if parts.current.iter().any(|mark| matches!(mark, Mark::Foreign)) {
            self.place = Place::Closed;
        }
    }
}

/// What a piece brings.
pub(super) struct Piece<'a> {
    /// Captured bytes that came before.
    pub(super) again: &'a mut [u8],
    /// Captured bytes that did not.
    pub(super) fresh: &'a mut [u8],
    /// Bytes that are missing before them.
    pub(super) before: u64,
    /// Bytes that are missing behind them.
    pub(super) after: u64,
    /// Stream offset of the next byte.
    pub(super) end: u64,
}

/// Captured bytes that stand for `len` stream bytes from `offset` on, where `expected` comes next. What was there before
/// is not taken twice, nor is it by the core.
pub(super) fn piece(expected: u64, offset: u64, len: u64, captured: &mut [u8]) -> Piece<'_> {
    let seen = usize::try_from(expected.saturating_sub(offset)).unwrap_or(usize::MAX);
    let (again, fresh) = captured.split_at_mut(seen.min(captured.len()));
    let end = offset.saturating_add(len.max(again.len() as u64 + fresh.len() as u64));
    let start = offset.max(expected);
    // All of it was there before.
    let (before, after) = if end <= start {
        (0, 0)
    } else {
        (start - expected, end - start - fresh.len() as u64)
    };
    Piece {
        again,
        fresh,
        before,
        after,
        end: end.max(expected),
    }
}

const METHODS: [&[u8]; 9] = [
    b"GET ",
    b"POST ",
    b"PUT ",
    b"DELETE ",
    b"HEAD ",
    b"OPTIONS ",
    b"PATCH ",
    b"CONNECT ",
    b"TRACE ",
];

/// Whether a piece begins with a request's method.
pub(super) fn begins_request(bytes: &[u8]) -> bool {
    METHODS.iter().any(|method| bytes.starts_with(method))
}

/// Where heads may begin.
fn starts(requests: bool, bytes: &[u8]) -> Vec<usize> {
    if !requests {
        return memmem::find_iter(bytes, b"HTTP/1.").collect();
    }
    memchr_iter(b' ', bytes)
        .filter_map(|space| {
            let front = &bytes[..=space];
            let method = METHODS.iter().find(|method| front.ends_with(method))?;
            Some(front.len() - method.len())
        })
        .collect()
}

/// Whether a piece begins with an event of JSON, perhaps behind the size line of a chunk. Within a JSON string the quote
/// would be escaped, so what follows is no string's inside.
fn begins_event(bytes: &[u8]) -> bool {
    let digits = bytes.iter().take_while(|b| b.is_ascii_hexdigit()).count();
    let behind = match &bytes[digits..] {
        [b'\r', b'\n', rest @ ..] if digits > 0 => rest,
        _ => bytes,
    };
    let data = behind.strip_prefix(b"data:").unwrap_or_default();
    data.strip_prefix(b" ").unwrap_or(data).starts_with(b"{\"")
}

/// Zeros, but for the bytes by which the core tells TLS and HTTP/2 from anything else.
fn zero(bytes: &mut [u8]) {
    let kept = signature(bytes);
    bytes[kept..].fill(0);
}

/// Length of a protocol's fixed first bytes, where these are such.
fn signature(bytes: &[u8]) -> usize {
    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    match bytes {
        // Type and version of a TLS record.
        [0x14..=0x17, 3, 0..=4, ..] => 3,
        // An HTTP/2 SETTINGS frame's head, on stream 0, without its length.
        [0, _, _, 4, 0 | 1, 0, 0, 0, 0, ..] => 9,
        _ if bytes.starts_with(PREFACE) => PREFACE.len(),
        _ => 0,
    }
}

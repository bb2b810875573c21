//! Finding the next head in a stream whose place was lost, or that was joined in the middle.
//!
//! Owns: the search, line by line, for a request or status line that is followed by header lines and a blank one; it does
//! not depend on how the bytes are split, and holds at most one head and one line. Refuses: believing a head; the caller
//! parses it.

use super::{MAX_HEAD, MAX_HEADERS, Side};
use crate::Anomaly;
use memchr::{memchr, memmem, memrchr};

/// Only this much of the end of a line is looked at: body bytes that precede a head on its line don't count.
const MAX_LINE: usize = 16 * 1024;
/// A stream that never showed a head is given up as not HTTP after this many bytes.
const MAX_UNPROVEN: u64 = 16 * 1024 * 1024;

/// Methods that are believed in the middle of a stream. None is the end of another.
const METHODS: [&[u8]; 9] = [
    b"GET", b"POST", b"PUT", b"DELETE", b"HEAD", b"OPTIONS", b"PATCH", b"CONNECT", b"TRACE",
];

/// What a feed brought.
#[derive(Debug)]
pub(super) enum Found {
    Nothing,
    /// A whole head that looks right; it ends where the feed stopped.
    Head(Vec<u8>),
    /// The stream is something else.
    Other(Anomaly),
}

/// State of a search.
#[derive(Debug)]
pub(super) struct Search {
    /// Nothing of this stream was recognised ever.
    unproven: bool,
    seen: u64,
    /// The first bytes after the search began, while they may still be a TLS record.
    first: Vec<u8>,
    /// The current line so far; the front of a long one is dropped.
    line: Vec<u8>,
    line_len: u64,
    /// Lines of the head that seems to have begun.
    head: Vec<u8>,
    headers: usize,
}

impl Search {
    /// `unproven`: no head was ever seen on this stream, so it may be another protocol.
    pub(super) fn new(unproven: bool) -> Search {
        Search {
            unproven,
            seen: 0,
            first: Vec::new(),
            line: Vec::new(),
            line_len: 0,
            head: Vec::new(),
            headers: 0,
        }
    }

    /// Bytes that it holds on the heap.
    pub(super) fn heap_bytes(&self) -> usize {
        self.first.capacity() + self.line.capacity() + self.head.capacity()
    }

    /// Bytes are missing here.
    pub(super) fn gap(&mut self) {
        self.line.clear();
        self.line_len = 0;
        self.head.clear();
        self.first.clear();
        self.seen = self.seen.max(3);
    }

    /// Looks through `bytes`; returns how many were used.
    pub(super) fn feed(&mut self, side: Side, bytes: &[u8]) -> (usize, Found) {
        if self.unproven
            && let Some(anomaly) = self.other_protocol(bytes)
        {
            return (bytes.len(), Found::Other(anomaly));
        }
        let mut used = 0;
        while let Some(newline) = memchr(b'\n', &bytes[used..]) {
            let end = used + newline + 1;
            let part = &bytes[used..end];
            used = end;
            let found = if self.line_len == 0 {
                self.line_read(side, part, part.len() as u64)
            } else {
                self.push(part);
                let line = std::mem::take(&mut self.line);
                let tail = &line[line.len().saturating_sub(MAX_LINE)..];
                self.line_read(side, tail, self.line_len)
            };
            self.line.clear();
            self.line_len = 0;
            if let Some(head) = found {
                self.seen += used as u64;
                return (used, Found::Head(head));
            }
        }
        self.push(&bytes[used..]);
        self.seen += bytes.len() as u64;
        (bytes.len(), Found::Nothing)
    }

    /// Whether a stream that was joined in the middle, and never showed a head, is something else.
    fn other_protocol(&mut self, bytes: &[u8]) -> Option<Anomaly> {
        if self.seen < 3 {
            self.first.extend(bytes.iter().take(3 - self.first.len().min(3)));
            // Any TLS record of a 3.x version: type, then version (RFC 8446 section 5.1). No text has these bytes.
            if matches!(self.first[..], [0x14..=0x17, 3, 0..=4]) {
                return Some(Anomaly::Tls);
            }
        }
        (self.seen > MAX_UNPROVEN).then_some(Anomaly::NotHttp)
    }

    fn push(&mut self, part: &[u8]) {
        self.line_len += part.len() as u64;
        if part.len() >= MAX_LINE {
            self.line.clear();
            self.line.extend_from_slice(&part[part.len() - MAX_LINE..]);
            return;
        }
        if self.line.len() + part.len() > 2 * MAX_LINE {
            let surplus = self.line.len() + part.len() - MAX_LINE;
            self.line.drain(..surplus.min(self.line.len()));
        }
        self.line.extend_from_slice(part);
    }

    /// A line ended; `line` is (the tail of) it, line feed included, `len` its true length. Returns a head that it completes.
    fn line_read(&mut self, side: Side, line: &[u8], len: u64) -> Option<Vec<u8>> {
        let line = &line[line.len().saturating_sub(MAX_LINE)..];
        if !self.head.is_empty() {
            if matches!(line, b"\n" | b"\r\n") {
                let mut head = std::mem::take(&mut self.head);
                head.extend_from_slice(line);
                return Some(head);
            }
            self.headers += 1;
            let fits = self.head.len() + line.len() < MAX_HEAD && self.headers <= MAX_HEADERS;
            if fits && len <= MAX_LINE as u64 && is_field(line) {
                self.head.extend_from_slice(line);
                return None;
            }
            // It was no head; the line that proves it may begin the true one.
            self.head.clear();
        }
        let start = match side {
            Side::Request => request_line(line),
            Side::Response => status_line(line),
        };
        if let Some(start) = start {
            self.head.extend_from_slice(&line[start..]);
            self.headers = 0;
        }
        None
    }
}

fn is_field(line: &[u8]) -> bool {
    let name = &line[..memchr(b':', line).unwrap_or(0)];
    let named = !name.is_empty() && name.iter().all(|b| b.is_ascii_graphic() && *b != b'"');
    named || matches!(line[0], b' ' | b'\t')
}

fn without_end(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// Where a request line begins that ends this line.
fn request_line(line: &[u8]) -> Option<usize> {
    let line = without_end(line);
    let (front, version) = line.split_at_checked(memrchr(b' ', line)?)?;
    if !matches!(
        version,
        [b' ', b'H', b'T', b'T', b'P', b'/', b'1', b'.', b'0'..=b'9']
    ) {
        return None;
    }
    let space = memrchr(b' ', front)?;
    let (before, target) = (&front[..space], &front[space + 1..]);
    let method = METHODS.iter().find(|method| before.ends_with(method))?;
    let plausible = target.starts_with(b"/")
        || target == b"*"
        || target.starts_with(b"http")
        || (*method == b"CONNECT" && !target.is_empty());
    (plausible && target.iter().all(|b| *b > 0x20 && *b != 0x7f)).then(|| before.len() - method.len())
}

/// Where a status line begins that ends this line.
fn status_line(line: &[u8]) -> Option<usize> {
    let line = without_end(line);
    let start = memmem::rfind(line, b"HTTP/1.")?;
    let [
        b'0'..=b'9',
        b' ',
        b'1'..=b'5',
        b'0'..=b'9',
        b'0'..=b'9',
        reason @ ..,
    ] = &line[start + 7..]
    else {
        return None;
    };
    let plausible = matches!(reason, [] | [b' ', ..]) && reason.iter().all(|b| *b >= 0x20 && *b != 0x7f);
    plausible.then_some(start)
}

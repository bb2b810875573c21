//! `text/event-stream` framing (WHATWG HTML, section 9.2.6).
//!
//! Owns: lines, fields, events, their size limit. Refuses: what `data` means (`protocol`).
//! An event that lies whole within the bytes fed, the common case, is reported where it lies, without a copy.

#[cfg(test)]
mod tests;

use memchr::{memchr, memchr2};

/// Largest event, in bytes of its lines without their ends, unless [`SseDecoder::with_limit`] says otherwise.
pub const DEFAULT_LIMIT: usize = 1024 * 1024;
/// Buffers that grew past this are given back once their event is out: most streams never need them.
const KEEP_CAPACITY: usize = 8 * 1024;
const BOM: [u8; 3] = [0xef, 0xbb, 0xbf];

/// One event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SseEvent<'a> {
    /// `event:` field, empty when absent.
    pub name: &'a [u8],
    /// `data:` fields joined with newlines.
    pub data: &'a [u8],
}

/// What the decoder found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SseItem<'a> {
    /// An event with data.
    Event(SseEvent<'a>),
    /// A comment line (keep-alive).
    Comment,
    /// A line or event over the size limit was skipped, or a gap cut one.
    Skipped,
}

/// Where the decoder is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// At the very start, after so many bytes of a byte order mark.
    Bom(usize),
    Lines,
    /// Passing over an event; `true` at the start of a line.
    Skip(bool),
}

/// Push decoder of one event stream.
#[derive(Debug)]
pub struct SseDecoder {
    mode: Mode,
    limit: usize,
    /// The last byte was a carriage return that ended a line; a line feed now belongs to it.
    after_return: bool,
    /// The current line so far, when it came in several pieces.
    line: Vec<u8>,
    /// Fields of the current event that lie in earlier feeds, or in several lines.
    data: Vec<u8>,
    has_data: bool,
    name: Vec<u8>,
    /// Bytes of the current event's lines.
    size: usize,
}

impl Default for SseDecoder {
    fn default() -> Self {
        SseDecoder::with_limit(DEFAULT_LIMIT)
    }
}

/// The fields of the current event that lie in the bytes being fed, not copied yet.
#[derive(Default)]
struct Here<'a> {
    data: Option<&'a [u8]>,
    name: Option<&'a [u8]>,
}

impl SseDecoder {
    /// A decoder that skips events with more than `limit` bytes.
    pub fn with_limit(limit: usize) -> SseDecoder {
        SseDecoder {
            mode: Mode::Bom(0),
            limit,
            after_return: false,
            line: Vec::new(),
            data: Vec::new(),
            has_data: false,
            name: Vec::new(),
            size: 0,
        }
    }

    /// Bytes that it holds on the heap.
    pub fn heap_bytes(&self) -> usize {
        self.line.capacity() + self.data.capacity() + self.name.capacity()
    }

    /// The next bytes of the body.
    pub fn feed(&mut self, bytes: &[u8], sink: &mut dyn FnMut(SseItem<'_>)) {
        let mut rest = self.skip_bom(bytes);
        let mut here = Here::default();
        while let Some(&first) = rest.first() {
            if std::mem::take(&mut self.after_return) && first == b'\n' {
                rest = &rest[1..];
                continue;
            }
            let end = memchr2(b'\n', b'\r', rest);
            let line = &rest[..end.unwrap_or(rest.len())];
            if let Mode::Skip(at_start) = self.mode {
                let boundary = at_start && line.is_empty();
                self.mode = match end {
                    Some(_) if boundary => Mode::Lines,
                    Some(_) => Mode::Skip(true),
                    None => Mode::Skip(false),
                };
            } else if self.size + self.line.len() + line.len() > self.limit {
                self.drop_event();
                here = Here::default();
                self.mode = Mode::Skip(end.is_some());
                sink(SseItem::Skipped);
            } else if end.is_none() {
                self.line.extend_from_slice(line);
            } else if self.line.is_empty() {
                self.take_line(line, &mut here, sink);
            } else {
                let mut whole = std::mem::take(&mut self.line);
                whole.extend_from_slice(line);
                let mut local = Here {
                    data: here.data.take(),
                    name: here.name.take(),
                };
                self.take_line(&whole, &mut local, sink);
                self.keep(&local);
                if whole.capacity() <= KEEP_CAPACITY {
                    whole.clear();
                    self.line = whole;
                }
            }
            let Some(end) = end else { break };
            self.after_return = rest[end] == b'\r';
            rest = &rest[end + 1..];
        }
        self.keep(&here);
    }

    /// Bytes of the body are missing: skips to the next event boundary.
    pub fn gap(&mut self, sink: &mut dyn FnMut(SseItem<'_>)) {
        if !matches!(self.mode, Mode::Skip(_)) {
            sink(SseItem::Skipped);
        }
        self.drop_event();
        self.after_return = false;
        self.mode = Mode::Skip(false);
    }

    /// The body ended; an event without its closing blank line is discarded, as the standard says.
    pub fn end(&mut self, _sink: &mut dyn FnMut(SseItem<'_>)) {
        *self = SseDecoder::with_limit(self.limit);
    }

    /// Takes a byte order mark off the start of the stream.
    fn skip_bom<'a>(&mut self, mut bytes: &'a [u8]) -> &'a [u8] {
        while let (Mode::Bom(seen), Some(&byte)) = (self.mode, bytes.first()) {
            if byte == BOM[seen] {
                bytes = &bytes[1..];
                self.mode = if seen + 1 == BOM.len() {
                    Mode::Lines
                } else {
                    Mode::Bom(seen + 1)
                };
            } else {
                self.line.extend_from_slice(&BOM[..seen]);
                self.mode = Mode::Lines;
            }
        }
        bytes
    }

    fn take_line<'a>(&mut self, line: &'a [u8], here: &mut Here<'a>, sink: &mut dyn FnMut(SseItem<'_>)) {
        if line.is_empty() {
            self.dispatch(here, sink);
            return;
        }
        let value = |from: usize| {
            let value = line.get(from..).unwrap_or_default();
            value.strip_prefix(b" ").unwrap_or(value)
        };
        if line.starts_with(b"data:") {
            self.add_data(value(5), here);
        } else if line[0] == b':' {
            sink(SseItem::Comment);
            return;
        } else {
            let name_end = memchr(b':', line).unwrap_or(line.len());
            match &line[..name_end] {
                b"data" => self.add_data(b"", here),
                b"event" => {
                    self.name.clear();
                    here.name = Some(value(name_end + 1));
                }
                // `id` and `retry` steer a client's reconnecting; other fields mean nothing.
                _ => {}
            }
        }
        self.size += line.len();
    }

    fn add_data<'a>(&mut self, value: &'a [u8], here: &mut Here<'a>) {
        if let Some(first) = here.data.take() {
            self.join(first);
        }
        if self.has_data {
            self.join(value);
        } else {
            here.data = Some(value);
        }
    }

    fn join(&mut self, value: &[u8]) {
        if std::mem::replace(&mut self.has_data, true) {
            self.data.push(b'\n');
        }
        self.data.extend_from_slice(value);
    }

    /// Copies what the next feed must still know.
    fn keep(&mut self, here: &Here<'_>) {
        if let Some(data) = here.data {
            self.join(data);
        }
        if let Some(name) = here.name {
            self.name.clear();
            self.name.extend_from_slice(name);
        }
    }

    fn dispatch(&mut self, here: &mut Here<'_>, sink: &mut dyn FnMut(SseItem<'_>)) {
        let here = std::mem::take(here);
        let data = if self.has_data {
            Some(&self.data[..])
        } else {
            here.data
        };
        if let Some(data) = data {
            let name = here.name.unwrap_or(&self.name);
            sink(SseItem::Event(SseEvent { name, data }));
        }
        self.clear_fields();
    }

    fn clear_fields(&mut self) {
        self.has_data = false;
        self.size = 0;
        for buffer in [&mut self.data, &mut self.name] {
            if buffer.capacity() > KEEP_CAPACITY {
                *buffer = Vec::new();
            }
            buffer.clear();
        }
    }

    fn drop_event(&mut self) {
        self.clear_fields();
        self.line = Vec::new();
    }
}

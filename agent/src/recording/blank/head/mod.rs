//! Blanks what is not body: start lines, header fields, chunk framing, trailers, byte by byte, in place.
//!
//! Owns: a push machine over lines that passes listed words and the framing's numbers, and tells where heads and chunked
//! messages end. Refuses: deciding what is body (the core's decoder does; `side` compares the two).

#[cfg(test)]
mod tests;

use super::json::{FILLER, NAME_FILLER};
use super::words::{self, HEADERS, HeaderValue, METHODS, Matcher, SEGMENTS, VERSIONS, header_value};

/// Longest `b3`: two ids, a state and an id; `traceparent` (W3C Trace Context level 1, section 3.2.2) has 55.
const MAX_HEX: u8 = 68;
/// Most digits of a number in a header.
const MAX_DIGITS: u8 = 20;
/// Most digits of a chunk size that the core accepts.
const MAX_CHUNK_DIGITS: u8 = 16;
/// Answers a control character: as invalid as what it stands for.
const CONTROL: u8 = 0x01;

/// What a byte ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Signal {
    /// Nothing.
    None,
    /// The blank line behind a head of this many bytes.
    HeadEnd(u64),
    /// The blank line behind the last chunk and its trailers.
    MessageEnd,
    /// This can't stand here.
    Bad,
}

/// Push machine over the bytes of one direction that are not body.
#[derive(Debug, Clone)]
pub(super) struct LineBlank {
    requests: bool,
    place: Place,
    /// Bytes of the current head.
    head_len: u64,
    /// The current line holds nothing but perhaps a carriage return.
    empty: bool,
}

#[derive(Debug, Clone, Copy)]
enum Place {
    /// Before a start line.
    Start,
    Method(Option<Matcher>),
    Target {
        segment: Option<Matcher>,
        query: bool,
    },
    Version(Option<Matcher>),
    Status(u8),
    Reason,
    Fields(Field),
    Trailers(Field),
    ChunkSize {
        digits: u8,
        zero: bool,
    },
    ChunkExtension {
        zero: bool,
    },
    /// The size line of a chunk with data has ended.
    ChunkData,
    /// Data of the chunk was seen; the next byte that is no body ends it.
    InChunkData,
    ChunkEnd,
    /// In a body without chunks: nothing but body comes until the message ends.
    Plain,
}

#[derive(Debug, Clone, Copy)]
enum Field {
    LineStart,
    Name(Option<Matcher>),
    /// White space after a name.
    NameEnd(Option<usize>),
    Value {
        passes: HeaderValue,
        word: Option<Matcher>,
        count: u8,
    },
}

impl LineBlank {
    /// A machine before the head of a request or response.
    pub(super) fn new(requests: bool) -> LineBlank {
        LineBlank {
            requests,
            place: Place::Start,
            head_len: 0,
            empty: true,
        }
    }

    /// The message is complete: a head may come.
    pub(super) fn message_done(&mut self) {
        *self = LineBlank::new(self.requests);
    }

    /// Body bytes come here, or are missing. `false` when they can't.
    pub(super) fn body(&mut self) -> bool {
        self.place = match self.place {
            Place::ChunkData | Place::InChunkData => Place::InChunkData,
            Place::ChunkSize { digits: 0, .. } if self.head_len > 0 => Place::Plain,
            Place::Plain => Place::Plain,
            _ => return false,
        };
        true
    }

    /// Whether a head was completed and nothing of its body's framing was seen since, or the body has none.
    pub(super) fn may_end_here(&self) -> bool {
        match self.place {
            Place::Plain => true,
            Place::ChunkSize { digits: 0, .. } => self.head_len > 0,
            _ => false,
        }
    }

    /// Answers the next byte.
    pub(super) fn byte(&mut self, byte: u8) -> (u8, Signal) {
        match self.place {
            Place::Start if matches!(byte, b'\r' | b'\n') => return (byte, Signal::None),
            Place::Start
            | Place::Method(_)
            | Place::Target { .. }
            | Place::Version(_)
            | Place::Status(_)
            | Place::Reason
            | Place::Fields(_) => self.head_len += 1,
            _ => {}
        }
        if byte == b'\n' {
            return self.line_end();
        }
        self.empty &= byte == b'\r';
        if byte == b'\r' {
            return self.carriage_return();
        }
        let control = byte < 0x20 && byte != b'\t' || byte == 0x7f;
        let answer = match &mut self.place {
            Place::Start => {
                self.place = if self.requests {
                    Place::Method(None)
                } else {
                    Place::Version(None)
                };
                let mut matcher = Matcher::new(if self.requests { METHODS } else { VERSIONS }, false);
                let passes = matcher.step(byte);
                if passes {
                    self.place = if self.requests {
                        Place::Method(Some(matcher))
                    } else {
                        Place::Version(Some(matcher))
                    };
                }
                if passes { byte } else { method_filler(byte) }
            }
            Place::Method(_) if byte == b' ' => {
                self.place = Place::Target {
                    segment: Some(Matcher::new(SEGMENTS, false)),
                    query: false,
                };
                byte
            }
            Place::Method(matcher) => word(matcher, byte).unwrap_or_else(|| method_filler(byte)),
            Place::Target { .. } if byte == b' ' => {
                self.place = Place::Version(Some(Matcher::new(VERSIONS, false)));
                byte
            }
            Place::Target { query: true, .. } | Place::Reason | Place::ChunkExtension { .. } => FILLER,
            Place::Target { segment, query } => match byte {
                b'/' => {
                    *segment = Some(Matcher::new(SEGMENTS, false));
                    byte
                }
                b'?' | b'#' => {
                    *query = true;
                    byte
                }
                _ => word(segment, byte).unwrap_or(NAME_FILLER),
            },
            Place::Version(matcher) if byte == b' ' => {
                if self.requests {
                    // More of the target, as it turns out, or space that a tolerant parser accepts.
                    *matcher = Some(Matcher::new(VERSIONS, false));
                } else {
                    self.place = Place::Status(0);
                }
                byte
            }
            Place::Version(matcher) => word(matcher, byte).unwrap_or(NAME_FILLER),
            Place::Status(0) if byte == b' ' => byte,
            Place::Status(count) if byte.is_ascii_digit() && *count < 3 => {
                *count += 1;
                byte
            }
            Place::Status(_) => {
                self.place = Place::Reason;
                if byte == b' ' { byte } else { NAME_FILLER }
            }
            Place::Fields(field) | Place::Trailers(field) => field.byte(byte),
            Place::ChunkSize { digits, zero } => match byte {
                b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F' if *digits < MAX_CHUNK_DIGITS => {
                    *zero = (*zero || *digits == 0) && byte == b'0';
                    *digits += 1;
                    return (byte, Signal::None);
                }
                b';' | b' ' | b'\t' if *digits > 0 => {
                    self.place = Place::ChunkExtension { zero: *zero };
                    return (byte, Signal::None);
                }
                _ => return (0, Signal::Bad),
            },
            Place::ChunkData | Place::InChunkData | Place::ChunkEnd | Place::Plain => {
                return (0, Signal::Bad);
            }
        };
        (if control { CONTROL } else { answer }, Signal::None)
    }

    fn line_end(&mut self) -> (u8, Signal) {
        let empty = std::mem::replace(&mut self.empty, true);
        let mut signal = Signal::None;
        self.place = match self.place {
            Place::Fields(_) if empty => {
                signal = Signal::HeadEnd(self.head_len);
                chunk_start()
            }
            Place::Trailers(_) if empty => {
                signal = Signal::MessageEnd;
                Place::Start
            }
            Place::Start
            | Place::Method(_)
            | Place::Target { .. }
            | Place::Version(_)
            | Place::Status(_)
            | Place::Reason
            | Place::Fields(_) => Place::Fields(Field::LineStart),
            Place::Trailers(_) => Place::Trailers(Field::LineStart),
            Place::ChunkSize { digits: 0, .. } | Place::ChunkData | Place::Plain => return (0, Signal::Bad),
            Place::ChunkSize { zero, .. } | Place::ChunkExtension { zero } => {
                if zero {
                    Place::Trailers(Field::LineStart)
                } else {
                    Place::ChunkData
                }
            }
            Place::InChunkData | Place::ChunkEnd => chunk_start(),
        };
        (b'\n', signal)
    }

    /// A carriage return passes: before a line feed it ends the line, elsewhere it is as invalid as it was.
    fn carriage_return(&mut self) -> (u8, Signal) {
        match self.place {
            Place::InChunkData => self.place = Place::ChunkEnd,
            Place::ChunkData | Place::ChunkEnd | Place::Plain | Place::ChunkSize { digits: 0, .. } => {
                return (0, Signal::Bad);
            }
            _ => {}
        }
        (b'\r', Signal::None)
    }
}

fn chunk_start() -> Place {
    Place::ChunkSize {
        digits: 0,
        zero: false,
    }
}

/// The byte if it goes on with a listed word; else the word is given up.
fn word(matcher: &mut Option<Matcher>, byte: u8) -> Option<u8> {
    if matcher.as_mut()?.step(byte) {
        return Some(byte);
    }
    *matcher = None;
    None
}

/// An unknown method stays one: the core judges a stream by its first letter too.
fn method_filler(byte: u8) -> u8 {
    if byte.is_ascii_uppercase() {
        b'Z'
    } else {
        NAME_FILLER
    }
}

impl Field {
    fn byte(&mut self, byte: u8) -> u8 {
        match self {
            // Space at the start of a line continues the value before it.
            Field::LineStart if matches!(byte, b' ' | b'\t') => {
                *self = Field::value(HeaderValue::Blank);
                byte
            }
            Field::LineStart => {
                let mut matcher = Some(Matcher::new(HEADERS, true));
                let answer = word(&mut matcher, byte);
                *self = Field::Name(matcher);
                answer.unwrap_or(if byte == b':' { byte } else { NAME_FILLER })
            }
            Field::Name(matcher) => {
                let listed = matcher.as_ref().and_then(Matcher::matched);
                match byte {
                    b':' => self.colon(listed),
                    b' ' | b'\t' => {
                        *self = Field::NameEnd(listed);
                        byte
                    }
                    _ => word(matcher, byte).unwrap_or(NAME_FILLER),
                }
            }
            Field::NameEnd(listed) => match byte {
                b':' => {
                    let listed = *listed;
                    self.colon(listed)
                }
                b' ' | b'\t' => byte,
                _ => {
                    *listed = None;
                    NAME_FILLER
                }
            },
            Field::Value {
                passes,
                word: matcher,
                count,
            } => {
                if *count == 0 && matches!(byte, b' ' | b'\t') {
                    return byte;
                }
                *count = count.saturating_add(1);
                let separator = matches!(byte, b' ' | b'\t' | b',');
                match passes {
                    HeaderValue::Blank => FILLER,
                    HeaderValue::Digits if byte.is_ascii_digit() && *count <= MAX_DIGITS => byte,
                    HeaderValue::Hex if (byte.is_ascii_hexdigit() || byte == b'-') && *count <= MAX_HEX => {
                        byte
                    }
                    HeaderValue::Digits if separator => byte,
                    HeaderValue::Digits | HeaderValue::Hex => NAME_FILLER,
                    HeaderValue::Words(list) => {
                        if separator || matches!(byte, b';' | b'=') {
                            *matcher = Some(Matcher::new(list, true));
                            byte
                        } else {
                            word(matcher, byte).unwrap_or(NAME_FILLER)
                        }
                    }
                }
            }
        }
    }

    fn colon(&mut self, listed: Option<usize>) -> u8 {
        *self = Field::value(listed.map_or(HeaderValue::Blank, header_value));
        b':'
    }

    fn value(passes: HeaderValue) -> Field {
        let word = match passes {
            HeaderValue::Words(list) => Some(words::Matcher::new(list, true)),
            _ => None,
        };
        Field::Value {
            passes,
            word,
            count: 0,
        }
    }
}

//! One string, unescaped in pieces.
//!
//! Owns: escapes, surrogate pairs, the value limit; what is not kept is passed over at memory speed. Refuses: structure.

use memchr::memchr2;
use std::borrow::Cow;

/// Where an escape is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Escape {
    #[default]
    None,
    /// After the backslash.
    Begun,
    /// In `\u`: digits seen, value so far.
    Unicode(u8, u16),
}

/// What the front of the bytes was.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum StringStep {
    /// All belongs to the string.
    More,
    /// The string ended after so many bytes.
    End(usize),
    /// The byte behind so many fits in no string.
    Bad(usize),
}

/// State of one string.
#[derive(Debug, Clone, Default)]
pub(super) struct Text {
    /// Bytes to keep; `None` when nobody wants the string.
    limit: Option<usize>,
    kept: Vec<u8>,
    /// Unescaped length.
    len: u64,
    truncated: bool,
    escape: Escape,
    /// First half of a surrogate pair.
    high: Option<u16>,
}

impl Text {
    /// A string begins, of which `limit` bytes are wanted.
    pub(super) fn start(&mut self, limit: Option<usize>) {
        self.limit = limit;
        self.kept.clear();
        self.len = 0;
        self.truncated = false;
        self.escape = Escape::None;
        self.high = None;
    }

    /// Bytes of the string are missing.
    pub(super) fn cut(&mut self) {
        self.flush_high();
        self.truncated = true;
        self.escape = Escape::None;
    }

    /// Unescaped bytes seen.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// The string, if all of it was kept.
    pub(super) fn whole(&self) -> Option<&[u8]> {
        (self.limit.is_some() && !self.truncated).then_some(&self.kept[..])
    }

    /// The text, and whether it is only the beginning.
    pub(super) fn value(&self) -> (Cow<'_, str>, bool) {
        let mut kept = &self.kept[..];
        if self.truncated
            && let Err(error) = std::str::from_utf8(kept)
            && error.error_len().is_none()
        {
            // Not half a character at the cut.
            kept = &kept[..error.valid_up_to()];
        }
        (String::from_utf8_lossy(kept), self.truncated)
    }

    /// Takes bytes up to the closing quote.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> StringStep {
        let mut at = 0;
        while at < bytes.len() {
            match self.escape {
                Escape::None => {
                    let run = memchr2(b'"', b'\\', &bytes[at..]);
                    let part = &bytes[at..at + run.unwrap_or(bytes.len() - at)];
                    if !part.is_empty() {
                        self.flush_high();
                        self.push(part);
                    }
                    let Some(run) = run else {
                        return StringStep::More;
                    };
                    at += run + 1;
                    if bytes[at - 1] == b'"' {
                        self.flush_high();
                        return StringStep::End(at);
                    }
                    self.escape = Escape::Begun;
                }
                Escape::Begun => {
                    if !self.escaped(bytes[at]) {
                        return StringStep::Bad(at);
                    }
                    at += 1;
                }
                Escape::Unicode(digits, value) => {
                    let Some(digit) = char::from(bytes[at]).to_digit(16) else {
                        return StringStep::Bad(at);
                    };
                    at += 1;
                    let value = (value << 4) | digit as u16;
                    if digits == 3 {
                        self.escape = Escape::None;
                        self.unit(value);
                    } else {
                        self.escape = Escape::Unicode(digits + 1, value);
                    }
                }
            }
        }
        StringStep::More
    }

    fn escaped(&mut self, byte: u8) -> bool {
        self.escape = Escape::None;
        let plain = match byte {
            b'"' | b'\\' | b'/' => byte,
            b'b' => 0x08,
            b'f' => 0x0c,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => {
                self.escape = Escape::Unicode(0, 0);
                return true;
            }
            _ => return false,
        };
        self.flush_high();
        self.push(&[plain]);
        true
    }

    /// A UTF-16 code unit.
    fn unit(&mut self, unit: u16) {
        match (self.high, unit) {
            (Some(high), 0xdc00..=0xdfff) => {
                self.high = None;
                let code = 0x1_0000 + ((u32::from(high) & 0x3ff) << 10) + (u32::from(unit) & 0x3ff);
                self.push_char(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            (_, 0xd800..=0xdbff) => {
                self.flush_high();
                self.high = Some(unit);
            }
            _ => {
                self.flush_high();
                self.push_char(char::from_u32(u32::from(unit)).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
        }
    }

    /// A first half whose second did not come.
    fn flush_high(&mut self) {
        if self.high.take().is_some() {
            self.push_char(char::REPLACEMENT_CHARACTER);
        }
    }

    fn push_char(&mut self, c: char) {
        let mut buffer = [0; 4];
        self.push(c.encode_utf8(&mut buffer).as_bytes());
    }

    fn push(&mut self, part: &[u8]) {
        self.len += part.len() as u64;
        if let Some(limit) = self.limit
            && !self.truncated
        {
            let room = limit - self.kept.len();
            self.kept.extend_from_slice(&part[..part.len().min(room)]);
            self.truncated = part.len() > room;
        }
    }
}

//! The chunked transfer coding (RFC 9112 section 7), as a push scanner.
//!
//! Owns: size lines, extensions, chunk ends, trailers, their limits; a bare line feed is taken for a line end. Refuses:
//! buffering; data is left where it lies.

use super::head::Line;
use memchr::memchr;

/// Longest size line, extensions included.
const MAX_SIZE_LINE: usize = 16 * 1024;
/// Largest trailer section.
const MAX_TRAILERS: usize = 64 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Phase {
    /// In the digits of a size.
    #[default]
    Size,
    /// White space or an extension after the digits.
    Extension,
    /// A carriage return ended the size line.
    SizeFeed,
    /// `left` bytes of data follow.
    Data,
    /// Behind the data of a chunk.
    DataEnd,
    /// A carriage return stood behind the data.
    DataFeed,
    /// Behind the last chunk.
    Trailers,
}

/// What the front of the bytes is; the count is how many of them, never 0 except for `Bad`.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    Framing(usize),
    Data(usize),
    /// Framing that ends the body.
    End(usize),
    /// Framing, and then a byte that fits nowhere.
    Bad(usize),
}

/// Place in a chunked body.
#[derive(Debug, Default)]
pub(super) struct Chunked {
    phase: Phase,
    left: u64,
    digits: u8,
    /// Bytes of this size line, or of the trailers.
    line_len: usize,
    line: Line,
}

impl Chunked {
    /// Takes what is at the front of `bytes`, which must not be empty.
    pub(super) fn step(&mut self, bytes: &[u8]) -> Step {
        if self.phase == Phase::Data {
            let used = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len());
            self.left -= used as u64;
            if self.left == 0 {
                self.phase = Phase::DataEnd;
            }
            return Step::Data(used);
        }
        let mut used = 0;
        while let Some(&byte) = bytes.get(used) {
            match (self.phase, byte) {
                (Phase::Size, b'\r') if self.digits > 0 => self.phase = Phase::SizeFeed,
                (Phase::Size | Phase::Extension, b'\n') if self.digits > 0 => self.size_read(),
                (Phase::SizeFeed, b'\n') => self.size_read(),
                (Phase::Size, b';' | b' ' | b'\t') if self.digits > 0 => self.phase = Phase::Extension,
                (Phase::Size, _) => {
                    let Some(digit) = char::from(byte).to_digit(16).filter(|_| self.digits < 16) else {
                        return Step::Bad(used);
                    };
                    // Sixteen digits at most, so this can't overflow.
                    self.left = (self.left << 4) | u64::from(digit);
                    self.digits += 1;
                }
                (Phase::Extension, _) => {
                    let room = (MAX_SIZE_LINE - self.line_len).min(bytes.len() - used);
                    let skip = memchr(b'\n', &bytes[used..used + room]).unwrap_or(room);
                    if room == 0 {
                        return Step::Bad(used);
                    }
                    self.line_len += skip;
                    used += skip;
                    continue;
                }
                (Phase::DataEnd, b'\r') => self.phase = Phase::DataFeed,
                (Phase::DataEnd | Phase::DataFeed, b'\n') => {
                    *self = Chunked::default();
                }
                (Phase::Trailers, _) => return self.trailers(bytes, used),
                (Phase::SizeFeed | Phase::DataEnd | Phase::DataFeed, _) => return Step::Bad(used),
                (Phase::Data, _) => return Step::Framing(used),
            }
            used += 1;
        }
        Step::Framing(used)
    }

    fn size_read(&mut self) {
        self.phase = if self.left == 0 {
            Phase::Trailers
        } else {
            Phase::Data
        };
        self.line_len = 0;
        self.line = Line::default();
    }

    fn trailers(&mut self, bytes: &[u8], used: usize) -> Step {
        let room = (MAX_TRAILERS - self.line_len).min(bytes.len() - used);
        if room == 0 {
            return Step::Bad(used);
        }
        if let Some(end) = self.line.find_blank(&bytes[used..used + room]) {
            return Step::End(used + end);
        }
        self.line_len += room;
        Step::Framing(used + room)
    }

    /// `len` bytes are missing. Whether they lie within the data of the current chunk, which is then shorter by them.
    pub(super) fn skip_data(&mut self, len: u64) -> bool {
        if self.phase != Phase::Data || len > self.left {
            return false;
        }
        self.left -= len;
        if self.left == 0 {
            self.phase = Phase::DataEnd;
        }
        true
    }
}

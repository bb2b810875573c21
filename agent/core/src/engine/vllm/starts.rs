//! What the start of a message looks like in the middle of a stream.
//!
//! Owns: the judgement, from a first frame's length and the bytes behind its header. Refuses: reading the message; a
//! start that was misjudged shows as a [`super::ShapeError`] and begins the search anew.

use crate::wire::zmtp::Start;

/// Longest request id that is believed: vLLM's own have some fifty characters.
const MAX_ID: usize = 256;

/// A message that an API server writes: a part of one byte, the type, then a body.
pub(super) fn requests_start(more: bool, len: u64, following: &[u8]) -> Start {
    if !more || len != 1 {
        return Start::No;
    }
    let mut bytes = Bytes(following);
    let judged = (|| {
        let kind = bytes.next()?;
        let flags = bytes.next()?;
        if kind > 1 || flags > 3 {
            return Err(Start::No);
        }
        if flags & 2 == 0 {
            bytes.next()?;
        } else {
            // No body has 4 GiB.
            for _ in 0..4 {
                bytes.is(|byte| byte == 0)?;
            }
            for _ in 0..4 {
                bytes.next()?;
            }
        }
        bytes.array(if kind == 0 { 8 } else { 1 })?;
        bytes.id()?;
        if kind == 0 {
            bytes.is(|byte| matches!(byte, 0xc0 | 0xdc | 0xdd | 0x90..=0x9f))?;
        }
        Ok(())
    })();
    judged.map_or_else(|start| start, |()| Start::Yes)
}

/// A message that an API server reads: the body of a step.
pub(super) fn outputs_start(_more: bool, len: u64, following: &[u8]) -> Start {
    if len < 12 {
        return Start::No;
    }
    let mut bytes = Bytes(following);
    let judged = (|| {
        bytes.is(|byte| matches!(byte, 0x94..=0x9f))?;
        match bytes.next()? {
            0..=0x7f => {}
            0xcc => {
                bytes.next()?;
            }
            _ => return Err(Start::No),
        }
        match bytes.next()? {
            // No outputs: statistics, or their absence and the time.
            0x90 => match bytes.next()? {
                0xc0 => bytes.is(|byte| byte == 0xcb),
                0x80..=0x8f | 0xde => bytes.text(|text| text.starts_with(b"num_")),
                _ => Err(Start::No),
            },
            header @ (0x91..=0x9f | 0xdc | 0xdd) => {
                let width = match header {
                    0xdc => 2,
                    0xdd => 4,
                    _ => 0,
                };
                for _ in 0..width {
                    bytes.next()?;
                }
                bytes.array(7)?;
                bytes.id()?;
                bytes.is(|byte| matches!(byte, 0xdc | 0xdd | 0x90..=0x9f))
            }
            _ => Err(Start::No),
        }
    })();
    judged.map_or_else(|start| start, |()| Start::Yes)
}

/// Bytes that may end before the judgement does.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn next(&mut self) -> Result<u8, Start> {
        let (first, rest) = self.0.split_first().ok_or(Start::Unsure)?;
        self.0 = rest;
        Ok(*first)
    }

    fn is(&mut self, fits: impl Fn(u8) -> bool) -> Result<(), Start> {
        if fits(self.next()?) {
            Ok(())
        } else {
            Err(Start::No)
        }
    }

    /// The header of an array with at least so many values.
    fn array(&mut self, least: u16) -> Result<(), Start> {
        let count = match self.next()? {
            header @ 0x90..=0x9f => u16::from(header & 0x0f),
            0xdc => u16::from_be_bytes([self.next()?, self.next()?]),
            _ => return Err(Start::No),
        };
        if count >= least { Ok(()) } else { Err(Start::No) }
    }

    /// A request id: printable text of a believable length. The part of it that is here is judged.
    fn id(&mut self) -> Result<(), Start> {
        self.text(|text| text.iter().all(u8::is_ascii_graphic))
    }

    fn text(&mut self, fits: impl Fn(&[u8]) -> bool) -> Result<(), Start> {
        let len = match self.next()? {
            header @ 0xa1..=0xbf => usize::from(header & 0x1f),
            0xd9 => usize::from(self.next()?),
            0xda => usize::from(u16::from_be_bytes([self.next()?, self.next()?])),
            _ => return Err(Start::No),
        };
        if len == 0 || len > MAX_ID {
            return Err(Start::No);
        }
        let here = len.min(self.0.len());
        let (text, rest) = self.0.split_at(here);
        if here < len {
            // Whatever comes, what is wrong already stays wrong.
            return Err(if text.iter().all(u8::is_ascii_graphic) {
                Start::Unsure
            } else {
                Start::No
            });
        }
        self.0 = rest;
        if fits(text) { Ok(()) } else { Err(Start::No) }
    }
}

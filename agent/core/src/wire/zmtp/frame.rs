//! The header of one ZMTP frame.
//!
//! Owns: flags and both lengths. Refuses: bodies.

/// Another part of the same message follows.
pub const MORE: u8 = 1;
/// The length has eight bytes.
pub(super) const LONG: u8 = 2;
/// A command, not a message.
pub const COMMAND: u8 = 4;

/// Lengths past this are taken for a misread byte: no frame is that large.
const MAX_LEN: u64 = 1 << 40;

/// What the bytes at a frame's start say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameHeader {
    /// A frame.
    Frame {
        /// [`MORE`] and [`COMMAND`] among them.
        flags: u8,
        /// Bytes of its body.
        len: u64,
        /// Bytes of the header.
        taken: usize,
    },
    /// More bytes are needed.
    Short,
    /// No frame starts like this.
    Impossible,
}

impl FrameHeader {
    /// Reads the header that `bytes` begin with.
    pub fn read(bytes: &[u8]) -> FrameHeader {
        let Some((&flags, rest)) = bytes.split_first() else {
            return FrameHeader::Short;
        };
        // The other bits are reserved, and a command has one part.
        if flags & !(MORE | LONG | COMMAND) != 0 || flags & (MORE | COMMAND) == MORE | COMMAND {
            return FrameHeader::Impossible;
        }
        let (len, taken) = if flags & LONG == 0 {
            match rest.first() {
                Some(len) => (u64::from(*len), 2),
                None => return FrameHeader::Short,
            }
        } else {
            match rest.first_chunk::<8>() {
                Some(len) => (u64::from_be_bytes(*len), 9),
                // The length's upper bytes tell early.
                None if rest.iter().take(2).any(|byte| *byte != 0) => return FrameHeader::Impossible,
                None => return FrameHeader::Short,
            }
        };
        if len > MAX_LEN {
            return FrameHeader::Impossible;
        }
        FrameHeader::Frame { flags, len, taken }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_lengths_are_read_and_nonsense_is_refused() {
        let frame = |flags, len, taken| FrameHeader::Frame { flags, len, taken };
        for (bytes, expected) in [
            (&[][..], FrameHeader::Short),
            (&[0], FrameHeader::Short),
            (&[0, 7, 9], frame(0, 7, 2)),
            (&[1, 0], frame(1, 0, 2)),
            (&[4, 25], frame(4, 25, 2)),
            (&[2, 0, 0, 0, 0, 0, 0, 1], FrameHeader::Short),
            (&[3, 0, 0, 0, 0, 0, 0, 1, 5], frame(3, 261, 9)),
            (&[2, 0, 0, 1, 0, 0, 0, 0, 0], frame(2, 1 << 40, 9)),
            (&[2, 0, 0, 1, 0, 0, 0, 0, 1], FrameHeader::Impossible),
            (&[2, 1], FrameHeader::Impossible),
            (&[5, 1], FrameHeader::Impossible),
            (&[8, 1], FrameHeader::Impossible),
            (b"HTTP", FrameHeader::Impossible),
        ] {
            assert_eq!(FrameHeader::read(bytes), expected, "{bytes:?}");
        }
    }
}

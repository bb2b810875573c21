//! The header of a gzip member (RFC 1952 section 2.3), taken in pieces.
//!
//! Owns: finding its end. Refuses: what its fields say; an observer has no use for file names and dates.

/// Longest gzip header that is believed: its optional fields have no length of their own.
const MAX_HEADER: usize = 128 * 1024;

/// The field that comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum GzipPhase {
    /// The ten fixed bytes.
    #[default]
    Fixed,
    ExtraLen,
    Extra(u16),
    /// A zero-terminated name or comment.
    Name,
    Comment,
    Crc(u8),
    Done,
    /// The magic number is not there.
    NoMember,
    Bad,
}

/// Place in a header.
#[derive(Debug, Default)]
pub(super) struct GzipHeader {
    pub(super) phase: GzipPhase,
    /// Bytes of it so far.
    pub(super) seen: usize,
    flags: u8,
    extra: u16,
    /// Another member came before.
    pub(super) follows: bool,
}

impl GzipHeader {
    const CRC: u8 = 2;
    const EXTRA: u8 = 4;
    const NAME: u8 = 8;
    const COMMENT: u8 = 16;

    /// The header of a member that follows another.
    pub(super) fn next() -> GzipHeader {
        GzipHeader {
            follows: true,
            ..GzipHeader::default()
        }
    }

    /// Takes bytes up to the end of the header; returns how many.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> usize {
        for (index, &byte) in bytes.iter().enumerate() {
            if matches!(self.phase, GzipPhase::Done | GzipPhase::NoMember | GzipPhase::Bad) {
                return index;
            }
            self.take(byte);
            self.seen += 1;
            if self.seen > MAX_HEADER && self.phase != GzipPhase::Done {
                self.phase = GzipPhase::Bad;
            }
        }
        bytes.len()
    }

    fn take(&mut self, byte: u8) {
        match self.phase {
            GzipPhase::Fixed => match (self.seen, byte) {
                (0, 0x1f) | (1, 0x8b) | (2, 8) | (4..=8, _) => {}
                (0, _) => self.phase = GzipPhase::NoMember,
                (3, flags) if flags & 0xe0 == 0 => self.flags = flags,
                (9, _) => self.after(GzipHeader::EXTRA),
                _ => self.phase = GzipPhase::Bad,
            },
            GzipPhase::ExtraLen => {
                // Little-endian: low byte at offset 10, high at 11.
                if self.seen == 10 {
                    self.extra = u16::from(byte);
                } else {
                    self.extra |= u16::from(byte) << 8;
                    self.phase = GzipPhase::Extra(self.extra);
                    if self.extra == 0 {
                        self.after(GzipHeader::NAME);
                    }
                }
            }
            GzipPhase::Extra(left) => {
                self.phase = GzipPhase::Extra(left - 1);
                if left == 1 {
                    self.after(GzipHeader::NAME);
                }
            }
            GzipPhase::Name if byte == 0 => self.after(GzipHeader::COMMENT),
            GzipPhase::Comment if byte == 0 => self.after(GzipHeader::CRC),
            GzipPhase::Crc(1) => self.phase = GzipPhase::Crc(0),
            GzipPhase::Crc(_) => self.phase = GzipPhase::Done,
            _ => {}
        }
    }

    /// Goes to the first field that is there, from `field` on in header order.
    fn after(&mut self, field: u8) {
        let order = [
            (GzipHeader::EXTRA, GzipPhase::ExtraLen),
            (GzipHeader::NAME, GzipPhase::Name),
            (GzipHeader::COMMENT, GzipPhase::Comment),
            (GzipHeader::CRC, GzipPhase::Crc(1)),
        ];
        let present = order
            .iter()
            .skip_while(|(bit, _)| *bit != field)
            .find(|(bit, _)| self.flags & bit != 0);
        self.phase = present.map_or(GzipPhase::Done, |(_, phase)| *phase);
    }
}

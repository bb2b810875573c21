//! The one record that goes through the ring buffer: a fixed header, then up to [`PIECE_LARGE`] captured bytes.
//!
//! Owns: the header's layout and the meaning of each field. Refuses: parsing of what was captured.

/// Bytes of [`RecordHeader`]; the captured bytes follow it directly.
pub const HEADER_LEN: usize = 64;

/// Capture sizes of the three record classes. The ring reserves constant sizes only (the verifier of 5.8 asks for
/// it), so a piece travels in the smallest class that holds it.
pub const PIECE_SMALL: usize = 512;
/// See [`PIECE_SMALL`].
pub const PIECE_MEDIUM: usize = 4096;
/// See [`PIECE_SMALL`].
pub const PIECE_LARGE: usize = 16384;

/// Bytes that follow the header of a [`RecordKind::Peer`].
pub const PEER_LEN: usize = 16;

/// Head of every record. 64 bytes, little-endian on every supported machine, alignment 8.
///
/// For [`RecordKind::Data`], `offset` is the position of this piece in its direction's byte stream since the
/// connection was first seen, and `len` how many stream bytes it stands for; `captured ≤ len` of them follow. So a
/// reader sees exactly which bytes it did not get, whether they were over the budget or lost with a full ring.
///
/// For [`RecordKind::Call`], see [`crate::Function`]: `ts_ns` is when the function returned (or was entered, where its
/// return is not probed), `offset` when it was entered, `conn_id` what it returned, and `fd` which it is.
///
/// For [`RecordKind::Close`], `offset` is how many bytes were written in all, and `len` and `extra` are the lower and
/// upper half of how many were read: a lost last piece shows too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct RecordHeader {
    /// CLOCK_MONOTONIC nanoseconds (`bpf_ktime_get_ns`): when a read returned, when a write began, when the rest happened.
    pub ts_ns: u64,
    /// Connection identity, unique while the agent runs; 0 for process records.
    pub conn_id: u64,
    /// Stream offset of the first byte of this piece (data records).
    pub offset: u64,
    /// A [`RecordKind`].
    pub kind: u16,
    /// Bits of [`record_flag`].
    pub flags: u16,
    /// Bytes that follow this header.
    pub captured: u32,
    /// Stream bytes that this piece stands for; at least `captured`.
    pub len: u32,
    /// With [`record_flag::ARRIVED`]: microseconds for which the first byte that the call read had been in the socket
    /// when the call returned, saturating (71 minutes). On a close: see above. Otherwise without meaning.
    pub extra: u32,
    /// Nanoseconds between entry and exit of the call, saturating.
    pub dur_ns: u32,
    /// Process (thread group) in the initial PID namespace.
    pub tgid: u32,
    /// Thread in the initial PID namespace.
    pub tid: u32,
    /// File descriptor, or the parent's thread group for [`RecordKind::Fork`].
    pub fd: u32,
    /// Number of this record among those of its connection and direction, counted from 0 whether or not it was delivered.
    pub seq: u32,
    /// `errno` (positive) of [`RecordKind::Error`]; 0 where the probe can't see it (libc uprobes).
    pub errno: u16,
    /// Low nibble: a [`Direction`]. High nibble: a [`Role`].
    pub dir_role: u8,
    /// A [`Transport`].
    pub transport: u8,
}

const _: () = assert!(size_of::<RecordHeader>() == HEADER_LEN);
const _: () = assert!(align_of::<RecordHeader>() == 8);
const _: () = assert!(core::mem::offset_of!(RecordHeader, kind) == 24);
const _: () = assert!(core::mem::offset_of!(RecordHeader, captured) == 28);
const _: () = assert!(core::mem::offset_of!(RecordHeader, transport) == 63);

impl RecordHeader {
    /// Packs direction and role into `dir_role`.
    pub const fn pack(direction: u8, role: u8) -> u8 {
        (direction & 0x0f) | (role << 4)
    }

    /// The direction bits; convert with [`Direction::try_from`].
    pub const fn direction_bits(&self) -> u8 {
        self.dir_role & 0x0f
    }

    /// The role bits; convert with [`Role::try_from`].
    pub const fn role_bits(&self) -> u8 {
        self.dir_role >> 4
    }

    /// Reads a header from the front of `bytes` (little-endian); `None` when they are too few.
    pub fn read(bytes: &[u8]) -> Option<RecordHeader> {
        let b: &[u8; HEADER_LEN] = bytes.get(..HEADER_LEN)?.try_into().ok()?;
        let u16_at = |i: usize| u16::from_le_bytes([b[i], b[i + 1]]);
        let u32_at = |i: usize| u32::from_le_bytes([b[i], b[i + 1], b[i + 2], b[i + 3]]);
        let u64_at = |i: usize| u64::from(u32_at(i)) | (u64::from(u32_at(i + 4)) << 32);
        Some(RecordHeader {
            ts_ns: u64_at(0),
            conn_id: u64_at(8),
            offset: u64_at(16),
            kind: u16_at(24),
            flags: u16_at(26),
            captured: u32_at(28),
            len: u32_at(32),
            extra: u32_at(36),
            dur_ns: u32_at(40),
            tgid: u32_at(44),
            tid: u32_at(48),
            fd: u32_at(52),
            seq: u32_at(56),
            errno: u16_at(60),
            dir_role: b[62],
            transport: b[63],
        })
    }

    /// The bytes of this header (little-endian); what [`RecordHeader::read`] reads.
    pub fn to_bytes(&self) -> [u8; HEADER_LEN] {
        let mut b = [0; HEADER_LEN];
        b[0..8].copy_from_slice(&self.ts_ns.to_le_bytes());
        b[8..16].copy_from_slice(&self.conn_id.to_le_bytes());
        b[16..24].copy_from_slice(&self.offset.to_le_bytes());
        b[24..26].copy_from_slice(&self.kind.to_le_bytes());
        b[26..28].copy_from_slice(&self.flags.to_le_bytes());
        b[28..32].copy_from_slice(&self.captured.to_le_bytes());
        b[32..36].copy_from_slice(&self.len.to_le_bytes());
        b[36..40].copy_from_slice(&self.extra.to_le_bytes());
        b[40..44].copy_from_slice(&self.dur_ns.to_le_bytes());
        b[44..48].copy_from_slice(&self.tgid.to_le_bytes());
        b[48..52].copy_from_slice(&self.tid.to_le_bytes());
        b[52..56].copy_from_slice(&self.fd.to_le_bytes());
        b[56..60].copy_from_slice(&self.seq.to_le_bytes());
        b[60..62].copy_from_slice(&self.errno.to_le_bytes());
        b[62] = self.dir_role;
        b[63] = self.transport;
        b
    }
}

/// Bits of [`RecordHeader::flags`].
pub mod record_flag {
    /// The connection was open before the agent saw it: what came earlier is unknown.
    pub const LATE: u16 = 1;
    /// The write was short or refused: the socket would not take more.
    pub const BLOCKED: u16 = 2;
    /// Seen by a libc uprobe, not by a tracepoint.
    pub const UPROBE: u16 = 4;
    /// The bytes were to be captured, but user memory could not be read.
    pub const FAULT: u16 = 8;
    /// On a close: the process had read the end of the peer's stream, or a call had failed because the
    /// peer is gone. Tells so again,
    /// in case that record was lost.
    pub const PEER_GONE: u16 = 16;
    /// On a call: its return is not probed, and the record was made when it was entered.
    pub const ENTERED: u16 = 256;
    /// The kernel told when the first byte of a read had reached the socket: `extra` tells.
    pub const ARRIVED: u16 = 32;
}

/// An integer that is no discriminant of the enum it was read for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownValue(pub u32);

macro_rules! discriminants {
    ($(#[$meta:meta])* $name:ident: $repr:ty { $($(#[$vmeta:meta])* $variant:ident = $value:literal,)* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr($repr)]
        pub enum $name { $($(#[$vmeta])* $variant = $value,)* }

        impl TryFrom<$repr> for $name {
            type Error = UnknownValue;
            fn try_from(value: $repr) -> Result<Self, UnknownValue> {
                match value {
                    $($value => Ok($name::$variant),)*
                    other => Err(UnknownValue(u32::from(other))),
                }
            }
        }
    };
}

discriminants! {
    /// What a record tells.
    RecordKind: u16 {
        /// A connection was accepted, connected or paired.
        Open = 1,
        /// Bytes moved; see `direction`.
        Data = 2,
        /// A read returned 0: the peer will send no more.
        Eof = 3,
        /// The process shut down its sending side (`shutdown(2)`).
        Shutdown = 4,
        /// A read or write failed with `errno` (not `EAGAIN`, not `EINTR`).
        Error = 5,
        /// A write was refused with `EAGAIN`.
        Stall = 6,
        /// The last descriptor of the connection was closed. `offset` is the total written, `len` and `extra` are the
        /// low and high halves of the total read, delivered or not.
        Close = 7,
        /// First use of a descriptor that the table does not know: the user side must say what it is.
        FdUnknown = 8,
        /// Who the other end of a TCP connection is, told once, before the bytes of the read in which it was learnt:
        /// [`PEER_LEN`] bytes follow, its IPv6 address, an IPv4 address mapped into one. `offset` is how many bytes
        /// had been read before.
        Peer = 9,
        /// A process executed a program. Told of every process of the host.
        Exec = 16,
        /// A watched process forked; `fd` is the parent.
        Fork = 17,
        /// The last thread of a watched process ended.
        Exit = 18,
        /// A watched process called a function that is probed; see [`crate::Function`].
        Call = 32,
        /// A watched process waited for its GPUs; see [`crate::CudaBurstRecord`], which follows.
        CudaBurst = 33,
        /// Something happened to GPU memory of a watched process; see [`crate::CudaMemoryRecord`], which follows.
        CudaMemory = 34,
    }
}

discriminants! {
    /// Way of the bytes, seen from the watched process.
    Direction: u8 {
        /// No bytes.
        None = 0,
        /// Read by the process: requests, for a server.
        In = 1,
        /// Written by the process: responses, for a server.
        Out = 2,
    }
}

discriminants! {
    /// How the process came by the socket.
    Role: u8 {
        /// Not known (the socket was open before the agent).
        Unknown = 0,
        /// It listens.
        Listen = 1,
        /// Returned by accept: the process is the server.
        Accepted = 2,
        /// Made by connect: the process is the client.
        Connected = 3,
        /// One end of a socketpair.
        Paired = 4,
    }
}

discriminants! {
    /// Socket family.
    Transport: u8 {
        /// Not known.
        Unknown = 0,
        /// TCP over IPv4 or IPv6.
        Tcp = 1,
        /// Unix stream socket.
        Unix = 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_survives_its_bytes() {
        let header = RecordHeader {
            ts_ns: u64::MAX - 1,
            conn_id: 0x0102_0304_0506_0708,
            offset: 1 << 40,
            kind: 2,
            flags: 5,
            captured: 6,
            len: 7,
            extra: 8,
            dur_ns: 9,
            tgid: 10,
            tid: 11,
            fd: 12,
            seq: 13,
            errno: 14,
            dir_role: RecordHeader::pack(Direction::Out as u8, Role::Accepted as u8),
            transport: 1,
        };
        assert_eq!(RecordHeader::read(&header.to_bytes()), Some(header));
        assert_eq!(Direction::try_from(header.direction_bits()), Ok(Direction::Out));
        assert_eq!(Role::try_from(header.role_bits()), Ok(Role::Accepted));
    }

    #[test]
    fn the_bytes_are_the_memory_layout_that_the_kernel_side_writes() {
        let header = RecordHeader {
            ts_ns: 1,
            conn_id: 2,
            offset: 3,
            kind: 4,
            seq: 5,
            transport: 6,
            ..Default::default()
        };
        // SAFETY: RecordHeader is repr(C) without padding (asserted by its size), so all its bytes are initialised.
        let memory: [u8; HEADER_LEN] = unsafe { core::mem::transmute(header) };
        assert_eq!(memory, header.to_bytes());
    }

    #[test]
    fn short_input_and_unknown_discriminants_are_refused() {
        assert_eq!(RecordHeader::read(&[0; 63]), None);
        assert_eq!(RecordKind::try_from(0), Err(UnknownValue(0)));
        assert_eq!(RecordKind::try_from(10), Err(UnknownValue(10)));
        assert_eq!(Role::try_from(15), Err(UnknownValue(15)));
    }
}

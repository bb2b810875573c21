//! Keys and values of the maps that both sides read and write.
//!
//! Owns: their layout. Refuses: map names and sizes (the BPF crate's) and policy (the agent's).

/// Key of the `FDS` map: a descriptor of a watched process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct FdKey {
    /// Thread group in the initial PID namespace.
    pub tgid: u32,
    /// File descriptor.
    pub fd: u32,
}

/// Value of the `TARGETS` map, keyed by thread group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Target {
    /// Number that the agent gave to the engine; inherited over fork.
    pub engine: u32,
    /// Unused, zero.
    pub reserved: u32,
}

/// Value of the `CONNS` map, keyed by connection id: what is known of one socket, or of one descriptor that is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Conn {
    /// Bytes read so far, delivered or not.
    pub bytes_in: u64,
    /// Bytes written so far, delivered or not.
    pub bytes_out: u64,
    /// Records made so far for the read direction.
    pub seq_in: u32,
    /// Records made so far for the write direction.
    pub seq_out: u32,
    /// Descriptors of this process that point here (dup).
    pub refs: u32,
    /// One of [`conn_state`].
    pub state: u8,
    /// A `Transport`.
    pub transport: u8,
    /// A `Role`.
    pub role: u8,
    /// Bits of [`conn_flag`].
    pub flags: u8,
}

/// Values of [`Conn::state`].
pub mod conn_state {
    /// The user side was asked what the descriptor is and has not answered.
    pub const PENDING: u8 = 0;
    /// Not a stream socket: ignored until closed.
    pub const OTHER: u8 = 1;
    /// A stream socket whose bytes are captured.
    pub const STREAM: u8 = 2;
    /// A stream socket whose bytes are only counted: the core has no use for them.
    pub const MUTED: u8 = 3;
}

/// Bits of [`Conn::flags`].
pub mod conn_flag {
    /// Open before the agent saw it.
    pub const LATE: u8 = 1;
    /// The end of the peer's stream was told.
    pub const EOF: u8 = 2;
    /// A read or write failed because the peer is gone.
    pub const FAILED: u8 = 4;
    /// Who the other end is was told.
    pub const PEER: u8 = 8;
}

/// Elements of the `PORTS` map: 64 ports each, port 0 in the lowest bit of the first.
pub const PORT_WORDS: u32 = 1024;

const _: () = assert!(size_of::<FdKey>() == 8);
const _: () = assert!(size_of::<Target>() == 8);
const _: () = assert!(size_of::<Conn>() == 32);
const _: () = assert!(align_of::<Conn>() == 8);

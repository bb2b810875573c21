//! A system call in progress: what its entry saw and its exit needs. Same for tracepoints and libc uprobes.

use aya_ebpf::helpers::{bpf_get_current_pid_tgid, bpf_ktime_get_ns};
use infertap_abi::{DropReason, RecordHeader};

use crate::descriptor::EMPTY;
use crate::maps::{CALLS, TARGETS, lost};

/// What kind of call; decides what its exit does.
pub mod op {
    pub const READ: u8 = 1;
    pub const READ_IOV: u8 = 2;
    pub const READ_MSG: u8 = 3;
    /// Several messages at once, or bytes that never pass through user memory: counted, not captured.
    pub const READ_MMSG: u8 = 4;
    pub const READ_OPAQUE: u8 = 5;
    /// `MSG_PEEK`: moves no bytes, but shows the end of the stream.
    pub const PEEK: u8 = 6;
    pub const WRITE: u8 = 17;
    pub const WRITE_IOV: u8 = 18;
    pub const WRITE_MSG: u8 = 19;
    pub const WRITE_MMSG: u8 = 20;
    pub const WRITE_OPAQUE: u8 = 21;
    pub const ACCEPT: u8 = 32;
    pub const SOCKET: u8 = 33;
    pub const SOCKETPAIR: u8 = 34;
    pub const DUP: u8 = 35;
}

/// Value of `CALLS`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Call {
    /// Connection, where the call is on one.
    pub conn: u64,
    /// Buffer, vector, message or result address; for `DUP` the new descriptor, or `u64::MAX` for any.
    pub pointer: u64,
    /// Bytes, vectors or messages offered; for `SOCKET` the transport, or 0.
    pub count: u64,
    /// Time of entry.
    pub entered_ns: u64,
    /// When the first byte that a read takes had reached its socket; 0: not known.
    pub arrived_ns: u64,
    /// Descriptor.
    pub fd: u32,
    /// One of [`op`].
    pub op: u8,
    pub padding: [u8; 3],
    /// Where the walk over the payload is.
    pub walk: Walk,
    /// Head of the next record of this call.
    pub header: RecordHeader,
}

/// A walk over a call's buffers. It lives in the map, as does the header, and not on the stack, because the verifier
/// does not follow values through map memory: every step of the loop then looks the same to it, and a loop of 64 costs
/// it 64 steps, where values that it can follow cost it every combination of them.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Walk {
    /// Address of the next byte.
    pub base: u64,
    /// Bytes left in this buffer.
    pub left: u64,
    /// Next element of the vector.
    pub next: u64,
    /// Bytes left of the call.
    pub rest: u64,
    /// Records lost to a full ring.
    pub lost: u64,
}

impl Walk {
    pub const NONE: Walk = Walk { base: 0, left: 0, next: 0, rest: 0, lost: 0 };
}

/// The current thread, when its process is watched.
#[derive(Clone, Copy)]
pub struct Caller {
    pub pid_tgid: u64,
}

impl Caller {
    /// `None` for a bystander: one map lookup, and out.
    #[inline(always)]
    pub fn watched() -> Option<Caller> {
        let caller = Caller::current();
        TARGETS.get_ptr(caller.tgid()).map(|_| caller)
    }

    #[inline(always)]
    pub fn current() -> Caller {
        Caller { pid_tgid: bpf_get_current_pid_tgid() }
    }

    #[inline(always)]
    pub fn tgid(self) -> u32 {
        (self.pid_tgid >> 32) as u32
    }

    #[inline(always)]
    pub fn tid(self) -> u32 {
        self.pid_tgid as u32
    }
}

/// Remembers a call until its exit.
#[inline(always)]
pub fn begin(caller: Caller, op: u8, fd: u32, conn: u64, pointer: u64, count: u64) {
    // SAFETY: helper without preconditions.
    let entered_ns = unsafe { bpf_ktime_get_ns() };
    let call = Call { conn, pointer, count, entered_ns, arrived_ns: 0, fd, op, padding: [0; 3], walk: Walk::NONE, header: EMPTY };
    if CALLS.insert(&caller.pid_tgid, &call, 0).is_err() {
        lost(DropReason::CallTableFull);
    }
}

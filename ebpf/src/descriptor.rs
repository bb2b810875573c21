//! The descriptor table: which descriptors of watched processes are stream sockets, and which connection each is.
//!
//! Seeded by the user side at attach, kept here by accept, connect, socket, socketpair, dup and close. A descriptor
//! that is not in it (inherited, passed, opened earlier) is put to the user side once, which looks it up in procfs.

use aya_ebpf::helpers::{bpf_get_smp_processor_id, bpf_ktime_get_ns, bpf_probe_read_user};
use infertap_abi::{
    Conn, Direction, DropReason, FdKey, PEER_LEN, RecordHeader, RecordKind, Role, Transport, conn_flag, conn_state, record_flag,
};

use crate::call::{self, Call, Caller, op};
use crate::emit;
use crate::maps::{CONNS, FDS, lost};

/// What a thread's call on a descriptor is about.
pub enum Lookup {
    /// No stream socket.
    Other,
    /// This connection.
    Conn(u64),
}

/// A connection id: the time, and the CPU. Two connections can't be made on one CPU in one nanosecond.
#[inline(always)]
fn new_id() -> u64 {
    // SAFETY: helpers without preconditions.
    unsafe { (bpf_ktime_get_ns() << 8) | u64::from(bpf_get_smp_processor_id() & 0x7f) }
}

#[inline(always)]
fn header(caller: Caller, kind: RecordKind, id: u64, fd: u32, transport: u8, role: u8, flags: u16) -> RecordHeader {
    RecordHeader {
        // SAFETY: helper without preconditions.
        ts_ns: unsafe { bpf_ktime_get_ns() },
        conn_id: id,
        kind: kind as u16,
        flags,
        tgid: caller.tgid(),
        tid: caller.tid(),
        fd,
        dir_role: RecordHeader::pack(Direction::None as u8, role),
        transport,
        ..EMPTY
    }
}

/// A header of zeros, to build others from.
pub const EMPTY: RecordHeader = RecordHeader {
    ts_ns: 0,
    conn_id: 0,
    offset: 0,
    kind: 0,
    flags: 0,
    captured: 0,
    len: 0,
    extra: 0,
    dur_ns: 0,
    tgid: 0,
    tid: 0,
    fd: 0,
    seq: 0,
    errno: 0,
    dir_role: 0,
    transport: 0,
};

/// Which connection `fd` is; asks the user side about one that nobody knows.
#[inline(always)]
pub fn lookup(caller: Caller, fd: u32) -> Lookup {
    if fd as i32 <= -1 {
        return Lookup::Other;
    }
    let key = FdKey { tgid: caller.tgid(), fd };
    if let Some(id) = FDS.get_ptr(&key) {
        // SAFETY: a map value that stays readable for the program's run.
        return match unsafe { *id } {
            0 => Lookup::Other,
            id => Lookup::Conn(id),
        };
    }
    ask(caller, key)
}

#[inline(always)]
fn ask(caller: Caller, key: FdKey) -> Lookup {
    let id = new_id();
    let conn = Conn { refs: 1, state: conn_state::PENDING, flags: conn_flag::LATE, ..NO_CONN };
    if !track(key, id, &conn) {
        return Lookup::Other;
    }
    emit::control(&header(caller, RecordKind::FdUnknown, id, key.fd, 0, 0, record_flag::LATE), true);
    Lookup::Conn(id)
}

const NO_CONN: Conn =
    Conn { bytes_in: 0, bytes_out: 0, seq_in: 0, seq_out: 0, refs: 0, state: 0, transport: 0, role: 0, flags: 0 };

#[inline(always)]
fn track(key: FdKey, id: u64, conn: &Conn) -> bool {
    if CONNS.insert(&id, conn, 0).is_err() {
        lost(DropReason::ConnTableFull);
        return false;
    }
    if FDS.insert(&key, &id, 0).is_err() {
        let _ = CONNS.remove(&id);
        lost(DropReason::FdTableFull);
        return false;
    }
    true
}

/// A new stream socket at `fd`; `announce` tells the user side.
#[inline(always)]
fn socket(caller: Caller, fd: u32, transport: u8, role: u8, announce: bool) {
    let key = FdKey { tgid: caller.tgid(), fd };
    // The number is free in the kernel, so an entry here missed its close (close_range, close-on-exec).
    forget(caller, key);
    let id = new_id();
    let conn = Conn { refs: 1, state: conn_state::STREAM, transport, role, ..NO_CONN };
    if track(key, id, &conn) && announce {
        emit::control(&header(caller, RecordKind::Open, id, fd, transport, role, 0), false);
    }
}

/// Drops a descriptor; the connection ends with its last one.
#[inline(always)]
pub fn forget(caller: Caller, key: FdKey) {
    let Some(id) = FDS.get_ptr(&key) else { return };
    // SAFETY: a map value that stays readable for the program's run.
    let id = unsafe { *id };
    let _ = FDS.remove(&key);
    if id == 0 {
        return;
    }
    let Some(conn) = CONNS.get_ptr_mut(&id) else { return };
    // SAFETY: a map value that stays valid for the program's run; a lost race on `refs` costs one late Close.
    let conn = unsafe { &mut *conn };
    conn.refs = conn.refs.wrapping_sub(1);
    if conn.refs != 0 {
        return;
    }
    if conn.state == conn_state::STREAM || conn.state == conn_state::MUTED {
        let gone = conn.flags & (conn_flag::EOF | conn_flag::FAILED) != 0;
        let flags = if gone { record_flag::PEER_GONE } else { 0 };
        let mut end = header(caller, RecordKind::Close, id, key.fd, conn.transport, conn.role, flags);
        // What went each way in all, so that a lost last piece shows.
        end.offset = conn.bytes_out;
        end.len = conn.bytes_in as u32;
        end.extra = (conn.bytes_in >> 32) as u32;
        emit::control(&end, false);
    }
    let _ = CONNS.remove(&id);
}

/// A control record about a tracked stream socket.
#[inline(always)]
pub fn tell(caller: Caller, kind: RecordKind, fd: u32) {
    let Lookup::Conn(id) = lookup(caller, fd) else { return };
    let Some(conn) = CONNS.get_ptr(&id) else { return };
    // SAFETY: a map value that stays readable for the program's run.
    let conn = unsafe { &*conn };
    if conn.state == conn_state::STREAM {
        emit::control(&header(caller, kind, id, fd, conn.transport, conn.role, 0), false);
    }
}

/// The other end of the connection that a call reads from is at `address`; `None` where it was told, or is of no use: the
/// process is the client, or the bytes are not read.
#[inline(always)]
pub fn peer(caller: Caller, call: &Call, address: impl FnOnce() -> Option<[u8; PEER_LEN]>) {
    let Some(conn) = CONNS.get_ptr_mut(&call.conn) else { return };
    // SAFETY: a map value that stays valid for the program's run; a lost race on `flags` tells it twice.
    let conn = unsafe { &mut *conn };
    if conn.flags & conn_flag::PEER != 0
        || conn.state != conn_state::STREAM
        || (conn.role != Role::Accepted as u8 && conn.role != Role::Unknown as u8)
    {
        return;
    }
    let Some(address) = address() else { return };
    conn.flags |= conn_flag::PEER;
    let flags = if conn.flags & conn_flag::LATE != 0 { record_flag::LATE } else { 0 };
    let mut header = header(caller, RecordKind::Peer, call.conn, call.fd, conn.transport, conn.role, flags);
    header.offset = conn.bytes_in;
    header.captured = PEER_LEN as u32;
    header.len = PEER_LEN as u32;
    emit::peer(&header, address);
}

/// `connect`: the process is the client of this socket, whether or not the connection stands yet.
#[inline(always)]
pub fn connecting(caller: Caller, fd: u32) {
    let Lookup::Conn(id) = lookup(caller, fd) else { return };
    let Some(conn) = CONNS.get_ptr_mut(&id) else { return };
    // SAFETY: a map value that stays valid for the program's run.
    let conn = unsafe { &mut *conn };
    if conn.role == Role::Connected as u8 || conn.state != conn_state::STREAM {
        return;
    }
    conn.role = Role::Connected as u8;
    emit::control(&header(caller, RecordKind::Open, id, fd, conn.transport, conn.role, 0), false);
}

/// `accept`, on a listening descriptor whose transport may be known.
#[inline(always)]
pub fn accepting(caller: Caller, fd: u32) {
    let conn = match lookup(caller, fd) {
        Lookup::Conn(id) => id,
        Lookup::Other => 0,
    };
    call::begin(caller, op::ACCEPT, fd, conn, 0, 0);
}

/// An accept whose entry was not seen returned `fd`. Its listener is not known; most are TCP.
#[inline(always)]
pub fn accepted_unseen(caller: Caller, fd: u32) {
    socket(caller, fd, Transport::Tcp as u8, Role::Accepted as u8, true);
}

/// `socket(domain, type, …)`.
#[inline(always)]
pub fn creating(caller: Caller, domain: u64, kind: u64) {
    const SOCK_STREAM: u64 = 1;
    const SOCK_TYPE_MASK: u64 = 0xf;
    let transport = match (domain, kind & SOCK_TYPE_MASK) {
        (2 | 10, SOCK_STREAM) => Transport::Tcp,
        (1, SOCK_STREAM) => Transport::Unix,
        _ => Transport::Unknown,
    };
    call::begin(caller, op::SOCKET, 0, 0, 0, transport as u64);
}

/// Exit of a call that makes descriptors.
#[inline(always)]
pub fn made(caller: Caller, call: &Call, ret: i64) {
    if ret < 0 {
        return;
    }
    let fd = ret as u32;
    match call.op {
        op::ACCEPT => {
            // Only stream sockets can be accepted on; one whose listener is unknown is taken for TCP.
            let transport = match CONNS.get_ptr(&call.conn) {
                // SAFETY: a map value that stays readable for the program's run.
                Some(listener) if unsafe { (*listener).transport } != 0 => unsafe { (*listener).transport },
                _ => Transport::Tcp as u8,
            };
            socket(caller, fd, transport, Role::Accepted as u8, true);
        }
        op::SOCKET if call.count == 0 => {
            let key = FdKey { tgid: caller.tgid(), fd };
            forget(caller, key);
            if FDS.insert(&key, &0, 0).is_err() {
                lost(DropReason::FdTableFull);
            }
        }
        op::SOCKET => socket(caller, fd, call.count as u8, Role::Unknown as u8, false),
        op::SOCKETPAIR => {
            // SAFETY: the helper checks the user address.
            let Ok(pair) = (unsafe { bpf_probe_read_user(call.pointer as *const [u32; 2]) }) else {
                lost(DropReason::ReadFault);
                return;
            };
            socket(caller, pair[0], Transport::Unix as u8, Role::Paired as u8, true);
            socket(caller, pair[1], Transport::Unix as u8, Role::Paired as u8, true);
        }
        op::DUP => alias(caller, call.fd, fd),
        _ => {}
    }
}

#[inline(always)]
fn alias(caller: Caller, old: u32, new: u32) {
    if old == new {
        return;
    }
    let key = FdKey { tgid: caller.tgid(), fd: new };
    forget(caller, key);
    let Some(id) = FDS.get_ptr(&FdKey { tgid: caller.tgid(), fd: old }) else { return };
    // SAFETY: a map value that stays readable for the program's run.
    let id = unsafe { *id };
    if FDS.insert(&key, &id, 0).is_err() {
        lost(DropReason::FdTableFull);
        return;
    }
    if let Some(conn) = CONNS.get_ptr_mut(&id) {
        // SAFETY: a map value that stays valid for the program's run.
        unsafe { (*conn).refs += 1 };
    }
}

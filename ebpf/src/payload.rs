//! Reads and writes: exit of a call that moved bytes. Walks its buffers and sends them in pieces.
//!
//! Stream offsets advance with what the kernel says was moved, whether or not a piece was captured or delivered, so
//! the user side always knows what it did not see.

use aya_ebpf::helpers::{bpf_ktime_get_ns, bpf_probe_read_user};
use infertap_abi::{
    Conn, Direction, DropReason, FdKey, PIECE_LARGE, RecordHeader, RecordKind, conn_flag, conn_state, record_flag,
};

use crate::call::{self, Call, Caller, op};
use crate::descriptor::{self, Lookup};
use crate::emit;
use crate::maps::{CALLS, CONNS, lost, lost_many};

/// Steps through the buffers of one call: each takes one element of a vector, or one piece of a large one. A call's budget
/// is so 1 MiB; servers read at most 256,000 bytes at once.
const STEPS: u32 = 64;
/// Messages of one `recvmmsg` or `sendmmsg` that are counted.
const MESSAGES: u64 = 8;

const EAGAIN: i64 = 11;
const EINTR: i64 = 4;
/// ERESTARTSYS to ERESTART_RESTARTBLOCK: what the exit of an interrupted call shows inside the kernel. The call is made
/// again, or its caller sees EINTR (a debugger, a profiler, SIGSTOP).
const RESTARTED: core::ops::RangeInclusive<i64> = 512..=516;
const EPIPE: i64 = 32;
const ECONNABORTED: i64 = 103;
const ECONNRESET: i64 = 104;
const ETIMEDOUT: i64 = 110;
const EHOSTUNREACH: i64 = 113;

/// Entry of a call on a descriptor.
#[inline(always)]
pub fn enter(op: u8, fd: u64, pointer: u64, count: u64) {
    let Some(caller) = Caller::watched() else { return };
    if let Lookup::Conn(conn) = descriptor::lookup(caller, fd as u32) {
        call::begin(caller, op, fd as u32, conn, pointer, count);
    }
}

/// Exit of a read or write. `flag` is `record_flag::UPROBE` for libc calls, whose failures carry no `errno`.
#[inline(always)]
pub fn exit(ret: i64, flag: u16) {
    let caller = Caller::current();
    let Some(call) = CALLS.get_ptr_mut(&caller.pid_tgid) else { return };
    // SAFETY: a map value that stays valid for the program's run, and that only this thread uses.
    let call = unsafe { &mut *call };
    if let Some(conn) = CONNS.get_ptr_mut(&call.conn) {
        // SAFETY: a map value that stays valid for the program's run. Two threads in one direction of one socket at
        // once would race here; such a stream has no order that anybody could rebuild.
        let conn = unsafe { &mut *conn };
        moved(caller, call, conn, ret, flag);
    }
    let _ = CALLS.remove(&caller.pid_tgid);
}

/// Exit of a call that makes descriptors; `false` when its entry was not seen.
#[inline(always)]
pub fn exit_made(ret: i64) -> bool {
    let caller = Caller::current();
    let Some(call) = CALLS.get_ptr(&caller.pid_tgid) else { return false };
    // SAFETY: a map value that stays readable for the program's run; copied before it is removed.
    let call = unsafe { *call };
    let _ = CALLS.remove(&caller.pid_tgid);
    descriptor::made(caller, &call, ret);
    true
}

#[inline(always)]
fn moved(caller: Caller, call: &mut Call, conn: &mut Conn, ret: i64, flag: u16) {
    let reading = call.op < op::WRITE;
    let direction = if reading { Direction::In } else { Direction::Out };
    // SAFETY: helper without preconditions.
    let now = unsafe { bpf_ktime_get_ns() };
    let duration = now - call.entered_ns;
    let header = &mut call.header;
    *header = RecordHeader {
        ts_ns: if reading { now } else { call.entered_ns },
        conn_id: call.conn,
        kind: RecordKind::Data as u16,
        flags: flag | if conn.flags & conn_flag::LATE != 0 { record_flag::LATE } else { 0 },
        dur_ns: if duration > u64::from(u32::MAX) { u32::MAX } else { duration as u32 },
        tgid: caller.tgid(),
        tid: caller.tid(),
        fd: call.fd,
        dir_role: RecordHeader::pack(direction as u8, conn.role),
        transport: conn.transport,
        ..descriptor::EMPTY
    };
    if ret <= 0 {
        header.ts_ns = now;
        if conn.state == conn_state::STREAM {
            nothing_moved(call, conn, ret, reading);
        }
        return;
    }
    if call.op == op::PEEK {
        return;
    }
    let total = match call.op {
        op::READ_MMSG | op::WRITE_MMSG => message_bytes(call.pointer, ret as u64),
        _ => ret as u32,
    };
    let start = if reading { conn.bytes_in } else { conn.bytes_out };
    if reading {
        conn.bytes_in = start + u64::from(total);
    } else {
        conn.bytes_out = start + u64::from(total);
    }
    if conn.state != conn_state::STREAM {
        return;
    }
    if call.op == op::WRITE && u64::from(total) < call.count {
        header.flags |= record_flag::BLOCKED;
    }
    header.offset = start;
    if reading && call.arrived_ns != 0 && call.arrived_ns <= now {
        let waited_us = (now - call.arrived_ns) / 1000;
        header.extra = if waited_us > u64::from(u32::MAX) { u32::MAX } else { waited_us as u32 };
        header.flags |= record_flag::ARRIVED;
    }
    let seq = if reading { conn.seq_in } else { conn.seq_out };
    header.seq = seq;
    call.walk.rest = u64::from(total);
    if call.op == op::READ_MSG || call.op == op::WRITE_MSG {
        // struct msghdr of 64-bit Linux: msg_iov at 16, msg_iovlen at 24.
        // SAFETY: the helper checks the user address.
        match unsafe { bpf_probe_read_user((call.pointer + 16) as *const [u64; 2]) } {
            Ok([iov, count]) => (call.pointer, call.count) = (iov, count),
            Err(_) => {
                call.header.flags |= record_flag::FAULT;
                call.count = 0;
            }
        }
    }
    if call.op == op::READ || call.op == op::WRITE {
        // One buffer is a vector whose first element is already taken.
        call.walk.base = call.pointer;
        call.walk.left = u64::from(total);
        call.count = 0;
    }
    if !matches!(call.op, op::READ_MMSG | op::READ_OPAQUE | op::WRITE_MMSG | op::WRITE_OPAQUE) {
        walk(call);
    }
    if call.walk.rest != 0 {
        let rest = call.walk.rest as u32;
        piece(call, 0, rest, 0);
        // A fault is counted where the record is read.
        if call.header.flags & record_flag::FAULT == 0 {
            lost(DropReason::Budget);
        }
    }
    if call.walk.lost != 0 {
        lost_many(DropReason::RingFull, call.walk.lost);
    }
    if reading {
        conn.seq_in = call.header.seq;
    } else {
        conn.seq_out = call.header.seq;
    }
}

#[inline(always)]
fn nothing_moved(call: &mut Call, conn: &mut Conn, ret: i64, reading: bool) {
    if ret == 0 {
        // A read of no bytes into no space is no end of stream.
        let asked = call.count != 0 || (call.op != op::READ && call.op != op::PEEK);
        let header = &mut call.header;
        if reading && asked && conn.flags & conn_flag::EOF == 0 {
            conn.flags |= conn_flag::EOF;
            header.kind = RecordKind::Eof as u16;
            emit::control(header, false);
        }
        return;
    }
    let header = &mut call.header;
    let by_libc = header.flags & record_flag::UPROBE != 0;
    let errno = -ret;
    if errno == EAGAIN && !reading && !by_libc {
        header.kind = RecordKind::Stall as u16;
        emit::control(header, false);
    } else if errno != EAGAIN && errno != EINTR && !RESTARTED.contains(&errno) && !by_libc {
        if matches!(errno, EPIPE | ECONNABORTED | ECONNRESET | ETIMEDOUT | EHOSTUNREACH) {
            conn.flags |= conn_flag::FAILED;
        }
        header.kind = RecordKind::Error as u16;
        header.errno = errno as u16;
        emit::control(header, false);
    }
}

/// One piece; advances offset and sequence.
#[inline(always)]
fn piece(call: &mut Call, source: u64, len: u32, captured: u32) {
    let Call { header, walk, .. } = call;
    header.len = len;
    header.captured = captured;
    walk.lost += u64::from(emit::data(header, source));
    header.offset += u64::from(len);
    header.seq = header.seq.wrapping_add(1);
    // Told of the call's first byte alone.
    header.flags &= !record_flag::ARRIVED;
}

#[inline(always)]
fn at_most(value: u64, limit: u64) -> u64 {
    if value > limit { limit } else { value }
}

/// Sends the buffers of a call, one or more pieces each.
#[inline(always)]
fn walk(call: &mut Call) {
    for _ in 0..STEPS {
        let rest = call.walk.rest;
        if rest == 0 {
            break;
        }
        if call.walk.left == 0 {
            if call.walk.next >= call.count {
                break;
            }
            let at = call.pointer + call.walk.next * 16;
            // SAFETY: the helper checks the user address.
            let Ok([base, len]) = (unsafe { bpf_probe_read_user(at as *const [u64; 2]) }) else {
                call.header.flags |= record_flag::FAULT;
                break;
            };
            call.walk.next += 1;
            call.walk.base = base;
            call.walk.left = len;
        }
        let (base, left) = (call.walk.base, call.walk.left);
        let len = at_most(at_most(rest, left), PIECE_LARGE as u64);
        if len != 0 {
            piece(call, base, len as u32, len as u32);
            call.walk.base = base + len;
            call.walk.left = left - len;
            call.walk.rest = rest - len;
        }
    }
}

/// Sum of `msg_len` over the messages of a `recvmmsg` or `sendmmsg`: struct mmsghdr is 64 bytes, its length at 56.
#[inline(always)]
fn message_bytes(pointer: u64, count: u64) -> u32 {
    let mut total = 0u32;
    for i in 0..MESSAGES {
        if i >= count {
            break;
        }
        // SAFETY: the helper checks the user address.
        match unsafe { bpf_probe_read_user((pointer + i * 64 + 56) as *const u32) } {
            Ok(len) => total = total.wrapping_add(len),
            Err(_) => lost(DropReason::ReadFault),
        }
    }
    if count > MESSAGES {
        lost(DropReason::Budget);
    }
    total
}

/// `close`.
#[inline(always)]
pub fn closing(fd: u64) {
    if let Some(caller) = Caller::watched() {
        descriptor::forget(caller, FdKey { tgid: caller.tgid(), fd: fd as u32 });
    }
}

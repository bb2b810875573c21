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
use crate::maps::{CALLS, CONNS, lost};

/// Pieces of one buffer that are captured; past it the middle is skipped and the last [`TAIL_PIECES`] are kept,
/// because a body's `"model"` or `"usage"` often comes last.
const BUFFER_PIECES: u32 = 16;
const TAIL_PIECES: u32 = 4;
const BUFFER_BUDGET: u32 = BUFFER_PIECES * PIECE_LARGE as u32;
const HEAD: u32 = (BUFFER_PIECES - TAIL_PIECES) * PIECE_LARGE as u32;

/// Steps through a vector of buffers: each takes one buffer, or one piece of it.
const VECTOR_STEPS: u32 = 64;
/// Messages of one `recvmmsg` or `sendmmsg` that are counted.
const MESSAGES: u64 = 8;

const EAGAIN: i64 = 11;
const EINTR: i64 = 4;

/// Entry of a call on a descriptor.
#[inline(always)]
pub fn enter(op: u8, fd: u64, pointer: u64, count: u64) {
    let Some(caller) = Caller::watched() else { return };
    if let Lookup::Conn(conn) = descriptor::lookup(caller, fd as u32) {
        call::begin(caller, op, fd as u32, conn, pointer, count);
    }
}

/// Exit of any call. `flag` is `record_flag::UPROBE` for libc calls, whose failures carry no `errno`.
#[inline(always)]
pub fn exit(ret: i64, flag: u16) {
    let caller = Caller::current();
    let Some(call) = CALLS.get_ptr(&caller.pid_tgid) else { return };
    // SAFETY: a map value that stays readable for the program's run; copied before it is removed.
    let call = unsafe { *call };
    let _ = CALLS.remove(&caller.pid_tgid);
    if call.op >= op::ACCEPT {
        descriptor::made(caller, &call, ret);
        return;
    }
    let Some(conn) = CONNS.get_ptr_mut(&call.conn) else { return };
    // SAFETY: a map value that stays valid for the program's run. Two threads in one direction of one socket at once
    // would race here; such a stream has no order that anybody could rebuild.
    let conn = unsafe { &mut *conn };
    moved(caller, &call, conn, ret, flag);
}

#[inline(always)]
fn moved(caller: Caller, call: &Call, conn: &mut Conn, ret: i64, flag: u16) {
    let reading = call.op < op::WRITE;
    let direction = if reading { Direction::In } else { Direction::Out };
    // SAFETY: helper without preconditions.
    let now = unsafe { bpf_ktime_get_ns() };
    let duration = now - call.entered_ns;
    let mut header = RecordHeader {
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
            nothing_moved(call, conn, ret, reading, &mut header);
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
    header.call_len = total;
    let seq = if reading { conn.seq_in } else { conn.seq_out };
    header.seq = seq;
    match call.op {
        op::READ | op::WRITE => buffer(&mut header, call.pointer),
        op::READ_IOV | op::WRITE_IOV => vector(&mut header, call.pointer, call.count),
        op::READ_MSG | op::WRITE_MSG => message(&mut header, call.pointer),
        _ => uncaptured(&mut header, total),
    };
    if reading {
        conn.seq_in = header.seq;
    } else {
        conn.seq_out = header.seq;
    }
}

#[inline(always)]
fn nothing_moved(call: &Call, conn: &mut Conn, ret: i64, reading: bool, header: &mut RecordHeader) {
    if ret == 0 {
        // A read of no bytes into no space is no end of stream.
        let asked = call.count != 0 || (call.op != op::READ && call.op != op::PEEK);
        if reading && asked && conn.flags & conn_flag::EOF == 0 {
            conn.flags |= conn_flag::EOF;
            header.kind = RecordKind::Eof as u16;
            emit::control(header, false);
        }
        return;
    }
    let by_libc = header.flags & record_flag::UPROBE != 0;
    let errno = -ret;
    if errno == EAGAIN && !reading && !by_libc {
        header.kind = RecordKind::Stall as u16;
        emit::control(header, false);
    } else if errno != EAGAIN && errno != EINTR && !by_libc {
        header.kind = RecordKind::Error as u16;
        header.errno = errno as u16;
        emit::control(header, false);
    }
}

/// One piece; advances offset and sequence.
#[inline(always)]
fn piece(header: &mut RecordHeader, source: u64, len: u32, captured: u32) {
    header.len = len;
    header.captured = captured;
    emit::data(header, source);
    header.offset += u64::from(len);
    header.seq = header.seq.wrapping_add(1);
}

#[inline(always)]
fn uncaptured(header: &mut RecordHeader, len: u32) -> u32 {
    piece(header, 0, len, 0);
    lost(DropReason::Budget);
    0
}

#[inline(never)]
fn buffer(header: &mut RecordHeader, pointer: u64) -> u32 {
    let total = header.call_len;
    let mut done = 0u32;
    for _ in 0..=BUFFER_PIECES {
        if done >= total {
            break;
        }
        if total > BUFFER_BUDGET && done == HEAD {
            let skipped = total - BUFFER_BUDGET;
            uncaptured(header, skipped);
            done += skipped;
            continue;
        }
        let left = total - done;
        let len = if left > PIECE_LARGE as u32 { PIECE_LARGE as u32 } else { left };
        piece(header, pointer + u64::from(done), len, len);
        done += len;
    }
    0
}

#[inline(never)]
fn vector(header: &mut RecordHeader, pointer: u64, count: u64) -> u32 {
    let total = header.call_len;
    let mut done = 0u32;
    let mut next = 0u64;
    let (mut base, mut left) = (0u64, 0u64);
    for _ in 0..VECTOR_STEPS {
        if done >= total {
            return 0;
        }
        if left == 0 {
            if next >= count {
                break;
            }
            // SAFETY: the helper checks the user address.
            let Ok(iovec) = (unsafe { bpf_probe_read_user((pointer + next * 16) as *const [u64; 2]) }) else {
                lost(DropReason::ReadFault);
                break;
            };
            next += 1;
            [base, left] = iovec;
            if left == 0 {
                continue;
            }
        }
        let mut len = total - done;
        if u64::from(len) > left {
            len = left as u32;
        }
        if len > PIECE_LARGE as u32 {
            len = PIECE_LARGE as u32;
        }
        piece(header, base, len, len);
        base += u64::from(len);
        left -= u64::from(len);
        done += len;
    }
    if done < total {
        uncaptured(header, total - done);
    }
    0
}

#[inline(always)]
fn message(header: &mut RecordHeader, pointer: u64) -> u32 {
    // struct msghdr of 64-bit Linux: msg_iov at 16, msg_iovlen at 24.
    // SAFETY: the helper checks the user address.
    match unsafe { bpf_probe_read_user((pointer + 16) as *const [u64; 2]) } {
        Ok([iov, count]) => vector(header, iov, count),
        Err(_) => {
            lost(DropReason::ReadFault);
            uncaptured(header, header.call_len)
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

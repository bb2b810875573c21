//! Socket family, default mode: syscall tracepoints. One program serves every call with the same argument shape.

use aya_ebpf::EbpfContext;
use aya_ebpf::macros::tracepoint;
use aya_ebpf::programs::TracePointContext;
use infertap_abi::RecordKind;

use crate::call::{self, Caller, op};
use crate::descriptor;
use crate::payload;

const MSG_PEEK: u64 = 2;

/// Argument `N` of a `sys_enter_*` tracepoint: eight bytes each, after the common fields and the call's number.
#[inline(always)]
fn arg<const N: usize>(ctx: &TracePointContext) -> u64 {
    // SAFETY: the record of a sys_enter event has six arguments at offset 16; the verifier checks the bound.
    unsafe { ctx.as_ptr().cast::<u64>().add(2 + N).read_volatile() }
}

/// Declares a program per line: `name(ctx) { body }`.
macro_rules! enter {
    ($($(#[$doc:meta])* $name:ident($ctx:ident) { $($body:tt)* })*) => {$(
        $(#[$doc])*
        #[tracepoint]
        pub fn $name($ctx: TracePointContext) -> u32 {
            $($body)*
            0
        }
    )*};
}

enter! {
    /// read
    enter_read(ctx) { payload::enter(op::READ, arg::<0>(&ctx), arg::<1>(&ctx), arg::<2>(&ctx)); }
    /// recvfrom
    enter_recvfrom(ctx) {
        let op = if arg::<3>(&ctx) & MSG_PEEK != 0 { op::PEEK } else { op::READ };
        payload::enter(op, arg::<0>(&ctx), arg::<1>(&ctx), arg::<2>(&ctx));
    }
    /// readv
    enter_readv(ctx) { payload::enter(op::READ_IOV, arg::<0>(&ctx), arg::<1>(&ctx), arg::<2>(&ctx)); }
    /// recvmsg
    enter_recvmsg(ctx) {
        let op = if arg::<2>(&ctx) & MSG_PEEK != 0 { op::PEEK } else { op::READ_MSG };
        payload::enter(op, arg::<0>(&ctx), arg::<1>(&ctx), 1);
    }
    /// recvmmsg
    enter_recvmmsg(ctx) { payload::enter(op::READ_MMSG, arg::<0>(&ctx), arg::<1>(&ctx), arg::<2>(&ctx)); }
    /// write, sendto
    enter_write(ctx) { payload::enter(op::WRITE, arg::<0>(&ctx), arg::<1>(&ctx), arg::<2>(&ctx)); }
    /// writev
    enter_writev(ctx) { payload::enter(op::WRITE_IOV, arg::<0>(&ctx), arg::<1>(&ctx), arg::<2>(&ctx)); }
    /// sendmsg
    enter_sendmsg(ctx) { payload::enter(op::WRITE_MSG, arg::<0>(&ctx), arg::<1>(&ctx), 1); }
    /// sendmmsg
    enter_sendmmsg(ctx) { payload::enter(op::WRITE_MMSG, arg::<0>(&ctx), arg::<1>(&ctx), arg::<2>(&ctx)); }
    /// sendfile64(out, in, …)
    enter_sendfile(ctx) { payload::enter(op::WRITE_OPAQUE, arg::<0>(&ctx), 0, arg::<3>(&ctx)); }
    /// splice(in, …, out, …): whichever end is a socket.
    enter_splice(ctx) {
        if let Some(caller) = Caller::watched() {
            let (from, to) = (arg::<0>(&ctx) as u32, arg::<2>(&ctx) as u32);
            if let descriptor::Lookup::Conn(conn) = descriptor::lookup(caller, to) {
                call::begin(caller, op::WRITE_OPAQUE, to, conn, 0, arg::<4>(&ctx));
            } else if let descriptor::Lookup::Conn(conn) = descriptor::lookup(caller, from) {
                call::begin(caller, op::READ_OPAQUE, from, conn, 0, arg::<4>(&ctx));
            }
        }
    }
    /// accept, accept4
    enter_accept(ctx) {
        if let Some(caller) = Caller::watched() {
            descriptor::accepting(caller, arg::<0>(&ctx) as u32);
        }
    }
    /// Exit of accept and accept4. Servers block in accept for hours: one that entered before the probes were attached
    /// is recognised by its result alone.
    exit_accept(ctx) {
        let ret = arg::<0>(&ctx) as i64;
        if !payload::exit_made(ret)
            && ret >= 0
            && let Some(caller) = Caller::watched()
        {
            descriptor::accepted_unseen(caller, ret as u32);
        }
    }
    /// socket
    enter_socket(ctx) {
        if let Some(caller) = Caller::watched() {
            descriptor::creating(caller, arg::<0>(&ctx), arg::<1>(&ctx));
        }
    }
    /// socketpair
    enter_socketpair(ctx) {
        if let Some(caller) = Caller::watched()
            && arg::<1>(&ctx) & 0xf == 1
        {
            call::begin(caller, op::SOCKETPAIR, 0, 0, arg::<3>(&ctx), 0);
        }
    }
    /// connect
    enter_connect(ctx) {
        if let Some(caller) = Caller::watched() {
            descriptor::connecting(caller, arg::<0>(&ctx) as u32);
        }
    }
    /// dup, dup2, dup3
    enter_dup(ctx) {
        if let Some(caller) = Caller::watched() {
            call::begin(caller, op::DUP, arg::<0>(&ctx) as u32, 0, 0, 0);
        }
    }
    /// fcntl: F_DUPFD and F_DUPFD_CLOEXEC
    enter_fcntl(ctx) {
        if let Some(caller) = Caller::watched() {
            let command = arg::<1>(&ctx);
            if command == 0 || command == 1030 {
                call::begin(caller, op::DUP, arg::<0>(&ctx) as u32, 0, 0, 0);
            }
        }
    }
    /// close
    enter_close(ctx) { payload::closing(arg::<0>(&ctx)); }
    /// shutdown: of the sending side
    enter_shutdown(ctx) {
        if let Some(caller) = Caller::watched()
            && arg::<1>(&ctx) != 0
        {
            descriptor::tell(caller, RecordKind::Shutdown, arg::<0>(&ctx) as u32);
        }
    }
    /// Exit of reads and writes. `ret` stands where the first argument does at entry.
    exit_io(ctx) { payload::exit(arg::<0>(&ctx) as i64, 0); }
    /// Exit of socket, socketpair, dup*, fcntl.
    exit_made(ctx) { let _ = payload::exit_made(arg::<0>(&ctx) as i64); }
}

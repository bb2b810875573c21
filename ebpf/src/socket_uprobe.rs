//! Socket family, other mode: uprobes on libc's socket calls, for hosts where bystanders must pay nothing. Same
//! handlers as the tracepoints; what libc does not export (static binaries, direct system calls) is not seen, and a
//! failed call's `errno` is not either.

use aya_ebpf::macros::{uprobe, uretprobe};
use aya_ebpf::programs::{ProbeContext, RetProbeContext};
use infertap_abi::{RecordKind, record_flag};

use crate::call::{self, Caller, op};
use crate::descriptor;
use crate::payload;

const MSG_PEEK: u64 = 2;

#[inline(always)]
fn arg<const N: usize>(ctx: &ProbeContext) -> u64 {
    ctx.arg(N).unwrap_or(0)
}

/// An `int` argument: the upper half of its register is not defined.
#[inline(always)]
fn int<const N: usize>(ctx: &ProbeContext) -> u64 {
    arg::<N>(ctx) & 0xffff_ffff
}

macro_rules! enter {
    ($($(#[$doc:meta])* $name:ident($ctx:ident) { $($body:tt)* })*) => {$(
        $(#[$doc])*
        #[uprobe]
        pub fn $name($ctx: ProbeContext) -> u32 {
            $($body)*
            0
        }
    )*};
}

enter! {
    /// read
    libc_read(ctx) { payload::enter(op::READ, int::<0>(&ctx), arg::<1>(&ctx), arg::<2>(&ctx)); }
    /// recv, recvfrom
    libc_recv(ctx) {
        let op = if int::<3>(&ctx) & MSG_PEEK != 0 { op::PEEK } else { op::READ };
        payload::enter(op, int::<0>(&ctx), arg::<1>(&ctx), arg::<2>(&ctx));
    }
    /// readv
    libc_readv(ctx) { payload::enter(op::READ_IOV, int::<0>(&ctx), arg::<1>(&ctx), int::<2>(&ctx)); }
    /// recvmsg
    libc_recvmsg(ctx) {
        let op = if int::<2>(&ctx) & MSG_PEEK != 0 { op::PEEK } else { op::READ_MSG };
        payload::enter(op, int::<0>(&ctx), arg::<1>(&ctx), 1);
    }
    /// recvmmsg
    libc_recvmmsg(ctx) { payload::enter(op::READ_MMSG, int::<0>(&ctx), arg::<1>(&ctx), int::<2>(&ctx)); }
    /// write, send, sendto
    libc_write(ctx) { payload::enter(op::WRITE, int::<0>(&ctx), arg::<1>(&ctx), arg::<2>(&ctx)); }
    /// writev
    libc_writev(ctx) { payload::enter(op::WRITE_IOV, int::<0>(&ctx), arg::<1>(&ctx), int::<2>(&ctx)); }
    /// sendmsg
    libc_sendmsg(ctx) { payload::enter(op::WRITE_MSG, int::<0>(&ctx), arg::<1>(&ctx), 1); }
    /// sendmmsg
    libc_sendmmsg(ctx) { payload::enter(op::WRITE_MMSG, int::<0>(&ctx), arg::<1>(&ctx), int::<2>(&ctx)); }
    /// sendfile, sendfile64
    libc_sendfile(ctx) { payload::enter(op::WRITE_OPAQUE, int::<0>(&ctx), 0, arg::<3>(&ctx)); }
    /// accept, accept4
    libc_accept(ctx) {
        if let Some(caller) = Caller::watched() {
            descriptor::accepting(caller, int::<0>(&ctx) as u32);
        }
    }
    /// socket
    libc_socket(ctx) {
        if let Some(caller) = Caller::watched() {
            descriptor::creating(caller, int::<0>(&ctx), int::<1>(&ctx));
        }
    }
    /// socketpair
    libc_socketpair(ctx) {
        if let Some(caller) = Caller::watched()
            && int::<1>(&ctx) & 0xf == 1
        {
            call::begin(caller, op::SOCKETPAIR, 0, 0, arg::<3>(&ctx), 0);
        }
    }
    /// connect
    libc_connect(ctx) {
        if let Some(caller) = Caller::watched() {
            descriptor::connecting(caller, int::<0>(&ctx) as u32);
        }
    }
    /// dup, dup2, dup3
    libc_dup(ctx) {
        if let Some(caller) = Caller::watched() {
            call::begin(caller, op::DUP, int::<0>(&ctx) as u32, 0, 0, 0);
        }
    }
    /// fcntl, fcntl64
    libc_fcntl(ctx) {
        if let Some(caller) = Caller::watched() {
            let command = int::<1>(&ctx);
            if command == 0 || command == 1030 {
                call::begin(caller, op::DUP, int::<0>(&ctx) as u32, 0, 0, 0);
            }
        }
    }
    /// close
    libc_close(ctx) { payload::closing(int::<0>(&ctx)); }
    /// shutdown
    libc_shutdown(ctx) {
        if let Some(caller) = Caller::watched()
            && int::<1>(&ctx) != 0
        {
            descriptor::tell(caller, RecordKind::Shutdown, int::<0>(&ctx) as u32);
        }
    }
}

/// Return of a read or write that gives a size (`ssize_t`).
#[uretprobe]
pub fn libc_exit_io(ctx: RetProbeContext) -> u32 {
    payload::exit(ctx.ret::<i64>(), record_flag::UPROBE);
    0
}

/// Return of `recvmmsg` and `sendmmsg`, which give an `int`: the register's upper half is not defined.
#[uretprobe]
pub fn libc_exit_mmsg(ctx: RetProbeContext) -> u32 {
    payload::exit(i64::from(ctx.ret::<i32>()), record_flag::UPROBE);
    0
}

/// Return of a call that makes descriptors.
#[uretprobe]
pub fn libc_exit_made(ctx: RetProbeContext) -> u32 {
    let _ = payload::exit_made(i64::from(ctx.ret::<i32>()));
    0
}

//! Process family: exec (of any process: discovery wants to know), fork and exit of watched ones.

use aya_ebpf::EbpfContext;
use aya_ebpf::helpers::{bpf_ktime_get_ns, bpf_probe_read_user};
use aya_ebpf::macros::tracepoint;
use aya_ebpf::programs::TracePointContext;
use infertap_abi::{DropReason, RecordHeader, RecordKind};

use crate::call::Caller;
use crate::descriptor::EMPTY;
use crate::emit;
use crate::maps::{CALLS, CUDA_PROCESSES, CUDA_THREADS, FORKING, TARGETS, lost};

/// Offset of `child_pid` in the record of `sched:sched_process_fork`; the loader reads it from the event's format,
/// which changed when the comm fields became dynamic.
#[unsafe(no_mangle)]
static CHILD_PID_OFFSET: u32 = 44;

const CLONE_THREAD: u64 = 0x0001_0000;

#[inline(always)]
fn tell(kind: RecordKind, tgid: u32, tid: u32, parent: u32) {
    let header = RecordHeader {
        // SAFETY: helper without preconditions.
        ts_ns: unsafe { bpf_ktime_get_ns() },
        kind: kind as u16,
        tgid,
        tid,
        fd: parent,
        ..EMPTY
    };
    emit::control(&header, false);
}

/// sched:sched_process_exec
#[tracepoint]
pub fn process_exec(_ctx: TracePointContext) -> u32 {
    let caller = Caller::current();
    tell(RecordKind::Exec, caller.tgid(), caller.tid(), 0);
    0
}

/// sched:sched_process_exit: of any thread; the process ends with its leader.
#[tracepoint]
pub fn process_exit(_ctx: TracePointContext) -> u32 {
    // Before the look whether it is watched: the leader may have ended, and the watching with it, before this thread.
    let thread = Caller::current();
    let _ = CALLS.remove(&thread.pid_tgid);
    let _ = FORKING.remove(&thread.pid_tgid);
    let _ = CUDA_THREADS.remove(&thread.pid_tgid);
    if thread.tid() != thread.tgid() {
        return 0;
    }
    // Workers are watched for their CUDA calls alone.
    let watched = TARGETS.remove(&thread.tgid()).is_ok();
    if CUDA_PROCESSES.get_ptr(&thread.tgid()).is_some() || watched {
        tell(RecordKind::Exit, thread.tgid(), thread.tid(), 0);
    }
    0
}

#[inline(always)]
fn forking(flags: u64) {
    if let Some(caller) = Caller::watched()
        && flags & CLONE_THREAD == 0
        && FORKING.insert(&caller.pid_tgid, &1, 0).is_err()
    {
        lost(DropReason::CallTableFull);
    }
}

/// clone(flags, …)
#[tracepoint]
pub fn enter_clone(ctx: TracePointContext) -> u32 {
    // SAFETY: the first argument of a sys_enter record is at offset 16; the verifier checks the bound.
    forking(unsafe { ctx.as_ptr().cast::<u64>().add(2).read_volatile() });
    0
}

/// clone3(struct clone_args *, …), whose first field is the flags
#[tracepoint]
pub fn enter_clone3(ctx: TracePointContext) -> u32 {
    // SAFETY: as above; the helper checks the user address.
    unsafe {
        let args = ctx.as_ptr().cast::<u64>().add(2).read_volatile();
        match bpf_probe_read_user(args as *const u64) {
            Ok(flags) => forking(flags),
            Err(_) => lost(DropReason::ReadFault),
        }
    }
    0
}

/// fork, vfork
#[tracepoint]
pub fn enter_fork(_ctx: TracePointContext) -> u32 {
    forking(0);
    0
}

/// sched:sched_process_fork, in the parent, before the child runs: the child is watched from its first instruction.
/// The event fires for threads too, so it counts only after a fork-like call of the same thread.
#[tracepoint]
pub fn process_fork(ctx: TracePointContext) -> u32 {
    let caller = Caller::current();
    if FORKING.remove(&caller.pid_tgid).is_err() {
        return 0;
    }
    let Some(target) = TARGETS.get_ptr(caller.tgid()) else { return 0 };
    // SAFETY: the static is read-only data that the loader filled in before the load.
    let offset = unsafe { (&raw const CHILD_PID_OFFSET).read_volatile() };
    // SAFETY: the helper checks the address; the offset is the event's own.
    let Ok(child) = (unsafe { ctx.read_at::<u32>(offset as usize) }) else {
        lost(DropReason::ReadFault);
        return 0;
    };
    // SAFETY: a map value that stays readable for the program's run.
    if TARGETS.insert(&child, unsafe { &*target }, 0).is_err() {
        lost(DropReason::FdTableFull);
    }
    tell(RecordKind::Fork, child, child, caller.tgid());
    0
}

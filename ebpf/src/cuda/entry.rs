//! Which calls count: a call of the runtime and the call of the driver under it are one.
//!
//! Owns: the rule, and what a thread is in. The runtime's entry counts and leaves a mark; the driver's entry takes the
//! mark when it was called by the runtime's code (its return address says so) and does not count then. So each of these
//! is counted once: a runtime that calls the driver's exported functions, one that gets by them, a driver called by
//! anybody else (Triton, a runtime linked into another library), and a function of the runtime that is not probed.

use aya_ebpf::helpers::{bpf_ktime_get_ns, bpf_probe_read_user};
use aya_ebpf::programs::{ProbeContext, RetProbeContext};
use infertap_abi::{CudaClass, CudaProcess, CudaRange, CudaWork, DropReason};

use super::account::{self, Wait, add};
use crate::call::Caller;
use crate::maps::{CUDA_PROCESSES, CUDA_THREADS, CUDA_WORK, lost};

/// Which library a probe is in.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Driver,
    Runtime,
}

/// Value of `CUDA_THREADS`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct CudaThread {
    /// The [`CudaClass`] of the runtime's call that was counted and under which the driver was not entered yet; 0: none.
    pub pending: u32,
    /// The [`CudaClass`] of the call whose return is awaited; 0: none.
    pub waiting: u32,
    /// Stack pointer where the runtime was entered.
    pub pending_stack: u64,
    /// Where that call returns to.
    pub pending_return: u64,
    /// Stack pointer where the call was entered whose return is awaited.
    pub stack: u64,
    /// When it was.
    pub entered_ns: u64,
    /// A [`Wait`].
    pub wait: u32,
    pub padding: u32,
    /// What its return needs.
    pub args: [u64; 4],
}

impl CudaThread {
    const NONE: CudaThread = CudaThread {
        pending: 0,
        waiting: 0,
        pending_stack: 0,
        pending_return: 0,
        stack: 0,
        entered_ns: 0,
        wait: 0,
        padding: 0,
        args: [0; 4],
    };
}

/// A call that counts.
pub struct Entered {
    pub caller: Caller,
    class: CudaClass,
    stack: u64,
    /// The return address and what is above it: arguments that found no register.
    words: [u64; 4],
}

/// What `ret` takes from the stack on x86-64, the one architecture that these programs are built for.
const RETURN_ADDRESS: u64 = 8;

impl Entered {
    /// `None`: not a process to count of, or a call that is counted elsewhere.
    #[inline(always)]
    pub fn counted(ctx: &ProbeContext, side: Side, class: CudaClass) -> Option<Entered> {
        let caller = Caller::current();
        let process = CUDA_PROCESSES.get_ptr(&caller.tgid())?;
        // SAFETY: the context of a uprobe is the registers of the thread.
        let stack = unsafe { (*ctx.regs).rsp };
        // SAFETY: the helper checks the address.
        let words = match unsafe { bpf_probe_read_user(stack as *const [u64; 4]) } {
            Ok(words) => words,
            Err(_) => {
                lost(DropReason::ReadFault);
                [0; 4]
            }
        };
        let entered = Entered { caller, class, stack, words };
        // SAFETY: a map value that stays readable for the program's run.
        let process = unsafe { &*process };
        let counts = match side {
            Side::Driver => entered.driver(process),
            // SAFETY: as above.
            Side::Runtime => entered.runtime(process, unsafe { (*ctx.regs).rip }),
        };
        counts.then_some(entered)
    }

    /// A word above the return address: an argument that is passed on the stack.
    #[inline(always)]
    pub fn on_stack(&self, n: usize) -> u64 {
        self.words[n + 1]
    }

    #[inline(always)]
    fn runtime(&self, process: &CudaProcess, here: u64) -> bool {
        // Where the agent does not know this copy of the runtime (yet), the driver counts: its entry would not know that
        // it was called from here.
        if process.driver_only & self.class.bit() != 0 || !within(&process.runtime, here) {
            return false;
        }
        // The runtime itself: the outer call counts.
        if within(&process.runtime, self.words[0]) {
            return false;
        }
        if let Some(thread) = CUDA_THREADS.get_ptr_mut(&self.caller.pid_tgid) {
            // SAFETY: a map value that stays valid for the program's run; only this thread uses its key.
            let thread = unsafe { &mut *thread };
            thread.pending = self.class as u32;
            thread.pending_stack = self.stack;
            thread.pending_return = self.words[0];
        } else {
            let thread = CudaThread {
                pending: self.class as u32,
                pending_stack: self.stack,
                pending_return: self.words[0],
                ..CudaThread::NONE
            };
            if CUDA_THREADS.insert(&self.caller.pid_tgid, &thread, 0).is_err() {
                // Without its mark the driver's entry would count as well.
                lost(DropReason::CallTableFull);
                return false;
            }
        }
        if let Some(work) = self.work() {
            // SAFETY: a map value that stays valid for the program's run.
            unsafe { add(&raw mut (*work).runtime_calls[self.class as usize], 1) };
        }
        true
    }

    #[inline(always)]
    fn driver(&self, process: &CudaProcess) -> bool {
        let back = self.words[0];
        // The driver itself: the outer call counts.
        if within(&process.driver, back) {
            return false;
        }
        if process.runtimes == 0 {
            return true;
        }
        let Some(thread) = CUDA_THREADS.get_ptr_mut(&self.caller.pid_tgid) else { return true };
        // SAFETY: as above.
        let thread = unsafe { &mut *thread };
        if thread.pending != self.class as u32 {
            return true;
        }
        // Called, or jumped to as the runtime's last act: then the stack is as the runtime found it.
        let jumped = thread.pending_stack == self.stack && (thread.pending_return == back || self.class.returns());
        if !jumped && !within(&process.runtime, back) {
            return true;
        }
        thread.pending = 0;
        if let Some(work) = self.work() {
            // SAFETY: as above.
            unsafe { add(&raw mut (*work).confirmed[self.class as usize], 1) };
        }
        false
    }

    #[inline(always)]
    pub fn work(&self) -> Option<*mut CudaWork> {
        CUDA_WORK.get_ptr_mut(&self.caller.tgid())
    }

    /// The call is finished by [`left`].
    #[inline(always)]
    pub fn awaits(&self, wait: Wait, mut args: [u64; 4]) {
        if matches!(wait, Wait::Sync) {
            args = account::claim(self);
        }
        // SAFETY: helper without preconditions.
        let entered_ns = unsafe { bpf_ktime_get_ns() };
        if let Some(thread) = CUDA_THREADS.get_ptr_mut(&self.caller.pid_tgid) {
            // SAFETY: as above.
            let thread = unsafe { &mut *thread };
            thread.waiting = self.class as u32;
            thread.stack = self.stack;
            thread.entered_ns = entered_ns;
            thread.wait = wait as u32;
            thread.args = args;
            return;
        }
        let thread = CudaThread {
            waiting: self.class as u32,
            stack: self.stack,
            entered_ns,
            wait: wait as u32,
            args,
            ..CudaThread::NONE
        };
        if CUDA_THREADS.insert(&self.caller.pid_tgid, &thread, 0).is_err() {
            lost(DropReason::CallTableFull);
        }
    }
}

/// A call has returned: it is the awaited one when the stack is as it was at its entry.
#[inline(always)]
pub fn left(ctx: &RetProbeContext, side: Side, class: CudaClass) {
    let caller = Caller::current();
    let Some(thread) = CUDA_THREADS.get_ptr_mut(&caller.pid_tgid) else { return };
    // SAFETY: a map value that stays valid for the program's run; only this thread uses its key.
    let thread = unsafe { &mut *thread };
    // SAFETY: the context of a uretprobe is the registers of the thread.
    let stack = unsafe { (*ctx.regs).rsp };
    if side == Side::Runtime && thread.pending == class as u32 && stack.wrapping_sub(thread.pending_stack) <= RETURN_ADDRESS {
        // The driver's entry was not seen under it.
        thread.pending = 0;
    }
    if thread.waiting != class as u32 || stack.wrapping_sub(thread.stack) > RETURN_ADDRESS {
        return;
    }
    thread.waiting = 0;
    account::returned(caller, thread, ctx.ret::<u64>() as u32);
}

#[inline(always)]
fn within<const N: usize>(ranges: &[CudaRange; N], address: u64) -> bool {
    let mut inside = false;
    for range in ranges {
        inside |= address.wrapping_sub(range.begin) < range.end.wrapping_sub(range.begin);
    }
    inside
}

/// A word of the process; 0 where it can't be read, which is counted.
#[inline(always)]
pub fn read_user(at: u64) -> u64 {
    // SAFETY: the helper checks the address.
    unsafe { bpf_probe_read_user(at as *const u64) }.unwrap_or_else(|_| {
        lost(DropReason::ReadFault);
        0
    })
}

/// Half a word, likewise.
#[inline(always)]
pub fn read_user_u32(at: u64) -> u32 {
    // SAFETY: the helper checks the address.
    unsafe { bpf_probe_read_user(at as *const u32) }.unwrap_or_else(|_| {
        lost(DropReason::ReadFault);
        0
    })
}

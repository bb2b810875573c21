//! What is kept of CUDA calls that count: sums a process and stream, allocations by address, bursts and failures as records.
//!
//! Owns: the counters and the records. Refuses: which calls count (`entry`). All sums are added to atomically: on newer
//! kernels a program can be preempted by another thread's on the same CPU.

use core::arch::asm;

use aya_ebpf::helpers::bpf_ktime_get_ns;
use infertap_abi::{
    CudaBurstRecord, CudaCall, CudaCount, CudaKey, CudaMemory, CudaMemoryRecord, CudaPointer, DropReason, NO_STREAM, REST_STREAM,
    RecordHeader, RecordKind,
};

use super::entry::{CudaThread, Entered, read_user};
use crate::call::Caller;
use crate::descriptor::EMPTY;
use crate::emit;
use crate::maps::{CUDA_ALLOCS, CUDA_COUNTS, EVENTS, lost};

/// What a return is awaited for.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Wait {
    Alloc = 1,
    AllocPitch = 2,
    Create = 3,
    Map = 4,
    Sync = 5,
}

/// `BPF_NOEXIST`: another CPU may have made the key meanwhile.
const NO_EXIST: u64 = 1;

/// Adds atomically.
///
/// # Safety
/// `to` points to a word of a map value.
#[inline(always)]
pub unsafe fn add(to: *mut u64, value: u64) {
    // SAFETY: writes the one word. The compiler has no atomic additions for a target without compare-and-exchange, which
    // the instruction set has since Linux 5.12 only; this instruction it has always had.
    unsafe { asm!("lock *(u64 *)({to} + 0) += {value}", to = in(reg) to, value = in(reg) value, options(nostack)) };
}

#[inline(always)]
fn counter(key: &CudaKey) -> Option<*mut CudaCount> {
    CUDA_COUNTS.get_ptr_mut(key)
}

#[inline(always)]
fn count(tgid: u32, call: CudaCall, stream: u64, amount: CudaCount) {
    let mut key = CudaKey { tgid, call: call as u16, reserved: 0, stream };
    let mut found = counter(&key);
    if found.is_none() {
        let _ = CUDA_COUNTS.insert(&key, &CudaCount { calls: 0, bytes: 0, ns: 0, failures: 0 }, NO_EXIST);
        found = counter(&key);
    }
    if found.is_none() {
        lost(DropReason::CudaStreams);
        key.stream = REST_STREAM;
        found = counter(&key);
    }
    if let Some(count) = found {
        // SAFETY: a map value that stays valid for the program's run.
        unsafe {
            if amount.calls != 0 {
                add(&raw mut (*count).calls, amount.calls);
            }
            if amount.bytes != 0 {
                add(&raw mut (*count).bytes, amount.bytes);
            }
            if amount.ns != 0 {
                add(&raw mut (*count).ns, amount.ns);
            }
            if amount.failures != 0 {
                add(&raw mut (*count).failures, amount.failures);
            }
        }
    }
}

const ONE: CudaCount = CudaCount { calls: 1, bytes: 0, ns: 0, failures: 0 };
const FAILED: CudaCount = CudaCount { calls: 0, bytes: 0, ns: 0, failures: 1 };

#[inline(always)]
fn bytes(bytes: u64) -> CudaCount {
    CudaCount { bytes, ..ONE }
}

impl Entered {
    /// A kernel or a graph was launched.
    #[inline(always)]
    pub fn launched(&self, call: CudaCall, stream: u64) {
        count(self.caller.tgid(), call, stream, ONE);
        let Some(work) = self.work() else { return };
        // SAFETY: a map value that stays valid for the program's run. The times are plain words: of two launches at once
        // either may be the first.
        unsafe {
            if matches!(call, CudaCall::GraphLaunch) {
                add(&raw mut (*work).graphs, 1);
            } else {
                add(&raw mut (*work).kernels, 1);
            }
            let now = bpf_ktime_get_ns();
            if (*work).first_ns == 0 {
                (*work).first_ns = now;
            }
            (*work).last_ns = now;
        }
    }

    #[inline(always)]
    pub fn copied(&self, direction: CudaCall, size: u64, stream: u64) {
        count(self.caller.tgid(), direction, stream, bytes(size));
    }

    /// Memory is about to be freed: before the driver does it, and may give the address to another thread.
    #[inline(always)]
    pub fn freed(&self, address: u64) {
        // What frees nothing is asked for to make the runtime begin.
        if address == 0 {
            return;
        }
        let tgid = self.caller.tgid();
        let key = CudaPointer { tgid, reserved: 0, address };
        // SAFETY: read once, from a value that stays readable for the program's run.
        let size = CUDA_ALLOCS.get_ptr(&key).map(|size| unsafe { *size });
        match size {
            Some(size) if CUDA_ALLOCS.remove(&key).is_ok() => count(tgid, CudaCall::Free, NO_STREAM, bytes(size)),
            _ => count(tgid, CudaCall::FreeUnknown, NO_STREAM, ONE),
        }
    }

    #[inline(always)]
    pub fn unmapped(&self, address: u64, size: u64) {
        memory(self.caller, CudaMemoryRecord { what: CudaMemory::Unmapped as u32, code: 0, bytes: size, address, handle: 0 });
    }

    #[inline(always)]
    pub fn released(&self, handle: u64) {
        memory(self.caller, CudaMemoryRecord { what: CudaMemory::Released as u32, code: 0, bytes: 0, address: 0, handle });
    }
}

/// A wait begins: what was launched before it is its burst, and no other wait's.
#[inline(always)]
pub fn claim(entered: &Entered) -> [u64; 4] {
    let Some(work) = entered.work() else { return [0; 4] };
    // SAFETY: a map value that stays valid for the program's run.
    unsafe {
        let (kernels, graphs) = ((&raw const (*work).kernels).read_volatile(), (&raw const (*work).graphs).read_volatile());
        let claimed = [
            kernels.wrapping_sub((*work).told_kernels),
            graphs.wrapping_sub((*work).told_graphs),
            (*work).first_ns,
            (*work).last_ns,
        ];
        (*work).told_kernels = kernels;
        (*work).told_graphs = graphs;
        (*work).first_ns = 0;
        claimed
    }
}

/// An awaited call has returned.
#[inline(always)]
pub fn returned(caller: Caller, thread: &CudaThread, code: u32) {
    let tgid = caller.tgid();
    let args = &thread.args;
    if thread.wait == Wait::Sync as u32 {
        waited(caller, thread, code);
    } else if thread.wait == Wait::Map as u32 {
        if code == 0 {
            let record = CudaMemoryRecord { what: CudaMemory::Mapped as u32, code: 0, bytes: args[1], address: args[0], handle: args[3] };
            memory(caller, record);
        }
    } else {
        let create = thread.wait == Wait::Create as u32;
        let call = if create { CudaCall::Create } else { CudaCall::Alloc };
        if code != 0 {
            count(tgid, call, NO_STREAM, FAILED);
            let size = if thread.wait == Wait::AllocPitch as u32 { 0 } else { args[1] };
            memory(caller, CudaMemoryRecord { what: CudaMemory::Failed as u32, code, bytes: size, address: 0, handle: 0 });
            return;
        }
        let size = if thread.wait == Wait::AllocPitch as u32 {
            read_user(args[1]).wrapping_mul(args[3])
        } else {
            args[1]
        };
        let place = read_user(args[0]);
        count(tgid, call, NO_STREAM, bytes(size));
        if create {
            memory(caller, CudaMemoryRecord { what: CudaMemory::Created as u32, code: 0, bytes: size, address: 0, handle: place });
        } else {
            allocated(tgid, place, size);
        }
    }
}

#[inline(always)]
fn allocated(tgid: u32, address: u64, size: u64) {
    let key = CudaPointer { tgid, reserved: 0, address };
    // SAFETY: read once, from a value that stays readable for the program's run.
    if let Some(before) = CUDA_ALLOCS.get_ptr(&key).map(|size| unsafe { *size }) {
        // It was freed in a way that is not probed, or the driver would not give it again.
        count(tgid, CudaCall::Free, NO_STREAM, bytes(before));
    }
    if CUDA_ALLOCS.insert(&key, &size, 0).is_err() {
        lost(DropReason::CudaAllocations);
        count(tgid, CudaCall::Untracked, NO_STREAM, bytes(size));
    }
}

#[inline(always)]
fn waited(caller: Caller, thread: &CudaThread, code: u32) {
    // SAFETY: helper without preconditions.
    let now = unsafe { bpf_ktime_get_ns() };
    count(caller.tgid(), CudaCall::Sync, NO_STREAM, CudaCount { ns: now.wrapping_sub(thread.entered_ns), ..ONE });
    let [kernels, graphs, first, last] = thread.args;
    if code != 0 || kernels | graphs == 0 {
        return;
    }
    record(
        &header(caller, RecordKind::CudaBurst, now, CudaBurstRecord::LEN as u32),
        CudaBurstRecord {
            // A launch during the wait before can have taken the place of the first.
            begin_ns: if first == 0 || first > last { last } else { first },
            last_ns: last,
            wait_ns: thread.entered_ns,
            kernels: kernels as u32,
            graphs: graphs as u32,
        },
    );
}

#[inline(always)]
fn memory(caller: Caller, what: CudaMemoryRecord) {
    // SAFETY: helper without preconditions.
    let now = unsafe { bpf_ktime_get_ns() };
    record(&header(caller, RecordKind::CudaMemory, now, CudaMemoryRecord::LEN as u32), what);
}

#[inline(always)]
fn header(caller: Caller, kind: RecordKind, ts_ns: u64, len: u32) -> RecordHeader {
    RecordHeader { ts_ns, kind: kind as u16, captured: len, len, tgid: caller.tgid(), tid: caller.tid(), ..EMPTY }
}

#[repr(C)]
struct Record<T> {
    header: RecordHeader,
    payload: T,
}

#[inline(always)]
fn record<T: Copy + 'static>(header: &RecordHeader, payload: T) {
    let Some(mut entry) = EVENTS.reserve::<Record<T>>(0) else {
        lost(DropReason::RingFull);
        return;
    };
    entry.write(Record { header: *header, payload });
    entry.submit(emit::flags());
}

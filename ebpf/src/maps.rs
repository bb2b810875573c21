//! Maps: their names, kinds and default sizes. The loader may resize them; the contract test holds both to these names.

use aya_ebpf::macros::map;
use aya_ebpf::maps::{Array, HashMap, LruHashMap, PerCpuArray, PerCpuHashMap, RingBuf};
use infertap_abi::{
    CallFrames, CallKey, Conn, CudaCount, CudaKey, CudaPointer, CudaProcess, CudaWork, DropReason, FdKey, PORT_WORDS, Target,
};

use crate::call::Call;
use crate::cuda::CudaThread;

/// Thread groups that are watched.
#[map]
pub static TARGETS: HashMap<u32, Target> = HashMap::with_max_entries(4096, 0);

/// Descriptor → connection id; 0 for a descriptor that is no stream socket.
#[map]
pub static FDS: HashMap<FdKey, u64> = HashMap::with_max_entries(65536, 0);

/// Connection id → what is known of it.
#[map]
pub static CONNS: HashMap<u64, Conn> = HashMap::with_max_entries(65536, 0);

/// Thread → the call it is in.
#[map]
pub static CALLS: HashMap<u64, Call> = HashMap::with_max_entries(16384, 0);

/// Thread and function → its calls of that function that have not returned. The least recently used go first: those
/// are calls that an exception ended, of threads that are gone.
#[map]
pub static FRAMES: LruHashMap<CallKey, CallFrames> = LruHashMap::with_max_entries(4096, 0);

/// Threads of watched processes that are forking a process (not a thread).
#[map]
pub static FORKING: HashMap<u64, u8> = HashMap::with_max_entries(1024, 0);

/// Local TCP ports on which arrivals are noted: one bit each.
#[map]
pub static PORTS: Array<u64> = Array::with_max_entries(PORT_WORDS, 0);

/// Socket cookie → when the first byte that nobody has read yet arrived. The least recently used entry makes room: its
/// request then begins when it is read.
#[map]
pub static ARRIVALS: LruHashMap<u64, u64> = LruHashMap::with_max_entries(16384, 0);

/// Thread groups whose CUDA calls are counted.
#[map]
pub static CUDA_PROCESSES: HashMap<u32, CudaProcess> = HashMap::with_max_entries(1024, 0);

/// Thread group → what it gave to its GPUs.
#[map]
pub static CUDA_WORK: HashMap<u32, CudaWork> = HashMap::with_max_entries(1024, 0);

/// What is counted of CUDA calls. Launches come at rates at which no record could be made of each.
#[map]
pub static CUDA_COUNTS: PerCpuHashMap<CudaKey, CudaCount> = PerCpuHashMap::with_max_entries(4096, 0);

/// Device address → bytes allocated there.
#[map]
pub static CUDA_ALLOCS: HashMap<CudaPointer, u64> = HashMap::with_max_entries(65536, 0);

/// Thread → the CUDA call that it is in.
#[map]
pub static CUDA_THREADS: HashMap<u64, CudaThread> = HashMap::with_max_entries(16384, 0);

/// What was lost here, by [`DropReason`].
#[map]
pub static DROPS: PerCpuArray<u64> = PerCpuArray::with_max_entries(DropReason::ALL.len() as u32, 0);

/// Records to the user side.
#[map]
pub static EVENTS: RingBuf = RingBuf::with_byte_size(8 << 20, 0);

/// Counts one loss.
#[inline(always)]
pub fn lost(reason: DropReason) {
    lost_many(reason, 1);
}

/// Counts several.
#[inline(always)]
pub fn lost_many(reason: DropReason, times: u64) {
    if let Some(count) = DROPS.get_ptr_mut(reason as u32) {
        // SAFETY: a per-CPU slot that stays valid for the program's run.
        unsafe { *count += times };
    }
}

//! CUDA calls: what is counted of them, and the layout of the counters, of what threads are in, and of the records.
//!
//! Owns: the numbers of calls, keys and values of the maps, payloads of records. Refuses: which symbol is which call (the
//! agent's), and what calls mean for an engine (the core's).

use crate::UnknownValue;

discriminants! {
    /// What is counted of a process, per stream where the call names one.
    CudaCall: u16 {
        /// A kernel was launched.
        KernelLaunch = 1,
        /// A graph was launched.
        GraphLaunch = 2,
        /// Memory was allocated (`calls`, `bytes`), or could not be (`failures`).
        Alloc = 3,
        /// Memory whose allocation was seen was freed.
        Free = 4,
        /// Host to device.
        CopyHostToDevice = 5,
        /// Device to host.
        CopyDeviceToHost = 6,
        /// Within a device.
        CopyDeviceToDevice = 7,
        /// From one device to another.
        CopyPeer = 8,
        /// Host to host.
        CopyHostToHost = 9,
        /// The call leaves the direction to the driver, which tells it by the addresses.
        CopyAny = 10,
        /// The process waited for its work, `ns` long.
        Sync = 11,
        /// Of `Alloc`: there was no room to remember how much it was.
        Untracked = 12,
        /// Memory was freed whose allocation was not seen.
        FreeUnknown = 13,
        /// Physical memory was made, to be mapped (`cuMemCreate`), or could not be (`failures`).
        Create = 14,
    }
}

impl CudaCall {
    /// Every call, in the order of its number.
    pub const ALL: [CudaCall; 14] = [
        CudaCall::KernelLaunch,
        CudaCall::GraphLaunch,
        CudaCall::Alloc,
        CudaCall::Free,
        CudaCall::CopyHostToDevice,
        CudaCall::CopyDeviceToHost,
        CudaCall::CopyDeviceToDevice,
        CudaCall::CopyPeer,
        CudaCall::CopyHostToHost,
        CudaCall::CopyAny,
        CudaCall::Sync,
        CudaCall::Untracked,
        CudaCall::FreeUnknown,
        CudaCall::Create,
    ];
}

discriminants! {
    /// Calls of the runtime and of the driver that belong together: what is one of these in the runtime is one of the same
    /// in the driver under it.
    CudaClass: u32 {
        /// Kernel launches.
        Launch = 1,
        /// Graph launches.
        Graph = 2,
        /// Allocations.
        Alloc = 3,
        /// Frees.
        Free = 4,
        /// Copies.
        Copy = 5,
        /// Waits.
        Sync = 6,
        /// Physical memory and its mappings; the runtime has none.
        Virtual = 7,
    }
}

/// Room for every [`CudaClass`], and 0.
pub const CLASSES: usize = 8;

impl CudaClass {
    /// Its bit in [`CudaProcess::driver_only`].
    pub const fn bit(self) -> u32 {
        1 << self as u32
    }

    /// Whether the returns of its calls are probed on both sides.
    pub const fn returns(self) -> bool {
        matches!(self, CudaClass::Alloc | CudaClass::Sync)
    }
}

/// [`CudaKey::stream`] of calls that name no stream, and of the default stream.
pub const NO_STREAM: u64 = 0;

/// [`CudaKey::stream`] of calls for whose stream there was no room. The agent makes the keys of this and of [`NO_STREAM`]
/// beforehand, so that a call always finds one.
pub const REST_STREAM: u64 = u64::MAX;

/// Key of the `CUDA_COUNTS` map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct CudaKey {
    /// Thread group in the initial PID namespace.
    pub tgid: u32,
    /// A [`CudaCall`].
    pub call: u16,
    /// Unused, zero.
    pub reserved: u16,
    /// The stream's handle, [`NO_STREAM`] or [`REST_STREAM`].
    pub stream: u64,
}

/// Value of the `CUDA_COUNTS` map, one a CPU: only ever added to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct CudaCount {
    /// Calls.
    pub calls: u64,
    /// Bytes that they were about.
    pub bytes: u64,
    /// Nanoseconds that they took, where that is measured.
    pub ns: u64,
    /// Calls that failed, where that is seen; they are not in `calls`.
    pub failures: u64,
}

/// Code of a library in a process: addresses from `begin` up to `end`. Zeroes: none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct CudaRange {
    /// First address.
    pub begin: u64,
    /// First address after it.
    pub end: u64,
}

/// Parts of the driver library's code that a process can have.
pub const DRIVER_RANGES: usize = 2;
/// Parts of runtime libraries' code that a process can have: wheels bring their own copies.
pub const RUNTIME_RANGES: usize = 6;

/// Value of the `CUDA_PROCESSES` map, keyed by thread group: whose CUDA calls are counted. Written by the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct CudaProcess {
    /// Bits of [`CudaClass::bit`]: the runtime's calls are seen at the driver, and not counted where the runtime is entered.
    pub driver_only: u32,
    /// How many of `runtime` are set.
    pub runtimes: u32,
    /// Where the driver library's code is.
    pub driver: [CudaRange; DRIVER_RANGES],
    /// Where the runtime libraries' code is.
    pub runtime: [CudaRange; RUNTIME_RANGES],
}

/// Value of the `CUDA_WORK` map, keyed by thread group: what a process gave to its GPUs. Made by the agent; the counts
/// are only ever added to, so that no launch is lost to another CPU's reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct CudaWork {
    /// Kernels launched.
    pub kernels: u64,
    /// Graphs launched.
    pub graphs: u64,
    /// `kernels` at the last wait that was told.
    pub told_kernels: u64,
    /// `graphs` at that wait.
    pub told_graphs: u64,
    /// First launch since that wait; 0 before it.
    pub first_ns: u64,
    /// Last launch.
    pub last_ns: u64,
    /// By [`CudaClass`]: calls that were counted where the runtime was entered.
    pub runtime_calls: [u64; CLASSES],
    /// Those of them under which the driver's entry was seen too.
    pub confirmed: [u64; CLASSES],
}

/// Key of the `CUDA_ALLOCS` map, whose value is how many bytes were allocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct CudaPointer {
    /// Thread group.
    pub tgid: u32,
    /// Unused, zero.
    pub reserved: u32,
    /// Device address.
    pub address: u64,
}

/// Payload of a [`crate::RecordKind::CudaBurst`]; `ts_ns` is when the wait was over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct CudaBurstRecord {
    /// First launch.
    pub begin_ns: u64,
    /// Last launch.
    pub last_ns: u64,
    /// The wait began.
    pub wait_ns: u64,
    /// Kernels.
    pub kernels: u32,
    /// Graphs.
    pub graphs: u32,
}

/// Payload of a [`crate::RecordKind::CudaMemory`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct CudaMemoryRecord {
    /// A [`CudaMemory`].
    pub what: u32,
    /// What the call returned; 0 where its return is not awaited.
    pub code: u32,
    /// Bytes.
    pub bytes: u64,
    /// Address, where it is about one.
    pub address: u64,
    /// Handle of physical memory, where it is about one.
    pub handle: u64,
}

discriminants! {
    /// What a [`CudaMemoryRecord`] tells.
    CudaMemory: u32 {
        /// An allocation of `bytes` failed with `code`.
        Failed = 1,
        /// `handle` stands for `bytes` of physical memory from now on (`cuMemCreate`).
        Created = 2,
        /// `bytes` from `address` are `handle`'s from now on (`cuMemMap`).
        Mapped = 3,
        /// `bytes` from `address` are no longer mapped (`cuMemUnmap`).
        Unmapped = 4,
        /// `handle` is given back (`cuMemRelease`): its memory is free once it is mapped nowhere.
        Released = 5,
    }
}

macro_rules! payload {
    ($name:ident: $len:literal { $($field:ident: $ty:ty = $at:literal,)* }) => {
        const _: () = assert!(size_of::<$name>() == $len);
        $(const _: () = assert!(core::mem::offset_of!($name, $field) == $at);)*

        impl $name {
            /// Bytes of it.
            pub const LEN: usize = $len;

            /// Reads it from the front of `bytes` (little-endian); `None` when they are too few.
            pub fn read(bytes: &[u8]) -> Option<$name> {
                Some($name { $($field: <$ty>::from_le_bytes(*bytes.get($at..)?.first_chunk()?),)* })
            }
        }
    };
}

payload!(CudaBurstRecord: 32 {
    begin_ns: u64 = 0,
    last_ns: u64 = 8,
    wait_ns: u64 = 16,
    kernels: u32 = 24,
    graphs: u32 = 28,
});
payload!(CudaMemoryRecord: 32 {
    what: u32 = 0,
    code: u32 = 4,
    bytes: u64 = 8,
    address: u64 = 16,
    handle: u64 = 24,
});

const _: () = assert!(size_of::<CudaKey>() == 16);
const _: () = assert!(size_of::<CudaCount>() == 32);
const _: () = assert!(size_of::<CudaProcess>() == 136);
const _: () = assert!(size_of::<CudaWork>() == 176);
const _: () = assert!(size_of::<CudaPointer>() == 16);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_is_listed_once_in_the_order_of_its_number() {
        for (number, call) in (1..).zip(CudaCall::ALL) {
            assert_eq!(call as u16, number);
        }
        assert_eq!(CudaCall::try_from(15), Err(UnknownValue(15)));
    }

    #[test]
    fn payloads_are_read_from_their_bytes_and_not_from_fewer() {
        let mut bytes = [0; 32];
        for (at, byte) in (0..).zip(&mut bytes) {
            *byte = at;
        }
        let memory = CudaMemoryRecord::read(&bytes).expect("long enough");
        assert_eq!(memory.what, 0x0302_0100);
        assert_eq!(memory.handle, 0x1f1e_1d1c_1b1a_1918);
        assert_eq!(CudaMemoryRecord::read(&bytes[..31]), None);
        assert_eq!(CudaBurstRecord::read(&bytes[..31]), None);
        assert_eq!(CudaBurstRecord::read(&[0; 40]), Some(CudaBurstRecord::default()));
    }
}

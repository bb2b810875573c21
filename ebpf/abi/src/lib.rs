//! The binary layout shared by the BPF programs and the user side: ring-buffer records and map values.
//!
//! Owns: sizes, offsets, discriminants. Refuses: dependencies, allocation, anything that needs `std`.
//! Every struct is `repr(C)` with explicit padding and a const-asserted size; every discriminant is an integer that
//! the reader converts with `TryFrom`. A recording stores these records as they are, so a change of layout bumps
//! [`VERSION`].
#![no_std]

mod maps;
#[macro_use]
mod record;
mod call;
mod cuda;

pub use call::{CALL_ARGS, CALL_HEAD, CallFrames, CallKey, Frame, Function, NESTED_CALLS};
pub use cuda::{
    CLASSES, CudaBurstRecord, CudaCall, CudaClass, CudaCount, CudaKey, CudaMemory, CudaMemoryRecord,
    CudaPointer, CudaProcess, CudaRange, CudaWork, DRIVER_RANGES, NO_STREAM, REST_STREAM, RUNTIME_RANGES,
};
pub use maps::{Conn, FdKey, PORT_WORDS, Target, conn_flag, conn_state};
pub use record::{
    Direction, HEADER_LEN, PEER_LEN, PIECE_LARGE, PIECE_MEDIUM, PIECE_SMALL, RecordHeader, RecordKind, Role,
    Transport, UnknownValue, record_flag,
};

/// Version of this layout. A recording made with another version is refused with a clear error.
pub const VERSION: u16 = 1;

/// Why the kernel side lost something; index into the per-CPU `DROPS` array. Exported as
/// `infertap_events_dropped_total{reason}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum DropReason {
    /// The ring buffer had no room for a record.
    RingFull = 0,
    /// The descriptor table had no room for a new descriptor.
    FdTableFull = 1,
    /// The connection table had no room for a new connection.
    ConnTableFull = 2,
    /// The table of system calls in progress was full.
    CallTableFull = 3,
    /// User memory could not be read (paged out, or unmapped by another thread).
    ReadFault = 4,
    /// A call's payload was larger than the programs walk (1 MiB, or 64 buffers), or never passed through the memory of the
    /// process (sendfile, splice).
    Budget = 5,
    /// The table of CUDA calls had no room for a stream: its calls are counted, but not by stream.
    CudaStreams = 6,
    /// The table of GPU allocations was full: what the process holds is not known any more.
    CudaAllocations = 7,
}

impl DropReason {
    /// Every reason, in the order of its index.
    pub const ALL: [DropReason; 8] = [
        DropReason::RingFull,
        DropReason::FdTableFull,
        DropReason::ConnTableFull,
        DropReason::CallTableFull,
        DropReason::ReadFault,
        DropReason::Budget,
        DropReason::CudaStreams,
        DropReason::CudaAllocations,
    ];

    /// The value of the `reason` label.
    pub const fn label(self) -> &'static str {
        match self {
            DropReason::RingFull => "ring_full",
            DropReason::FdTableFull => "fd_table_full",
            DropReason::ConnTableFull => "conn_table_full",
            DropReason::CallTableFull => "call_table_full",
            DropReason::ReadFault => "read_fault",
            DropReason::Budget => "capture_budget",
            DropReason::CudaStreams => "cuda_streams_full",
            DropReason::CudaAllocations => "cuda_allocations_full",
        }
    }
}

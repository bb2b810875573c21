//! NVIDIA GPUs, by NVML: read on a thread of their own, at a configurable period.
//!
//! Owns: opening the library, reading every GPU and MIG instance, what follows from one reading to the next (counters,
//! energy, who was away), XID events. Refuses: whose processes are on a GPU (`run::tap`), metric names (`export`), and
//! what a GPU did for which request (the core).
//!
//! ```text
//! worker thread: driver calls (may hang) ──Sweep──▶ sampler thread: Tracker ──readings, view──▶ tap thread
//! XID thread: waits in the driver       ──Xid────▶        │ tells when a call hangs
//! ```

mod config;
mod device;
mod events;
mod fault;
mod integrate;
mod known;
mod library;
mod processes;
mod raw;
mod sampler;
mod source;
mod status;
mod track;
mod values;

pub use config::{GpuConfig, NvmlMode};
pub use fault::{Fault, Miss, Told};
pub use library::NvmlOpener;
pub use sampler::{GpuUpdate, Output, Sampler, Timing};
pub use source::{
    About, DeviceRead, GpuSource, Identity, OpenError, Opener, ProcessRead, Reading, Sample, Slot, Stamp,
    Sweep, Xid, XidSink,
};
pub use status::{EnergySource, GpuStatus, GpuView, NvmlState, UtilizationSource};
pub(crate) use track::xid_label;
pub use track::{Tracker, Trouble};
pub use values::{Gauge, Reason, Total, Values};

//! The narrow door to a GPU library: what the sampler asks of it, and what it answers.
//!
//! Owns: the traits and the answers' types; the time of samples on our clock. Refuses: NVML (`library`, which implements
//! the traits) and what follows from one answer to the next (`track`).

use super::fault::{Fault, Told};
use super::values::Values;
use infertap_core::Nanos;
use std::sync::Arc;

/// Where XID errors go; called on a thread of the source.
pub type XidSink = Box<dyn Fn(Xid) + Send>;

/// Opens a library. It may take seconds: without persistence mode the driver then wakes every GPU.
pub trait Opener: Send {
    /// Opens the library; XID errors go to `xids` from then on, until the source is dropped.
    ///
    /// # Errors
    /// There is none here, or it does not work.
    fn open(&mut self, xids: XidSink) -> Result<Box<dyn GpuSource>, OpenError>;
}

/// An open library. Any call may hang in the driver, so it is used on a thread that may be given up.
pub trait GpuSource {
    /// What is open.
    fn about(&self) -> About;

    /// Reads every GPU and every MIG instance.
    ///
    /// # Errors
    /// The library as a whole no longer works and should be opened anew.
    fn sweep(&mut self) -> Result<Sweep, Fault>;
}

/// Why a library could not be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The host has no such GPUs: no library, or no driver for it.
    #[error("{0}")]
    Absent(String),
    /// It should work, and does not.
    #[error("{0}")]
    Failed(String),
}

/// What is open.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct About {
    /// Version of the driver.
    pub driver: Option<String>,
    /// Version of the library.
    pub library: Option<String>,
}

/// An error of a GPU that its driver reported in an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Xid {
    /// UUID of the whole GPU.
    pub uuid: Arc<str>,
    /// Its number; NVIDIA's documentation lists them.
    pub xid: u64,
}

/// The same moment on two clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// CLOCK_MONOTONIC.
    pub at: Nanos,
    /// CLOCK_REALTIME, microseconds since 1970, which NVML stamps samples with.
    pub wall_us: u64,
}

impl Stamp {
    /// The monotonic time of a wall-clock time, if the wall clock was not set between; `None` before the monotonic clock
    /// began.
    pub fn monotonic(self, wall_us: u64) -> Option<Nanos> {
        if wall_us <= self.wall_us {
            self.at.checked_sub((self.wall_us - wall_us).checked_mul(1000)?)
        } else {
            self.at.checked_add((wall_us - self.wall_us).checked_mul(1000)?)
        }
    }

    /// Microseconds that the wall clock has jumped since `before`.
    pub fn stepped_us(self, before: Stamp) -> u64 {
        let monotonic = i128::from(self.at / 1000) - i128::from(before.at / 1000);
        let wall = i128::from(self.wall_us) - i128::from(before.wall_us);
        u64::try_from((wall - monotonic).unsigned_abs()).unwrap_or(u64::MAX)
    }
}

/// Where a device is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot {
    /// NVML's index of the GPU.
    pub gpu: u32,
    /// Index of the MIG instance on it; `None` for the whole GPU.
    pub mig: Option<u32>,
}

/// Who a device is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// As NVML prints it.
    pub uuid: Arc<str>,
    /// UUID of the whole GPU, for an instance.
    pub parent: Option<Arc<str>>,
    /// Product name.
    pub name: Option<String>,
    /// PCI address.
    pub pci: Option<String>,
    /// It is split into MIG instances.
    pub mig: bool,
}

/// One value that the driver sampled by itself, over the time up to its stamp.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// CLOCK_REALTIME, microseconds since 1970.
    pub wall_us: u64,
    /// The value: a ratio, or watts.
    pub value: f64,
}

/// A process that uses a GPU.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ProcessRead {
    /// Its id, as the driver tells it; 0 when it does not.
    pub pid: u32,
    /// Memory that it holds, bytes.
    pub memory: Option<u64>,
    /// Share of the multiprocessors' time since the reading before.
    pub sm: Option<f64>,
    /// There is a process of this id here.
    pub here: bool,
}

/// One reading of one device.
#[derive(Debug, Clone)]
pub struct Reading {
    /// When.
    pub stamp: Stamp,
    /// Who.
    pub identity: Identity,
    /// Values as of now, and totals as the driver counts them.
    pub values: Values,
    /// Busy shares since the reading before.
    pub busy: Told<Vec<Sample>>,
    /// Watts since the reading before.
    pub power: Told<Vec<Sample>>,
    /// Reasons for lower clocks that hold now; where the driver does not count their time.
    pub throttled: Told<Vec<super::values::Reason>>,
    /// Who uses it.
    pub processes: Told<Vec<ProcessRead>>,
    /// Processes' shares of the multiprocessors are told.
    pub process_sm: Told<()>,
    /// XID errors are told.
    pub xids: bool,
}

/// One device, read or not.
#[derive(Debug, Clone)]
pub struct DeviceRead {
    /// Where.
    pub slot: Slot,
    /// What was read, or why nothing could be.
    pub reading: Result<Box<Reading>, Fault>,
}

/// One round over all devices.
#[derive(Debug, Clone, Default)]
pub struct Sweep {
    /// What there is.
    pub devices: Vec<DeviceRead>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn wall_times_are_told_on_the_monotonic_clock() {
        let now = Stamp {
            at: 5_000_000_000,
            wall_us: 1_700_000_000_000_000,
        };
        for (wall, at) in [
            (now.wall_us, Some(5_000_000_000)),
            (now.wall_us - 20_000, Some(4_980_000_000)),
            (now.wall_us + 1, Some(5_000_001_000)),
            (now.wall_us - 5_000_001, None),
            (0, None),
            (u64::MAX, None),
        ] {
            assert_eq!(now.monotonic(wall), at, "{wall}");
        }
    }

    proptest! {
        #[test]
        fn a_step_is_what_the_clocks_differ_by(at in 0_u64..1 << 60, wall in 0_u64..1 << 60, passed in 0_u64..1 << 40, step in 0_u64..1 << 40) {
            let before = Stamp { at, wall_us: wall };
            let after = Stamp { at: at + passed * 1000, wall_us: wall + passed + step };
            prop_assert_eq!(after.stepped_us(before), step);
            prop_assert_eq!(before.stepped_us(after), step);
        }
    }
}

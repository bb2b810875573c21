//! One GPU of the script: what its driver tells about it.
//!
//! Owns: its members, when it is away, its energy. Refuses: defaults that claim support: what is absent is not supported.

use crate::{
    Clocks, Ecc, Errors, Link, Memory, Mig, Pci, Pcie, Policy, PowerLimits, RemappedRows, RetiredPages,
    Utilization, Value, Work,
};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, path::PathBuf};

/// A GPU. Members that are absent are not supported by it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Gpu {
    /// `GPU-…`.
    pub uuid: String,
    /// Product name.
    pub name: String,
    /// Board serial number.
    pub serial: Option<String>,
    /// The number in `/dev/nvidiaN`.
    pub minor: Option<u32>,
    /// Where it is.
    pub pci: Option<Pci>,
    /// `nvmlBrandType_t`.
    pub brand: Option<u32>,
    /// `nvmlDeviceArchitecture_t`: 9 is Hopper.
    pub architecture: Option<u32>,
    /// CUDA compute capability, major and minor.
    pub compute_capability: Option<(i32, i32)>,
    /// Device memory.
    pub memory: Option<Memory>,
    /// The window through which the host reaches it.
    pub bar1: Option<Memory>,
    /// Percent of time in which kernels ran, in which memory was read or written.
    pub utilization: Option<Utilization>,
    /// Milliwatts.
    pub power_mw: Option<Value>,
    /// Limits of power.
    pub power_limits: Option<PowerLimits>,
    /// Millijoules since the driver was loaded.
    pub energy_mj: Option<Energy>,
    /// Degrees Celsius.
    pub temperature_c: Option<Value>,
    /// Degrees Celsius of its memory.
    pub memory_temperature_c: Option<Value>,
    /// Megahertz now.
    pub clocks_mhz: Clocks,
    /// Megahertz at most.
    pub max_clocks_mhz: Clocks,
    /// `nvmlClocksEventReasons` bits: see the constants of this type.
    pub throttle_reasons: Option<Value>,
    /// Nanoseconds for which each policy has held clocks down.
    pub violations_ns: BTreeMap<Policy, Value>,
    /// `nvmlPstates_t`: 0 is the fastest.
    pub performance_state: Option<Value>,
    /// Percent of the greatest speed of the fan.
    pub fan_percent: Option<Value>,
    /// `nvmlComputeMode_t`.
    pub compute_mode: Option<u32>,
    /// Persistence mode is on.
    pub persistence: Option<bool>,
    /// Its link to the host.
    pub pcie: Pcie,
    /// Its links to other GPUs.
    pub nvlink: Vec<Link>,
    /// Memory errors.
    pub ecc: Option<Ecc>,
    /// Pages that are no longer used.
    pub retired_pages: Option<RetiredPages>,
    /// Rows of memory that are replaced.
    pub remapped_rows: Option<RemappedRows>,
    /// Processes that use it; absent: the driver does not tell.
    pub processes: Option<Vec<Process>>,
    /// Instances of it.
    pub mig: Option<Mig>,
    /// GPM metrics by name or number ([`crate::gpm_metric_id`]), as NVML has them: percent, or MiB/s.
    pub gpm: Option<BTreeMap<String, Value>>,
    /// What happens to it.
    pub events: Vec<Event>,
    /// Field values by number, before those that follow from other members.
    pub fields: BTreeMap<u32, Value>,
    /// Times in which it can't be reached.
    pub away: Vec<Away>,
    /// Functions that fail on it, by name.
    pub errors: Errors,
    /// The file in which the stand-in CUDA driver tells when this device works, for [`Value::Work`].
    pub work: Option<PathBuf>,
}

impl Gpu {
    /// No work to do.
    pub const IDLE: u64 = 1;
    /// Held down by the power limit.
    pub const SW_POWER_CAP: u64 = 4;
    /// The board's protection against heat or power.
    pub const HW_SLOWDOWN: u64 = 8;
    /// Too hot, by software.
    pub const SW_THERMAL: u64 = 32;
    /// Too hot, by hardware.
    pub const HW_THERMAL: u64 = 64;
    /// An external brake.
    pub const HW_POWER_BRAKE: u64 = 128;

    /// Millijoules at second `t`.
    pub fn energy_mj_at(&self, t: f64, work: &Work) -> Option<f64> {
        match self.energy_mj.as_ref()? {
            Energy::Counter(value) => Some(value.at(t, work)),
            Energy::OfPower { start_mj } => Some(start_mj + self.power_mw.as_ref()?.integral(0.0, t, work)),
        }
    }

    /// How it can't be reached at second `t` by a process that initialised NVML at second `initialised`.
    pub fn away_at(&self, t: f64, initialised: f64) -> Option<How> {
        let is_away = |away: &&Away| {
            away.from_s <= t
                && away
                    .to_s
                    .is_none_or(|to| t < to || (away.until_init && initialised < to))
        };
        self.away.iter().find(is_away).map(|away| away.how)
    }
}

/// What the energy counter tells.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Energy {
    /// `{"start_mj": …}`: that much at second 0, and the integral of `power_mw` from then on.
    OfPower {
        /// At second 0.
        start_mj: f64,
    },
    /// This.
    Counter(Value),
}

/// A process that uses the GPU.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Process {
    /// Host process id.
    pub pid: u32,
    /// Bytes of device memory; absent: NVML's "not available".
    pub memory: Option<Value>,
    /// Percent of the multiprocessors' time; absent: no sample of it.
    pub sm: Option<Value>,
    /// Percent of the memory's time.
    pub memory_util: Option<Value>,
    /// It renders, rather than computes.
    pub graphics: bool,
    /// Position of its instance in [`Mig::instances`].
    pub instance: Option<usize>,
    /// First second.
    pub from_s: f64,
    /// End, exclusive; absent: for good.
    pub to_s: Option<f64>,
}

impl Process {
    /// Whether it is there at second `t`.
    pub fn is_there(&self, t: f64) -> bool {
        self.from_s <= t && self.to_s.is_none_or(|to| t < to)
    }
}

/// Something that happens once, and that event sets tell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Event {
    /// When.
    pub at_s: f64,
    /// What.
    pub kind: EventKind,
    /// With XIDs, the number.
    #[serde(default)]
    pub data: u64,
    /// Position in [`Mig::instances`] of the instance that it happened to.
    #[serde(default)]
    pub instance: Option<usize>,
}

impl Event {
    /// XID `number` at second `at_s`.
    pub fn xid(at_s: f64, number: u64) -> Event {
        Event {
            at_s,
            kind: EventKind::Xid,
            data: number,
            instance: None,
        }
    }
}

/// `nvmlEventType…`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u64)]
pub enum EventKind {
    /// A corrected memory error.
    SingleBitEcc = 1,
    /// An uncorrected one.
    DoubleBitEcc = 2,
    /// Another performance state.
    PState = 4,
    /// An XID.
    Xid = 8,
    /// Clocks changed.
    Clock = 16,
}

/// A time in which a GPU can't be reached.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Away {
    /// First second.
    pub from_s: f64,
    /// End, exclusive; absent: for good.
    #[serde(default)]
    pub to_s: Option<f64>,
    /// How.
    pub how: How,
    /// After `to_s`, it is there only for processes that have initialised NVML since, as after a GPU's reset.
    #[serde(default)]
    pub until_init: bool,
}

/// How a GPU can't be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum How {
    /// It is counted, and every question is answered with `GPU_IS_LOST`.
    Lost,
    /// It is not counted and not found, and those with a lower index move down; handles that are held answer `GPU_IS_LOST`.
    Removed,
}

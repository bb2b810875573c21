//! Why a value of a GPU, or a whole GPU, is not told.
//!
//! Owns: the few words for what NVML's many error codes amount to. Refuses: the codes themselves (`device`).

use serde::Serialize;

/// Why NVML failed, as far as it tells; `error` label of `infertap_gpu_errors_total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// The GPU fell off the bus, or can't be reached otherwise.
    Lost,
    /// The GPU must be reset before it can be used again.
    ResetRequired,
    /// The driver gave up waiting.
    Timeout,
    /// Access is refused.
    NoPermission,
    /// The driver is not loaded, or no longer.
    NoDriver,
    /// Driver and library are of different versions: the driver was upgraded and not loaded anew.
    Mismatch,
    /// The kernel sees trouble with the GPU's interrupts.
    Irq,
    /// The GPU's power cables are not properly attached.
    PowerCable,
    /// Samples that the driver had no room to keep until they were read.
    SampleGap,
    /// A call did not come back in time.
    Hung,
    /// Any other.
    Unknown,
}

impl Fault {
    /// Every fault, in declaration order.
    pub const ALL: [Fault; 11] = [
        Fault::Lost,
        Fault::ResetRequired,
        Fault::Timeout,
        Fault::NoPermission,
        Fault::NoDriver,
        Fault::Mismatch,
        Fault::Irq,
        Fault::PowerCable,
        Fault::SampleGap,
        Fault::Hung,
        Fault::Unknown,
    ];

    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Fault::Lost => "lost",
            Fault::ResetRequired => "reset_required",
            Fault::Timeout => "timeout",
            Fault::NoPermission => "no_permission",
            Fault::NoDriver => "no_driver",
            Fault::Mismatch => "mismatch",
            Fault::Irq => "irq",
            Fault::PowerCable => "power_cable",
            Fault::SampleGap => "sample_gap",
            Fault::Hung => "hung",
            Fault::Unknown => "unknown",
        }
    }

    /// What it means, and what to do.
    pub const fn meaning(self) -> &'static str {
        match self {
            Fault::Lost => {
                "The GPU fell off the bus or can't be reached otherwise. The kernel log (XID 79) tells more; mostly it takes a \
                 reboot."
            }
            Fault::ResetRequired => {
                "The GPU must be reset (`nvidia-smi --gpu-reset`) before it can be used again."
            }
            Fault::Timeout => "The driver gave up waiting for the GPU.",
            Fault::NoPermission => {
                "Access is refused: run the agent as root, with the `/dev/nvidia*` devices allowed."
            }
            Fault::NoDriver => "The driver is not loaded, or no longer.",
            Fault::Mismatch => {
                "Driver and NVML library are of different versions: the driver was upgraded and not loaded anew."
            }
            Fault::Irq => "The kernel sees trouble with the GPU's interrupts.",
            Fault::PowerCable => "The GPU's power cables are not properly attached.",
            Fault::SampleGap => {
                "The driver's buffer of samples had run over before it was read: shorten `gpu.period`. The time between is not \
                 counted as busy, and its energy only where the driver counts energy itself."
            }
            Fault::Hung => "A call into the driver did not come back in time; nothing is read until it does.",
            Fault::Unknown => "Any other trouble that the driver reports.",
        }
    }

    /// The whole GPU is not there, rather than one value.
    pub const fn is_away(self) -> bool {
        matches!(self, Fault::Lost | Fault::ResetRequired)
    }
}

/// Why a value is not told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Miss {
    /// Neither this GPU nor this driver has it.
    NotSupported,
    /// Nothing since it was read last.
    NotNow,
    /// It should be there.
    Failed(Fault),
}

/// A value, or why there is none.
pub type Told<T> = Result<T, Miss>;

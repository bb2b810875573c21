//! Parts of a GPU's script: memory, links, error counters, instances.
//!
//! Owns: their members and units. Refuses: what calls return for them.

use crate::{Errors, Value};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Where a GPU is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pci {
    /// `domain:bus:device.0`, hexadecimal, the domain in eight digits.
    pub bus_id: String,
    /// Device in the upper half, vendor (0x10de) in the lower.
    pub device_id: u32,
    /// Subsystem, likewise.
    #[serde(default)]
    pub subsystem_id: u32,
}

/// Bytes of memory; free is what is neither used nor reserved.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Memory {
    /// All.
    pub total: u64,
    /// Kept by the driver; version 1 of the call counts it as used.
    #[serde(default)]
    pub reserved: u64,
    /// In use.
    pub used: Value,
}

/// Percent of time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Utilization {
    /// In which kernels ran.
    pub gpu: Value,
    /// In which memory was read or written.
    pub memory: Value,
}

/// Milliwatts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PowerLimits {
    /// As set.
    pub management: Value,
    /// The lowest of all that limit.
    pub enforced: Value,
    /// Of the board.
    pub default: u32,
    /// What can be set at least.
    pub min: u32,
    /// What can be set at most.
    pub max: u32,
}

/// Megahertz.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs, reason = "clock domains by NVML's names")]
pub struct Clocks {
    pub graphics: Option<Value>,
    pub sm: Option<Value>,
    pub memory: Option<Value>,
    pub video: Option<Value>,
}

/// What holds clocks down (`nvmlPerfPolicyType_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the names are NVML's own")]
#[repr(u32)]
pub enum Policy {
    Power = 0,
    Thermal = 1,
    SyncBoost = 2,
    BoardLimit = 3,
    LowUtilization = 4,
    Reliability = 5,
    TotalAppClocks = 10,
    TotalBaseClocks = 11,
}

/// The link to the host.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Pcie {
    /// KiB/s that the GPU sends.
    pub tx_kib_s: Option<Value>,
    /// KiB/s that it receives.
    pub rx_kib_s: Option<Value>,
    /// Bytes that it has sent: a counter, told as a field value by new drivers.
    pub tx_bytes: Option<Value>,
    /// Bytes that it has received.
    pub rx_bytes: Option<Value>,
    /// Retries.
    pub replays: Option<Value>,
    /// Generation now and at most.
    pub generation: Option<(u32, u32)>,
    /// Lanes now and at most.
    pub width: Option<(u32, u32)>,
}

/// An NVLink.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Link {
    /// It works: 0 or 1.
    pub active: Option<Value>,
    /// KiB of data sent: a counter.
    pub tx_kib: Option<Value>,
    /// KiB of data received: a counter.
    pub rx_kib: Option<Value>,
    /// Its errors.
    pub errors: LinkErrors,
}

/// Counters of errors of a link.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs, reason = "the names are NVML's own")]
pub struct LinkErrors {
    pub replay: Option<Value>,
    pub recovery: Option<Value>,
    pub crc_flit: Option<Value>,
    pub crc_data: Option<Value>,
    pub ecc_data: Option<Value>,
}

/// Checking of memory for errors.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ecc {
    /// It is on.
    pub current: bool,
    /// It is on after the next boot.
    pub pending: bool,
    /// The counters that there are.
    #[serde(default)]
    pub counts: Vec<EccCount>,
}

/// A counter of memory errors.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EccCount {
    /// Of which errors.
    pub error: EccType,
    /// Since when.
    pub counter: EccCounter,
    /// Of which memory; absent: of all.
    #[serde(default)]
    pub location: Option<EccLocation>,
    /// How many.
    pub count: Value,
}

/// `nvmlMemoryErrorType_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the names are NVML's own")]
#[repr(u32)]
pub enum EccType {
    Corrected = 0,
    Uncorrected = 1,
}

/// `nvmlEccCounterType_t`: since the driver was loaded, or since ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the names are NVML's own")]
#[repr(u32)]
pub enum EccCounter {
    Volatile = 0,
    Aggregate = 1,
}

/// `nvmlMemoryLocation_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the names are NVML's own")]
#[repr(u32)]
pub enum EccLocation {
    L1Cache = 0,
    L2Cache = 1,
    Dram = 2,
    RegisterFile = 3,
    TextureMemory = 4,
    TextureShm = 5,
    Cbu = 6,
    Sram = 7,
}

/// Pages that are no longer used.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetiredPages {
    /// For several corrected errors.
    pub single_bit: Value,
    /// For an uncorrected one.
    pub double_bit: Value,
    /// 1: some are to be retired at the next boot.
    pub pending: Value,
}

/// Rows of memory that are replaced.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemappedRows {
    /// For corrected errors.
    pub correctable: Value,
    /// For uncorrected ones.
    pub uncorrectable: Value,
    /// 1: some are to be remapped at the next reset.
    pub pending: Value,
    /// 1: remapping failed.
    pub failure: Value,
}

/// Multi-instance mode.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Mig {
    /// It is on.
    pub enabled: bool,
    /// Instances there can be.
    pub max: u32,
    /// Those that there are; an absent one leaves a gap in the indices.
    pub instances: Vec<Option<Instance>>,
}

/// An instance of a GPU.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Instance {
    /// `MIG-…`.
    pub uuid: String,
    /// Product name with its profile.
    pub name: String,
    /// GPU instance.
    pub gpu_instance: u32,
    /// Compute instance in it.
    pub compute_instance: u32,
    /// Its memory.
    pub memory: Option<Memory>,
    /// Its window to the host.
    pub bar1: Option<Memory>,
    /// Its share of the GPU.
    pub slices: Slices,
    /// GPM metrics of its GPU instance, as [`crate::Gpu::gpm`].
    pub gpm: Option<BTreeMap<String, Value>>,
    /// Functions that fail on it, by name.
    pub errors: Errors,
}

/// `nvmlDeviceAttributes_t`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Slices {
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// Copy engines.
    pub copy_engines: u32,
    /// Slices of the GPU instance.
    pub gpu: u32,
    /// Slices of the compute instance.
    pub compute: u32,
    /// Memory, MiB.
    pub memory_mib: u64,
}

/// `nvmlGpmMetricId_t` of a name of the script: NVML's own in lower case, or a number.
pub fn gpm_metric_id(name: &str) -> Option<u32> {
    const NAMES: [(&str, u32); 18] = [
        ("graphics_util", 1),
        ("sm_util", 2),
        ("sm_occupancy", 3),
        ("integer_util", 4),
        ("any_tensor_util", 5),
        ("dfma_tensor_util", 6),
        ("hmma_tensor_util", 7),
        ("imma_tensor_util", 9),
        ("dram_bw_util", 10),
        ("fp64_util", 11),
        ("fp32_util", 12),
        ("fp16_util", 13),
        ("pcie_tx_per_sec", 20),
        ("pcie_rx_per_sec", 21),
        ("nvlink_total_rx_per_sec", 60),
        ("nvlink_total_tx_per_sec", 61),
        ("c2c_total_tx_per_sec", 100),
        ("c2c_total_rx_per_sec", 101),
    ];
    let known = NAMES.iter().find(|(known, _)| *known == name).map(|(_, id)| *id);
    known.or_else(|| name.parse().ok())
}

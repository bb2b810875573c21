//! What is known of all GPUs after a reading: what metrics and the API show.
//!
//! Owns: the picture. Refuses: making it (`track`), and showing it (`export`).

use super::fault::Fault;
use super::source::{About, ProcessRead};
use super::values::{Gauge, Total};
use infertap_core::Nanos;
use serde::Serialize;
use std::sync::Arc;

/// Whether GPUs are read.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case", tag = "state", content = "reason")]
pub enum NvmlState {
    /// The configuration says no, or it has not begun.
    #[default]
    Off,
    /// The host has none.
    Absent(String),
    /// They are read.
    Up,
    /// They should be read and are not.
    Down(String),
}

/// Where the energy of a GPU comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EnergySource {
    /// The driver counts it.
    Counter,
    /// Integrated over the power that the driver sampled.
    PowerSamples,
    /// Integrated over the power at each reading.
    PowerReadings,
}

/// Where the utilisation of a GPU comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum UtilizationSource {
    /// All that the driver sampled.
    Samples,
    /// What the driver told at each reading, of its last sample alone.
    Readings,
}

/// One GPU or MIG instance.
#[derive(Debug, Clone, PartialEq)]
pub struct GpuStatus {
    /// Its short name: `0`, or `0:1` for an instance. Kept while the agent runs.
    pub gpu: Arc<str>,
    /// UUID.
    pub uuid: Arc<str>,
    /// UUID of the whole GPU, for an instance.
    pub parent: Option<Arc<str>>,
    /// Product name.
    pub name: Option<String>,
    /// PCI address.
    pub pci: Option<String>,
    /// It is split into MIG instances.
    pub mig: bool,
    /// Why it is away; `None` while it is there.
    pub away: Option<Fault>,
    /// How often it went away.
    pub losses: u64,
    /// When it was read last.
    pub read_at: Nanos,
    /// Values; empty while it is away.
    pub gauges: Vec<(Gauge, f64)>,
    /// Totals.
    pub totals: Vec<(Total, f64)>,
    /// XID errors, by number; ascending.
    pub xids: Vec<(u64, u64)>,
    /// XID errors are told.
    pub xids_told: bool,
    /// Values that neither it nor its driver has.
    pub not_supported: Vec<&'static str>,
    /// Values that should be there and failed.
    pub failing: Vec<(&'static str, Fault)>,
    /// Where its energy comes from.
    pub energy_source: Option<EnergySource>,
    /// Where its utilisation comes from.
    pub utilization_source: Option<UtilizationSource>,
    /// Who uses it; `None` where the driver does not tell, and while it is away.
    pub processes: Option<Vec<ProcessRead>>,
    /// The driver tells each process's share of the multiprocessors' time.
    pub process_sm: bool,
}

/// All of it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GpuView {
    /// Whether GPUs are read.
    pub state: NvmlState,
    /// Versions.
    pub about: About,
    /// Every GPU that was seen, by its short name; those that are away, too.
    pub gpus: Vec<GpuStatus>,
    /// Failed calls, by error.
    pub faults: Vec<(Fault, u64)>,
    /// XID errors past the cap on their numbers.
    pub xid_overflow: u64,
}

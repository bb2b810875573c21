//! What can be read of a GPU: the names and units of its values.
//!
//! Owns: the lists; the exporters' metrics and the API's fields follow them. Refuses: how values are read (`device`) and
//! what follows from them (`track`).

use super::fault::{Fault, Miss, Told};

macro_rules! gauges {
    ($($(#[$doc:meta])* $variant:ident $name:literal,)*) => {
        /// A value that goes up and down. Its metric is `gpu_` and its name.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Gauge { $($(#[$doc])* $variant,)* }

        impl Gauge {
            /// Every gauge, in declaration order.
            pub const ALL: &'static [Gauge] = &[$(Gauge::$variant),*];

            /// Its name, with its unit.
            pub const fn as_str(self) -> &'static str {
                match self { $(Gauge::$variant => $name),* }
            }
        }
    };
}

gauges! {
    /// Share of time in which any kernel ran.
    Utilization "utilization_ratio",
    /// Share of time in which memory was read or written.
    MemoryBusy "memory_busy_ratio",
    /// Memory that is allocated.
    MemoryUsed "memory_used_bytes",
    /// Memory that is not.
    MemoryFree "memory_free_bytes",
    /// Memory that the driver keeps for itself.
    MemoryReserved "memory_reserved_bytes",
    /// Memory there is.
    MemoryTotal "memory_total_bytes",
    /// BAR1 space (memory mapped for access by the CPU and other devices) in use.
    Bar1Used "bar1_used_bytes",
    /// BAR1 space there is.
    Bar1Total "bar1_total_bytes",
    /// Power drawn, mean since the reading before.
    Power "power_watts",
    /// Power limit in force.
    PowerLimit "power_limit_watts",
    /// Temperature of the chip.
    Temperature "temperature_celsius",
    /// Temperature of the memory.
    MemoryTemperature "memory_temperature_celsius",
    /// Clock of the multiprocessors.
    SmClock "sm_clock_hertz",
    /// Clock of the memory.
    MemoryClock "memory_clock_hertz",
    /// PCIe traffic from the GPU, where the driver samples it and does not count it.
    PcieTx "pcie_tx_bytes_per_second",
    /// PCIe traffic to the GPU, likewise.
    PcieRx "pcie_rx_bytes_per_second",
    /// Pages wait for a reboot to be retired: 1 or 0.
    PagesPending "retired_pages_pending",
    /// Rows wait for a reset to be remapped: 1 or 0.
    RemapPending "row_remap_pending",
    /// A row could not be remapped: 1 or 0.
    RemapFailed "row_remap_failed",
    /// Share of multiprocessors' time with a warp on them (GPM).
    SmActive "sm_active_ratio",
    /// Warps on multiprocessors, of what they have room for (GPM).
    SmOccupancy "sm_occupancy_ratio",
    /// Share of time in which tensor cores worked (GPM).
    TensorActive "tensor_active_ratio",
    /// Share of the memory bandwidth in use (GPM).
    DramActive "dram_active_ratio",
}

/// Why clocks are lower than they could be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// The power limit.
    SwPowerCap,
    /// The hardware: temperature, power brake, or a fast trigger.
    HwSlowdown,
    /// A group of GPUs that keep the same clocks.
    SyncBoost,
    /// Temperature, by the driver.
    SwThermal,
    /// Temperature, by the hardware.
    HwThermal,
    /// The power supply's brake signal.
    HwPowerBrake,
}

impl Reason {
    /// Every reason, in declaration order.
    pub const ALL: [Reason; 6] = [
        Reason::SwPowerCap,
        Reason::HwSlowdown,
        Reason::SyncBoost,
        Reason::SwThermal,
        Reason::HwThermal,
        Reason::HwPowerBrake,
    ];

    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Reason::SwPowerCap => "sw_power_cap",
            Reason::HwSlowdown => "hw_slowdown",
            Reason::SyncBoost => "sync_boost",
            Reason::SwThermal => "sw_thermal",
            Reason::HwThermal => "hw_thermal",
            Reason::HwPowerBrake => "hw_power_brake",
        }
    }

    /// What it means.
    pub const fn meaning(self) -> &'static str {
        match self {
            Reason::SwPowerCap => "The power limit: `gpu_power_limit_watts`. Normal at full load.",
            Reason::HwSlowdown => {
                "The hardware halves the clocks or more: too hot, too much power, or the power brake. Includes the two below."
            }
            Reason::SyncBoost => "The GPU keeps the clocks of the slowest of its sync boost group.",
            Reason::SwThermal => "Too hot, the driver says.",
            Reason::HwThermal => "Much too hot, the hardware says: cooling has failed or is too weak.",
            Reason::HwPowerBrake => "The system's power supply asked for it: it is overloaded.",
        }
    }
}

/// A value that only grows. Its metric is `gpu_`, its family and `_total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Total {
    /// Joules.
    Energy,
    /// Seconds in which any kernel ran.
    Busy,
    /// Seconds with lower clocks, by reason.
    Throttle(Reason),
    /// Memory errors that were corrected.
    EccCorrected,
    /// Memory errors that were not.
    EccUncorrected,
    /// Pages retired after several single-bit errors.
    RetiredSingle,
    /// Pages retired after a double-bit error.
    RetiredDouble,
    /// Rows remapped after correctable errors.
    RemappedCorrectable,
    /// Rows remapped after uncorrectable errors.
    RemappedUncorrectable,
    /// Bytes that the GPU sent over PCIe.
    PcieTx,
    /// Bytes that it received.
    PcieRx,
    /// PCIe packets sent again.
    PcieReplays,
    /// Bytes that the GPU sent over NVLink, all links together.
    NvlinkTx,
    /// Bytes that it received.
    NvlinkRx,
}

impl Total {
    /// Every total; families together.
    pub const ALL: [Total; 19] = [
        Total::Energy,
        Total::Busy,
        Total::Throttle(Reason::SwPowerCap),
        Total::Throttle(Reason::HwSlowdown),
        Total::Throttle(Reason::SyncBoost),
        Total::Throttle(Reason::SwThermal),
        Total::Throttle(Reason::HwThermal),
        Total::Throttle(Reason::HwPowerBrake),
        Total::EccCorrected,
        Total::EccUncorrected,
        Total::RetiredSingle,
        Total::RetiredDouble,
        Total::RemappedCorrectable,
        Total::RemappedUncorrectable,
        Total::PcieTx,
        Total::PcieRx,
        Total::PcieReplays,
        Total::NvlinkTx,
        Total::NvlinkRx,
    ];

    /// Its place in [`Total::ALL`].
    pub(super) fn index(self) -> usize {
        Total::ALL.iter().position(|total| *total == self).unwrap_or(0)
    }

    /// The name of its family, with its unit.
    pub const fn family(self) -> &'static str {
        match self {
            Total::Energy => "energy_joules",
            Total::Busy => "busy_seconds",
            Total::Throttle(_) => "throttle_seconds",
            Total::EccCorrected | Total::EccUncorrected => "ecc_errors",
            Total::RetiredSingle | Total::RetiredDouble => "retired_pages",
            Total::RemappedCorrectable | Total::RemappedUncorrectable => "remapped_rows",
            Total::PcieTx | Total::PcieRx => "pcie_bytes",
            Total::PcieReplays => "pcie_replays",
            Total::NvlinkTx | Total::NvlinkRx => "nvlink_bytes",
        }
    }

    /// The label that tells the members of its family apart.
    pub const fn label(self) -> Option<(&'static str, &'static str)> {
        match self {
            Total::Energy | Total::Busy | Total::PcieReplays => None,
            Total::Throttle(reason) => Some(("reason", reason.as_str())),
            Total::EccCorrected => Some(("kind", "corrected")),
            Total::EccUncorrected => Some(("kind", "uncorrected")),
            Total::RetiredSingle => Some(("cause", "single_bit")),
            Total::RetiredDouble => Some(("cause", "double_bit")),
            Total::RemappedCorrectable => Some(("cause", "correctable")),
            Total::RemappedUncorrectable => Some(("cause", "uncorrectable")),
            Total::PcieTx | Total::NvlinkTx => Some(("direction", "tx")),
            Total::PcieRx | Total::NvlinkRx => Some(("direction", "rx")),
        }
    }
}

/// Values, or why there are none, by gauge or total.
#[derive(Debug, Clone, PartialEq)]
pub struct Values {
    gauges: Vec<Told<f64>>,
    totals: Vec<Told<f64>>,
}

impl Default for Values {
    /// Nothing is supported.
    fn default() -> Values {
        Values {
            gauges: vec![Err(Miss::NotSupported); Gauge::ALL.len()],
            totals: vec![Err(Miss::NotSupported); Total::ALL.len()],
        }
    }
}

impl Values {
    /// Sets a gauge.
    pub fn gauge(&mut self, gauge: Gauge, value: Told<f64>) {
        if let Some(slot) = self.gauges.get_mut(gauge as usize) {
            *slot = value.and_then(finite);
        }
    }

    /// Sets a total: as the driver counts it, since whenever.
    pub fn total(&mut self, total: Total, value: Told<f64>) {
        if let Some(slot) = self.totals.get_mut(total.index()) {
            *slot = value.and_then(finite);
        }
    }

    /// A gauge.
    pub fn get(&self, gauge: Gauge) -> Told<f64> {
        self.gauges
            .get(gauge as usize)
            .copied()
            .unwrap_or(Err(Miss::NotSupported))
    }

    /// A total.
    pub fn get_total(&self, total: Total) -> Told<f64> {
        self.totals
            .get(total.index())
            .copied()
            .unwrap_or(Err(Miss::NotSupported))
    }

    /// Why values failed that should be there.
    pub fn faults(&self) -> impl Iterator<Item = (&'static str, Fault)> {
        let gauges = Gauge::ALL.iter().map(|gauge| gauge.as_str()).zip(&self.gauges);
        let totals = Total::ALL.iter().map(|total| total.family()).zip(&self.totals);
        gauges.chain(totals).filter_map(|(name, value)| match value {
            Err(Miss::Failed(fault)) => Some((name, *fault)),
            _ => None,
        })
    }
}

/// No number that a GPU has is negative or infinite.
fn finite(value: f64) -> Told<f64> {
    if value.is_finite() && value >= 0.0 {
        Ok(value)
    } else {
        Err(Miss::Failed(Fault::Unknown))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_whole_and_families_are_together() {
        for (place, gauge) in Gauge::ALL.iter().enumerate() {
            assert_eq!(*gauge as usize, place);
        }
        for (place, total) in Total::ALL.iter().enumerate() {
            assert_eq!(total.index(), place);
            let before = Total::ALL[..place]
                .iter()
                .rposition(|other| other.family() == total.family());
            assert!(before.is_none_or(|before| before + 1 == place), "{total:?}");
            assert!(
                Total::ALL[..place]
                    .iter()
                    .all(|other| (other.family(), other.label()) != (total.family(), total.label())),
                "{total:?}"
            );
        }
        for reason in Reason::ALL {
            assert!(Total::ALL.contains(&Total::Throttle(reason)));
        }
    }

    #[test]
    fn nonsense_is_a_fault() {
        let mut values = Values::default();
        assert_eq!(values.get(Gauge::Power), Err(Miss::NotSupported));
        values.gauge(Gauge::Power, Ok(f64::NAN));
        values.total(Total::Energy, Ok(-1.0));
        let faults: Vec<_> = values.faults().collect();
        assert_eq!(
            faults,
            [("power_watts", Fault::Unknown), ("energy_joules", Fault::Unknown)]
        );
        values.gauge(Gauge::Power, Ok(3.0));
        assert_eq!(values.get(Gauge::Power), Ok(3.0));
    }
}

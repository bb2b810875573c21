//! One device, read: every call into NVML that tells something of it.
//!
//! Owns: which call tells which value, units, and what errors amount to. Refuses: what follows from one reading to the
//! next, but for what NVML wants to be told again (the stamp of the last sample).

use super::fault::{Fault, Miss, Told};
use super::processes;
use super::raw::{self, HeldSample};
use super::source::{Identity, Reading, Sample, Stamp};
use super::values::{Gauge, Reason, Total, Values};
use infertap_core::Nanos;
use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{
    Clock, EccCounter, MemoryError, PcieUtilCounter, Sampling, TemperatureSensor,
};
use nvml_wrapper::enums::device::SampleValue;
use nvml_wrapper::enums::gpm::GpmMetricId;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::gpm::gpm_metrics_get;
use nvml_wrapper::sys_exports::field_id as id;
use nvml_wrapper::{Device, Nvml};
use std::sync::Arc;

/// Samples that are taken at once; NVML keeps some 120.
const MAX_SAMPLES: usize = 4096;
/// A wall clock that moved this far by itself was set: stamps from before it mean something else.
const STEP_US: u64 = 50_000;
/// NVML measures PCIe traffic for 20 ms while the caller waits, where it does not count it: not more often than this.
const PCIE_EVERY: Nanos = 1_000_000_000;

/// What is kept of a device between readings, for NVML's sake.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// When it was read last.
    pub(super) stamp: Option<Stamp>,
    busy_seen: u64,
    power_seen: u64,
    processes_seen: u64,
    gpm: Option<HeldSample>,
    gpm_supported: Option<bool>,
    pcie: Option<(Nanos, [Told<f64>; 2])>,
}

/// What an error amounts to.
pub(super) fn miss(error: &NvmlError) -> Miss {
    match error {
        // The arguments are right, so what is invalid is to ask this device.
        NvmlError::NotSupported
        | NvmlError::InvalidArg
        | NvmlError::FailedToLoadSymbol(_)
        | NvmlError::FunctionNotFound
        | NvmlError::VgpuEccNotSupported => Miss::NotSupported,
        NvmlError::NotFound | NvmlError::NoData => Miss::NotNow,
        error => Miss::Failed(fault(error)),
    }
}

/// The same, where something should have been there.
pub(super) fn fault(error: &NvmlError) -> Fault {
    match error {
        NvmlError::GpuLost => Fault::Lost,
        NvmlError::ResetRequired => Fault::ResetRequired,
        NvmlError::Timeout => Fault::Timeout,
        NvmlError::NoPermission | NvmlError::OperatingSystem => Fault::NoPermission,
        NvmlError::DriverNotLoaded | NvmlError::Uninitialized => Fault::NoDriver,
        NvmlError::LibRmVersionMismatch => Fault::Mismatch,
        NvmlError::IrqIssue => Fault::Irq,
        NvmlError::InsufficientPower => Fault::PowerCable,
        _ => Fault::Unknown,
    }
}

fn told<T>(result: Result<T, NvmlError>) -> Told<T> {
    result.map_err(|error| miss(&error))
}

/// Percent to a ratio.
fn ratio(percent: u32) -> f64 {
    f64::from(percent.min(100)) / 100.0
}

/// Reads a whole GPU.
pub(super) fn read_gpu(
    device: &Device<'_>,
    nvml: &Arc<Nvml>,
    memory: &mut Memory,
    identity: Identity,
    stamp: Stamp,
    xids: bool,
) -> Result<Box<Reading>, Fault> {
    let mut values = Values::default();
    read_memory(device, &mut values);
    let milliwatts = |result: Result<u32, NvmlError>| told(result).map(|mw| f64::from(mw) / 1000.0);
    let megahertz = |result: Result<u32, NvmlError>| told(result).map(|mhz| f64::from(mhz) * 1e6);
    let utilization = told(device.utilization_rates());
    values.gauge(
        Gauge::Utilization,
        utilization.as_ref().map(|u| ratio(u.gpu)).map_err(|m| *m),
    );
    values.gauge(Gauge::MemoryBusy, utilization.map(|u| ratio(u.memory)));
    values.gauge(Gauge::Power, milliwatts(device.power_usage()));
    values.gauge(Gauge::PowerLimit, milliwatts(device.enforced_power_limit()));
    let temperature = device.temperature(TemperatureSensor::Gpu);
    values.gauge(Gauge::Temperature, told(temperature).map(f64::from));
    values.gauge(Gauge::SmClock, megahertz(device.clock_info(Clock::SM)));
    values.gauge(Gauge::MemoryClock, megahertz(device.clock_info(Clock::Memory)));
    let millijoules = device.total_energy_consumption();
    values.total(Total::Energy, told(millijoules).map(|mj| mj as f64 / 1000.0));
    for (total, kind) in [
        (Total::EccCorrected, MemoryError::Corrected),
        (Total::EccUncorrected, MemoryError::Uncorrected),
    ] {
        let count = device.total_ecc_errors(kind, EccCounter::Aggregate);
        values.total(total, told(count).map(|count| count as f64));
    }
    read_fields(device, &mut values);
    read_pcie(device, &mut values, memory, stamp);
    read_gpm(device, None, nvml, &mut values, memory);

    // Stamps from before the wall clock was set can't be told on ours: these samples are left to the next reading's.
    let stepped = memory
        .stamp
        .is_some_and(|before| stamp.stepped_us(before) > STEP_US);
    if stepped {
        (memory.busy_seen, memory.power_seen) = (stamp.wall_us, stamp.wall_us);
        memory.processes_seen = stamp.wall_us;
    }
    let sampled = |kind, seen: &mut u64, scale: f64| {
        if stepped {
            return Err(Miss::NotNow);
        }
        samples(device, kind, seen, scale)
    };
    let busy = sampled(Sampling::GpuUtilization, &mut memory.busy_seen, 0.01);
    let power = sampled(Sampling::Power, &mut memory.power_seen, 0.001);
    let throttled = told(device.current_throttle_reasons()).map(reasons);
    let (processes, process_sm) = processes::read(device, Some(&mut memory.processes_seen));
    let faults = values.faults().map(|(_, fault)| fault);
    let others = [
        busy.as_ref().err(),
        power.as_ref().err(),
        processes.as_ref().err(),
    ];
    let others = others.into_iter().flatten().filter_map(|miss| match miss {
        Miss::Failed(fault) => Some(*fault),
        _ => None,
    });
    if let Some(away) = faults.chain(others).find(|fault| fault.is_away()) {
        return Err(away);
    }
    memory.stamp = Some(stamp);
    Ok(Box::new(Reading {
        stamp,
        identity,
        values,
        busy,
        power,
        throttled,
        processes,
        process_sm,
        xids,
    }))
}

/// Reads a MIG instance. NVML tells little of it: its memory, who uses it, and performance counters where the chip has
/// them; clocks, power and energy are the whole GPU's.
pub(super) fn read_instance(
    device: &Device<'_>,
    whole: &Device<'_>,
    nvml: &Arc<Nvml>,
    memory: &mut Memory,
    identity: Identity,
    stamp: Stamp,
) -> Result<Box<Reading>, Fault> {
    let mut values = Values::default();
    read_memory(device, &mut values);
    if let Ok(instance) = raw::gpu_instance(device) {
        read_gpm(whole, Some(instance), nvml, &mut values, memory);
    }
    let (processes, process_sm) = processes::read(device, None);
    if let Some((_, away)) = values.faults().find(|(_, fault)| fault.is_away()) {
        return Err(away);
    }
    memory.stamp = Some(stamp);
    Ok(Box::new(Reading {
        stamp,
        identity,
        values,
        busy: Err(Miss::NotSupported),
        power: Err(Miss::NotSupported),
        throttled: Err(Miss::NotSupported),
        processes,
        process_sm,
        xids: false,
    }))
}

fn read_memory(device: &Device<'_>, values: &mut Values) {
    fn part<T>(all: &Told<T>, of: fn(&T) -> u64) -> Told<f64> {
        all.as_ref().map(|all| of(all) as f64).map_err(|miss| *miss)
    }
    let memory = told(device.memory_info());
    values.gauge(Gauge::MemoryUsed, part(&memory, |memory| memory.used));
    values.gauge(Gauge::MemoryFree, part(&memory, |memory| memory.free));
    values.gauge(Gauge::MemoryReserved, part(&memory, |memory| memory.reserved));
    values.gauge(Gauge::MemoryTotal, part(&memory, |memory| memory.total));
    let bar1 = told(device.bar1_memory_info());
    values.gauge(Gauge::Bar1Used, part(&bar1, |bar1| bar1.used));
    values.gauge(Gauge::Bar1Total, part(&bar1, |bar1| bar1.total));
}

/// Everything that fields tell, in one call.
fn read_fields(device: &Device<'_>, values: &mut Values) {
    let gauges = [
        (Gauge::MemoryTemperature, id::NVML_FI_DEV_MEMORY_TEMP),
        (Gauge::PagesPending, id::NVML_FI_DEV_RETIRED_PENDING),
        (Gauge::RemapPending, id::NVML_FI_DEV_REMAPPED_PENDING),
        (Gauge::RemapFailed, id::NVML_FI_DEV_REMAPPED_FAILURE),
    ];
    // Scope 0 where a field has none. Nanoseconds of throttling; KiB over NVLink.
    let throttle = |reason| Total::Throttle(reason);
    let totals = [
        (
            throttle(Reason::SwPowerCap),
            id::NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP,
            0,
            1e-9,
        ),
        (
            throttle(Reason::SyncBoost),
            id::NVML_FI_DEV_CLOCKS_EVENT_REASON_SYNC_BOOST,
            0,
            1e-9,
        ),
        (
            throttle(Reason::SwThermal),
            id::NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN,
            0,
            1e-9,
        ),
        (
            throttle(Reason::HwThermal),
            id::NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN,
            0,
            1e-9,
        ),
        (
            throttle(Reason::HwPowerBrake),
            id::NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN,
            0,
            1e-9,
        ),
        (Total::RetiredSingle, id::NVML_FI_DEV_RETIRED_SBE, 0, 1.0),
        (Total::RetiredDouble, id::NVML_FI_DEV_RETIRED_DBE, 0, 1.0),
        (Total::RemappedCorrectable, id::NVML_FI_DEV_REMAPPED_COR, 0, 1.0),
        (Total::RemappedUncorrectable, id::NVML_FI_DEV_REMAPPED_UNC, 0, 1.0),
        (Total::PcieTx, id::NVML_FI_DEV_PCIE_COUNT_TX_BYTES, 0, 1.0),
        (Total::PcieRx, id::NVML_FI_DEV_PCIE_COUNT_RX_BYTES, 0, 1.0),
        (Total::PcieReplays, id::NVML_FI_DEV_PCIE_REPLAY_COUNTER, 0, 1.0),
        (
            Total::NvlinkTx,
            id::NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX,
            raw::ALL,
            1024.0,
        ),
        (
            Total::NvlinkRx,
            id::NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX,
            raw::ALL,
            1024.0,
        ),
    ];
    let wanted: Vec<(u32, u32)> = gauges
        .iter()
        .map(|(_, field)| (*field, 0))
        .chain(totals.iter().map(|(_, field, scope, _)| (*field, *scope)))
        .collect();
    let answers = raw::fields(device, &wanted);
    let (of_gauges, of_totals) = answers.split_at(gauges.len().min(answers.len()));
    for ((gauge, _), value) in gauges.iter().zip(of_gauges) {
        values.gauge(*gauge, *value);
    }
    for ((total, _, _, scale), value) in totals.iter().zip(of_totals) {
        values.total(*total, value.map(|value| value * scale));
    }
}

/// PCIe traffic as a rate, where it is not counted.
fn read_pcie(device: &Device<'_>, values: &mut Values, memory: &mut Memory, stamp: Stamp) {
    if values.get_total(Total::PcieTx).is_ok() || values.get_total(Total::PcieRx).is_ok() {
        return;
    }
    let rates = match memory.pcie {
        Some((at, rates)) if stamp.at.saturating_sub(at) < PCIE_EVERY => rates,
        _ => {
            // In KB (1024 bytes) a second.
            let rate = |counter| told(device.pcie_throughput(counter)).map(|kib| f64::from(kib) * 1024.0);
            let rates = [rate(PcieUtilCounter::Send), rate(PcieUtilCounter::Receive)];
            memory.pcie = Some((stamp.at, rates));
            rates
        }
    };
    values.gauge(Gauge::PcieTx, rates[0]);
    values.gauge(Gauge::PcieRx, rates[1]);
}

/// Performance counters between the reading before and this one. Of a MIG instance, `device` is the whole GPU.
fn read_gpm(
    device: &Device<'_>,
    instance: Option<u32>,
    nvml: &Arc<Nvml>,
    values: &mut Values,
    memory: &mut Memory,
) {
    const WANTED: [(Gauge, GpmMetricId); 4] = [
        (Gauge::SmActive, GpmMetricId::SmUtil),
        (Gauge::SmOccupancy, GpmMetricId::SmOccupancy),
        (Gauge::TensorActive, GpmMetricId::AnyTensorUtil),
        (Gauge::DramActive, GpmMetricId::DramBwUtil),
    ];
    if !*memory
        .gpm_supported
        .get_or_insert_with(|| device.gpm_support().unwrap_or(false))
    {
        return;
    }
    let taken = match instance {
        None => device.gpm_sample(),
        Some(instance) => device.gpm_mig_sample(instance),
    };
    let mut set = |result: Told<Vec<Told<f64>>>| {
        for (place, (gauge, _)) in WANTED.iter().enumerate() {
            let value = match &result {
                Ok(all) => all.get(place).copied().unwrap_or(Err(Miss::NotSupported)),
                Err(miss) => Err(*miss),
            };
            values.gauge(*gauge, value);
        }
    };
    let now = match taken {
        Ok(sample) => HeldSample::hold(sample, nvml),
        Err(error) => {
            memory.gpm = None;
            return set(Err(miss(&error)));
        }
    };
    let ids = WANTED.map(|(_, metric)| metric);
    let metrics = memory.gpm.replace(now).map(|before| {
        let now = memory.gpm.as_ref();
        before.with(|before| match now {
            Some(now) => now.with(|now| gpm_metrics_get(nvml, before, now, &ids)),
            None => Err(NvmlError::NotFound),
        })
    });
    set(match metrics {
        None => Err(Miss::NotNow),
        Some(Err(error)) => Err(miss(&error)),
        Some(Ok(all)) => Ok(all
            .into_iter()
            .map(|metric| told(metric).map(|metric| (metric.value / 100.0).min(1.0)))
            .collect()),
    });
}

/// Samples since the last time, scaled.
fn samples(device: &Device<'_>, kind: Sampling, seen: &mut u64, scale: f64) -> Told<Vec<Sample>> {
    let all = told(device.samples(kind, *seen))?;
    let fresh = all
        .into_iter()
        .rev()
        .take(MAX_SAMPLES)
        .filter(|sample| sample.timestamp > *seen);
    let fresh: Vec<Sample> = fresh
        .map(|sample| Sample {
            wall_us: sample.timestamp,
            value: scale
                * match sample.value {
                    SampleValue::F64(value) => value,
                    SampleValue::U32(value) => f64::from(value),
                    SampleValue::U64(value) => value as f64,
                    SampleValue::I64(value) => value as f64,
                },
        })
        .collect();
    *seen = fresh.iter().map(|sample| sample.wall_us).max().unwrap_or(*seen);
    if fresh.is_empty() {
        Err(Miss::NotNow)
    } else {
        Ok(fresh)
    }
}

fn reasons(now: ThrottleReasons) -> Vec<Reason> {
    let bits = [
        (Reason::SwPowerCap, ThrottleReasons::SW_POWER_CAP),
        (Reason::HwSlowdown, ThrottleReasons::HW_SLOWDOWN),
        (Reason::SyncBoost, ThrottleReasons::SYNC_BOOST),
        (Reason::SwThermal, ThrottleReasons::SW_THERMAL_SLOWDOWN),
        (Reason::HwThermal, ThrottleReasons::HW_THERMAL_SLOWDOWN),
        (Reason::HwPowerBrake, ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN),
    ];
    let held = bits.into_iter().filter(|(_, bit)| now.contains(*bit));
    held.map(|(reason, _)| reason).collect()
}

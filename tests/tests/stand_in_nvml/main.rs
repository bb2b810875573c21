//! The stand-in NVML through the binding that the agent uses: what is scripted is what is read, before it may judge the
//! agent.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod lists;
mod trouble;

use infertap_tests::{
    clock::monotonic_ns,
    gpu::{
        Away, Code, Drivers, EccCount, EccCounter, EccLocation, EccType, Energy, Event, Failure, FailureTime,
        Gpu, Gpus, How, Policy, Process, SCRIPT_VARIABLE, Script, Utilization, Value,
    },
};
use nvml_wrapper::{
    Device, Nvml,
    bitmasks::event::EventTypes,
    enum_wrappers::device::{
        Clock, EccCounter as Counter, MemoryError, MemoryLocation, PcieUtilCounter, PerformancePolicy,
        RetirementCause, Sampling, TemperatureSensor,
    },
    enum_wrappers::nv_link::ErrorCounter,
    enums::{
        device::{SampleValue, UsedGpuMemory},
        event::XidError,
        gpm::GpmMetricId,
    },
    error::NvmlError,
    gpm::gpm_metrics_get,
    structs::device::FieldId,
};
use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// The script's path is in the process's environment, so tests take turns.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A script in force and the library that tells it.
struct Bench {
    gpus: Gpus,
    nvml: Nvml,
    kept: (tempfile::TempDir, MutexGuard<'static, ()>),
}

fn bench(script: Script) -> Bench {
    bench_without(script, &[])
}

fn bench_without(script: Script, functions: &[&str]) -> Bench {
    let turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let drivers = Drivers::install_without(&folder.path().join("drivers"), functions).unwrap();
    let gpus = Gpus::start_with(drivers, folder.path(), script).unwrap();
    // SAFETY: tests of this file take turns, and no other thread of theirs reads the environment.
    unsafe { std::env::set_var(SCRIPT_VARIABLE, gpus.path()) };
    let nvml = Nvml::builder().lib_path(gpus.nvml().as_os_str()).init().unwrap();
    Bench {
        gpus,
        nvml,
        kept: (folder, turn),
    }
}

fn one(gpu: Gpu) -> Script {
    Script {
        gpus: vec![gpu],
        ..Script::default()
    }
}

impl Bench {
    /// Makes it the script's second `second` now.
    fn at(&mut self, second: f64) {
        self.gpus.script.start_ns = monotonic_ns() - (second * 1e9) as u64;
        self.gpus.write().unwrap();
    }

    fn device(&self, index: u32) -> Device<'_> {
        self.nvml.device_by_index(index).unwrap()
    }
}

fn field(device: &Device, id: u32) -> Result<u64, NvmlError> {
    let mut values = device.field_values_for(&[FieldId(id)]).unwrap();
    match values.remove(0).unwrap().value? {
        SampleValue::U32(value) => Ok(value.into()),
        SampleValue::U64(value) => Ok(value),
        other => panic!("field {id} is {other:?}"),
    }
}

#[test]
fn every_constant_of_a_script_is_read_back() {
    let mut gpu = Gpu::datacenter(3);
    gpu.utilization = Some(Utilization {
        gpu: 73.0.into(),
        memory: 41.0.into(),
    });
    gpu.violations_ns = [(Policy::Power, 5_000.0.into()), (Policy::Thermal, 6_000.0.into())].into();
    gpu.throttle_reasons = Some((Gpu::SW_POWER_CAP | Gpu::HW_THERMAL).into());
    gpu.energy_mj = Some(Energy::Counter(123_456_789_012.0.into()));
    gpu.fields.insert(269, 77.0.into());
    gpu.pcie.tx_bytes = Some(1e15.into());
    gpu.nvlink[1].errors.crc_data = Some(9.0.into());
    gpu.nvlink[2].tx_kib = Some(5_000_000_000.0.into());
    let bench = bench(one(gpu));
    let nvml = &bench.nvml;
    assert_eq!(nvml.sys_driver_version().unwrap(), "580.95.05");
    assert_eq!(nvml.sys_nvml_version().unwrap(), "13.580.95.05");
    assert_eq!(nvml.sys_cuda_driver_version().unwrap(), 13_000);
    assert_eq!(nvml.device_count().unwrap(), 1);
    let device = bench.device(0);
    let uuid = "GPU-00000000-0000-4000-8000-000000000003";
    assert_eq!(device.uuid().unwrap(), uuid);
    assert_eq!(nvml.device_by_uuid(uuid).unwrap().index().unwrap(), 0);
    assert_eq!(
        nvml.device_by_pci_bus_id("00000000:1E:00.0")
            .unwrap()
            .uuid()
            .unwrap(),
        uuid
    );
    assert_eq!(device.name().unwrap(), "Stand-in H100 80GB HBM3");
    assert_eq!(device.serial().unwrap(), "1654300000003");
    assert_eq!(device.minor_number().unwrap(), 3);
    let pci = device.pci_info().unwrap();
    assert_eq!(
        (pci.bus_id.as_str(), pci.bus, pci.pci_device_id),
        ("00000000:1E:00.0", 0x1e, 0x2330_10de)
    );
    let memory = device.memory_info().unwrap();
    let gib = 1u64 << 30;
    assert_eq!(
        (memory.total, memory.used, memory.reserved),
        (80 * gib, 4 * gib, gib / 2)
    );
    assert_eq!(memory.free, memory.total - memory.used - memory.reserved);
    let bar1 = device.bar1_memory_info().unwrap();
    assert_eq!(
        (bar1.total, bar1.used, bar1.free),
        (128 * gib, gib / 1024, 128 * gib - gib / 1024)
    );
    let utilization = device.utilization_rates().unwrap();
    assert_eq!((utilization.gpu, utilization.memory), (73, 41));
    assert_eq!(device.power_usage().unwrap(), 70_000);
    assert_eq!(device.power_management_limit().unwrap(), 700_000);
    assert_eq!(device.enforced_power_limit().unwrap(), 650_000);
    assert_eq!(device.power_management_limit_default().unwrap(), 700_000);
    assert_eq!(device.total_energy_consumption().unwrap(), 123_456_789_012);
    assert_eq!(device.temperature(TemperatureSensor::Gpu).unwrap(), 35);
    assert_eq!(device.clock_info(Clock::SM).unwrap(), 345);
    assert_eq!(device.clock_info(Clock::Memory).unwrap(), 2619);
    assert_eq!(device.max_clock_info(Clock::SM).unwrap(), 1980);
    assert_eq!(device.current_throttle_reasons().unwrap().bits(), 4 | 64);
    assert_eq!(
        device
            .violation_status(PerformancePolicy::Power)
            .unwrap()
            .violation_time,
        5_000
    );
    assert_eq!(
        device
            .violation_status(PerformancePolicy::Thermal)
            .unwrap()
            .violation_time,
        6_000
    );
    assert_eq!(device.pcie_throughput(PcieUtilCounter::Send).unwrap(), 2048);
    assert_eq!(device.pcie_throughput(PcieUtilCounter::Receive).unwrap(), 1024);
    assert_eq!(device.pcie_replay_counter().unwrap(), 0);
    assert_eq!(device.current_pcie_link_gen().unwrap(), 5);
    assert_eq!(device.current_pcie_link_width().unwrap(), 16);
    assert!(device.link_wrapper_for(0).is_active().unwrap());
    let crc = ErrorCounter::DlCrcData;
    assert_eq!(device.link_wrapper_for(1).error_counter(crc).unwrap(), 9);
    assert_eq!(device.link_wrapper_for(0).error_counter(crc).unwrap(), 0);
    assert!(device.is_ecc_enabled().unwrap().currently_enabled);
    assert!(matches!(
        device.retired_pages(RetirementCause::DoubleBitEccError),
        Err(NvmlError::NotSupported)
    ));
    for (id, value) in [
        (82, 40),
        (83, 123_456_789_012),
        (74, 5_000),
        (75, 6_000),
        (91, 4),
        (45, 9),
        (186, 70_000),
        (185, 70_000),
        (190, 650_000),
        (197, 1_000_000_000_000_000),
        (94, 0),
        (142, 0),
    ] {
        assert_eq!(field(&device, id).unwrap(), value, "field {id}");
    }
    // The binding numbers these as old drivers do, and asks new ones for what they call the same.
    assert_eq!(field(&device, 251).unwrap(), 77);
    assert!(matches!(field(&device, 200), Err(NvmlError::NotSupported)));
    assert_eq!(device.mig_mode().unwrap().current, 0);
    assert!(device.gpm_support().unwrap());
}

#[test]
fn values_follow_the_scripts_time_and_energy_is_the_integral_of_power() {
    let mut gpu = Gpu::datacenter(0);
    gpu.power_mw = Some(Value::steps([
        (0.0, 100_000.0),
        (100.0, 300_000.0),
        (200.0, 50_000.0),
    ]));
    gpu.temperature_c = Some(Value::Ramp {
        ramp: vec![(0.0, 30.0), (1000.0, 30.0), (1001.0, 80.0)],
    });
    gpu.violations_ns.insert(
        Policy::Thermal,
        Value::growing(Value::steps([(0.0, 0.0), (50.0, 1e9), (60.0, 0.0)])),
    );
    let mut bench = bench(one(gpu));
    for (second, power, energy) in [
        (50.5, 100_000, 5_050_000),
        (150.5, 300_000, 25_150_000),
        (1500.5, 50_000, 10_000_000 + 30_000_000 + 65_025_000),
    ] {
        bench.at(second);
        let device = bench.device(0);
        assert_eq!(device.power_usage().unwrap(), power);
        let told = device.total_energy_consumption().unwrap();
        // The clock goes on between the two lines: no more than ten seconds of it.
        assert!(
            (energy..energy + u64::from(power) * 10).contains(&told),
            "{told} mJ at {second} s"
        );
        assert_eq!(field(&device, 186).unwrap(), u64::from(power));
    }
    let device = bench.device(0);
    assert_eq!(device.temperature(TemperatureSensor::Gpu).unwrap(), 80);
    assert_eq!(
        device
            .violation_status(PerformancePolicy::Thermal)
            .unwrap()
            .violation_time,
        10_000_000_000
    );
}

#[test]
fn errors_of_memory_are_counted_where_they_are() {
    let mut older = Gpu::older(0);
    let pages = older.retired_pages.as_mut().unwrap();
    pages.double_bit = 2.0.into();
    pages.pending = 1.0.into();
    let counts = &mut older.ecc.as_mut().unwrap().counts;
    counts[1].count = 5.0.into();
    counts.push(EccCount {
        error: EccType::Corrected,
        counter: EccCounter::Volatile,
        location: Some(EccLocation::L2Cache),
        count: 4.0.into(),
    });
    let bench = bench(one(older));
    let device = bench.device(0);
    assert_eq!(
        device
            .total_ecc_errors(MemoryError::Uncorrected, Counter::Volatile)
            .unwrap(),
        5
    );
    assert_eq!(
        device
            .total_ecc_errors(MemoryError::Corrected, Counter::Volatile)
            .unwrap(),
        0
    );
    let at = |location| device.memory_error_counter(MemoryError::Corrected, Counter::Volatile, location);
    assert_eq!(at(MemoryLocation::L2Cache).unwrap(), 4);
    assert!(matches!(
        at(MemoryLocation::L1Cache),
        Err(NvmlError::NotSupported)
    ));
    assert_eq!(
        device
            .retired_pages(RetirementCause::DoubleBitEccError)
            .unwrap()
            .len(),
        2
    );
    assert!(
        device
            .retired_pages(RetirementCause::MultipleSingleBitEccErrors)
            .unwrap()
            .is_empty()
    );
    assert!(device.are_pages_pending_retired().unwrap());
    assert_eq!(field(&device, 30).unwrap(), 2);
    assert_eq!(field(&device, 4).unwrap(), 5);
    assert!(matches!(field(&device, 142), Err(NvmlError::NotSupported)));
}

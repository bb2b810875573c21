//! Every value of the script, in the metrics; what it does not have is absent.

use super::*;
use infertap_tests::gpu::{EccCounter, EccType, Energy, Policy, Value, Work};
use std::collections::BTreeSet;

/// A GPU on which every value is another.
fn newer() -> Gpu {
    let mut gpu = Gpu::datacenter(0);
    let utilization = gpu.utilization.as_mut().unwrap();
    (utilization.gpu, utilization.memory) = (37.0.into(), 12.0.into());
    gpu.power_mw = Some(321_000.0.into());
    gpu.energy_mj = Some(Energy::Counter(123_456.0.into()));
    gpu.violations_ns.insert(Policy::Power, 2.5e9.into());
    gpu.violations_ns.insert(Policy::SyncBoost, 0.5e9.into());
    // By the numbers of drivers from 580.82 on: software and hardware thermal slowdown, power brake.
    for (field, nanoseconds) in [(269, 1.5e9), (270, 2e9), (271, 3e9)] {
        gpu.fields.insert(field, nanoseconds.into());
    }
    (gpu.pcie.tx_bytes, gpu.pcie.rx_bytes) = (Some(5000.0.into()), Some(6000.0.into()));
    gpu.pcie.replays = Some(7.0.into());
    for link in &mut gpu.nvlink {
        (link.tx_kib, link.rx_kib) = (Some(100.0.into()), Some(200.0.into()));
    }
    for count in &mut gpu.ecc.as_mut().unwrap().counts {
        if (count.counter, count.location) == (EccCounter::Aggregate, None) {
            count.count = if count.error == EccType::Corrected {
                11.0
            } else {
                3.0
            }
            .into();
        }
    }
    let rows = gpu.remapped_rows.as_mut().unwrap();
    (rows.correctable, rows.uncorrectable, rows.pending) = (2.0.into(), 1.0.into(), 1.0.into());
    gpu
}

/// One without remapped rows, GPM, NVLink, counters of energy and PCIe bytes.
fn older() -> Gpu {
    let mut gpu = Gpu::older(1);
    gpu.power_mw = Some(150_000.0.into());
    gpu.energy_mj = None;
    (gpu.pcie.tx_bytes, gpu.pcie.rx_bytes) = (None, None);
    let pages = gpu.retired_pages.as_mut().unwrap();
    (pages.single_bit, pages.double_bit, pages.pending) = (4.0.into(), 5.0.into(), 1.0.into());
    gpu.throttle_reasons = Some((Gpu::HW_SLOWDOWN | Gpu::HW_THERMAL).into());
    gpu.violations_ns.clear();
    gpu
}

/// Name, labels besides the GPU, value.
type Expected<'a> = (&'a str, &'a [(&'a str, &'a str)], f64);

const GIB: f64 = 1_073_741_824.0;

#[test]
fn every_value_of_the_script_is_told_and_nothing_else() {
    let bench = bench(vec![newer(), older()], &[]);
    let metrics = bench.settle();
    let expected: &[Expected<'_>] = &[
        ("gpu_up", &[], 1.0),
        ("gpu_losses_total", &[], 0.0),
        ("gpu_utilization_ratio", &[], 0.37),
        ("gpu_memory_busy_ratio", &[], 0.12),
        ("gpu_memory_used_bytes", &[], 4.0 * GIB),
        ("gpu_memory_free_bytes", &[], 75.5 * GIB),
        ("gpu_memory_reserved_bytes", &[], 0.5 * GIB),
        ("gpu_memory_total_bytes", &[], 80.0 * GIB),
        ("gpu_bar1_used_bytes", &[], GIB / 1024.0),
        ("gpu_bar1_total_bytes", &[], 128.0 * GIB),
        ("gpu_power_watts", &[], 321.0),
        ("gpu_power_limit_watts", &[], 650.0),
        ("gpu_temperature_celsius", &[], 35.0),
        ("gpu_memory_temperature_celsius", &[], 40.0),
        ("gpu_sm_clock_hertz", &[], 345e6),
        ("gpu_memory_clock_hertz", &[], 2619e6),
        ("gpu_row_remap_pending", &[], 1.0),
        ("gpu_row_remap_failed", &[], 0.0),
        ("gpu_sm_active_ratio", &[], 0.025),
        ("gpu_sm_occupancy_ratio", &[], 0.0125),
        ("gpu_tensor_active_ratio", &[], 0.005),
        ("gpu_dram_active_ratio", &[], 0.015),
        ("gpu_energy_joules_total", &[], 123.456),
        ("gpu_throttle_seconds_total", &[("reason", "sw_power_cap")], 2.5),
        ("gpu_throttle_seconds_total", &[("reason", "sync_boost")], 0.5),
        ("gpu_throttle_seconds_total", &[("reason", "sw_thermal")], 1.5),
        ("gpu_throttle_seconds_total", &[("reason", "hw_thermal")], 2.0),
        ("gpu_throttle_seconds_total", &[("reason", "hw_power_brake")], 3.0),
        ("gpu_throttle_seconds_total", &[("reason", "hw_slowdown")], 0.0),
        ("gpu_ecc_errors_total", &[("kind", "corrected")], 11.0),
        ("gpu_ecc_errors_total", &[("kind", "uncorrected")], 3.0),
        ("gpu_remapped_rows_total", &[("cause", "correctable")], 2.0),
        ("gpu_remapped_rows_total", &[("cause", "uncorrectable")], 1.0),
        ("gpu_pcie_bytes_total", &[("direction", "tx")], 5000.0),
        ("gpu_pcie_bytes_total", &[("direction", "rx")], 6000.0),
        ("gpu_pcie_replays_total", &[], 7.0),
        ("gpu_nvlink_bytes_total", &[("direction", "tx")], 409_600.0),
        ("gpu_nvlink_bytes_total", &[("direction", "rx")], 819_200.0),
    ];
    for (name, labels, number) in expected {
        let labels = [labels, &[("gpu", "0")][..]].concat();
        near(value(&metrics, name, &labels), *number, name);
    }
    let mut told: BTreeSet<&str> = expected.iter().map(|(name, _, _)| *name).collect();
    told.extend(["gpu_info", "gpu_busy_seconds_total"]);
    assert_eq!(names(&metrics, "0"), told);

    for (name, labels, number) in [
        ("gpu_power_watts", &[][..], 150.0),
        ("gpu_retired_pages_total", &[("cause", "single_bit")], 4.0),
        ("gpu_retired_pages_total", &[("cause", "double_bit")], 5.0),
        ("gpu_retired_pages_pending", &[], 1.0),
        ("gpu_pcie_tx_bytes_per_second", &[], 2_097_152.0),
        ("gpu_pcie_rx_bytes_per_second", &[], 1_048_576.0),
        ("gpu_throttle_seconds_total", &[("reason", "sw_power_cap")], 0.0),
    ] {
        let labels = [labels, &[("gpu", "1")][..]].concat();
        near(value(&metrics, name, &labels), number, name);
    }
    for absent in [
        "gpu_memory_temperature_celsius",
        "gpu_row_remap_pending",
        "gpu_row_remap_failed",
        "gpu_sm_active_ratio",
        "gpu_sm_occupancy_ratio",
        "gpu_tensor_active_ratio",
        "gpu_dram_active_ratio",
        "gpu_remapped_rows_total",
        "gpu_pcie_bytes_total",
        "gpu_nvlink_bytes_total",
    ] {
        assert!(!names(&metrics, "1").contains(absent), "{absent}");
    }
    let api = bench.api();
    let gpus = api["gpus"].as_array().unwrap();
    assert_eq!(api["nvml"]["driver_version"], "580.95.05");
    assert_eq!(gpus[1]["sources"]["energy"], "power_samples");
    assert_eq!(gpus[1]["sources"]["utilization"], "samples");
}

fn names<'a>(metrics: &'a Exposition, gpu: &str) -> BTreeSet<&'a str> {
    let of = metrics
        .0
        .iter()
        .filter(|sample| sample.name.starts_with("gpu_") && sample.label("gpu") == Some(gpu));
    of.map(|sample| sample.name.as_str()).collect()
}

/// What both ways of knowing energy and busy time amount to between two readings, against the script's own integral.
#[test]
fn nothing_between_readings_is_lost() {
    let period = 3.0;
    // Bursts that a reading a second by itself would miss or hit by chance: 100 ms of each 300 ms.
    let bursts = |low: f64, high: f64| {
        let of = move |burst: u32| {
            let begin = 1.0 + 0.3 * f64::from(burst);
            [(begin, high), (begin + 0.1, low)]
        };
        Value::steps([(0.0, low)].into_iter().chain((0..200).flat_map(of)))
    };
    let mut counted = Gpu::datacenter(0);
    counted.power_mw = Some(bursts(100_000.0, 700_000.0));
    counted.utilization.as_mut().unwrap().gpu = bursts(0.0, 100.0);
    let mut sampled = Gpu::datacenter(1);
    sampled.power_mw.clone_from(&counted.power_mw);
    sampled.utilization.clone_from(&counted.utilization);
    sampled.energy_mj = None;
    let bench = bench(vec![counted.clone(), sampled], &["--set", "gpu.period=1s"]);
    let read = || {
        let api = bench.api();
        [0, 1].map(|gpu| {
            let gpu = &api["gpus"][gpu];
            let at = gpu["read_at_ns"].as_u64().unwrap();
            let total = |name: &str| gpu["totals"][name].as_f64().unwrap();
            (
                bench.gpus.script.second(at),
                total("energy_joules"),
                total("busy_seconds"),
            )
        })
    };
    bench.settle();
    let before = read();
    bench.gpus.wait_until(before[0].0 + 4.0 * period);
    bench.settle();
    let after = read();
    let work = Work::default();
    for gpu in 0..2 {
        let (from, to) = (before[gpu].0, after[gpu].0);
        assert!(to - from > 3.0 * period);
        let joules = counted.power_mw.as_ref().unwrap().integral(from, to, &work) / 1000.0;
        let busy = counted
            .utilization
            .as_ref()
            .unwrap()
            .gpu
            .integral(from, to, &work)
            / 100.0;
        let (of_energy, of_busy) = (
            (after[gpu].1 - before[gpu].1) / joules,
            (after[gpu].2 - before[gpu].2) / busy,
        );
        // A sample that has not ended at either reading is in the next one: 20 ms of some 12 s.
        assert!(
            (of_energy - 1.0).abs() < 0.02,
            "GPU {gpu}: {of_energy} of the energy"
        );
        assert!(
            (of_busy - 1.0).abs() < 0.02,
            "GPU {gpu}: {of_busy} of the busy time"
        );
    }
}

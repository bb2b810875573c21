//! From sweeps to the picture and to what the core is told, with made-up sweeps.

mod coming_and_going;

use super::*;
use crate::sampler::nvml::{
    DeviceRead, EnergySource, Gauge, Miss, ProcessRead, Reading, Reason, Sample, Stamp, Total,
    UtilizationSource, Values,
};
use infertap_core::gpu::{BusySample, GpuProcess};

const SECOND: Nanos = 1_000_000_000;
const WALL: u64 = 1_700_000_000_000_000;

/// Second `s` after the beginning, which is 100 s after the machine's.
fn stamp(s: f64) -> Stamp {
    Stamp {
        at: ((100.0 + s) * 1e9) as Nanos,
        wall_us: WALL.saturating_add_signed((s * 1e6) as i64),
    }
}

fn reading(uuid: &str, s: f64) -> Reading {
    let mut values = Values::default();
    values.gauge(Gauge::Utilization, Ok(0.9));
    values.gauge(Gauge::Power, Ok(200.0));
    values.gauge(Gauge::MemoryUsed, Ok(1000.0));
    Reading {
        stamp: stamp(s),
        identity: Identity {
            uuid: uuid.into(),
            parent: None,
            name: Some("Stand-in".into()),
            pci: None,
            mig: false,
        },
        values,
        busy: Err(Miss::NotSupported),
        power: Err(Miss::NotSupported),
        throttled: Err(Miss::NotSupported),
        processes: Ok(vec![ProcessRead {
            pid: 7,
            memory: Some(10),
            sm: Some(0.5),
            here: true,
        }]),
        process_sm: Ok(()),
        xids: true,
    }
}

fn there(gpu: u32, reading: Reading) -> DeviceRead {
    DeviceRead {
        slot: Slot { gpu, mig: None },
        reading: Ok(Box::new(reading)),
    }
}

fn lost(gpu: u32, fault: Fault) -> DeviceRead {
    DeviceRead {
        slot: Slot { gpu, mig: None },
        reading: Err(fault),
    }
}

fn sweep(devices: Vec<DeviceRead>) -> Sweep {
    Sweep { devices }
}

fn tracker() -> Tracker {
    Tracker::new(10 * SECOND)
}

fn samples(all: &[(f64, f64)]) -> Vec<Sample> {
    all.iter()
        .map(|(s, value)| Sample {
            wall_us: stamp(*s).wall_us,
            value: *value,
        })
        .collect()
}

fn gauge(view: &GpuView, gpu: usize, gauge: Gauge) -> Option<f64> {
    view.gpus[gpu]
        .gauges
        .iter()
        .find(|(of, _)| *of == gauge)
        .map(|(_, value)| *value)
}

fn total(view: &GpuView, gpu: usize, total: Total) -> Option<f64> {
    view.gpus[gpu]
        .totals
        .iter()
        .find(|(of, _)| *of == total)
        .map(|(_, value)| *value)
}

fn names(view: &GpuView) -> Vec<(String, String, Option<Fault>)> {
    let all = view.gpus.iter();
    all.map(|gpu| (gpu.gpu.to_string(), gpu.uuid.to_string(), gpu.away))
        .collect()
}

fn near(a: Option<f64>, b: f64) {
    assert!(a.is_some_and(|a| (a - b).abs() < 1e-9), "{a:?} is not {b}");
}

#[test]
fn samples_between_readings_are_all_told() {
    let mut tracker = tracker();
    let mut first = reading("GPU-a", 0.0);
    first.busy = Ok(samples(&[(-0.4, 1.0), (-0.2, 1.0)]));
    first.power = Ok(samples(&[(-0.4, 300.0), (-0.2, 300.0)]));
    let told = tracker.sweep(&sweep(vec![there(0, first)]));
    assert_eq!(
        (told[0].0, told[0].1.since, told[0].1.energy_j),
        (100 * SECOND, None, None)
    );
    assert_eq!(told[0].1.busy, []);
    near(total(&tracker.view(), 0, Total::Busy), 0.0);

    let mut second = reading("GPU-a", 1.0);
    second.busy = Ok(samples(&[(0.2, 0.5), (0.4, 1.0), (0.9, 0.0)]));
    second.power = Ok(samples(&[(0.3, 100.0), (0.8, 400.0)]));
    let told = tracker.sweep(&sweep(vec![there(0, second)]));
    let told = &told[0].1;
    assert_eq!(told.since, Some(100 * SECOND));
    let ends: Vec<(Nanos, f64)> = told
        .busy
        .iter()
        .map(|BusySample { end, ratio }| (*end, *ratio))
        .collect();
    assert_eq!(
        ends,
        [(stamp(0.2).at, 0.5), (stamp(0.4).at, 1.0), (stamp(0.9).at, 0.0)]
    );
    // 0.5 s of 100 W and 0.5 s of 400 W.
    near(told.energy_j, 250.0);
    assert_eq!(
        told.processes.as_deref(),
        Some(
            &[GpuProcess {
                tgid: 7,
                memory: Some(10),
                sm: Some(0.5)
            }][..]
        )
    );
    let view = tracker.view();
    near(total(&view, 0, Total::Busy), 0.4);
    near(total(&view, 0, Total::Energy), 250.0);
    near(gauge(&view, 0, Gauge::Utilization), 0.4 / 1.1);
    near(gauge(&view, 0, Gauge::Power), 250.0);
    assert_eq!(view.gpus[0].energy_source, Some(EnergySource::PowerSamples));
    assert_eq!(view.gpus[0].utilization_source, Some(UtilizationSource::Samples));

    // Nothing new: what was is not told again, and the reading's own value stands in.
    let mut third = reading("GPU-a", 2.0);
    (third.busy, third.power) = (Err(Miss::NotNow), Err(Miss::NotNow));
    let told = tracker.sweep(&sweep(vec![there(0, third)]));
    assert_eq!((told[0].1.busy.len(), told[0].1.energy_j), (0, Some(0.0)));
    near(gauge(&tracker.view(), 0, Gauge::Power), 200.0);
}

#[test]
fn samples_that_were_overwritten_are_a_fault_and_not_made_up() {
    let mut tracker = tracker();
    for (s, busy) in [(0.0, [(-0.5, 1.0)]), (60.0, [(59.5, 1.0)])] {
        let mut reading = reading("GPU-a", s);
        reading.busy = Ok(samples(&busy));
        let told = tracker.sweep(&sweep(vec![there(0, reading)]));
        assert_eq!((told[0].1.since, told[0].1.busy.len()), (None, 0));
    }
    let view = tracker.view();
    near(total(&view, 0, Total::Busy), 0.0);
    assert_eq!(view.faults, [(Fault::SampleGap, 1)]);
    assert!(tracker.take_troubles()[0].text.contains("gpu.period"));
}

#[test]
fn without_samples_readings_are_integrated() {
    let mut tracker = tracker();
    tracker.sweep(&sweep(vec![there(0, reading("GPU-a", 0.0))]));
    let told = tracker.sweep(&sweep(vec![there(0, reading("GPU-a", 2.0))]));
    near(told[0].1.energy_j, 400.0);
    assert_eq!(
        told[0].1.busy,
        [BusySample {
            end: stamp(2.0).at,
            ratio: 0.9
        }]
    );
    let view = tracker.view();
    near(total(&view, 0, Total::Busy), 1.8);
    near(total(&view, 0, Total::Energy), 400.0);
    assert_eq!(view.gpus[0].energy_source, Some(EnergySource::PowerReadings));
    assert_eq!(view.gpus[0].utilization_source, Some(UtilizationSource::Readings));
}

#[test]
fn a_counter_of_energy_is_taken_as_it_is_and_survives_its_reset() {
    let mut tracker = tracker();
    let mut told = Vec::new();
    for (s, joules) in [(0.0, 5000.0), (1.0, 5100.0), (2.0, 40.0), (3.0, 90.0)] {
        let mut reading = reading("GPU-a", s);
        reading.values.total(Total::Energy, Ok(joules));
        // What it samples besides is not added.
        reading.power = Ok(samples(&[(s - 0.5, 1e6)]));
        told.push(tracker.sweep(&sweep(vec![there(0, reading)]))[0].1.energy_j);
    }
    assert_eq!(told, [None, Some(100.0), Some(40.0), Some(50.0)]);
    near(total(&tracker.view(), 0, Total::Energy), 5190.0);
    assert_eq!(tracker.view().gpus[0].energy_source, Some(EnergySource::Counter));
}

#[test]
fn throttling_is_timed_by_the_driver_or_by_how_long_it_holds() {
    let mut tracker = tracker();
    for s in 0..4_u32 {
        let mut reading = reading("GPU-a", f64::from(s));
        reading
            .values
            .total(Total::Throttle(Reason::SwPowerCap), Ok(3.25 + f64::from(s)));
        reading.throttled = Ok(if s == 2 {
            vec![Reason::HwThermal]
        } else {
            vec![Reason::SwPowerCap]
        });
        tracker.sweep(&sweep(vec![there(0, reading)]));
    }
    let view = tracker.view();
    near(total(&view, 0, Total::Throttle(Reason::SwPowerCap)), 6.25);
    near(total(&view, 0, Total::Throttle(Reason::HwThermal)), 1.0);
    near(total(&view, 0, Total::Throttle(Reason::SyncBoost)), 0.0);
}

#[test]
fn what_is_not_supported_is_absent_and_is_forgotten_if_it_was_there() {
    let mut tracker = tracker();
    let mut first = reading("GPU-a", 0.0);
    first.values.gauge(Gauge::Temperature, Ok(40.0));
    first.values.total(Total::EccCorrected, Ok(3.0));
    tracker.sweep(&sweep(vec![there(0, first)]));
    let view = tracker.view();
    near(gauge(&view, 0, Gauge::Temperature), 40.0);
    near(total(&view, 0, Total::EccCorrected), 3.0);
    assert_eq!(gauge(&view, 0, Gauge::SmClock), None);
    for name in ["sm_clock_hertz", "throttle_seconds", "pcie_bytes"] {
        assert!(view.gpus[0].not_supported.contains(&name), "{name}");
    }
    for name in [
        "temperature_celsius",
        "energy_joules",
        "busy_seconds",
        "power_watts",
        "processes",
    ] {
        assert!(!view.gpus[0].not_supported.contains(&name), "{name}");
    }

    let mut second = reading("GPU-a", 1.0);
    (second.processes, second.process_sm) = (Err(Miss::NotSupported), Err(Miss::NotSupported));
    second.xids = false;
    let told = tracker.sweep(&sweep(vec![there(0, second)]));
    assert_eq!(told[0].1.processes, None);
    let view = tracker.view();
    assert_eq!(gauge(&view, 0, Gauge::Temperature), None);
    assert_eq!(total(&view, 0, Total::EccCorrected), None);
    for name in [
        "temperature_celsius",
        "ecc_errors",
        "processes",
        "process_sm_ratio",
        "xid_errors",
    ] {
        assert!(view.gpus[0].not_supported.contains(&name), "{name}");
    }

    // Back again: on from where it was.
    let mut third = reading("GPU-a", 2.0);
    third.values.total(Total::EccCorrected, Ok(4.0));
    tracker.sweep(&sweep(vec![there(0, third)]));
    near(total(&tracker.view(), 0, Total::EccCorrected), 3.0);
}

#[test]
fn a_value_that_fails_is_counted_each_time_and_told_once() {
    let mut tracker = tracker();
    for s in 0..3_u32 {
        let mut reading = reading("GPU-a", f64::from(s));
        reading
            .values
            .gauge(Gauge::Temperature, Err(Miss::Failed(Fault::Unknown)));
        reading.values.total(
            Total::EccCorrected,
            if s == 0 {
                Ok(5.0)
            } else {
                Err(Miss::Failed(Fault::Timeout))
            },
        );
        tracker.sweep(&sweep(vec![there(0, reading)]));
    }
    let view = tracker.view();
    assert_eq!(view.faults, [(Fault::Timeout, 2), (Fault::Unknown, 3)]);
    near(total(&view, 0, Total::EccCorrected), 5.0);
    assert!(!view.gpus[0].not_supported.contains(&"temperature_celsius"));
    let texts: Vec<String> = tracker
        .take_troubles()
        .into_iter()
        .map(|trouble| trouble.text)
        .collect();
    assert_eq!(texts.len(), 2, "{texts:?}");
    assert!(
        texts[0].starts_with("GPU 0: no temperature_celsius (unknown): "),
        "{texts:?}"
    );
}

#[test]
fn a_gpu_that_is_lost_keeps_its_totals_and_comes_back_with_the_rest() {
    let mut tracker = tracker();
    let with_energy = |s: f64, joules| {
        let mut reading = reading("GPU-a", s);
        reading.values.total(Total::Energy, Ok(joules));
        there(0, reading)
    };
    tracker.sweep(&sweep(vec![
        with_energy(0.0, 100.0),
        there(1, reading("GPU-b", 0.0)),
    ]));
    for s in [1.0, 2.0] {
        let told = tracker.sweep(&sweep(vec![lost(0, Fault::Lost), there(1, reading("GPU-b", s))]));
        assert_eq!(told.len(), 1, "the other is read");
    }
    let view = tracker.view();
    assert_eq!(
        (view.gpus[0].away, view.gpus[0].losses, view.gpus[1].losses),
        (Some(Fault::Lost), 1, 0)
    );
    assert_eq!((view.gpus[0].gauges.len(), &view.gpus[0].processes), (0, &None));
    near(total(&view, 0, Total::Energy), 100.0);
    near(gauge(&view, 1, Gauge::Power), 200.0);
    assert_eq!(view.faults, [(Fault::Lost, 2)]);

    // Its counter began anew with a reset.
    let told = tracker.sweep(&sweep(vec![
        with_energy(9.0, 30.0),
        there(1, reading("GPU-b", 9.0)),
    ]));
    assert_eq!((told[0].1.since, told[0].1.energy_j), (None, None));
    let view = tracker.view();
    assert_eq!(view.gpus[0].away, None);
    near(total(&view, 0, Total::Energy), 130.0);
    let troubles: Vec<bool> = tracker
        .take_troubles()
        .iter()
        .map(|trouble| trouble.over)
        .collect();
    assert_eq!(troubles, [false, true], "lost once, back once");
}

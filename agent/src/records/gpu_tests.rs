//! What is told of GPUs while requests ran.

use super::gpu::{GpuHistory, Kept};
use super::{GpuDuring, RecordsConfig};
use crate::clock::monotonic_ns;
use crate::export::gpus::Gpus;
use crate::export::gpus::tests::{gpu, picture};
use crate::export::metrics::tests::{finished, labels, record};
use crate::export::{Exporter, MetricsConfig, ServerConfig};
use crate::sampler::nvml::{Fault, Gauge, GpuStatus, Reason, Total};
use crate::store::tables::record as table;
use crate::store::{Reader, Store};
use infertap_core::{Nanos, Status};
use std::sync::Arc;
use std::time::Duration;

const S: Nanos = 1_000_000_000;

/// A reading at a time; processes 100 to 199 are the engine's.
fn at(name: &str, seconds: f64, gauges: &[(Gauge, f64)], throttled_s: f64) -> GpuStatus {
    GpuStatus {
        read_at: (seconds * 1e9) as Nanos,
        gauges: gauges.to_vec(),
        totals: vec![
            (Total::Throttle(Reason::SwPowerCap), throttled_s),
            (Total::Throttle(Reason::HwThermal), 7.0),
        ],
        ..gpu(name)
    }
}

fn owned(all: Vec<GpuStatus>) -> Gpus {
    Gpus::new(picture(all), &|pid| (100..200).contains(&pid).then(|| "e".into()))
}

fn kept(id: &str, begin: f64, end: f64) -> Kept {
    Kept {
        id: id.to_owned(),
        engine: "e".into(),
        begin: (begin * 1e9) as Nanos,
        end: (end * 1e9) as Nanos,
    }
}

fn values(utilization: f64, memory: f64, clock: f64) -> Vec<(Gauge, f64)> {
    vec![
        (Gauge::Utilization, utilization),
        (Gauge::MemoryUsed, memory),
        (Gauge::SmClock, clock),
    ]
}

#[test]
fn a_request_has_the_readings_of_its_time() {
    let mut history = GpuHistory::default();
    history.ended(kept("before any GPU is read", 0.0, 0.5));
    let read = |history: &mut GpuHistory, seconds: f64, gauges: &[(Gauge, f64)], throttled: f64| {
        history.read(
            &owned(vec![at("0", seconds, gauges, throttled)]),
            (seconds * 1e9) as Nanos,
        )
    };
    assert!(read(&mut history, 1.0, &values(0.9, 900.0, 5e8), 1.0).is_empty());
    assert!(read(&mut history, 2.0, &values(0.5, 100.0, 1e9), 1.0).is_empty());
    // From the middle of the second reading's time to a quarter of the fourth's.
    history.ended(kept("long", 1.5, 3.25));
    history.ended(kept("short", 3.1, 3.2));
    assert!(
        read(&mut history, 3.0, &values(1.0, 300.0, 8e8), 1.5).is_empty(),
        "not at its end yet"
    );
    let told = read(&mut history, 4.0, &values(0.0, 200.0, 9e8), 1.5);
    let during = |covered_s, utilization, memory, clock, reasons: &[&str]| GpuDuring {
        gpu: "0".to_owned(),
        covered_s,
        utilization_ratio: Some(utilization),
        power_watts: None,
        memory_used_max_bytes: Some(memory),
        sm_clock_min_hertz: Some(clock),
        temperature_max_celsius: None,
        throttle_reasons: reasons.iter().map(|&reason| reason.to_owned()).collect(),
    };
    let mean = (0.5 * 0.5 + 1.0) / 1.75;
    let [(long, of_long), (short, of_short)] = &told[..] else {
        panic!("{told:?}");
    };
    assert_eq!((&**long, &**short), ("long", "short"));
    assert!(
        (of_long[0].utilization_ratio.expect("known") - mean).abs() < 1e-9,
        "{of_long:?}"
    );
    let rounded = |during: &GpuDuring| GpuDuring {
        utilization_ratio: Some(0.0),
        covered_s: (during.covered_s * 1e6).round() / 1e6,
        ..during.clone()
    };
    assert_eq!(
        rounded(&of_long[0]),
        during(1.75, 0.0, 300, 8e8, &["sw_power_cap"])
    );
    assert_eq!(rounded(&of_short[0]), during(0.1, 0.0, 200, 9e8, &[]));
    assert!(
        read(&mut history, 5.0, &values(0.0, 200.0, 9e8), 1.5).is_empty(),
        "once"
    );
}

#[test]
fn all_gpus_of_the_engine_are_told_and_no_others() {
    let mut history = GpuHistory::default();
    let other = |name: &str, seconds| GpuStatus {
        processes: Some(Vec::new()),
        ..at(name, seconds, &[], 0.0)
    };
    let read = |history: &mut GpuHistory, seconds: f64, late: f64| {
        let gpus = vec![
            at("0", seconds, &values(0.5, 1.0, 1.0), 0.0),
            at("1", seconds - late, &values(0.25, 1.0, 1.0), 0.0),
            other("2", seconds),
        ];
        history.read(&owned(gpus), (seconds * 1e9) as Nanos)
    };
    read(&mut history, 1.0, 0.0);
    history.ended(kept("a", 1.0, 2.0));
    assert!(
        read(&mut history, 2.0, 0.1).is_empty(),
        "one was read before its end"
    );
    let told = read(&mut history, 3.0, 0.1);
    let names: Vec<&str> = told[0].1.iter().map(|during| &*during.gpu).collect();
    assert_eq!(names, ["0", "1"]);
    let mut elsewhere = kept("b", 3.0, 3.5);
    elsewhere.engine = "another".into();
    history.ended(elsewhere);
    assert!(read(&mut history, 4.0, 0.0).is_empty());
    assert!(
        read(&mut history, 14.0, 0.0).is_empty(),
        "nothing is known of its GPUs"
    );
}

#[test]
fn a_gpu_that_was_away_says_nothing_of_that_time() {
    let mut history = GpuHistory::default();
    let read = |history: &mut GpuHistory, seconds: f64, away| {
        let status = GpuStatus {
            away,
            ..at("0", seconds, &values(0.5, 1.0, 1.0), 0.0)
        };
        history.read(&owned(vec![status]), (seconds * 1e9) as Nanos)
    };
    read(&mut history, 1.0, None);
    read(&mut history, 2.0, None);
    history.ended(kept("a", 1.5, 4.0));
    assert!(read(&mut history, 3.0, Some(Fault::Unknown)).is_empty());
    assert!(read(&mut history, 4.0, Some(Fault::Unknown)).is_empty());
    // It is given up as nothing comes: what there is, is told.
    let told = read(&mut history, 14.0, Some(Fault::Unknown));
    assert!((told[0].1[0].covered_s - 0.5).abs() < 1e-9, "{told:?}");
    // No GPU is read: nobody waits.
    history.ended(kept("b", 14.0, 14.5));
    assert!(read(&mut history, 30.0, None).is_empty());
    let back = read(&mut history, 31.0, None);
    assert!(back.is_empty(), "{back:?}");
}

#[test]
fn history_is_bounded() {
    let mut history = GpuHistory::default();
    for n in 1..20_000_u32 {
        history.ended(kept("x", f64::from(n), f64::from(n) + 1e6));
        let status = at("0", f64::from(n), &[], 0.0);
        history.read(&owned(vec![status]), Nanos::from(n) * S);
    }
    assert_eq!(history.sizes(), (8192, 512));
}

#[test]
fn a_record_in_the_store_is_told_of_its_gpus() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store.db");
    let store = Arc::new(Store::open(&path, Box::new(|_| {})).expect("opens"));
    let exporter = Exporter::new(&MetricsConfig::default(), &ServerConfig::default()).expect("valid");
    let config = RecordsConfig::default();
    exporter.records().keep_in(&store, &config, exporter.metrics());
    let now = monotonic_ns();
    let read = |seconds: f64| {
        let mut status = at("0", 0.0, &values(0.5, 4096.0, 1e9), 0.0);
        status.read_at = now + (seconds * 1e9) as Nanos;
        exporter.gpus_read(&picture(vec![status]), &|pid| {
            (100..200).contains(&pid).then(|| "e".into())
        });
    };
    read(0.5);
    let labels = labels("e", "m", "s");
    let mut failed = record(&labels, Status::ServerError);
    failed.id = "0a0a".to_owned();
    (failed.t0_ns, failed.t4_ns) = (Some(now + S), Some(now + 2 * S));
    exporter.apply(&[finished(&labels, failed)]);
    read(1.5);
    read(2.5);
    assert!(store.flush(Duration::from_secs(20)));
    let reader = Reader::open(&path).expect("opens");
    let found = reader.read(|db| table::named(db, "0a0a")).expect("reads");
    let during = &found.records[0].gpu;
    assert_eq!(during.len(), 1, "{during:?}");
    assert_eq!(during[0].memory_used_max_bytes, Some(4096));
    assert!((during[0].covered_s - 1.0).abs() < 1e-9, "{during:?}");
    assert_eq!(found.records[0].record.status, Status::ServerError);
}

//! Owners of processes, the answer of `/api/v1/gpus`, and what is exported of a picture.

use super::*;
use crate::export::{Exporter, MetricsConfig, ServerConfig};
use crate::sampler::nvml::{EnergySource, Fault, Gauge, NvmlState, Reason, Total, UtilizationSource};
use expect_test::expect;

fn process(pid: u32, memory: Option<u64>, sm: Option<f64>, here: bool) -> ProcessRead {
    ProcessRead {
        pid,
        memory,
        sm,
        here,
    }
}

/// A GPU that tells all there is to tell.
pub(crate) fn gpu(name: &str) -> GpuStatus {
    GpuStatus {
        gpu: name.into(),
        uuid: format!("GPU-{name}").into(),
        parent: None,
        name: Some("Stand-in \"80GB\"".into()),
        pci: Some("00000000:01:00.0".into()),
        mig: false,
        away: None,
        losses: 0,
        read_at: 5_000_000_000,
        gauges: Gauge::ALL.iter().map(|gauge| (*gauge, 0.5)).collect(),
        totals: Total::ALL.iter().map(|total| (*total, 2.5)).collect(),
        xids: vec![(79, 1), (u64::MAX, 2)],
        xids_told: true,
        not_supported: Vec::new(),
        failing: vec![("temperature_celsius", Fault::Unknown)],
        energy_source: Some(EnergySource::Counter),
        utilization_source: Some(UtilizationSource::Samples),
        processes: Some(vec![
            process(100, Some(1000), Some(0.25), true),
            process(101, Some(500), Some(0.5), true),
            process(200, Some(70), Some(0.125), true),
            process(999, Some(1), Some(0.0), false),
        ]),
        process_sm: true,
    }
}

pub(crate) fn picture(gpus: Vec<GpuStatus>) -> Arc<GpuView> {
    Arc::new(GpuView {
        state: NvmlState::Up,
        gpus,
        faults: vec![(Fault::Unknown, 3)],
        ..GpuView::default()
    })
}

/// Processes 100 to 199 are of an engine.
fn engine_of(pid: u32) -> Option<Arc<str>> {
    (100..200).contains(&pid).then(|| "vllm-8000".into())
}

fn label(gpus: &Gpus) -> Vec<(String, String, Option<u64>, Option<f64>)> {
    let all = gpus.engines_on_gpus().into_iter();
    all.map(|one| (one.gpu.to_string(), one.engine.to_string(), one.memory, one.sm))
        .collect()
}

#[test]
fn a_process_is_of_its_engine_of_none_or_not_here() {
    let gpus = Gpus::new(picture(vec![gpu("0")]), &engine_of);
    let row = |engine: &str, memory, sm| ("0".to_owned(), engine.to_owned(), Some(memory), Some(sm));
    assert_eq!(
        label(&gpus),
        [
            row("vllm-8000", 1500, 0.75),
            row("other", 70, 0.125),
            row("unknown", 1, 0.0),
        ]
    );
    assert_eq!(
        gpus.of_engines(),
        BTreeMap::from([("vllm-8000".into(), vec!["0".into()])])
    );
    assert_eq!(gpus.owned[0].notes.len(), 1, "{:?}", gpus.owned[0].notes);
}

#[test]
fn what_cant_be_split_is_said_and_not_guessed() {
    let mut shared = gpu("0");
    shared.process_sm = false;
    shared.processes = Some(vec![
        process(100, Some(7), None, true),
        process(200, None, None, true),
    ]);
    let mut split = gpu("1");
    split.mig = true;
    let mut instance = gpu("1:0");
    instance.parent = Some("GPU-1".into());
    instance.processes = Some(vec![
        process(150, Some(9), None, true),
        process(151, None, None, true),
    ]);
    let mut silent = gpu("2");
    silent.processes = None;
    let gpus = Gpus::new(picture(vec![shared, split, instance, silent]), &engine_of);
    let row = |gpu: &str, engine: &str, memory| (gpu.to_owned(), engine.to_owned(), memory, None);
    assert_eq!(
        label(&gpus),
        [
            row("0", "vllm-8000", Some(7)),
            row("0", "other", None),
            // That of one of its processes is not known, so the sum is not.
            row("1:0", "vllm-8000", None),
        ]
    );
    let notes: Vec<&str> = gpus
        .owned
        .iter()
        .flat_map(|owned| &owned.notes)
        .map(String::as_str)
        .collect();
    expect![[r#"
        2 owners share it and the driver does not tell whose work ran when: its time and energy can't be split by NVML
        it is split into MIG instances: processes are told of those; its power and energy are not split over them
        it is a MIG instance: the driver tells neither its power and energy nor its throttling
        the driver does not tell its processes, so what they use is nobody's"#]].assert_eq(&notes.join("\n"));
}

#[test]
fn the_answer_has_what_is_known() {
    let mut away = gpu("1");
    away.away = Some(Fault::Lost);
    away.gauges.clear();
    away.processes = None;
    away.xids_told = false;
    let mut there = gpu("0");
    there.gauges.truncate(2);
    there.totals.retain(|(total, _)| {
        matches!(
            total,
            Total::Energy | Total::Throttle(Reason::SwPowerCap | Reason::SyncBoost)
        )
    });
    there.processes.as_mut().expect("some").truncate(1);
    let gpus = Gpus::new(picture(vec![there, away]), &engine_of);
    let text = serde_json::to_string_pretty(&Answer::new(&gpus)).expect("serializes");
    expect![[r#"
        {
          "nvml": {
            "state": "up",
            "driver_version": null,
            "nvml_version": null
          },
          "gpus": [
            {
              "gpu": "0",
              "uuid": "GPU-0",
              "parent": null,
              "name": "Stand-in \"80GB\"",
              "pci": "00000000:01:00.0",
              "mig": false,
              "present": true,
              "away": null,
              "losses": 0,
              "read_at_ns": 5000000000,
              "values": {
                "memory_busy_ratio": 0.5,
                "utilization_ratio": 0.5
              },
              "totals": {
                "energy_joules": 2.5,
                "throttle_seconds": {
                  "sw_power_cap": 2.5,
                  "sync_boost": 2.5
                }
              },
              "xid_errors": {
                "79": 1,
                "other": 2
              },
              "not_supported": [],
              "failing": {
                "temperature_celsius": "unknown"
              },
              "sources": {
                "energy": "counter",
                "utilization": "samples"
              },
              "processes": [
                {
                  "pid": 100,
                  "engine": "vllm-8000",
                  "memory_bytes": 1000,
                  "sm_ratio": 0.25
                }
              ],
              "engines": [
                {
                  "engine": "vllm-8000",
                  "memory_bytes": 1000,
                  "sm_ratio": 0.25
                }
              ],
              "notes": []
            },
            {
              "gpu": "1",
              "uuid": "GPU-1",
              "parent": null,
              "name": "Stand-in \"80GB\"",
              "pci": "00000000:01:00.0",
              "mig": false,
              "present": false,
              "away": "lost",
              "losses": 0,
              "read_at_ns": 5000000000,
              "values": {},
              "totals": {
                "busy_seconds": 2.5,
                "ecc_errors": {
                  "corrected": 2.5,
                  "uncorrected": 2.5
                },
                "energy_joules": 2.5,
                "nvlink_bytes": {
                  "rx": 2.5,
                  "tx": 2.5
                },
                "pcie_bytes": {
                  "rx": 2.5,
                  "tx": 2.5
                },
                "pcie_replays": 2.5,
                "remapped_rows": {
                  "correctable": 2.5,
                  "uncorrectable": 2.5
                },
                "retired_pages": {
                  "double_bit": 2.5,
                  "single_bit": 2.5
                },
                "throttle_seconds": {
                  "hw_power_brake": 2.5,
                  "hw_slowdown": 2.5,
                  "hw_thermal": 2.5,
                  "sw_power_cap": 2.5,
                  "sw_thermal": 2.5,
                  "sync_boost": 2.5
                }
              },
              "xid_errors": null,
              "not_supported": [],
              "failing": {
                "temperature_celsius": "unknown"
              },
              "sources": {
                "energy": "counter",
                "utilization": "samples"
              },
              "processes": null,
              "engines": [],
              "notes": []
            }
          ]
        }"#]]
    .assert_eq(&text);
}

#[test]
fn an_engine_is_covered_where_its_gpus_are_read_and_is_not_where_they_could_be() {
    let exporter =
        Exporter::new(&MetricsConfig::default(), &ServerConfig::default()).expect("the defaults are valid");
    let info = |id: &str, pid| {
        Arc::new(infertap_core::EngineInfo {
            id: id.into(),
            kind: infertap_core::EngineKind::Vllm,
            model: None,
            version: None,
            pid,
            pids: vec![pid],
            ports: Vec::new(),
            container: None,
            pod_uid: None,
        })
    };
    exporter.engine_up(&info("vllm-8000", 100));
    exporter.engine_up(&info("on-a-processor", 300));
    let covered = |id: &str| {
        let engines = exporter.engines();
        let engine = engines
            .iter()
            .find(|engine| &*engine.info.id == id)
            .expect("it is up");
        engine.coverage.get("nvml").copied()
    };
    let absent = Arc::new(GpuView {
        state: NvmlState::Absent("no library".to_owned()),
        ..GpuView::default()
    });
    exporter.gpus_read(&absent, &engine_of);
    assert_eq!(covered("vllm-8000"), None, "nothing says that it uses a GPU");
    exporter.engine_coverage("vllm-8000", "cuda", true);
    assert_eq!(covered("vllm-8000"), Some(false), "it does");
    exporter.gpus_read(&picture(vec![gpu("0")]), &engine_of);
    assert_eq!(covered("vllm-8000"), Some(true));
    assert_eq!(covered("on-a-processor"), None);
}

//! GPUs as `/api/v1/gpus` tells them.
//!
//! Owns: the JSON. Refuses: what is in it. What is not known is null, or not in the map of values.

use super::{Gpus, Owned, Owner};
use crate::export::metrics::{OTHER, UNKNOWN};
use crate::sampler::nvml::{EnergySource, Fault, GpuStatus, NvmlState, Total, UtilizationSource, xid_label};
use infertap_core::Nanos;
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The whole answer.
#[derive(Debug, Serialize)]
pub(crate) struct Answer<'a> {
    nvml: NvmlAnswer<'a>,
    gpus: Vec<GpuAnswer<'a>>,
}

#[derive(Debug, Serialize)]
struct NvmlAnswer<'a> {
    #[serde(flatten)]
    state: &'a NvmlState,
    driver_version: Option<&'a str>,
    nvml_version: Option<&'a str>,
}

#[derive(Debug, Serialize)]
struct GpuAnswer<'a> {
    gpu: &'a str,
    uuid: &'a str,
    parent: Option<&'a str>,
    name: Option<&'a str>,
    pci: Option<&'a str>,
    mig: bool,
    present: bool,
    away: Option<Fault>,
    losses: u64,
    read_at_ns: Nanos,
    values: Map<String, Value>,
    totals: Map<String, Value>,
    xid_errors: Option<BTreeMap<String, u64>>,
    not_supported: &'a [&'static str],
    failing: BTreeMap<&'static str, Fault>,
    sources: Sources,
    processes: Option<Vec<ProcessAnswer<'a>>>,
    engines: Vec<ShareAnswer<'a>>,
    notes: &'a [String],
}

#[derive(Debug, Serialize)]
struct Sources {
    energy: Option<EnergySource>,
    utilization: Option<UtilizationSource>,
}

#[derive(Debug, Serialize)]
struct ProcessAnswer<'a> {
    pid: u32,
    engine: Option<&'a str>,
    memory_bytes: Option<u64>,
    sm_ratio: Option<f64>,
}

#[derive(Debug, Serialize)]
struct ShareAnswer<'a> {
    engine: &'a str,
    memory_bytes: Option<u64>,
    sm_ratio: Option<f64>,
}

impl<'a> Answer<'a> {
    /// Of the last picture.
    pub(crate) fn new(gpus: &'a Gpus) -> Answer<'a> {
        let view = &gpus.view;
        Answer {
            nvml: NvmlAnswer {
                state: &view.state,
                driver_version: view.about.driver.as_deref(),
                nvml_version: view.about.library.as_deref(),
            },
            gpus: view
                .gpus
                .iter()
                .zip(&gpus.owned)
                .map(|(gpu, owned)| answer(gpu, owned))
                .collect(),
        }
    }
}

fn answer<'a>(gpu: &'a GpuStatus, owned: &'a Owned) -> GpuAnswer<'a> {
    let values = gpu
        .gauges
        .iter()
        .map(|(gauge, value)| (gauge.as_str().to_owned(), json!(value)));
    let processes = gpu.processes.as_ref().map(|_| {
        let told = owned.processes.iter().map(|(process, owner)| ProcessAnswer {
            pid: process.pid,
            engine: owner.as_ref().map(name),
            memory_bytes: process.memory,
            sm_ratio: process.sm,
        });
        told.collect()
    });
    GpuAnswer {
        gpu: &gpu.gpu,
        uuid: &gpu.uuid,
        parent: gpu.parent.as_deref(),
        name: gpu.name.as_deref(),
        pci: gpu.pci.as_deref(),
        mig: gpu.mig,
        present: gpu.away.is_none(),
        away: gpu.away,
        losses: gpu.losses,
        read_at_ns: gpu.read_at,
        values: values.collect(),
        totals: totals(&gpu.totals),
        xid_errors: gpu.xids_told.then(|| {
            gpu.xids
                .iter()
                .map(|(xid, count)| (xid_label(*xid), *count))
                .collect()
        }),
        not_supported: &gpu.not_supported,
        failing: gpu.failing.iter().copied().collect(),
        sources: Sources {
            energy: gpu.energy_source,
            utilization: gpu.utilization_source,
        },
        processes,
        engines: owned
            .shares
            .iter()
            .map(|(owner, share)| ShareAnswer {
                engine: name(owner),
                memory_bytes: share.memory,
                sm_ratio: share.sm,
            })
            .collect(),
        notes: &owned.notes,
    }
}

/// By family; those with a label as a map of its values.
fn totals(all: &[(Total, f64)]) -> Map<String, Value> {
    let mut out = Map::new();
    for (total, value) in all {
        match total.label() {
            None => drop(out.insert(total.family().to_owned(), json!(value))),
            Some((_, label)) => {
                let family = out.entry(total.family()).or_insert_with(|| json!({}));
                if let Some(family) = family.as_object_mut() {
                    family.insert(label.to_owned(), json!(value));
                }
            }
        }
    }
    out
}

fn name(owner: &Owner) -> &str {
    match owner {
        Owner::Engine(id) => id,
        Owner::Other => OTHER,
        Owner::Unknown => UNKNOWN,
    }
}

//! Whose processes are on which GPU, and the last picture of all GPUs, for whoever asks.
//!
//! Owns: the rule by which a process's use is an engine's, nobody's known, or unknown, and saying what can't be told apart.
//! Refuses: the picture (`sampler::nvml`), and which process is of which engine (the core's map).

mod answer;

pub(crate) use answer::Answer;

use crate::export::metrics::{EngineOnGpu, OTHER, UNKNOWN};
use crate::sampler::nvml::{GpuStatus, GpuView, ProcessRead};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Whose a process is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Owner {
    /// Of this engine.
    Engine(Arc<str>),
    /// Of no engine.
    Other,
    /// Not here: the driver tells the ids of another PID namespace, tells none, or the process has just ended.
    Unknown,
}

/// One GPU's processes with their owners.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Owned {
    /// In the order of the driver's list.
    pub(crate) processes: Vec<(ProcessRead, Option<Owner>)>,
    /// What each owner's processes use together.
    pub(crate) shares: BTreeMap<Owner, Share>,
    /// What can't be told of whose use it is, each a sentence.
    pub(crate) notes: Vec<String>,
}

/// What the processes of one owner use of a GPU.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Share {
    /// Bytes; unknown when that of one process is.
    pub(crate) memory: Option<u64>,
    /// 0 to 1.
    pub(crate) sm: Option<f64>,
}

/// The last picture.
#[derive(Debug, Clone, Default)]
pub(crate) struct Gpus {
    pub(crate) view: Arc<GpuView>,
    /// In the order of the picture's GPUs.
    pub(crate) owned: Vec<Owned>,
}

impl Gpus {
    /// Finds the owners of all processes.
    pub(crate) fn new(view: Arc<GpuView>, engine_of: &dyn Fn(u32) -> Option<Arc<str>>) -> Gpus {
        let owned = view.gpus.iter().map(|gpu| owned(gpu, engine_of)).collect();
        Gpus { view, owned }
    }

    /// What is exported of it.
    pub(crate) fn engines_on_gpus(&self) -> Vec<EngineOnGpu> {
        let all = self.view.gpus.iter().zip(&self.owned);
        all.flat_map(|(gpu, owned)| {
            owned.shares.iter().map(|(owner, share)| EngineOnGpu {
                gpu: Arc::clone(&gpu.gpu),
                engine: owner.label(),
                memory: share.memory,
                sm: share.sm,
            })
        })
        .collect()
    }

    /// The GPUs of each engine, by their short names.
    pub(crate) fn of_engines(&self) -> BTreeMap<Arc<str>, Vec<Arc<str>>> {
        let mut out: BTreeMap<Arc<str>, Vec<Arc<str>>> = BTreeMap::new();
        for (gpu, owned) in self.view.gpus.iter().zip(&self.owned) {
            for owner in owned.shares.keys() {
                if let Owner::Engine(id) = owner {
                    out.entry(Arc::clone(id)).or_default().push(Arc::clone(&gpu.gpu));
                }
            }
        }
        out
    }
}

impl Owner {
    fn label(&self) -> Arc<str> {
        match self {
            Owner::Engine(id) => Arc::clone(id),
            Owner::Other => OTHER.into(),
            Owner::Unknown => UNKNOWN.into(),
        }
    }
}

fn owned(gpu: &GpuStatus, engine_of: &dyn Fn(u32) -> Option<Arc<str>>) -> Owned {
    let mut out = Owned::default();
    let Some(processes) = &gpu.processes else {
        if gpu.away.is_none() {
            out.notes
                .push("the driver does not tell its processes, so what they use is nobody's".to_owned());
        }
        return out;
    };
    if gpu.mig {
        // Each process is told of its instance too, and would count twice.
        out.processes = processes.iter().map(|process| (*process, None)).collect();
        out.notes.push(
            "it is split into MIG instances: processes are told of those; its power and energy are not split over them"
                .to_owned(),
        );
        return out;
    }
    for process in processes {
        let owner = match engine_of(process.pid).filter(|_| process.pid != 0) {
            Some(engine) => Owner::Engine(engine),
            None if process.here => Owner::Other,
            None => Owner::Unknown,
        };
        let share = Share {
            memory: process.memory,
            sm: process.sm,
        };
        out.shares
            .entry(owner.clone())
            .and_modify(|sum| {
                sum.memory = sum.memory.zip(share.memory).map(|(a, b)| a.saturating_add(b));
                sum.sm = sum.sm.zip(share.sm).map(|(a, b)| (a + b).min(1.0));
            })
            .or_insert(share);
        out.processes.push((*process, Some(owner)));
    }
    if out.shares.contains_key(&Owner::Unknown) {
        out.notes.push(
            "some processes are not here: the driver tells the ids of another PID namespace, or they have just ended; run the \
             agent in the host's PID namespace"
                .to_owned(),
        );
    }
    if out.shares.len() > 1 && !gpu.process_sm {
        out.notes.push(format!(
            "{} owners share it and the driver does not tell whose work ran when: its time and energy can't be split by NVML",
            out.shares.len()
        ));
    }
    if gpu.parent.is_some() {
        out.notes.push(
            "it is a MIG instance: the driver tells neither its power and energy nor its throttling"
                .to_owned(),
        );
    }
    out
}

#[cfg(test)]
pub(crate) mod tests;

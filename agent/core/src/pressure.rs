//! How short of memory each engine is, on its GPUs and on the host.
//!
//! Owns: the bounded table of engines, which event is about which, when a report is told, and what was tied to requests of
//! failed allocations. Refuses: reading anything (the agent's samplers and probes). docs/memory-pressure.md tells the rules.

mod cgroups;
mod config;
mod engine;
mod gpus;
mod reading;
mod report;
mod rule;
#[cfg(test)]
mod tests;
mod trend;
mod window;

pub use config::PressureConfig;
pub use reading::{CgroupReading, CgroupVersion, MemoryEvents, MemoryReading, StallTotals};
pub use report::{
    AllocFailures, CgroupMemory, GpuMemory, PressureReport, PressureState, Reason, ReasonKind, StallScope,
    Stalls,
};

use crate::{
    EngineInfo, Nanos, Observation,
    engines::Engines,
    gpu::{AllocFailure, GpuReading},
    inside::Inside,
};
use engine::Engine;
use gpus::Gpus;
use std::{collections::BTreeMap, sync::Arc};

/// How often engines are judged, and how often a report is told that says the same.
const JUDGE_EVERY: Nanos = 1_000_000_000;
const TELL_EVERY: Nanos = 5 * 1_000_000_000;
/// Engines; as many as `engines` knows.
const MAX_ENGINES: usize = 1024;

/// All engines and GPUs.
#[derive(Debug, Default)]
pub(crate) struct Pressure {
    engines: BTreeMap<Arc<str>, Engine>,
    gpus: Gpus,
    judged: Nanos,
}

/// Failed allocations of an engine when a request of it began; `None`: its CUDA calls had not been seen.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct AllocMark(Option<u64>);

impl Pressure {
    /// A GPU was read. `false`: there is no room for it.
    pub(crate) fn gpu(
        &mut self,
        at: Nanos,
        reading: &GpuReading,
        engines: &Engines,
        config: &PressureConfig,
    ) -> bool {
        let mut room = self.gpus.read(at, reading, config.trend_window_ns);
        // Where the driver does not tell its processes, those that were seen on it before are taken to be there still.
        if let Some(processes) = &reading.processes {
            for process in processes {
                if let Some(info) = engines.of(process.tgid) {
                    match self.engine(&info, config) {
                        Some(engine) => engine.uses_gpu(&reading.uuid, at),
                        None => room = false,
                    }
                }
            }
            for engine in self.engines.values_mut() {
                engine.left_gpu(&reading.uuid, at);
            }
        }
        room
    }

    /// A process of an engine made CUDA calls.
    pub(crate) fn cuda(&mut self, tgid: u32, engines: &Engines, config: &PressureConfig) {
        if let Some(info) = engines.of(tgid)
            && let Some(engine) = self.engine(&info, config)
        {
            engine.cuda_seen();
        }
    }

    /// An allocation of GPU memory failed.
    pub(crate) fn alloc_failed(
        &mut self,
        at: Nanos,
        failure: &AllocFailure,
        engines: &Engines,
        config: &PressureConfig,
    ) {
        if let Some(info) = engines.of(failure.tgid)
            && let Some(engine) = self.engine(&info, config)
        {
            engine.alloc_failed(at, failure);
        }
    }

    /// The memory of an engine was read. Tells at once what can't wait: it may be the last that is heard of it.
    pub(crate) fn read(
        &mut self,
        at: Nanos,
        reading: &MemoryReading,
        engines: &Engines,
        config: &PressureConfig,
        out: &mut Vec<Observation>,
    ) {
        let Some(info) = engines.get(&reading.engine) else {
            return;
        };
        if let Some(engine) = self.engine(&info, config) {
            engine.read(at, reading);
        }
        let gpus = &self.gpus;
        if let Some(engine) = self.engines.get_mut(&info.id)
            && engine.judge(at, gpus, config)
        {
            tell(&info.id, engine, at, gpus, out);
        }
    }

    /// Time has passed: judges all engines, and tells of those of which there is something to tell.
    pub(crate) fn advance(
        &mut self,
        now: Nanos,
        inside: &Inside,
        engines: &Engines,
        config: &PressureConfig,
        out: &mut Vec<Observation>,
    ) {
        if now.saturating_sub(self.judged) < JUDGE_EVERY {
            return;
        }
        self.judged = now;
        for (id, vitals) in inside.vitals() {
            if let Some(info) = engines.get(id)
                && let Some(engine) = self.engine(&info, config)
            {
                engine.load(now, vitals.load, vitals.preemptions, config);
            }
        }
        let gpus = &self.gpus;
        for (id, engine) in &mut self.engines {
            let due = engine
                .told_at
                .is_none_or(|told| now.saturating_sub(told) >= TELL_EVERY);
            if engine.judge(now, gpus, config) || due {
                tell(id, engine, now, gpus, out);
            }
        }
    }

    /// Failed allocations of the engine so far, for a request that begins.
    pub(crate) fn mark(&self, engine: &str) -> AllocMark {
        AllocMark(self.engines.get(engine).and_then(Engine::failures))
    }

    /// Failed allocations of the engine since a request began; `None` where they can't be known.
    pub(crate) fn alloc_failures_since(&self, engine: &str, mark: AllocMark) -> Option<u64> {
        let now = self.engines.get(engine)?.failures()?;
        match mark.0 {
            Some(before) => now.checked_sub(before),
            // Its first calls were seen meanwhile: what failed did so since, and there may have been more.
            None => (now > 0).then_some(now),
        }
    }

    /// An engine is gone.
    pub(crate) fn down(&mut self, engine: &str) {
        self.engines.remove(engine);
    }

    /// Bytes, about.
    pub(crate) fn bytes(&self) -> usize {
        self.gpus.bytes() + self.engines.values().map(Engine::bytes).sum::<usize>()
    }

    fn engine(&mut self, info: &EngineInfo, config: &PressureConfig) -> Option<&mut Engine> {
        if self.engines.len() >= MAX_ENGINES && !self.engines.contains_key(&info.id) {
            return None;
        }
        let engine = self
            .engines
            .entry(Arc::clone(&info.id))
            .or_insert_with(|| Engine::new(info.kind, config));
        engine.is(info);
        Some(engine)
    }
}

fn tell(id: &Arc<str>, engine: &mut Engine, now: Nanos, gpus: &Gpus, out: &mut Vec<Observation>) {
    engine.told_at = Some(now);
    out.push(Observation::Pressure(Box::new(engine.report(id, now, gpus))));
}

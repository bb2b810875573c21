//! What the GPUs were doing for whom: readings, steps, bursts and requests brought together.
//!
//! Owns: the engines and GPUs that are followed, when time is settled, and what is told of it. Refuses: the parts:
//! `timeline` (what an engine did), `readings` (whose a GPU's time was), `charge` (whose a step's energy was).
//!
//! Nothing is followed before a GPU has been read: without one, requests cost nothing here.

mod settle;

use super::{CudaBurst, GpuReading, charge::Charges, requests::Requests, timeline::Timeline};
use crate::{
    Nanos, Observation,
    observation::{Finished, Labels},
};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

/// Engines; as many as `engines` knows.
const MAX_ENGINES: usize = 1024;
/// GPUs and instances of them.
const MAX_GPUS: usize = 1024;
/// Readings of one GPU that wait to be settled; past it the oldest is settled with what is known.
const MAX_READINGS: usize = 1024;
/// Time is settled so long after it has passed: what engines tell of their steps may take a second.
const SETTLE: Nanos = 2_000_000_000;
/// While requests are under way, a step may be: so long its end is waited for.
const STEP_AT_MOST: Nanos = 60_000_000_000;
/// A GPU that was not read for so long is gone.
const GONE: Nanos = 10_000_000_000;

/// All engines and GPUs.
#[derive(Debug, Default)]
pub(crate) struct Join {
    /// A GPU was read.
    active: bool,
    engines: BTreeMap<Arc<str>, Engine>,
    gpus: BTreeMap<Arc<str>, Gpu>,
    late: u64,
    evicted: u64,
}

#[derive(Debug, Default)]
struct Engine {
    timeline: Timeline,
    requests: Requests,
    charges: Charges,
    gone: Option<Nanos>,
}

#[derive(Debug, Default)]
struct Gpu {
    parent: Option<Arc<str>>,
    pending: VecDeque<Pending>,
    settled: Nanos,
    seen: Nanos,
    /// What it draws when idle, watts.
    floor: Option<f64>,
    /// Engines on it, as last read.
    users: Vec<(Arc<str>, Option<f64>)>,
}

#[derive(Debug)]
struct Pending {
    at: Nanos,
    reading: Arc<GpuReading>,
    users: Vec<(Arc<str>, Option<f64>)>,
    strangers: bool,
}

impl Join {
    /// A GPU was read at `at`. `engine_of`: whose a process is.
    pub(crate) fn read(
        &mut self,
        at: Nanos,
        reading: &Arc<GpuReading>,
        engine_of: impl Fn(u32) -> Option<Arc<str>>,
    ) {
        self.active = true;
        if self.gpus.len() >= MAX_GPUS && !self.gpus.contains_key(&reading.uuid) {
            self.evicted += 1;
            return;
        }
        let mut users: Vec<(Arc<str>, Option<f64>)> = Vec::new();
        let mut strangers = false;
        for process in reading.processes.iter().flatten() {
            let Some(engine) = engine_of(process.tgid) else {
                strangers = true;
                continue;
            };
            match users.iter_mut().find(|user| user.0 == engine) {
                Some((_, sm)) => *sm = sm.zip(process.sm).map(|(a, b)| a + b),
                None => users.push((engine, process.sm)),
            }
        }
        users.sort_by(|a, b| a.0.cmp(&b.0));
        for (engine, _) in &users {
            match self.engine(engine) {
                Some(engine) => engine.gone = None,
                None => self.evicted += 1,
            }
        }
        let gpu = self.gpus.entry(reading.uuid.clone()).or_default();
        gpu.parent.clone_from(&reading.parent);
        gpu.seen = gpu.seen.max(at);
        gpu.users.clone_from(&users);
        if reading.since.is_none_or(|since| since >= at) {
            return;
        }
        if at <= gpu.settled {
            self.late += 1;
            return;
        }
        let place = gpu.pending.partition_point(|pending| pending.at <= at);
        gpu.pending.insert(
            place,
            Pending {
                at,
                reading: reading.clone(),
                users,
                strangers,
            },
        );
    }

    /// A process of the engine waited for its GPUs.
    pub(crate) fn burst(&mut self, engine: &Arc<str>, burst: CudaBurst) {
        if let Some(engine) = self.engine(engine) {
            engine.timeline.burst(burst);
        }
    }

    /// What was observed of engines at `at`.
    pub(crate) fn observed(&mut self, at: Nanos, observations: &[Observation]) {
        if !self.active {
            return;
        }
        for observation in observations {
            match observation {
                Observation::Step(step) => {
                    if let Some(engine) = self.engine(&step.engine) {
                        engine.timeline.step(step);
                    }
                }
                Observation::Engine(report) => {
                    if let (Some(load), Some(engine)) = (report.load, self.engine(&report.engine)) {
                        engine.timeline.load(at, load.waiting);
                    }
                }
                Observation::EngineMessages {
                    engine,
                    understood: false,
                } => {
                    if let Some(engine) = self.engine(engine) {
                        engine.timeline.untold();
                    }
                }
                _ => {}
            }
        }
    }

    /// A request came.
    pub(crate) fn arrived(&mut self, engine: &Arc<str>, id: u64, at: Nanos) {
        if let Some(engine) = self.engine(engine) {
            engine.gone = None;
            engine.requests.arrived(id, at);
        }
    }

    /// Its labels are known, and whether it asked for a stream.
    pub(crate) fn named(&mut self, id: u64, labels: &Labels, streams: Option<bool>) {
        if let Some(engine) = self.engines.get_mut(&labels.engine) {
            engine.requests.named(id, labels, streams);
        }
    }

    /// It wrote tokens.
    pub(crate) fn chunk(&mut self, engine: &Arc<str>, id: u64, at: Nanos, tokens: u32) {
        if let Some(engine) = self.engine(engine) {
            engine.requests.chunk(id, at, tokens);
        }
    }

    /// It has ended.
    pub(crate) fn finished(&mut self, id: u64, at: Nanos, finished: &Finished) {
        if let Some(engine) = self.engines.get_mut(&finished.labels.engine) {
            engine.requests.finished(id, at, finished);
        }
    }

    /// An engine is gone.
    pub(crate) fn down(&mut self, engine: &str, at: Nanos) {
        if let Some(engine) = self.engines.get_mut(engine) {
            engine.gone = Some(at);
        }
    }

    /// Time has passed: settles what is due.
    pub(crate) fn advance(&mut self, now: Nanos, out: &mut Vec<Observation>) {
        if !self.active {
            return;
        }
        for engine in self.engines.values_mut() {
            let to = engine.horizon(now);
            engine.timeline.settle(to, &engine.requests);
        }
        let mut shares = Vec::new();
        let uuids: Vec<Arc<str>> = self.gpus.keys().cloned().collect();
        for uuid in uuids {
            while let Some((pending, users)) = self.due(&uuid, now) {
                self.settle(&uuid, &pending, &users, &mut shares);
            }
        }
        self.gpus
            .retain(|_, gpu| !gpu.pending.is_empty() || now.saturating_sub(gpu.seen) < GONE);
        let mut measured: BTreeMap<Arc<str>, Nanos> = BTreeMap::new();
        for gpu in self.gpus.values() {
            // The energy of an instance is told by the whole GPU.
            let whole = gpu.parent.as_ref().and_then(|parent| self.gpus.get(parent));
            let settled = whole.map_or(gpu.settled, |whole| whole.settled.min(gpu.settled));
            let users = gpu.pending.iter().flat_map(|pending| &pending.users);
            for (engine, _) in users.chain(&gpu.users) {
                let until = measured.entry(engine.clone()).or_insert(Nanos::MAX);
                *until = settled.min(*until);
            }
        }
        for (id, engine) in &mut self.engines {
            let settled = engine.timeline.settled();
            let measured = measured.get(id).map_or(settled, |until| settled.min(*until));
            engine
                .charges
                .charge(&mut engine.timeline, &mut engine.requests, measured, now);
            let needed = engine.timeline.segments.iter();
            let over = needed.take_while(|segment| segment.to <= measured).count();
            engine.timeline.segments.drain(..over);
            if engine.is_over(now) {
                engine.charges.end(&mut engine.timeline, &mut engine.requests);
            }
            engine.charges.tell(id, &mut engine.requests, &mut shares);
            self.late += std::mem::take(&mut engine.timeline.late);
            self.evicted += std::mem::take(&mut engine.timeline.evicted);
            self.evicted += std::mem::take(&mut engine.requests.evicted);
        }
        self.engines.retain(|_, engine| !engine.is_over(now));
        out.extend(shares.into_iter().map(Observation::Gpu));
    }

    /// How much came too late, and how much was given up to stay within bounds, since this was last asked.
    pub(crate) fn take_lost(&mut self) -> (u64, u64) {
        (std::mem::take(&mut self.late), std::mem::take(&mut self.evicted))
    }

    /// Bytes, about.
    pub(crate) fn bytes(&self) -> usize {
        let of_engine = |engine: &Engine| {
            size_of::<Engine>()
                + engine.timeline.bytes()
                + engine.timeline.kinds.bytes()
                + engine.requests.bytes()
        };
        let of_reading = |pending: &Pending| {
            let processes = pending.reading.processes.as_ref().map_or(0, Vec::len);
            size_of::<Pending>() + 256 + pending.reading.busy.len() * 16 + processes * 40
        };
        let of_gpu = |gpu: &Gpu| size_of::<Gpu>() + gpu.pending.iter().map(of_reading).sum::<usize>();
        self.engines.values().map(of_engine).sum::<usize>() + self.gpus.values().map(of_gpu).sum::<usize>()
    }

    fn engine(&mut self, id: &Arc<str>) -> Option<&mut Engine> {
        if !self.active || (self.engines.len() >= MAX_ENGINES && !self.engines.contains_key(id)) {
            return None;
        }
        Some(self.engines.entry(id.clone()).or_default())
    }
}

impl Engine {
    /// Up to where its time can be settled.
    fn horizon(&self, now: Nanos) -> Nanos {
        let passed = now.saturating_sub(SETTLE);
        let waits = match self.requests.earliest_in_flight() {
            Some(earliest) if self.timeline.has_steps() && self.gone.is_none() => {
                self.timeline.last_end().max(earliest)
            }
            _ => passed,
        };
        let at_most = passed.min(waits.max(now.saturating_sub(STEP_AT_MOST)));
        self.timeline
            .between_bursts(at_most)
            .max(now.saturating_sub(STEP_AT_MOST).min(at_most))
    }

    fn is_over(&self, now: Nanos) -> bool {
        self.gone
            .is_some_and(|gone| now.saturating_sub(gone) > GONE + STEP_AT_MOST)
    }
}

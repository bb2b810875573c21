//! A stretch of time as trace-event JSON, which `ui.perfetto.dev`, `chrome://tracing` and Speedscope open.
//!
//! Owns: which tracks there are, and what is on them. Refuses: keeping what is drawn (the agent's), and drawing what is
//! not known: an engine without steps has no track of steps, a request without a phase has no slice for it.
//!
//! A process of the trace is an engine, a gateway or a GPU, a thread is a lane. Slices of one lane nest or do not touch, so requests
//! that overlap are on different lanes. Times are whole microseconds of CLOCK_MONOTONIC: every end is rounded down alike,
//! which keeps nesting as it is, and no viewer has to round a fraction.

mod event;
mod gateways;
mod lanes;
mod requests;
mod tracks;

#[cfg(test)]
mod tests;

use crate::gateway::GatewayPart;
use crate::observation::{EngineLoad, EngineStep};
use crate::{Nanos, RequestRecord};
use event::{Event, Out};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Something of an engine or a GPU at some time.
#[derive(Debug, Clone, PartialEq)]
pub enum Moment {
    /// An engine made a step.
    Step(EngineStep),
    /// An engine's scheduler told how busy it is.
    Load {
        /// Engine instance id.
        engine: Arc<str>,
        /// When that was heard.
        at: Nanos,
        /// How busy.
        load: EngineLoad,
    },
    /// A GPU was read.
    Gpu(GpuMoment),
}

/// One reading of a GPU; what was not told is `None`.
#[derive(Debug, Clone, PartialEq)]
pub struct GpuMoment {
    /// Its short name, as the label `gpu`.
    pub gpu: Arc<str>,
    /// The reading before, where there was one: means are of the time since then.
    pub since: Option<Nanos>,
    /// When it was read.
    pub at: Nanos,
    /// Share of time in which a kernel ran, 0 to 1; mean since the reading before.
    pub utilization: Option<f64>,
    /// Power, watts; mean since the reading before.
    pub power_watts: Option<f64>,
    /// Memory that is allocated, bytes.
    pub memory_used_bytes: Option<f64>,
    /// It can't be read: it fell off the bus, or the driver hangs.
    pub away: bool,
}

impl Moment {
    /// When it was over.
    pub fn at(&self) -> Nanos {
        match self {
            Moment::Step(step) => step.end,
            Moment::Load { at, .. } => *at,
            Moment::Gpu(gpu) => gpu.at,
        }
    }

    /// The engine that it is of.
    pub fn engine(&self) -> Option<&Arc<str>> {
        match self {
            Moment::Step(step) => Some(&step.engine),
            Moment::Load { engine, .. } => Some(engine),
            Moment::Gpu(_) => None,
        }
    }
}

/// What is known of a stretch of time.
#[derive(Debug, Default)]
pub struct History<'a> {
    /// Its beginning; what ended before is not in it.
    pub from: Nanos,
    /// Its end.
    pub to: Nanos,
    /// Requests that ended in it.
    pub requests: Vec<&'a RequestRecord>,
    /// Those of them that came by way of a gateway, with its part; and others that were for the same exchanges.
    pub gateways: Vec<(&'a RequestRecord, &'a GatewayPart)>,
    /// Everything else, in any order.
    pub moments: Vec<&'a Moment>,
    /// Requests that ended before this time are not all known.
    pub requests_from: Option<Nanos>,
    /// The same for the moments.
    pub moments_from: Option<Nanos>,
    /// What else is said of an engine, a gateway or a GPU, by its name.
    pub labels: BTreeMap<Arc<str>, String>,
    /// Process ids of engines and gateways, where they are known: other traces of the same host have them too.
    pub pids: BTreeMap<Arc<str>, u32>,
    /// The wall clock's microseconds since 1970 when CLOCK_MONOTONIC was 0, where that is known.
    pub unix_us_at_zero: Option<i64>,
    /// The version that made it.
    pub version: &'a str,
}

/// Process ids of the trace.
#[derive(Debug, Default)]
struct Ids {
    taken: BTreeSet<u32>,
    last: u32,
}

impl Ids {
    /// The one that is wished for, where nobody has it, or another.
    fn take(&mut self, wish: Option<u32>) -> u32 {
        let id = match wish.filter(|id| !self.taken.contains(id)) {
            Some(id) => id,
            None => loop {
                self.last += 1;
                if !self.taken.contains(&self.last) {
                    break self.last;
                }
            },
        };
        self.taken.insert(id);
        id
    }
}

/// The trace is larger than it may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the trace would be larger than {limit} bytes: ask for less time, or for one engine")]
pub struct TooLarge {
    /// Bytes.
    pub limit: usize,
}

impl History<'_> {
    /// The JSON, in the format's object form.
    ///
    /// # Errors
    /// It would be larger than `limit` bytes.
    pub fn encode(&self, limit: usize) -> Result<Vec<u8>, TooLarge> {
        let mut out = Out::new(limit);
        let engines: BTreeSet<&Arc<str>> = self
            .requests
            .iter()
            .map(|record| &record.engine)
            .chain(self.moments.iter().filter_map(|moment| moment.engine()))
            .collect();
        let gateways: BTreeSet<&Arc<str>> = self
            .gateways
            .iter()
            .filter(|(record, part)| part.t0_ns.is_some() && record.t0_ns.is_some())
            .map(|(_, part)| &part.name)
            .collect();
        let gpus: BTreeSet<&Arc<str>> = self.gpu_moments().map(|moment| &moment.gpu).collect();
        let mut drawn = 0;
        let mut ids = Ids::default();
        let mut places = requests::Places::new();
        // Gateways stand before the engines that they ask.
        let first = 1 + u32::try_from(gateways.len()).unwrap_or(u32::MAX / 2);
        for (place, engine) in (first..).zip(engines) {
            let pid = ids.take(self.pids.get(engine).copied());
            self.process(&mut out, pid, place, engine, engine)?;
            let lanes = tracks::steps(self, &mut out, pid, engine)?;
            drawn += requests::of_engine(self, &mut out, pid, engine, lanes, &mut places)?;
            tracks::loads(self, &mut out, pid, engine)?;
        }
        for (place, gateway) in (1..).zip(gateways) {
            let pid = ids.take(self.pids.get(gateway).copied());
            self.process(&mut out, pid, place, gateway, gateway)?;
            gateways::of_gateway(self, &mut out, pid, gateway, &places)?;
        }
        // Behind all engines: no host has more of them than this.
        for (place, gpu) in (10_000..).zip(gpus) {
            let pid = ids.take(None);
            self.process(&mut out, pid, place, &format!("GPU {gpu}"), gpu)?;
            tracks::gpu(self, &mut out, pid, gpu)?;
        }
        let notes = [
            (self.requests_from, "older requests are not known any more"),
            (
                self.moments_from,
                "older steps, loads and readings are not known any more",
            ),
        ];
        let notes = notes.map(|(from, what)| (from.filter(|from| *from > self.from), what));
        if notes.iter().any(|(from, _)| from.is_some()) {
            let pid = ids.take(None);
            self.process(&mut out, pid, 20_000, "infertap", "infertap")?;
            for (from, what) in notes {
                let Some(from) = from else { continue };
                let mut event = Event::new("i", what, from, pid);
                event.s = Some("g");
                out.event(&event)?;
            }
        }
        out.finish(&self.about(drawn))
    }

    fn gpu_moments(&self) -> impl Iterator<Item = &GpuMoment> {
        self.moments.iter().filter_map(|moment| match moment {
            Moment::Gpu(gpu) => Some(gpu),
            _ => None,
        })
    }

    /// Names a process, and says in which order they stand.
    fn process(&self, out: &mut Out, pid: u32, place: u32, name: &str, key: &str) -> Result<(), TooLarge> {
        out.event(&Event::meta("process_name", pid, None, "name", name.into()))?;
        if let Some(label) = self.labels.get(key) {
            out.event(&Event::meta(
                "process_labels",
                pid,
                None,
                "labels",
                label.as_str().into(),
            ))?;
        }
        out.event(&Event::meta(
            "process_sort_index",
            pid,
            None,
            "sort_index",
            place.into(),
        ))
    }

    /// What holds for the whole trace.
    fn about(&self, drawn: usize) -> Map<String, Value> {
        let micros = |at: Nanos| json!(at / 1000);
        let mut about = Map::new();
        about.insert("made_by".to_owned(), format!("infertap {}", self.version).into());
        about.insert("clock".to_owned(), "CLOCK_MONOTONIC".into());
        about.insert("from_us".to_owned(), micros(self.from));
        about.insert("to_us".to_owned(), micros(self.to));
        about.insert("requests".to_owned(), drawn.into());
        about.insert(
            "requests_without_times".to_owned(),
            (self.requests.len() - drawn).into(),
        );
        let known = [
            ("unix_us_at_zero", self.unix_us_at_zero.map(|at| json!(at))),
            ("requests_known_from_us", self.requests_from.map(micros)),
            ("moments_known_from_us", self.moments_from.map(micros)),
        ];
        about.extend(
            known
                .into_iter()
                .filter_map(|(key, value)| Some((key.to_owned(), value?))),
        );
        about
    }
}

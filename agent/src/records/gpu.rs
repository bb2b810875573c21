//! What the GPUs of a request's engine were like while it ran.
//!
//! Owns: the last readings, requests that wait for the reading after their end, and what is told of them. Refuses: reading GPUs
//! (`sampler`), and whose a GPU's time and energy were (the core's `gpu`).
//!
//! A reading tells of the time since the one before. A request has those whose time overlaps its own, so a short one has the reading
//! that came after it.

use crate::export::gpus::{Gpus, Owner};
use crate::sampler::nvml::{Gauge, GpuStatus, Reason, Total};
use infertap_core::Nanos;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Readings that are kept: some 17 minutes of eight GPUs that are read once a second.
const READINGS: usize = 8192;
/// Requests that wait.
const WAITING: usize = 512;
/// How long one waits for a reading after its end.
const PATIENCE: Nanos = 10_000_000_000;
/// GPUs that are told of one request.
const MOST: usize = 16;

/// A GPU while a request ran. What is not known is absent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GpuDuring {
    /// Its short name, as in the metrics.
    pub gpu: String,
    /// Seconds of the request that readings tell of.
    pub covered_s: f64,
    /// Mean share of time in which any kernel ran, of whatever process, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub utilization_ratio: Option<f64>,
    /// Mean power, watts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_watts: Option<f64>,
    /// Most memory that was allocated, by whatever process, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_used_max_bytes: Option<u64>,
    /// Lowest clock of the multiprocessors, hertz.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sm_clock_min_hertz: Option<f64>,
    /// Highest temperature of the chip.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature_max_celsius: Option<f64>,
    /// Why clocks were lowered, some of the time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub throttle_reasons: Vec<String>,
}

/// A request that is kept.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Kept {
    pub(super) id: String,
    pub(super) engine: Arc<str>,
    /// When it began and ended.
    pub(super) begin: Nanos,
    pub(super) end: Nanos,
}

/// One reading of one GPU.
#[derive(Debug)]
struct Reading {
    gpu: Arc<str>,
    engines: Arc<[Arc<str>]>,
    /// When the one before was; absent where there was none, or the GPU was away since.
    since: Option<Nanos>,
    at: Nanos,
    values: [Option<f64>; GAUGES.len()],
    throttled: Vec<Reason>,
}

/// In the order of [`Reading::values`].
const GAUGES: [Gauge; 5] = [
    Gauge::Utilization,
    Gauge::Power,
    Gauge::MemoryUsed,
    Gauge::SmClock,
    Gauge::Temperature,
];

/// The reading before, of one GPU.
#[derive(Debug)]
struct Before {
    at: Nanos,
    throttled: [Option<f64>; Reason::ALL.len()],
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct GpuHistory {
    readings: VecDeque<Reading>,
    /// By GPU.
    before: BTreeMap<Arc<str>, Before>,
    waiting: VecDeque<Kept>,
}

impl GpuHistory {
    /// A request ended; what is known of its engine's GPUs comes with a later reading.
    pub(super) fn ended(&mut self, kept: Kept) {
        if self.before.is_empty() {
            // No GPU is read.
            return;
        }
        if self.waiting.len() >= WAITING {
            self.waiting.pop_front();
        }
        self.waiting.push_back(kept);
    }

    /// All GPUs were read. Gives the requests of which all that will be is known, each with its id.
    pub(super) fn read(&mut self, gpus: &Gpus, now: Nanos) -> Vec<(String, Vec<GpuDuring>)> {
        let mut up_to: BTreeMap<Arc<str>, Nanos> = BTreeMap::new();
        self.before
            .retain(|gpu, _| gpus.view.gpus.iter().any(|known| known.gpu == *gpu));
        for (status, owned) in gpus.view.gpus.iter().zip(&gpus.owned) {
            if status.away.is_some() {
                self.before.remove(&status.gpu);
                continue;
            }
            let engines: Vec<Arc<str>> = owned
                .shares
                .keys()
                .filter_map(|owner| match owner {
                    Owner::Engine(engine) => Some(Arc::clone(engine)),
                    Owner::Other | Owner::Unknown => None,
                })
                .collect();
            for engine in &engines {
                let up_to = up_to.entry(Arc::clone(engine)).or_insert(status.read_at);
                *up_to = status.read_at.min(*up_to);
            }
            self.reading(status, engines.into());
        }
        let mut told = Vec::new();
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.retain(|kept| {
            let read = up_to.get(&kept.engine).is_some_and(|up_to| *up_to >= kept.end);
            let late = now.saturating_sub(kept.end) >= PATIENCE;
            if read || late {
                let during = self.during(kept);
                if !during.is_empty() {
                    told.push((kept.id.clone(), during));
                }
            }
            !read && !late
        });
        self.waiting = waiting;
        told
    }

    /// Readings, and requests that wait.
    #[cfg(test)]
    pub(super) fn sizes(&self) -> (usize, usize) {
        (self.readings.len(), self.waiting.len())
    }

    fn reading(&mut self, status: &GpuStatus, engines: Arc<[Arc<str>]>) {
        let gauge = |wanted| {
            status
                .gauges
                .iter()
                .find(|(gauge, _)| *gauge == wanted)
                .map(|(_, value)| *value)
        };
        let total = |wanted| {
            status
                .totals
                .iter()
                .find(|(total, _)| *total == wanted)
                .map(|(_, value)| *value)
        };
        let throttled = Reason::ALL.map(|reason| total(Total::Throttle(reason)));
        let now = Before {
            at: status.read_at,
            throttled,
        };
        let before = self.before.insert(Arc::clone(&status.gpu), now);
        if before.as_ref().is_some_and(|before| before.at >= status.read_at) {
            // The same reading again.
            return;
        }
        let grown = before.as_ref().map_or_else(Vec::new, |before| {
            let pairs = Reason::ALL
                .into_iter()
                .zip(before.throttled.into_iter().zip(throttled));
            pairs
                .filter(|(_, (before, now))| before.zip(*now).is_some_and(|(before, now)| now > before))
                .map(|(reason, _)| reason)
                .collect()
        });
        if self.readings.len() >= READINGS {
            self.readings.pop_front();
        }
        self.readings.push_back(Reading {
            gpu: Arc::clone(&status.gpu),
            engines,
            since: before.map(|before| before.at),
            at: status.read_at,
            values: GAUGES.map(gauge),
            throttled: grown,
        });
    }

    /// What the readings tell of a request's time, by GPU.
    fn during(&self, kept: &Kept) -> Vec<GpuDuring> {
        let mut found: BTreeMap<&Arc<str>, Sums> = BTreeMap::new();
        for reading in self.readings.iter().rev() {
            if reading.at <= kept.begin {
                // Of another GPU may be some that are a little newer.
                if kept.begin - reading.at > PATIENCE {
                    break;
                }
                continue;
            }
            let Some(since) = reading.since.filter(|since| *since < kept.end) else {
                continue;
            };
            if reading.engines.contains(&kept.engine)
                && (found.len() < MOST || found.contains_key(&reading.gpu))
            {
                let overlap = reading.at.min(kept.end).saturating_sub(since.max(kept.begin));
                found
                    .entry(&reading.gpu)
                    .or_default()
                    .add(reading, overlap as f64 / 1e9);
            }
        }
        found.into_iter().map(|(gpu, sums)| sums.told(gpu)).collect()
    }
}

/// What several readings of one GPU amount to.
#[derive(Debug, Default)]
struct Sums {
    covered_s: f64,
    /// Of utilisation and power: the sum of value times seconds, and seconds.
    means: [(f64, f64); 2],
    memory: Option<f64>,
    clock: Option<f64>,
    temperature: Option<f64>,
    throttled: Vec<Reason>,
}

impl Sums {
    fn add(&mut self, reading: &Reading, overlap_s: f64) {
        self.covered_s += overlap_s;
        let [utilization, power, memory, clock, temperature] = reading.values;
        for (mean, value) in self.means.iter_mut().zip([utilization, power]) {
            if let Some(value) = value {
                mean.0 += value * overlap_s;
                mean.1 += overlap_s;
            }
        }
        let of = |now: Option<f64>, more: Option<f64>, best: fn(f64, f64) -> f64| match (now, more) {
            (Some(now), Some(more)) => Some(best(now, more)),
            (now, more) => now.or(more),
        };
        self.memory = of(self.memory, memory, f64::max);
        self.clock = of(self.clock, clock, f64::min);
        self.temperature = of(self.temperature, temperature, f64::max);
        self.throttled.extend(&reading.throttled);
    }

    fn told(mut self, gpu: &Arc<str>) -> GpuDuring {
        let [utilization, power] = self
            .means
            .map(|(sum, seconds)| (seconds > 0.0).then(|| sum / seconds));
        self.throttled.sort_unstable();
        self.throttled.dedup();
        GpuDuring {
            gpu: gpu.to_string(),
            covered_s: self.covered_s,
            utilization_ratio: utilization,
            power_watts: power,
            memory_used_max_bytes: self.memory.map(|bytes| bytes as u64),
            sm_clock_min_hertz: self.clock,
            temperature_max_celsius: self.temperature,
            throttle_reasons: self
                .throttled
                .iter()
                .map(|reason| reason.as_str().to_owned())
                .collect(),
        }
    }
}

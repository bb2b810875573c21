//! What the requests of one engine have to do with each other: how many there are, and whose prompt was read when.
//!
//! Owns: counts of requests in flight, the bounded history of prefills, each engine's capacity table, and what they give
//! the diagnosis of a request that ends. Refuses: telling when prefills were (the engine's messages do, or inference).
//!
//! A request is diagnosed the moment it ends, by what is known then. The prefill of another one that is still going on then,
//! or whose first token has not been told, is not blamed.

#[cfg(test)]
mod tests;

use super::{Evidence, Gap, Interference, Prefill, Stalls, diagnose, interference};
use crate::{
    EngineInfo, Nanos, Observation, PipelineConfig, RequestRecord, Status,
    capacity::{Capacity, CapacityReport, Sample},
    inside::Inside,
    observation::Finished,
    trace::{Trace, TraceSource},
};
use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::Arc,
};

/// Engines; as many as `engines` knows.
const MAX_ENGINES: usize = 1024;
/// Prefills of ended requests that are remembered for one engine. A request whose tokens go further back than they do has no
/// interference told.
const MAX_PREFILLS: usize = 4096;
/// How often an engine's capacity is told while it changes, and while it only fades.
const TELL_EVERY: Nanos = 1_000_000_000;
const FADE_EVERY: Nanos = 60_000_000_000;

/// All engines.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    engines: BTreeMap<Arc<str>, Engine>,
    born: u64,
}

#[derive(Debug)]
struct Engine {
    /// Tells this engine from an earlier one of the same id.
    born: u64,
    model: Option<Arc<str>>,
    in_flight: u64,
    /// Requests in flight by their response's id, with the trace that their headers name.
    responses: HashMap<Arc<str>, (u64, Option<Arc<str>>)>,
    /// Of requests that have ended, in the order in which they did.
    prefills: VecDeque<Prefill>,
    /// Latest end of a prefill that was forgotten.
    forgotten: Nanos,
    capacity: Capacity,
    told_at: Nanos,
}

/// What one request has seen of others, and of its client.
#[derive(Debug, Default)]
pub(crate) struct Witness {
    arrival: Option<Arrival>,
    pub(crate) stalls: Stalls,
}

#[derive(Debug)]
struct Arrival {
    engine: Arc<str>,
    born: u64,
    in_flight: u64,
    running: Option<u64>,
}

impl Peers {
    /// A request arrived at an engine.
    pub(crate) fn arrive(
        &mut self,
        info: Option<&EngineInfo>,
        inside: &Inside,
        config: &PipelineConfig,
    ) -> Witness {
        let arrival = info.and_then(|info| {
            if self.engines.len() >= MAX_ENGINES && !self.engines.contains_key(&info.id) {
                return None;
            }
            let engine = self.engines.entry(info.id.clone()).or_insert_with(|| {
                self.born += 1;
                Engine {
                    born: self.born,
                    model: None,
                    in_flight: 0,
                    responses: HashMap::new(),
                    prefills: VecDeque::new(),
                    forgotten: 0,
                    capacity: Capacity::new(config.capacity_half_life_ns),
                    told_at: 0,
                }
            });
            if engine.model.is_none() {
                engine.model.clone_from(&info.model);
            }
            let in_flight = engine.in_flight;
            engine.in_flight += 1;
            Some(Arrival {
                engine: info.id.clone(),
                born: engine.born,
                in_flight,
                running: inside.running(&info.id),
            })
        });
        Witness {
            arrival,
            stalls: Stalls::default(),
        }
    }

    fn engine(&mut self, arrival: &Arrival) -> Option<&mut Engine> {
        let engine = self.engines.get_mut(&arrival.engine)?;
        (engine.born == arrival.born).then_some(engine)
    }

    /// The response of a request that arrived has told its id.
    pub(crate) fn answering(&mut self, witness: &Witness, id: u64, trace: Option<&Trace>, response_id: &str) {
        if let Some(arrival) = &witness.arrival
            && let Some(engine) = self.engine(arrival)
        {
            let trace = trace.map(|trace| Arc::from(&*trace.id));
            engine.responses.insert(response_id.into(), (id, trace));
        }
    }

    /// A request has ended: diagnoses it, and takes what it tells of others.
    pub(crate) fn finish(
        &mut self,
        id: u64,
        witness: Witness,
        at: Nanos,
        finished: &mut Finished,
        inside: &Inside,
        config: &PipelineConfig,
    ) {
        let Witness { arrival, mut stalls } = witness;
        let record = &mut finished.record;
        stalls.end(at);
        let mut evidence = Evidence {
            stalled_ns: (record.response_bytes > 0).then(|| stalls.total()),
            stalled_after_ns: record.t4_ns.map_or(0, |t4| stalls.last().saturating_sub(t4)),
            ..Evidence::default()
        };
        if let Some(arrival) = &arrival
            && let Some(engine) = self.engine(arrival)
        {
            engine.in_flight = engine.in_flight.saturating_sub(1);
            let response_id = record.response_id.as_deref();
            if let Some(response_id) = response_id
                && engine.responses.get(response_id).is_some_and(|(of, _)| *of == id)
            {
                engine.responses.remove(response_id);
            }
            evidence.in_flight = Some(arrival.in_flight);
            evidence.running = arrival.running;
            let gaps = Gaps {
                from: finished.gaps_from,
                gaps: &finished.gaps,
            };
            evidence.interference = engine.interference(&arrival.engine, record, &gaps, &stalls, inside);
            engine.remember(id, record);
            finished.in_flight_at_arrival = Some(arrival.in_flight);
            if record.status != Status::Incomplete {
                engine.capacity.add(at, sample(arrival, record));
                if engine.model.is_none() {
                    engine.model = Some(record.model.clone());
                }
            }
        }
        if record.status != Status::Incomplete {
            record.diagnosis = diagnose(record, evidence, &config.diagnosis);
        }
    }

    /// Time has passed: tells of each engine's capacity.
    pub(crate) fn advance(&mut self, now: Nanos, out: &mut Vec<Observation>) {
        for (id, engine) in &mut self.engines {
            let waited = now.saturating_sub(engine.told_at);
            let changed = engine.capacity.has_changed();
            if waited < if changed { TELL_EVERY } else { FADE_EVERY } {
                continue;
            }
            if let Some((knee, by_concurrency)) = engine.capacity.news(now) {
                engine.told_at = now;
                out.push(Observation::Capacity(Box::new(CapacityReport {
                    engine: id.clone(),
                    model: engine.model.clone(),
                    knee,
                    by_concurrency,
                })));
            }
        }
    }

    /// An engine is gone, with all that it was doing.
    pub(crate) fn down(&mut self, engine: &str) {
        self.engines.remove(engine);
    }

    /// Bytes, about.
    pub(crate) fn bytes(&self) -> usize {
        let of = |engine: &Engine| {
            size_of::<Engine>()
                + engine.responses.len() * 160
                + engine.prefills.len() * (size_of::<Prefill>() + 64)
                + engine.capacity.bytes()
        };
        self.engines.values().map(of).sum()
    }
}

fn sample(arrival: &Arrival, record: &RequestRecord) -> Sample {
    let service = |e2e: f64| e2e - record.queue_s.unwrap_or(0.0);
    Sample {
        in_flight: arrival.in_flight,
        running: arrival.running,
        queue_s: record.queue_s,
        ttft_s: record.ttft_s,
        service_s: record.e2e_s.filter(|_| record.status == Status::Ok).map(service),
    }
}

/// The gaps of a request that has ended, as they are observed.
struct Gaps<'a> {
    from: Option<Nanos>,
    gaps: &'a [(f64, u32)],
}

impl Gaps<'_> {
    fn absolute(&self) -> Option<Vec<Gap>> {
        let start = self.from.filter(|_| !self.gaps.is_empty())?;
        let mut seconds = 0.0;
        let mut from = start;
        let gaps = self.gaps.iter().map(|(gap, _)| {
            seconds += gap;
            let to = start.saturating_add((seconds * 1e9) as u64).max(from);
            Gap {
                from: std::mem::replace(&mut from, to),
                to,
            }
        });
        Some(gaps.collect())
    }
}

impl Engine {
    /// How long the request stood still for others; `None` where that can't be known.
    fn interference(
        &self,
        id: &str,
        record: &RequestRecord,
        gaps: &Gaps<'_>,
        stalls: &Stalls,
        inside: &Inside,
    ) -> Option<Interference> {
        // An engine that tells when this one's prefill began tells it of others.
        record.t1_ns?;
        let gaps = gaps.absolute()?;
        let (from, to) = (gaps.first()?.from, gaps.last()?.to);
        if self.forgotten > from {
            return None;
        }
        let meets = |prefill: &Prefill| prefill.to > from && prefill.from < to;
        let ended = self.prefills.iter().filter(|prefill| meets(prefill)).cloned();
        // The request's own is no longer there.
        let under_way = inside.prefills(id).map(|(response_id, from, to)| {
            let known = self.responses.get(response_id);
            Prefill {
                id: known.map(|(id, _)| *id),
                response_id: Some(response_id.clone()),
                trace: known.and_then(|(_, trace)| trace.clone()),
                from,
                to,
            }
        });
        let prefills = ended.chain(under_way.filter(meets)).collect();
        Some(interference(&gaps, prefills, stalls))
    }

    /// Keeps the request's prefill for those that it may have held up.
    fn remember(&mut self, id: u64, record: &RequestRecord) {
        let (Some(from), Some(to)) = (record.t1_ns, record.t2_ns) else {
            return;
        };
        if self.prefills.len() >= MAX_PREFILLS
            && let Some(oldest) = self.prefills.pop_front()
        {
            self.forgotten = self.forgotten.max(oldest.to);
        }
        self.prefills.push_back(Prefill {
            id: Some(id),
            response_id: record.response_id.as_deref().map(Arc::from),
            trace: (record.trace_source != TraceSource::Derived).then(|| Arc::from(&*record.trace_id)),
            from,
            to,
        });
    }
}

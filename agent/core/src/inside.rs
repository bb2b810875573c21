//! What engines have told of the requests that they have under way, until their exchanges end.
//!
//! Owns: the bounded table of such requests by the id that their response will show, what is known of each engine's
//! cores, and how long it is kept. Refuses: framing and layouts (`wire`, `engine`), records (`exchange`). How an engine's
//! own messages come in here is a file of its own for each.

mod response;
mod sglang;
mod steps;
#[cfg(test)]
mod tests;
mod vitals;
mod vllm;

use crate::{Nanos, Observation, observation::EngineLoad};
use response::Response;
pub(crate) use response::Told;
use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};
use steps::Steps;
pub(crate) use vllm::{Begun, Seen, prompt_id, response_id};

/// Responses under way that are remembered for one engine; past it the oldest is forgotten, and its record keeps to what
/// its socket tells. Far more than any engine runs and queues at once.
const MAX_RESPONSES: usize = 8192;
/// Engines; as many as `engines` knows.
const MAX_ENGINES: usize = 1024;
/// Engine cores of one engine.
const MAX_CORES: u64 = 1024;
/// API servers of one engine.
const MAX_FRONTS: usize = 64;
/// A response whose requests have ended waits so long for its exchange: a client may be slow to read. It may also wait in
/// vain, as one of a protocol that is not known here.
const KEEP_ENDED: Nanos = 600 * 1_000_000_000;
/// One of which nothing is told waits so long: its end may have been missed.
const KEEP_SILENT: Nanos = 3600 * 1_000_000_000;
/// How often that is looked at.
const SWEEP: Nanos = 10 * 1_000_000_000;

/// All engines.
#[derive(Debug, Default)]
pub(crate) struct Inside {
    engines: HashMap<Arc<str>, Engine>,
    /// Of engines of SGLang.
    sglang: sglang::Requests,
    swept: Nanos,
}

#[derive(Debug, Default)]
struct Engine {
    /// The model that it is known to serve.
    model: Option<Arc<str>>,
    /// By the id that the response will show.
    responses: HashMap<Arc<str>, Response>,
    /// Response of each engine request, and its place there.
    members: HashMap<Box<str>, (Arc<str>, usize)>,
    /// Responses, oldest first; some may be gone.
    order: VecDeque<Arc<str>>,
    /// Whether the last message of each direction that tells of requests was understood.
    understood: [Option<bool>; 2],
    /// Both were, as told last.
    told_understood: Option<bool>,
    /// Processes that add requests.
    fronts: Vec<u32>,
    cores: HashMap<u64, Core>,
    /// When it told how busy it is.
    load_told: Option<Nanos>,
    /// Requests that it has put back into the queue.
    preemptions: u64,
}

/// One engine core: a scheduler and what it schedules.
#[derive(Debug, Default)]
struct Core {
    /// As told last.
    load: Option<EngineLoad>,
    steps: Steps,
}

impl Inside {
    /// A message that tells of requests was understood, or not. Answers when that has changed what both directions
    /// together are.
    pub(crate) fn understood(&mut self, engine: &Arc<str>, outputs: bool, now: bool) -> Option<bool> {
        let engine = self.engine(engine)?;
        engine.understood[usize::from(outputs)] = Some(now);
        let all = !engine.understood.contains(&Some(false));
        (engine.told_understood.replace(all) != Some(all)).then_some(all)
    }

    /// Messages of the engine are missing.
    pub(crate) fn lost(&mut self, engine: &str) {
        self.sglang.lost(engine);
        if let Some(engine) = self.engines.get_mut(engine) {
            engine.lost();
        }
    }

    /// The response with this id has ended; `complete`: to its end. What is believed of it, and forgotten here. Where
    /// `since` is given, one that was added before is another's.
    pub(crate) fn take(
        &mut self,
        engine: &str,
        response: &str,
        since: Option<Nanos>,
        complete: bool,
    ) -> Option<Told> {
        if let Some(told) = self.sglang.take(engine, response, complete) {
            return Some(told);
        }
        let engine = self.engines.get_mut(engine)?;
        let added = engine.responses.get(response)?.added;
        if since.is_some_and(|since| added < since) {
            return None;
        }
        engine.forget(response)?.told(complete)
    }

    /// Time has passed: tells the steps that wait for others no longer, and forgets what nobody has come for.
    pub(crate) fn advance(&mut self, now: Nanos, out: &mut Vec<Observation>) {
        for (id, engine) in &mut self.engines {
            engine.tell_steps(id, Some(now), out);
        }
        if now.saturating_sub(self.swept) < SWEEP {
            return;
        }
        self.swept = now;
        self.sglang.sweep(now);
        for engine in self.engines.values_mut() {
            let stale = |response: &Response| {
                let silent = now.saturating_sub(response.touched);
                silent >= KEEP_SILENT || (silent >= KEEP_ENDED && response.ended())
            };
            let gone: Vec<Arc<str>> = engine
                .responses
                .iter()
                .filter(|(_, response)| stale(response))
                .map(|(id, _)| id.clone())
                .collect();
            for id in gone {
                engine.forget(&id);
            }
        }
    }

    /// Responses under way whose prefill is over: id, scheduled, first token.
    pub(crate) fn prefills(&self, engine: &str) -> impl Iterator<Item = (&Arc<str>, Nanos, Nanos)> {
        let responses = self.engines.get(engine).map(|engine| &engine.responses);
        responses.into_iter().flatten().filter_map(|(id, response)| {
            let (scheduled, first_token) = response.prefill()?;
            Some((id, scheduled, first_token))
        })
    }

    /// Requests that an engine runs, as it told last.
    pub(crate) fn running(&self, engine: &str) -> Option<u64> {
        Some(self.engines.get(engine)?.load()?.running)
    }

    /// An engine is gone, and all that it was doing.
    pub(crate) fn down(&mut self, engine: &str, out: &mut Vec<Observation>) {
        self.sglang.down(engine);
        if let Some((id, mut engine)) = self.engines.remove_entry(engine) {
            engine.tell_steps(&id, Some(Nanos::MAX), out);
        }
    }

    /// Bytes, about.
    pub(crate) fn bytes(&self) -> usize {
        let of = |engine: &Engine| {
            let responses = engine.responses.values();
            responses
                .map(|response| size_of::<Response>() + 128 + response.heap_bytes())
                .sum::<usize>()
                + engine.members.len() * 160
                + engine.order.len() * 16
                + engine.cores.len() * (size_of::<Core>() + 512)
        };
        self.engines.values().map(of).sum::<usize>() + self.sglang.bytes()
    }

    fn engine(&mut self, id: &Arc<str>) -> Option<&mut Engine> {
        if self.engines.len() >= MAX_ENGINES && !self.engines.contains_key(id) {
            return None;
        }
        Some(self.engines.entry(id.clone()).or_default())
    }
}

impl Engine {
    /// The response with this id, made when it is new.
    fn response(&mut self, id: &Arc<str>, now: Nanos) -> &mut Response {
        if !self.responses.contains_key(id) {
            while self.responses.len() >= MAX_RESPONSES
                && let Some(oldest) = self.order.pop_front()
            {
                self.forget(&oldest);
            }
            // Ended ones stay in the order until they come to its front, or are too many.
            if self.order.len() >= 2 * MAX_RESPONSES {
                let responses = &self.responses;
                self.order.retain(|id| responses.contains_key(id));
            }
            self.order.push_back(id.clone());
        }
        self.responses
            .entry(id.clone())
            .or_insert_with(|| Response::new(now))
    }

    /// The response of an engine request, and the request's place there.
    fn member(&mut self, engine_id: &str) -> Option<(&mut Response, usize)> {
        let (id, place) = self.members.get(engine_id)?;
        Some((self.responses.get_mut(id)?, *place))
    }

    /// How busy all cores together are.
    fn load(&self) -> Option<EngineLoad> {
        let told = || self.cores.values().filter_map(|core| core.load);
        let usages: Vec<f64> = told().filter_map(|load| load.kv_cache_usage).collect();
        told().next()?;
        Some(EngineLoad {
            running: told().map(|load| load.running).sum(),
            waiting: told().map(|load| load.waiting).sum(),
            kv_cache_usage: (!usages.is_empty()).then(|| usages.iter().sum::<f64>() / usages.len() as f64),
        })
    }

    /// Tells the steps of all cores of which enough is known, or that have waited long enough at `now`.
    fn tell_steps(&mut self, id: &Arc<str>, now: Option<Nanos>, out: &mut Vec<Observation>) {
        let fronts = self.fronts.len();
        for core in self.cores.values_mut() {
            core.steps.tell(fronts, now, &mut |step| {
                out.push(step.observation(id, self.model.as_ref()));
            });
        }
    }

    fn lost(&mut self) {
        for response in self.responses.values_mut() {
            response.lost();
        }
        for core in self.cores.values_mut() {
            core.steps.lost();
        }
    }

    fn forget(&mut self, id: &str) -> Option<Response> {
        let response = self.responses.remove(id)?;
        for member in response.members() {
            self.members.remove(member);
        }
        Some(response)
    }
}

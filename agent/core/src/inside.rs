//! What engines' own messages have told of requests that are under way, until their exchanges end.
//!
//! Owns: the bounded table of such requests, their join with responses by id, and what the scheduler says of an engine.
//! Refuses: framing and layouts (`wire::zmtp`, `engine::vllm`), and records (`exchange`).

#[cfg(test)]
mod tests;

use crate::{
    Nanos,
    engine::vllm::{Added, Lifecycle, Output, Step},
    observation::{EngineLoad, EngineReport},
};
use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

/// Responses under way that are remembered for one engine; past it the oldest is forgotten, and its record keeps to what
/// its socket tells. Far more than any engine runs and queues at once.
const MAX_RESPONSES: usize = 8192;
/// Engine requests of one response: prompts times choices.
const MAX_MEMBERS: usize = 256;
/// Engines; as many as `engines` knows.
const MAX_ENGINES: usize = 1024;
/// Engine cores of one engine.
const MAX_CORES: u64 = 1024;

/// All engines.
#[derive(Debug, Default)]
pub(crate) struct Inside {
    engines: HashMap<Arc<str>, Engine>,
}

#[derive(Debug, Default)]
struct Engine {
    /// By the id that the response will show.
    responses: HashMap<Arc<str>, Response>,
    /// Response of each engine request.
    members: HashMap<Box<str>, Arc<str>>,
    /// Responses, oldest first; some may be gone.
    order: VecDeque<Arc<str>>,
    /// Whether the last message of each direction that tells of requests was understood.
    understood: [Option<bool>; 2],
    /// Both were, as told last.
    told_understood: Option<bool>,
    /// Running, waiting and cache usage, as each engine core told last.
    cores: HashMap<u64, (u64, u64, Option<f64>)>,
}

/// What the engine told of one response. It may have several prompts, and several choices for each.
#[derive(Debug, Default)]
struct Response {
    members: Vec<Box<str>>,
    finished: usize,
    prompts: Vec<Prompt>,
    scheduled: Option<Nanos>,
    first_token: Option<Nanos>,
    last_token: Option<Nanos>,
    output_tokens: u64,
    /// Steps may have been missed, or members: what has been counted may be too little.
    lossy: bool,
}

#[derive(Debug)]
struct Prompt {
    id: Box<str>,
    tokens: Option<u64>,
    cached: Option<u64>,
}

/// What is believed of a response that has ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Told {
    /// The scheduler took the first of its requests.
    pub(crate) scheduled: Option<Nanos>,
    /// Its first token existed.
    pub(crate) first_token: Option<Nanos>,
    /// Its last token existed.
    pub(crate) last_token: Option<Nanos>,
    pub(crate) input_tokens: Option<u64>,
    pub(crate) cached_tokens: Option<u64>,
    pub(crate) output_tokens: Option<u64>,
    /// Engine requests that it has: prompts times choices.
    pub(crate) requests: u64,
}

impl Inside {
    /// A request entered an engine.
    pub(crate) fn added(&mut self, engine: &Arc<str>, added: &Added<'_>) {
        let Some(engine) = self.engine(engine) else { return };
        let prompt = prompt_id(added.external_id, added.engine_id);
        let id: Arc<str> = response_id(prompt).into();
        if !engine.responses.contains_key(&id) {
            while engine.responses.len() >= MAX_RESPONSES
                && let Some(oldest) = engine.order.pop_front()
            {
                engine.forget(&oldest);
            }
            // Ended ones stay in the order until they come to its front, or are too many.
            if engine.order.len() >= 2 * MAX_RESPONSES {
                let responses = &engine.responses;
                engine.order.retain(|id| responses.contains_key(id));
            }
            engine.order.push_back(id.clone());
        }
        let response = engine.responses.entry(id.clone()).or_default();
        if response.members.len() >= MAX_MEMBERS {
            response.lossy = true;
            return;
        }
        // One that goes on with more input is added again.
        if engine.members.insert(added.engine_id.into(), id).is_none() {
            response.members.push(added.engine_id.into());
        }
        match response.prompts.iter_mut().find(|known| *known.id == *prompt) {
            Some(known) => known.tokens = known.tokens.or(added.prompt_tokens),
            None => response.prompts.push(Prompt {
                id: prompt.into(),
                tokens: added.prompt_tokens,
                cached: None,
            }),
        }
    }

    /// An engine core made a step. Answers what is to be told of the engine.
    pub(crate) fn stepped(
        &mut self,
        id: &Arc<str>,
        model: Option<&Arc<str>>,
        step: &Step<'_>,
    ) -> Option<EngineReport> {
        let engine = self.engine(id)?;
        let mut report = EngineReport {
            engine: id.clone(),
            model: model.cloned(),
            load: None,
            prefix_queried_tokens: 0,
            prefix_hit_tokens: 0,
            preemptions: 0,
        };
        for output in &step.outputs {
            report.preemptions += output
                .events
                .iter()
                .filter(|event| event.stage == Lifecycle::Preempted)
                .count() as u64;
            engine.output(output, step.at);
        }
        if step.cut {
            engine.lossy();
        }
        if let Some(stats) = step.stats
            && step.engine_index < MAX_CORES
        {
            engine
                .cores
                .insert(step.engine_index, (stats.running, stats.waiting, stats.kv_usage));
            report.load = Some(engine.load());
            report.prefix_queried_tokens = stats.prefix_queried;
            report.prefix_hit_tokens = stats.prefix_hit;
        }
        (report.load.is_some() || report.preemptions > 0).then_some(report)
    }

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
        if let Some(engine) = self.engines.get_mut(engine) {
            engine.lossy();
        }
    }

    /// The response with this id has ended; `complete`: to its end. What is believed of it, and forgotten here.
    pub(crate) fn take(&mut self, engine: &str, response: &str, complete: bool) -> Option<Told> {
        let engine = self.engines.get_mut(engine)?;
        let response = engine.forget(response)?;
        // A response can be complete before the engine knows: a stop string is found in the API server, and the tokens
        // that came since are nobody's. A broken one has cost what the engine made.
        let counted = !response.lossy && (!complete || response.finished >= response.members.len());
        let sum = |part: fn(&Prompt) -> Option<u64>| response.prompts.iter().map(part).sum::<Option<u64>>();
        Some(Told {
            scheduled: response.scheduled,
            first_token: response.first_token.filter(|_| !response.lossy),
            last_token: response.last_token.filter(|_| counted),
            input_tokens: sum(|prompt| prompt.tokens).filter(|_| response.members.len() < MAX_MEMBERS),
            cached_tokens: sum(|prompt| prompt.cached),
            output_tokens: counted.then_some(response.output_tokens),
            requests: response.members.len() as u64,
        })
    }

    /// Responses under way whose prefill is over: id, scheduled, first token.
    pub(crate) fn prefills(&self, engine: &str) -> impl Iterator<Item = (&Arc<str>, Nanos, Nanos)> {
        let responses = self.engines.get(engine).map(|engine| &engine.responses);
        responses.into_iter().flatten().filter_map(|(id, response)| {
            let first_token = response.first_token.filter(|_| !response.lossy)?;
            Some((id, response.scheduled?, first_token))
        })
    }

    /// Requests that an engine runs, as it told last.
    pub(crate) fn running(&self, engine: &str) -> Option<u64> {
        let cores = &self.engines.get(engine)?.cores;
        (!cores.is_empty()).then(|| cores.values().map(|core| core.0).sum())
    }

    /// An engine is gone, and all that it was doing.
    pub(crate) fn down(&mut self, engine: &str) {
        self.engines.remove(engine);
    }

    /// Bytes, about.
    pub(crate) fn bytes(&self) -> usize {
        let of = |engine: &Engine| {
            engine.responses.len() * (size_of::<Response>() + 256)
                + engine.members.len() * 160
                + engine.order.len() * 16
        };
        self.engines.values().map(of).sum()
    }

    fn engine(&mut self, id: &Arc<str>) -> Option<&mut Engine> {
        if self.engines.len() >= MAX_ENGINES && !self.engines.contains_key(id) {
            return None;
        }
        Some(self.engines.entry(id.clone()).or_default())
    }
}

impl Engine {
    fn output(&mut self, output: &Output<'_>, at: Option<Nanos>) {
        let Some(response) = self
            .members
            .get(output.engine_id)
            .and_then(|id| self.responses.get_mut(id))
        else {
            return;
        };
        for event in &output.events {
            if event.stage == Lifecycle::Scheduled {
                response.scheduled = Some(response.scheduled.map_or(event.at, |first| first.min(event.at)));
            }
        }
        if output.new_tokens > 0 {
            response.output_tokens += u64::from(output.new_tokens);
            response.first_token = response.first_token.or(at);
            response.last_token = response.last_token.max(at);
        }
        if let Some(cached) = output.cached_tokens {
            let prompt = prompt_of_member(output.engine_id, &mut response.prompts);
            if let Some(prompt) = prompt {
                prompt.cached = prompt.cached.max(Some(cached));
            }
        }
        response.finished += usize::from(output.finish.is_some());
    }

    fn load(&self) -> EngineLoad {
        let usages: Vec<f64> = self.cores.values().filter_map(|core| core.2).collect();
        EngineLoad {
            running: self.cores.values().map(|core| core.0).sum(),
            waiting: self.cores.values().map(|core| core.1).sum(),
            kv_cache_usage: (!usages.is_empty()).then(|| usages.iter().sum::<f64>() / usages.len() as f64),
        }
    }

    fn lossy(&mut self) {
        for response in self.responses.values_mut() {
            response.lossy = true;
        }
    }

    fn forget(&mut self, id: &str) -> Option<Response> {
        let response = self.responses.remove(id)?;
        for member in &response.members {
            self.members.remove(member);
        }
        Some(response)
    }
}

/// The prompt that an engine request is for: its outer id. Of several choices, each is `0_ID`, `1_ID`, …; releases that
/// tell the outer id apart end the inner one with eight random digits.
fn prompt_id<'a>(external: Option<&'a str>, engine_id: &'a str) -> &'a str {
    let id = external.unwrap_or_else(|| without_random(engine_id));
    match id.split_once('_') {
        Some((choice, id)) if !choice.is_empty() && choice.bytes().all(|b| b.is_ascii_digit()) => id,
        _ => id,
    }
}

fn without_random(id: &str) -> &str {
    match id.rsplit_once('-') {
        Some((id, random)) if random.len() == 8 && random.bytes().all(|b| b.is_ascii_hexdigit()) => id,
        _ => id,
    }
}

/// The id of the response that answers a prompt: completions number their prompts behind it.
fn response_id(prompt: &str) -> &str {
    match prompt.rsplit_once('-') {
        Some((id, index))
            if id.starts_with("cmpl-") && !index.is_empty() && index.bytes().all(|b| b.is_ascii_digit()) =>
        {
            id
        }
        _ => prompt,
    }
}

fn prompt_of_member<'p>(engine_id: &str, prompts: &'p mut [Prompt]) -> Option<&'p mut Prompt> {
    if let [_] = prompts {
        return prompts.first_mut();
    }
    let bare = prompt_id(Some(engine_id), "");
    prompts
        .iter_mut()
        .find(|prompt| *prompt.id == *bare || *prompt.id == *without_random(bare))
}

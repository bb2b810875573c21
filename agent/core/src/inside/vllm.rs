//! vLLM's messages as facts of responses, steps and load.
//!
//! Owns: how its ids lead to a response, what its additions, aborts and outputs mean. Refuses: reading them
//! (`engine::vllm`), the table (`inside`).
//!
//! Every API server speaks with every engine core. A core tells each of them of its own requests, and only one of them,
//! at every step, how the scheduler is doing.

use super::{Inside, MAX_CORES, MAX_FRONTS, steps::Piece};
use crate::{
    Nanos, Observation,
    engine::vllm::{Added, Lifecycle, Output, Step},
    observation::{EngineLoad, EngineReport},
    prefix::{Prefix, Shared, Tail},
};
use std::sync::Arc;

/// Where and when a message was seen, and how many gaps between tokens are kept of a response.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen {
    /// The process: an API server.
    pub(crate) front: u32,
    pub(crate) now: Nanos,
    pub(crate) max_gaps: usize,
}

/// How far the prompt of a request agrees with one before it, and where its answer goes on.
pub(crate) type Begun = (Shared, Tail);

impl Inside {
    /// A request entered an engine.
    pub(crate) fn added(&mut self, engine: &Arc<str>, added: &Added<'_>, begun: Option<Begun>, seen: Seen) {
        let Some(engine) = self.engine(engine) else { return };
        if !engine.fronts.contains(&seen.front) && engine.fronts.len() < MAX_FRONTS {
            engine.fronts.push(seen.front);
        }
        // One that goes on with more input is added again.
        if let Some((response, member)) = engine.member(added.engine_id) {
            response.touched = seen.now;
            response.resume(member);
            return;
        }
        let prompt = prompt_id(added.external_id, added.engine_id);
        let id: Arc<str> = response_id(prompt).into();
        let response = engine.response(&id, seen.now);
        response.touched = seen.now;
        let stem = without_choice(added.engine_id);
        if let Some(place) = response.add(added.engine_id, prompt, stem, added.prompt_tokens) {
            if let Some(begun) = begun {
                response.begun(place, begun);
            }
            engine.members.insert(added.engine_id.into(), (id, place));
        }
    }

    /// Requests were given up: their clients went away, or a stop string came.
    pub(crate) fn aborted(&mut self, engine: &str, ids: &[&str], seen: Seen) {
        let Some(engine) = self.engines.get_mut(engine) else {
            return;
        };
        for id in ids {
            if let Some((response, member)) = engine.member(id) {
                response.touched = seen.now;
                response.give_up(member);
            }
        }
    }

    /// An engine core made a step.
    pub(crate) fn stepped(
        &mut self,
        id: &Arc<str>,
        model: Option<&Arc<str>>,
        step: &Step<'_>,
        prefix: &mut Prefix,
        seen: Seen,
        out: &mut Vec<Observation>,
    ) {
        let Some(engine) = self.engine(id) else { return };
        if engine.model.as_ref() != model {
            engine.model = model.cloned();
        }
        let mut report = EngineReport {
            engine: id.clone(),
            model: model.cloned(),
            load: None,
            prefix_queried_tokens: 0,
            prefix_hit_tokens: 0,
            preemptions: 0,
        };
        let mut piece = Piece::new(seen.front);
        for output in &step.outputs {
            report.preemptions += output
                .events
                .iter()
                .filter(|event| event.stage == Lifecycle::Preempted)
                .count() as u64;
            engine.output(output, step.at, prefix, seen, &mut piece);
        }
        engine.preemptions = engine.preemptions.saturating_add(report.preemptions);
        if step.cut {
            engine.lost();
        }
        // The coordinator of several cores is told loads too, in part and out of turn.
        let of_front = engine.fronts.contains(&seen.front) || !step.outputs.is_empty();
        if of_front && step.engine_index < MAX_CORES {
            let core = engine.cores.entry(step.engine_index).or_default();
            if let Some(stats) = step.stats {
                core.load = Some(EngineLoad {
                    running: stats.running,
                    waiting: stats.waiting,
                    kv_cache_usage: stats.kv_usage,
                });
                piece.running = Some(stats.running);
                piece.details = stats.iteration;
                report.prefix_queried_tokens = stats.prefix_queried;
                report.prefix_hit_tokens = stats.prefix_hit;
            }
            if let Some(at) = step.at
                && !step.cut
                && (step.stats.is_some() || !step.outputs.is_empty())
            {
                core.steps.add(at, seen.now, piece);
            }
            if step.stats.is_some() {
                report.load = engine.load();
                engine.load_told = Some(seen.now);
            }
        }
        if report.load.is_some() || report.preemptions > 0 {
            out.push(Observation::Engine(Box::new(report)));
        }
        engine.tell_steps(id, None, out);
    }
}

impl super::Engine {
    fn output(
        &mut self,
        output: &Output<'_>,
        at: Option<Nanos>,
        prefix: &mut Prefix,
        seen: Seen,
        piece: &mut Piece,
    ) {
        let scheduled = output
            .events
            .iter()
            .filter(|event| event.stage == Lifecycle::Scheduled)
            .map(|event| event.at)
            .max();
        let ended = output.finish.is_some();
        let Some((response, member)) = self.member(output.engine_id) else {
            // It entered before the agent came. With its first output comes that it was scheduled.
            piece.output(output.new_tokens, scheduled, None, scheduled.is_none(), ended);
            return;
        };
        response.touched = seen.now;
        for event in &output.events {
            if event.stage == Lifecycle::Scheduled {
                response.scheduled(event.at);
            }
        }
        if let Some(cached) = output.cached_tokens {
            response.cached(member, cached);
        }
        let mut before = None;
        if output.new_tokens > 0 {
            if let Some(tail) = response.tail(member) {
                output.new_ids.iter().for_each(|id| prefix.grown(tail, id));
            }
            before = response.tokens(member, output.new_tokens, at, seen.max_gaps);
        }
        if ended {
            response.finish(member);
        }
        // One that was put back and is taken again reads its prompt once more, and what it had generated.
        let again = before.is_some() && scheduled.is_some();
        let computed = response.computed(member).filter(|_| !again);
        piece.output(
            output.new_tokens,
            scheduled,
            computed,
            before.is_some() && !again,
            ended,
        );
        piece.continued = piece.continued.max(before);
    }
}

/// The prompt that an engine request is for: its outer id. Of several choices, each is `0_ID`, `1_ID`, …; releases that
/// tell the outer id apart end the inner one with eight random digits.
pub(crate) fn prompt_id<'a>(external: Option<&'a str>, engine_id: &'a str) -> &'a str {
    without_choice(external.unwrap_or_else(|| without_random(engine_id)))
}

fn without_choice(id: &str) -> &str {
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
pub(crate) fn response_id(prompt: &str) -> &str {
    match prompt.rsplit_once('-') {
        Some((id, index))
            if id.starts_with("cmpl-") && !index.is_empty() && index.bytes().all(|b| b.is_ascii_digit()) =>
        {
            id
        }
        _ => prompt,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_lead_to_their_response() {
        for (external, engine_id, response) in [
            (
                Some("chatcmpl-ab-12"),
                "chatcmpl-ab-12-0011aabb",
                "chatcmpl-ab-12",
            ),
            (Some("chatcmpl-ab"), "1_chatcmpl-ab-0011aabb", "chatcmpl-ab"),
            (None, "chatcmpl-ab", "chatcmpl-ab"),
            (None, "chatcmpl-ab-0011aabb", "chatcmpl-ab"),
            (None, "3_chatcmpl-ab", "chatcmpl-ab"),
            (Some("cmpl-ab-0"), "cmpl-ab-0-0011aabb", "cmpl-ab"),
            (None, "cmpl-a-b-11", "cmpl-a-b"),
            (None, "cmpl-x", "cmpl-x"),
            (None, "my_own_id", "my_own_id"),
        ] {
            assert_eq!(
                response_id(prompt_id(external, engine_id)),
                response,
                "{engine_id}"
            );
        }
    }
}

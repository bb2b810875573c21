//! Queue and prefill of an engine that tells nothing of its inside: from what all its streams wrote, and when.
//!
//! Owns: requests under way in each engine, their order, what is learnt of the engine, and the estimate of T1 at a
//! request's end. Refuses: anything told by the engine (`inside`), and guessing: where the evidence leaves more room
//! than the bounds of [`Estimate::holds_for`], nothing is said. The method is in `docs/inference.md`.

mod bursts;
mod limit;
mod plan;
mod rate;
#[cfg(test)]
mod simulator;
mod steps;
#[cfg(test)]
mod tests;

use crate::Nanos;
use bursts::Bursts;
use limit::Limit;
use plan::{Case, Free, Plan, Start, judge};
use rate::Rate;
use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};
use steps::Steps;

/// Engines; as many as `engines` knows.
const MAX_ENGINES: usize = 1024;
/// Requests under way in one engine; past it the engine is not judged until some have ended.
const MAX_LIVE: usize = 8192;
/// Ends of requests that are remembered for those that wait.
const MAX_ENDS: usize = 8192;
/// An estimate is worth saying when its error is within this part of the phase, or within [`WORTH_NS`].
const WORTH_PART: f64 = 0.2;
const WORTH_NS: Nanos = 20_000_000;

/// When the scheduler started a request, inferred.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Estimate {
    pub(crate) t1: Nanos,
    /// How far T1 may be off, either way.
    pub(crate) error: Nanos,
}

impl Estimate {
    /// Whether a phase of this length, which begins or ends at T1, is known well enough to be told.
    pub(crate) fn holds_for(&self, phase: Nanos) -> bool {
        self.error <= WORTH_NS.max((phase as f64 * WORTH_PART) as Nanos)
    }
}

/// What a response told of its prompt.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Prompt {
    pub(crate) tokens: Option<u64>,
    pub(crate) cached: Option<u64>,
}

/// All engines.
#[derive(Debug, Default)]
pub(crate) struct Infer {
    engines: HashMap<Arc<str>, Engine>,
}

#[derive(Debug, Default)]
struct Engine {
    live: HashMap<u64, Live>,
    arrivals: u64,
    /// When requests ended, and their arrival numbers.
    ends: VecDeque<(Nanos, u64)>,
    /// Ends are missing up to here.
    ends_from: Nanos,
    /// A request was found whose arrival was not seen: counts of requests under way were too low until then.
    unseen_until: Nanos,
    steps: Steps,
    bursts: Bursts,
    /// Requests whose first token came with the newest step: judged when it is over.
    pending: Vec<u64>,
    limit: Limit,
    rate: Rate,
}

#[derive(Debug)]
struct Live {
    arrival: u64,
    /// Absent: it was under way before the agent came.
    t0: Option<Nanos>,
    /// Requests under way when it arrived, itself included.
    arrived: u32,
    /// Another arrived before its first token.
    joined: bool,
    first: Option<Nanos>,
    plan: Plan,
}

impl Infer {
    /// A request's first byte came at `t0`; its head is complete now.
    pub(crate) fn arrived(&mut self, engine: &Arc<str>, id: u64, t0: Nanos) {
        if let Some(engine) = self.engine(engine) {
            engine.arrived(id, Some(t0));
        }
    }

    /// A stream wrote content.
    pub(crate) fn chunk(&mut self, engine: &Arc<str>, id: u64, choice: u32, at: Nanos) {
        if let Some(engine) = self.engine(engine) {
            engine.chunk(id, choice, at);
        }
    }

    /// A process of the engine gave its GPUs work from `begin` on, which is done now.
    pub(crate) fn burst(&mut self, engine: &Arc<str>, begin: Nanos) {
        if let Some(engine) = self.engine(engine) {
            engine.bursts.began(begin);
        }
    }

    /// A request ended at `at`. What is inferred of its start.
    pub(crate) fn ended(&mut self, engine: &str, id: u64, at: Nanos, prompt: Prompt) -> Option<Estimate> {
        self.engines.get_mut(engine)?.ended(id, at, prompt)
    }

    /// An engine is gone, with all that was learnt of it.
    pub(crate) fn down(&mut self, engine: &str) {
        self.engines.remove(engine);
    }

    /// Bytes, about.
    pub(crate) fn bytes(&self) -> usize {
        let of = |engine: &Engine| {
            engine.live.len() * (size_of::<Live>() + 32)
                + engine.ends.capacity() * 16
                + engine.pending.capacity() * 8
                + engine.steps.bytes()
                + engine.bursts.bytes()
                + engine.limit.bytes()
                + engine.rate.bytes()
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
    fn arrived(&mut self, id: u64, t0: Option<Nanos>) {
        if self.live.len() >= MAX_LIVE {
            // It is not followed, so those that come after it are not judged until it must be over.
            self.unseen_until = self.unseen_until.max(t0.unwrap_or(0));
            return;
        }
        for other in self.live.values_mut().filter(|other| other.first.is_none()) {
            other.joined = true;
        }
        self.arrivals += 1;
        let live = Live {
            arrival: self.arrivals,
            t0,
            arrived: self.live.len() as u32 + 1,
            joined: false,
            first: None,
            plan: Plan::default(),
        };
        self.live.insert(id, live);
    }

    fn chunk(&mut self, id: u64, choice: u32, at: Nanos) {
        if !self.live.contains_key(&id) {
            self.unseen_until = self.unseen_until.max(at);
            self.arrived(id, None);
        }
        let Some(live) = self.live.get_mut(&id) else {
            return;
        };
        let first = live.first.is_none();
        live.first = live.first.or(Some(at));
        let arrival = live.arrival;
        // The first chunks of further choices are not told apart, and so not judged.
        if self.steps.wrote((id, choice), first || choice > 0, at) {
            self.judge_pending(1);
        }
        if first {
            self.steps.first_token(arrival);
            self.pending.push(id);
        }
    }

    /// Judges the requests whose first token came with the step before the last `newer` ones.
    fn judge_pending(&mut self, newer: usize) {
        let Some(step) = self.steps.all().len().checked_sub(1 + newer) else {
            return;
        };
        for id in std::mem::take(&mut self.pending) {
            let Some(live) = self.live.get(&id) else { continue };
            let (arrival, arrived) = (live.arrival, live.arrived);
            let (Some(t0), Some(t2)) = (live.t0, live.first) else {
                continue;
            };
            if t0 > t2 || !self.counts_hold_since(t0) {
                continue;
            }
            let case = Case {
                arrival,
                t0,
                t2,
                free: self.free_for(arrival, arrived, t0, t2),
                step,
                alone: arrived == 1,
            };
            let plan = judge(&case, &self.steps);
            self.sample(&case, arrived, &plan);
            if let Some(live) = self.live.get_mut(&id) {
                live.plan = plan;
            }
        }
    }

    fn ended(&mut self, id: u64, at: Nanos, prompt: Prompt) -> Option<Estimate> {
        if self.pending.contains(&id) {
            self.judge_pending(0);
        }
        let Some(live) = self.live.remove(&id) else {
            self.unseen_until = self.unseen_until.max(at);
            return None;
        };
        if self.ends.len() >= MAX_ENDS
            && let Some((at, _)) = self.ends.pop_front()
        {
            self.ends_from = at;
        }
        self.ends.push_back((at, live.arrival));
        let t0 = live.t0?;
        let alone = live.arrived == 1;
        let Some(t2) = live.first else {
            return self.without_first_token(&live, t0, alone);
        };
        let to_compute = prompt
            .tokens
            .and_then(|tokens| tokens.checked_sub(prompt.cached.unwrap_or(0)));
        if alone
            && !live.joined
            && let Some(tokens) = to_compute
            && self.counts_hold_since(t0)
        {
            self.rate.learn(tokens, t2.saturating_sub(t0) as f64 / 1e9);
        }
        // Its own chunks beside those of others may have shown that there is no single clock.
        if !alone && !self.steps.one_clock() {
            return None;
        }
        let start = live.plan.start.or_else(|| self.choose(&live.plan, to_compute?))?;
        let Start { at, error } = self.bursts.sharpen(start, t0, t2, alone);
        Some(Estimate {
            t1: at.clamp(t0, t2),
            error,
        })
    }

    /// A response without a first token shows no prefill; its start is still known where it waited for nothing, or for
    /// a place that became free.
    fn without_first_token(&self, live: &Live, t0: Nanos, alone: bool) -> Option<Estimate> {
        if !self.counts_hold_since(t0) {
            return None;
        }
        let free = self.free_for(live.arrival, live.arrived, t0, Nanos::MAX);
        let Start { at: t1, error } = plan::without_first_token(t0, alone, free, &self.steps)?;
        Some(Estimate { t1, error })
    }

    /// Of the starts that are possible, the one whose extra time fits what its tokens take.
    fn choose(&self, plan: &Plan, tokens: u64) -> Option<Start> {
        let (expected, spread) = self.rate.predict(tokens)?;
        let off = |extra: Nanos| (extra as f64 / 1e9 - expected).abs();
        let (index, best) = plan
            .spans
            .iter()
            .enumerate()
            .min_by(|a, b| off(a.1.extra).total_cmp(&off(b.1.extra)))?;
        let neighbour = |index: Option<usize>| {
            index
                .and_then(|index| plan.spans.get(index))
                .map_or(0, |span| span.at.abs_diff(best.at) / 2)
        };
        let step = neighbour(index.checked_sub(1)).max(neighbour(Some(index + 1)));
        let misfit = (off(best.extra).max(spread) * 1e9) as Nanos;
        Some(Start {
            at: best.at,
            error: step.max(misfit),
        })
    }

    /// When there was a place, not after `until`, for a request that arrived as number `arrived` of those under way.
    fn free_for(&self, arrival: u64, arrived: u32, t0: Nanos, until: Nanos) -> Option<Free> {
        if !self.steps.one_clock() {
            return None;
        }
        if arrived <= self.limit.proven().max(1) {
            return Some(Free::AtOnce);
        }
        let limit = self.limit.established()?;
        let needed = (arrived - limit) as usize;
        self.ends_before_it(arrival, t0)
            .nth(needed - 1)
            .filter(|at| *at <= until)
            .map(Free::Then)
    }

    /// Ends, since it arrived, of requests that had arrived before it.
    fn ends_before_it(&self, arrival: u64, t0: Nanos) -> impl Iterator<Item = Nanos> {
        let from = self.ends.partition_point(|(at, _)| *at < t0);
        self.ends
            .range(from..)
            .filter(move |(_, ended)| *ended < arrival)
            .map(|(at, _)| *at)
    }

    /// How many were under way when it started tells what the engine runs side by side. That moment is shown by a step
    /// that only decoded, right before the one that brought its first token, or by nothing having ended since the end of
    /// the step before; otherwise nothing is learnt.
    fn sample(&mut self, case: &Case, arrived: u32, plan: &Plan) {
        let steps = self.steps.all();
        let before = case.step.checked_sub(1).and_then(|index| steps.get(index));
        let from = before.map_or(case.t0, |step| step.at.max(case.t0));
        // A write that ends a response comes a little after the step that it belongs to.
        let from = from.saturating_add(self.steps.window()).min(case.t2);
        let before_it = || self.ends_before_it(case.arrival, case.t0);
        let ended = before_it().take_while(|at| *at <= from).count();
        let shown = plan.not_before.is_some() && plan.not_before == before.map(|step| step.at);
        if shown || before_it().nth(ended).is_none_or(|at| at > case.t2) {
            let started = arrived.saturating_sub(ended as u32).max(1);
            self.limit.started(arrived, started);
        }
    }

    /// Whether every request under way is known for a request that arrived at `t0`.
    fn counts_hold_since(&self, t0: Nanos) -> bool {
        t0 > self.unseen_until && (t0 > self.ends_from || self.ends_from == 0)
    }
}

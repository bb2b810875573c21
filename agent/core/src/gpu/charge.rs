//! The time and energy of an engine's steps, shared over the requests in them by their tokens.
//!
//! Owns: who was in a step, and how long it waits for that to be known. Refuses: how much a step took (`readings`).
//!
//! A generated token is of the last step that ended before it was there. A prompt is of the steps from the scheduler's
//! start, where the engine tells it, to the first token; else of the steps before the first token that read prompts, one
//! after the other. Where several share a step and one has a number of tokens that nobody tells, the step is nobody's.

use super::{
    readings::Amount,
    requests::{Request, Requests},
    share::{GpuShare, TokenPhase, Uncharged},
    timeline::{Step, Timeline},
};
use crate::{Nanos, observation::StepKind};
use std::{collections::BTreeMap, sync::Arc};

/// A step waits so long for the first token of requests that may be in it, and for the length of their prompts.
const PATIENCE: Nanos = 30_000_000_000;
/// A token that comes so long after a step is not of it.
const LATE: Nanos = 2_000_000_000;
/// Energy of steps that showed no token waits so long for one: streams may be held back and sent every few tokens.
const CARRY: Nanos = 5_000_000_000;

/// What of an engine's energy waits to be charged.
#[derive(Debug, Default)]
pub(super) struct Charges {
    carry: Amount,
    carry_since: Nanos,
    carry_part: bool,
    /// Steps that began before here have been charged.
    done: Nanos,
    uncharged: BTreeMap<Uncharged, Amount>,
}

impl Charges {
    /// What is no request's.
    pub(super) fn uncharged(&mut self, reason: Uncharged, amount: Amount) {
        if amount.is_some() {
            *self.uncharged.entry(reason).or_default() += amount;
        }
    }

    /// Charges the steps that ended before `measured`, up to where all their energy is known, of which it is known who was
    /// in them, or will not be at `now`.
    pub(super) fn charge(
        &mut self,
        timeline: &mut Timeline,
        requests: &mut Requests,
        measured: Nanos,
        now: Nanos,
    ) {
        settle_prefills(timeline, requests, measured);
        loop {
            let full = timeline.steps.len() > super::timeline::MAX_STEPS;
            let Some(step) = timeline.steps.front() else { break };
            if !full && step.to > measured {
                break;
            }
            let next = timeline.steps.get(1).map(|next| next.to);
            let waits = now < step.to.saturating_add(PATIENCE) && waits(step, requests);
            // The next one may not have been seen yet.
            let early = next.is_none()
                && timeline.settled() < step.to.saturating_add(LATE)
                && now < step.to.saturating_add(PATIENCE);
            if !full && (waits || early) {
                break;
            }
            if full {
                timeline.evicted += 1;
            }
            let Some(step) = timeline.steps.pop_front() else {
                break;
            };
            let until = next.unwrap_or(Nanos::MAX).min(step.to.saturating_add(LATE));
            self.step(&step, until.max(step.to.saturating_add(1)), requests);
            self.done = self.done.max(step.from);
        }
        let next = timeline.steps.iter().map(|step| step.from).min();
        self.done = self.done.max(next.unwrap_or(measured).min(measured));
        if self.carry.is_some() && now.saturating_sub(self.carry_since) > CARRY {
            let carry = std::mem::take(&mut self.carry);
            self.uncharged(Uncharged::UnknownRequests, carry);
        }
    }

    fn step(&mut self, step: &Step, until: Nanos, requests: &mut Requests) {
        let decoding = requests.take_marks(step.to, until);
        let reading = reading(step, requests);
        let nobody = decoding.is_empty() && reading.is_empty();
        let carried = self.carry.is_some();
        let mut amount = step.amount;
        let mut part = step.part;
        let measured = step.measured;
        let decode: u64 = decoding.iter().map(|(_, tokens)| tokens).sum();
        let weights: Option<f64> = reading.iter().map(|(_, weight)| *weight).sum();
        let prefill = match (step.prefill_tokens, weights, reading.len()) {
            (Some(told), ..) if step.kind != Some(StepKind::Decode) => Some(told as f64),
            (_, Some(weights), _) => Some(weights),
            (_, None, 1) if decode == 0 => Some(1.0),
            (_, None, _) => None,
        };
        let Some(prefill) = prefill else {
            self.forget(step, &decoding, &reading, requests, Uncharged::UnknownTokens);
            return;
        };
        let all = decode as f64 + prefill;
        if all <= 0.0 || nobody {
            self.nobodys(step, amount, requests);
            return;
        }
        if carried && decode > 0 {
            amount += std::mem::take(&mut self.carry);
            part |= std::mem::take(&mut self.carry_part);
        }
        let mut charge = |id: u64, phase: TokenPhase, amount: Amount| {
            if let Some(request) = requests.map.get_mut(&id) {
                request.amounts[phase as usize] += amount;
                request.measured |= measured;
                request.part |= part;
            }
        };
        for (id, tokens) in &decoding {
            charge(*id, TokenPhase::Decode, amount * (*tokens as f64 / all));
        }
        let of_prompts = amount * (prefill / all);
        match (weights, reading.as_slice()) {
            (None | Some(0.0), [(only, _)]) => charge(*only, TokenPhase::Prefill, of_prompts),
            (Some(weights), reading) if weights > 0.0 => {
                for (id, weight) in reading {
                    charge(
                        *id,
                        TokenPhase::Prefill,
                        of_prompts * (weight.unwrap_or(0.0) / weights),
                    );
                }
            }
            (None, [_, _, ..]) => {
                for (id, _) in &reading {
                    if let Some(request) = requests.map.get_mut(id) {
                        request.part = true;
                    }
                }
                self.uncharged(Uncharged::UnknownTokens, of_prompts);
            }
            _ => self.uncharged(Uncharged::UnknownRequests, of_prompts),
        }
    }

    /// No token that was seen came of a step.
    fn nobodys(&mut self, step: &Step, amount: Amount, requests: &mut Requests) {
        let within = |request: &&mut Request| {
            request.arrived.is_none_or(|arrived| arrived < step.to)
                && request.finished.is_none_or(|end| end > step.from)
        };
        let mut there: Vec<&mut Request> = requests.map.values_mut().filter(within).collect();
        if let [only] = there.as_mut_slice()
            && only.first.is_none()
        {
            let phase = match step.kind {
                Some(StepKind::Prefill) => Some(TokenPhase::Prefill),
                Some(StepKind::Decode) => Some(TokenPhase::Decode),
                _ => None,
            };
            if let Some(phase) = phase {
                only.amounts[phase as usize] += amount;
                only.measured |= step.measured;
                only.part |= step.part;
                return;
            }
        }
        // Its tokens may be shown later, together with others.
        if there.iter().any(|request| request.first.is_some()) {
            if !self.carry.is_some() {
                self.carry_since = step.to;
            }
            self.carry += amount;
            self.carry_part |= step.part;
            return;
        }
        for request in there {
            request.part = true;
        }
        self.uncharged(Uncharged::UnknownRequests, amount);
    }

    fn forget(
        &mut self,
        step: &Step,
        decoding: &[(u64, u64)],
        reading: &[(u64, Option<f64>)],
        requests: &mut Requests,
        reason: Uncharged,
    ) {
        let ids = decoding.iter().map(|(id, _)| id);
        for id in ids.chain(reading.iter().map(|(id, _)| id)) {
            if let Some(request) = requests.map.get_mut(id) {
                request.part = true;
            }
        }
        self.uncharged(reason, step.amount);
    }

    /// Tells what was charged since it was last told, and ends requests of which all is known.
    pub(super) fn tell(&mut self, engine: &Arc<str>, requests: &mut Requests, out: &mut Vec<GpuShare>) {
        for (reason, Amount { seconds, joules }) in std::mem::take(&mut self.uncharged) {
            out.push(GpuShare::Uncharged {
                engine: engine.clone(),
                reason,
                seconds,
                joules,
            });
        }
        let mut over = Vec::new();
        for (id, request) in &mut requests.map {
            if let Some(labels) = &request.labels {
                for phase in TokenPhase::ALL {
                    let (all, told) = (request.amounts[phase as usize], &mut request.told[phase as usize]);
                    let more = all - *told;
                    if more.is_some() {
                        *told = all;
                        out.push(GpuShare::Request {
                            labels: labels.clone(),
                            phase,
                            seconds: more.seconds,
                            joules: more.joules,
                        });
                    }
                }
            }
            if request.finished.is_some_and(|end| end < self.done) && !self.carry.is_some() {
                over.push(*id);
            }
        }
        for id in over {
            if let Some(request) = requests.remove(id)
                && let Some(record) = request.record
                && request.measured
                && !request.part
            {
                let joules = request.amounts.iter().map(|amount| amount.joules).sum();
                out.push(GpuShare::Whole { id: record, joules });
            }
        }
    }

    /// The engine is gone: nothing more will be known.
    pub(super) fn end(&mut self, timeline: &mut Timeline, requests: &mut Requests) {
        self.charge(timeline, requests, Nanos::MAX, Nanos::MAX);
        let carry = std::mem::take(&mut self.carry);
        self.uncharged(Uncharged::UnknownRequests, carry);
        for request in requests
            .map
            .values_mut()
            .filter(|request| request.labels.is_none())
        {
            request.part = true;
            for amount in std::mem::take(&mut request.amounts) {
                self.uncharged(Uncharged::UnknownRequests, amount);
            }
        }
        self.done = Nanos::MAX;
    }
}

/// Whether more may come to be known of who was in a step.
fn waits(step: &Step, requests: &Requests) -> bool {
    requests.map.values().any(|request| {
        let there = request.arrived.is_none_or(|arrived| arrived < step.to);
        // One that ended without a token will not tell more.
        let open = request.finished.is_none() || (request.first.is_some() && request.prefill.is_none());
        let unknown = match request.prefill {
            // It may be reading, unless nothing did; and where nobody sees its tokens, it may be generating.
            None => step.kind != Some(StepKind::Decode) || request.is_silent(),
            Some((from, to)) => from < step.to && step.from < to && request.prompt.is_none(),
        };
        there && open && unknown
    })
}

/// Requests whose prompt was read in a step, and how much of it: tokens, where that is known.
fn reading(step: &Step, requests: &mut Requests) -> Vec<(u64, Option<f64>)> {
    let mut reading = Vec::new();
    for (id, request) in &mut requests.map {
        let Some((from, to)) = request.prefill else {
            continue;
        };
        let overlap = step.to.min(to).saturating_sub(step.from.max(from));
        if overlap > 0 {
            // What is left of it, evenly over what is left of the time.
            let part = overlap as f64 / (to - step.from.max(from)) as f64;
            reading.push((*id, request.unread().map(|tokens| tokens * part)));
        }
    }
    // Prompts are read one after the other, as their first tokens show, else as they came. How many tokens of them all a step read, the engine tells, or its
    // part of the time.
    let of_all = step
        .prefill_tokens
        .map(|tokens| tokens as f64)
        .or_else(|| of_the_time(step, &reading, requests))
        .filter(|_| reading.len() > 1 && reading.iter().all(|(_, weight)| weight.is_some()));
    if let Some(mut left) = of_all {
        let came = |id: &u64| {
            let request = requests.map.get(id);
            request.map(|request| (request.prefill.map(|(_, to)| to), request.arrived))
        };
        reading.sort_by_key(|(id, _)| (came(id), *id));
        for (id, weight) in &mut reading {
            let Some(request) = requests.map.get_mut(id) else {
                continue;
            };
            let rest = request.unread().unwrap_or(0.0);
            let ends = request.prefill.is_some_and(|(_, to)| to <= step.to);
            let tokens = if ends { rest } else { rest.min(left) };
            left = (left - tokens).max(0.0);
            *weight = Some(tokens);
        }
    }
    for (id, weight) in &reading {
        if let Some(request) = requests.map.get_mut(id) {
            request.prompt_read += weight.unwrap_or(0.0);
        }
    }
    reading
}

/// Prompt tokens of a step, by its part of the time in which all those were read that were read in it.
fn of_the_time(step: &Step, reading: &[(u64, Option<f64>)], requests: &Requests) -> Option<f64> {
    let readers = || reading.iter().filter_map(|(id, _)| requests.map.get(id));
    let spans = || readers().filter_map(|request| request.prefill);
    let time = spans()
        .map(|span| span.1)
        .max()?
        .saturating_sub(spans().map(|span| span.0).min()?);
    let tokens: u64 = readers().filter_map(|request| request.prompt).sum();
    (time > 0).then(|| tokens as f64 * (step.to - step.from) as f64 / time as f64)
}

/// Finds the steps in which prompts were read whose first token is known.
fn settle_prefills(timeline: &Timeline, requests: &mut Requests, measured: Nanos) {
    let steps = &timeline.steps;
    for request in requests.map.values_mut() {
        let Some(first) = request.first.filter(|first| *first <= measured) else {
            continue;
        };
        // Where the engine tells the start, that may come late, with the request's end.
        if request.prefill.is_some() && request.scheduled.is_none() {
            continue;
        }
        let arrived = request.arrived.unwrap_or(0);
        let last = steps.partition_point(|step| step.to <= first);
        let mut range = None;
        for step in steps.range(..last).rev() {
            let (_, to) = *range.get_or_insert((step.from, step.to));
            let is_first = step.to == to;
            if !is_first && (step.kind == Some(StepKind::Decode) || step.from < arrived) {
                break;
            }
            if to.saturating_add(LATE) < first {
                range = None;
                break;
            }
            range = Some((step.from, to));
        }
        request.prefill = match (request.scheduled, range) {
            (Some(scheduled), _) => Some((scheduled.min(first), first)),
            (None, Some(range)) => Some(range),
            (None, None) => Some((first, first)),
        };
    }
}

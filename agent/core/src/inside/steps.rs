//! One engine core's steps, put together from what each API server is told of them.
//!
//! Owns: which pieces are one step, when enough is known to tell it, and what is told then. Refuses: the messages
//! (`inside::vllm`).
//!
//! A core tells of the requests that got tokens, and how many run. Those that run without having got any are either in
//! the step, reading a part of their prompt, or, where the core schedules a step while the one before still runs, taken
//! for the next one only. Which of the two a core does shows in the requests that arrive while it is busy.

use crate::{
    Nanos, Observation, Source,
    engine::vllm::Iteration,
    observation::{EngineStep, StepKind},
};
use std::{collections::VecDeque, sync::Arc};

/// Pieces of one step are made at once, one after the other.
const SAME: Nanos = 1_000_000;
/// Steps that wait for what comes later, at most.
const MAX_PENDING: usize = 3;
/// So long a step waits at most.
const PATIENCE: Nanos = 1_000_000_000;
/// Prompts up to this length are hardly ever read in parts.
const SHORT: u64 = 256;
/// So many short prompts in a row that took two steps, and the core is taken to schedule ahead.
const AHEAD: u8 = 8;

/// What one API server is told of a step.
#[derive(Debug)]
pub(super) struct Piece {
    front: u32,
    firsts: Vec<First>,
    laters: u64,
    decode_tokens: u64,
    /// Got tokens, and run on.
    unfinished: u64,
    /// When a request of it got its tokens before these.
    pub(super) continued: Option<Nanos>,
    /// Requests that run after it.
    pub(super) running: Option<u64>,
    /// What the core counted itself.
    pub(super) details: Option<Iteration>,
}

/// A request that had read its prompt with this step.
#[derive(Debug, Clone, Copy)]
struct First {
    scheduled: Option<Nanos>,
    /// Prompt tokens that were not in the cache.
    computed: Option<u64>,
}

#[derive(Debug)]
struct Pending {
    at: Nanos,
    seen: Nanos,
    fronts: Vec<u32>,
    whole: Piece,
}

/// The steps of one engine core.
#[derive(Debug, Default)]
pub(super) struct Steps {
    /// Oldest first.
    pending: VecDeque<Pending>,
    /// The ends of the two told last, and whether requests ran on after them; the latest first.
    told: [Option<(Nanos, Option<bool>)>; 2],
    /// API servers that had told of the latest.
    told_by: Vec<u32>,
    order: Order,
}

/// When the core schedules a step.
#[derive(Debug, Default)]
struct Order {
    /// A request that arrived while a step ran had its first token with the next one: one after the other.
    after: bool,
    /// Short prompts in a row that had not.
    ahead: u8,
}

/// A step of which all is known that will be.
#[derive(Debug)]
pub(super) struct Known {
    start: Option<Nanos>,
    end: Nanos,
    kind: Option<StepKind>,
    prefill_tokens: Option<u64>,
    decode_tokens: Option<u64>,
    requests: Option<u64>,
}

impl Known {
    pub(super) fn observation(self, engine: &Arc<str>, model: Option<&Arc<str>>) -> Observation {
        Observation::Step(Box::new(EngineStep {
            engine: engine.clone(),
            model: model.cloned(),
            start: self.start,
            end: self.end,
            kind: self.kind,
            prefill_tokens: self.prefill_tokens,
            decode_tokens: self.decode_tokens,
            requests: self.requests,
            source: Source::Engine,
        }))
    }
}

impl Piece {
    pub(super) fn new(front: u32) -> Piece {
        Piece {
            front,
            firsts: Vec::new(),
            laters: 0,
            decode_tokens: 0,
            unfinished: 0,
            continued: None,
            running: None,
            details: None,
        }
    }

    /// A request got tokens; `later`: it had some before and has not read its prompt again.
    pub(super) fn output(
        &mut self,
        tokens: u32,
        scheduled: Option<Nanos>,
        computed: Option<u64>,
        later: bool,
        finished: bool,
    ) {
        // One that failed or was refused is told of without having been in the step.
        if tokens == 0 {
            return;
        }
        self.unfinished += u64::from(!finished);
        if later {
            self.laters += 1;
            self.decode_tokens += u64::from(tokens);
        } else {
            self.firsts.push(First { scheduled, computed });
        }
    }

    fn merge(&mut self, other: Piece) {
        self.firsts.extend(other.firsts);
        self.laters += other.laters;
        self.decode_tokens += other.decode_tokens;
        self.unfinished += other.unfinished;
        self.continued = self.continued.max(other.continued);
        self.running = self.running.or(other.running);
        self.details = self.details.or(other.details);
    }

    /// Requests that run without having got a token in it.
    fn silent(&self) -> Option<u64> {
        Some(self.running?.saturating_sub(self.unfinished))
    }

    fn is_empty(&self) -> bool {
        self.firsts.is_empty() && self.laters == 0
    }
}

impl Steps {
    /// An API server was told of a step that ended at `at`.
    pub(super) fn add(&mut self, at: Nanos, now: Nanos, piece: Piece) {
        // It came after its step, or one behind it, was told.
        let late = |(end, _)| at < end || (at - end <= SAME && !self.told_by.contains(&piece.front));
        if self.told[0].is_some_and(late) {
            return;
        }
        let same = self
            .pending
            .iter_mut()
            .rev()
            .find(|step| step.at.abs_diff(at) <= SAME && !step.fronts.contains(&piece.front));
        if let Some(step) = same {
            step.fronts.push(piece.front);
            step.whole.merge(piece);
            return;
        }
        let step = Pending {
            at,
            seen: now,
            fronts: vec![piece.front],
            whole: piece,
        };
        let place = self.pending.partition_point(|step| step.at < at);
        self.pending.insert(place, step);
    }

    /// Messages are missing.
    pub(super) fn lost(&mut self) {
        self.pending.clear();
        self.told = [None; 2];
    }

    /// Tells the steps of which all is known that will be. `fronts`: API servers that may be told of one. `now`: those
    /// that have waited long enough too.
    pub(super) fn tell(&mut self, fronts: usize, now: Option<Nanos>, tell: &mut dyn FnMut(Known)) {
        while let Some(step) = self.pending.front() {
            let later = self.pending.len() - 1;
            // Where one message tells all, none will come; else those of later steps have come by all ways, about.
            let whole = |step: &Pending, later: usize| step.fronts.len() >= fronts || later >= 2;
            let all = whole(step, later);
            let next = self
                .pending
                .get(1)
                .filter(|next| whole(next, later.saturating_sub(1)));
            let settled = all && (next.is_some() || !self.needs_next(&step.whole));
            let late = now.is_some_and(|now| now.saturating_sub(step.seen) >= PATIENCE);
            if !(settled || late || later >= MAX_PENDING) {
                return;
            }
            let next = next.is_some();
            let Some(step) = self.pending.pop_front() else {
                return;
            };
            if let Some(known) = self.known(&step, self.pending.front().filter(|_| next)) {
                tell(known);
            }
            self.learn(step.at, &step.whole.firsts);
            let busy = step.whole.running.map(|running| running > 0);
            self.told = [Some((step.at, busy)), self.told[0]];
            self.told_by = step.fronts;
        }
    }

    /// Whether only the step after it tells who was in it.
    fn needs_next(&self, step: &Piece) -> bool {
        step.details.is_none() && !self.order.after && step.silent().is_some_and(|silent| silent > 0)
    }

    fn known(&self, step: &Pending, next: Option<&Pending>) -> Option<Known> {
        let whole = &step.whole;
        let firsts = whole.firsts.len() as u64;
        let (before, busy) = match self.told[0] {
            Some((end, busy)) => (Some(end), busy),
            None => (None, None),
        };
        // Those that were taken between the last step and this one, and are first heard of in the next.
        let taken = |next: &Pending| {
            let within = |at: Nanos| before.is_none_or(|before| at >= before) && at <= step.at;
            let taken = next
                .whole
                .firsts
                .iter()
                .filter(|f| f.scheduled.is_some_and(within));
            taken.count() as u64
        };
        let reading = match whole.silent() {
            Some(0) => Some(0),
            Some(silent) if self.order.after => Some(silent),
            Some(silent) if self.order.is_ahead() && next.is_some_and(|next| taken(next) == silent) => {
                Some(0)
            }
            _ => None,
        };
        if whole.is_empty() && (reading == Some(0) || whole.running == Some(0)) && whole.details.is_none() {
            return None;
        }
        let (kind, requests) = match (whole.details, reading) {
            (Some(details), _) => (
                StepKind::of(details.prefilling, details.decoding),
                Some(details.prefilling + details.decoding),
            ),
            (None, Some(reading)) => (
                StepKind::of(firsts + reading, whole.laters),
                Some(firsts + reading + whole.laters),
            ),
            (None, None) => (None, None),
        };
        let requests = requests.filter(|requests| *requests > 0);
        let alone = |first: &First| {
            let within = match self.order {
                _ if self.order.is_ahead() => self.told[1],
                _ => self.told[0],
            };
            let since = within.map(|(end, _)| end);
            first
                .computed
                .filter(|_| first.scheduled >= since && since.is_some())
        };
        let prefill_tokens = match (whole.details, reading) {
            (Some(details), _) => Some(details.prefill_tokens),
            (None, Some(0)) => whole.firsts.iter().map(alone).sum(),
            _ => None,
        };
        let scheduled = whole.firsts.iter().map(|first| first.scheduled).min().flatten();
        let start = if whole.laters == 0 && reading == Some(0) && scheduled.is_some() {
            // Whoever ran before is not in it, so it began with those that are.
            scheduled.max(before.filter(|_| busy == Some(true)))
        } else if busy == Some(true) || (before.is_some() && whole.continued == before) {
            before
        } else {
            scheduled.filter(|_| whole.laters == 0)
        };
        Some(Known {
            start: start.filter(|start| *start <= step.at),
            end: step.at,
            kind,
            prefill_tokens,
            decode_tokens: Some(whole.decode_tokens),
            requests,
        })
    }

    /// Learns from requests that were taken while the core was busy.
    fn learn(&mut self, at: Nanos, firsts: &[First]) {
        let [Some((before, Some(true))), earlier] = self.told else {
            return;
        };
        for first in firsts {
            let Some(scheduled) = first.scheduled.filter(|scheduled| *scheduled < at) else {
                continue;
            };
            if scheduled >= before {
                self.order = Order {
                    after: true,
                    ahead: 0,
                };
            } else if let Some((earlier, Some(true))) = earlier
                && scheduled >= earlier
                && first.computed.is_some_and(|computed| computed <= SHORT)
            {
                self.order.ahead = self.order.ahead.saturating_add(1);
                self.order.after &= self.order.ahead < AHEAD;
            }
        }
    }
}

impl Order {
    fn is_ahead(&self) -> bool {
        !self.after && self.ahead >= AHEAD
    }
}

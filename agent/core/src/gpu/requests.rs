//! Requests of one engine, as far as time and energy of its GPUs have to do with them.
//!
//! Owns: when each came, got its tokens and ended, until its energy is told. Refuses: sharing (`charge`).

use super::readings::Amount;
use crate::{
    Nanos,
    observation::{Finished, Labels},
};
use std::collections::{BTreeMap, VecDeque};

/// Requests at once; past it the oldest is forgotten.
const MAX_REQUESTS: usize = 8192;
/// Token times that wait for their step, of one request and of all together.
const MAX_MARKS: usize = 16_384;
const MAX_ALL_MARKS: usize = 262_144;

/// One engine's requests.
#[derive(Debug, Default)]
pub(super) struct Requests {
    pub(super) map: BTreeMap<u64, Request>,
    marks: usize,
    pub(super) evicted: u64,
}

/// A step, as far as it tells which requests have been started.
#[derive(Debug)]
pub(super) struct Begun {
    pub(super) begin: Nanos,
    /// It is not known to have generated alone.
    pub(super) may_read: bool,
    /// The last of the first tokens that it gave.
    pub(super) gave: Option<Nanos>,
    /// Until then it is open whether it read a part of another prompt as well.
    pub(super) doubt: Nanos,
}

/// The steps of an engine so far, likewise.
#[derive(Debug, Default)]
pub(super) struct Last {
    /// Begin of the last one: requests whose tokens nobody sees may be in any.
    begin: Nanos,
    /// Begin of the last one that may have read and gave no first token: a part of any prompt.
    read: Nanos,
    /// The last first token that one gave.
    gave: Nanos,
    doubt: Nanos,
}

impl Last {
    /// One more, in order of their begin; one that was there before changes nothing.
    pub(super) fn add(&mut self, step: &Begun) {
        if step.begin >= self.begin {
            (self.begin, self.doubt) = (step.begin, step.doubt);
        }
        match step.gave {
            Some(first) => self.gave = self.gave.max(first),
            None if step.may_read => self.read = self.read.max(step.begin),
            None => {}
        }
    }
}

/// One request.
#[derive(Debug, Default)]
pub(super) struct Request {
    /// Absent: it was under way before the agent came.
    pub(super) arrived: Option<Nanos>,
    /// Its response shows tokens as they come; absent while that is not known.
    pub(super) streams: Option<bool>,
    pub(super) labels: Option<Labels>,
    /// The scheduler took it, where the engine tells.
    pub(super) scheduled: Option<Nanos>,
    pub(super) first: Option<Nanos>,
    pub(super) finished: Option<Nanos>,
    /// Id of its record, once that is made.
    pub(super) record: Option<String>,
    /// Prompt tokens that were computed.
    pub(super) prompt: Option<u64>,
    /// What of it was read in steps that were charged.
    pub(super) prompt_read: f64,
    /// Tokens after the first, and when they were there; those whose steps were charged are gone.
    pub(super) marks: VecDeque<(Nanos, u32)>,
    /// From where to where its prompt was read, once its first token is known.
    pub(super) prefill: Option<(Nanos, Nanos)>,
    /// Time and energy that went into it, by phase; and what of it was told.
    pub(super) amounts: [Amount; 2],
    pub(super) told: [Amount; 2],
    /// A step that it was in has been measured.
    pub(super) measured: bool,
    /// A step that it was in was measured in part only, or its tokens were forgotten.
    pub(super) part: bool,
}

impl Request {
    /// It was under way at `at`.
    pub(super) fn in_flight(&self, at: Nanos) -> bool {
        self.arrived.is_none_or(|arrived| arrived <= at) && self.finished.is_none_or(|end| at < end)
    }

    /// Prompt tokens that were read in no step that was charged.
    pub(super) fn unread(&self) -> Option<f64> {
        Some((self.prompt? as f64 - self.prompt_read).max(0.0))
    }

    /// Nothing shows when it gets tokens.
    pub(super) fn is_silent(&self) -> bool {
        self.first.is_none() && self.streams != Some(true)
    }
}

impl Requests {
    pub(super) fn arrived(&mut self, id: u64, at: Nanos) {
        self.request(id).arrived = Some(at);
    }

    pub(super) fn named(&mut self, id: u64, labels: &Labels, streams: Option<bool>) {
        if let Some(request) = self.map.get_mut(&id) {
            request.labels = Some(labels.clone());
            request.streams = request.streams.or(streams);
        }
    }

    /// It wrote `tokens` tokens.
    pub(super) fn chunk(&mut self, id: u64, at: Nanos, tokens: u32) {
        let request = self.request(id);
        request.streams = Some(true);
        let mut tokens = tokens;
        match request.first {
            None => {
                request.first = Some(at);
                // The first token is what the prompt's last step gives.
                tokens = tokens.saturating_sub(1);
            }
            Some(first) if at < first => request.first = Some(at),
            Some(_) => {}
        }
        if tokens > 0 {
            self.mark(id, at, tokens);
        }
    }

    fn mark(&mut self, id: u64, at: Nanos, tokens: u32) {
        let Some(request) = self.map.get_mut(&id) else {
            return;
        };
        if request.marks.len() >= MAX_MARKS || self.marks >= MAX_ALL_MARKS {
            request.part = true;
            self.evicted += 1;
            return;
        }
        self.marks += 1;
        let place = request.marks.partition_point(|mark| mark.0 <= at);
        request.marks.insert(place, (at, tokens));
    }

    /// It has ended, at `at`.
    pub(super) fn finished(&mut self, id: u64, at: Nanos, finished: &Finished) {
        let Some(request) = self.map.get_mut(&id) else {
            return;
        };
        let record = &finished.record;
        request.labels = Some(finished.labels.clone());
        request.record = Some(record.id.clone());
        request.finished = Some(at.max(record.t4_ns.unwrap_or(0)));
        request.part |= !record.incomplete.is_empty();
        let cached = record.cached_input_tokens.unwrap_or(0);
        request.prompt = record
            .input_tokens
            .map(|input| input.saturating_sub(cached).max(1));
        if record.sources.t1 == Some(crate::Source::Engine) {
            request.scheduled = record.t1_ns;
        }
        if request.first.is_some() {
            return;
        }
        // Its socket showed no token. The engine may have told.
        request.first = finished.gaps_from.or(record.t2_ns);
        let mut seconds = 0.0;
        let from = request.first;
        for (gap, tokens) in &finished.gaps {
            seconds += gap;
            if let Some(from) = from {
                self.mark(id, from.saturating_add((seconds * 1e9) as u64), *tokens);
            }
        }
    }

    /// Removes what can have no more part in anything.
    pub(super) fn remove(&mut self, id: u64) -> Option<Request> {
        let request = self.map.remove(&id)?;
        self.marks -= request.marks.len();
        Some(request)
    }

    /// Tokens of each request from `from` on and before `to`, which are taken out together with older ones.
    pub(super) fn take_marks(&mut self, from: Nanos, to: Nanos) -> Vec<(u64, u64)> {
        let mut taken = Vec::new();
        for (id, request) in &mut self.map {
            let mut tokens = 0;
            while let Some((at, more)) = request.marks.pop_front_if(|mark| mark.0 < to) {
                self.marks -= 1;
                if at >= from {
                    tokens += u64::from(more);
                }
            }
            if tokens > 0 {
                taken.push((*id, tokens));
            }
        }
        taken
    }

    /// Whether any was under way at `at`.
    pub(super) fn any_in_flight(&self, at: Nanos) -> bool {
        self.map.values().any(|request| request.in_flight(at))
    }

    /// Whether any that came not after `until` had not been started at `at`, by the steps until then.
    pub(super) fn any_waits(&self, last: &Last, until: Nanos, at: Nanos) -> bool {
        self.map.values().any(|request| {
            let after = if request.is_silent() {
                last.begin
            } else {
                last.read
            };
            let waits = |first| first > at.max(last.gave);
            let came =
                |arrived| arrived > after && arrived <= until && (arrived > last.begin || at >= last.doubt);
            request.arrived.is_some_and(came) && request.in_flight(at) && request.first.is_none_or(waits)
        })
    }

    /// First tokens, in order.
    pub(super) fn firsts(&self) -> Vec<Nanos> {
        let mut firsts: Vec<Nanos> = self.map.values().filter_map(|request| request.first).collect();
        firsts.sort_unstable();
        firsts
    }

    /// When requests may begin or cease to be queued, where no step tells.
    pub(super) fn queue_edges(&self, after: Nanos) -> impl Iterator<Item = Nanos> {
        self.map.values().flat_map(move |request| {
            let from = request.arrived.map(|arrived| arrived.saturating_add(after));
            [from, request.first, request.finished].into_iter().flatten()
        })
    }

    /// When the first of those that are under way came.
    pub(super) fn earliest_in_flight(&self) -> Option<Nanos> {
        let open = self.map.values().filter(|request| request.finished.is_none());
        open.map(|request| request.arrived.unwrap_or(0)).min()
    }

    /// Bytes, about.
    pub(super) fn bytes(&self) -> usize {
        self.map.len() * (size_of::<Request>() + 64) + self.marks * 16
    }

    fn request(&mut self, id: u64) -> &mut Request {
        if self.map.len() >= MAX_REQUESTS && !self.map.contains_key(&id) {
            // Ids say nothing of age.
            let oldest = self.map.iter().min_by_key(|(_, request)| request.arrived);
            if let Some(oldest) = oldest.map(|(id, _)| *id) {
                self.remove(oldest);
                self.evicted += 1;
            }
        }
        self.map.entry(id).or_default()
    }
}

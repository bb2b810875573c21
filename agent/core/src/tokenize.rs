//! Which request a tokenizer call was for, and how long its tokenizing took.
//!
//! Owns: the calls that wait for their request, the requests that wait for their calls, and the rules that tie them.
//! Refuses: what a call and a sum of calls tell (`tokenize::span`, `tokenize::count`), and everything that is not certain: a call that could be
//! for either of two requests is for none, and is counted.
//!
//! Three rules, by what the engine lets one know:
//! - **thread**: a server that serves a request in the thread that read it (llama.cpp) tokenizes it there;
//! - **message**: an engine that sends its requests on (vLLM) tells how many tokens each has, right after tokenizing: the
//!   one call of that process that gave as many tokens and has ended lately is its call;
//! - **alone**: elsewhere, the one request that has come and is not answered yet, if the response's own count of prompt
//!   tokens agrees.

mod count;
mod span;
#[cfg(test)]
mod tests;

use crate::{Nanos, Observation};
use span::Span;
pub(crate) use span::TextCall;
use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

/// Engines; as many as `engines` knows.
const MAX_ENGINES: usize = 1024;
/// Requests of one engine that are not answered yet. Past it further ones get no tokenizing time.
const MAX_OPEN: usize = 8192;
/// Responses whose requests were sent on and that have not ended.
const MAX_ANSWERS: usize = 8192;
/// Calls that wait for the message that tells of their request.
const MAX_WAITING: usize = 4096;
/// Prompts of one response.
const MAX_PROMPTS: usize = 256;
/// Between a call's end and the message. A front end whose event loop is that far behind has other troubles.
const MESSAGE_WITHIN_NS: u64 = 5_000_000_000;

/// All engines.
#[derive(Debug, Default)]
pub(crate) struct Tokenizing {
    engines: HashMap<Arc<str>, Engine>,
    tied: u64,
    unassigned: u64,
}

#[derive(Debug, Default)]
struct Engine {
    /// Requests that are not answered yet, by the id of their exchange.
    open: HashMap<u64, Open>,
    /// The request that a thread read last.
    threads: HashMap<(u32, u32), u64>,
    /// Calls that wait for a message, oldest first.
    waiting: VecDeque<Waiting>,
    /// By the id that the response will show.
    answers: HashMap<Arc<str>, Answer>,
    /// Responses, oldest first; some may be gone.
    order: VecDeque<Arc<str>>,
    /// Its messages tell of requests.
    messages: bool,
}

/// A request that is not answered yet, or was answered and has not ended.
#[derive(Debug)]
struct Open {
    t0: Nanos,
    thread: (u32, u32),
    answered: bool,
    by_thread: Span,
    alone: Span,
}

#[derive(Debug)]
struct Waiting {
    call: TextCall,
    /// Another call fits the same requests, so it can be for none of them; it still is one of them.
    contested: bool,
    /// It was taken to be this response's.
    taken: Option<Arc<str>>,
}

/// A response whose request was sent on.
#[derive(Debug, Default)]
struct Answer {
    prompts: Vec<Box<str>>,
    span: Span,
    /// One of its prompts has no call that is surely its own.
    doubt: bool,
}

impl Tokenizing {
    /// A request was read, by this thread.
    pub(crate) fn opened(&mut self, engine: &Arc<str>, exchange: u64, t0: Nanos, thread: (u32, u32)) {
        let Some(engine) = self.engine(engine) else { return };
        if engine.open.len() >= MAX_OPEN {
            return;
        }
        engine.threads.insert(thread, exchange);
        engine.open.insert(
            exchange,
            Open {
                t0,
                thread,
                answered: false,
                by_thread: Span::default(),
                alone: Span::default(),
            },
        );
    }

    /// Its response has begun: what is tokenized from now on is not its prompt.
    pub(crate) fn answered(&mut self, engine: &str, exchange: u64) {
        let Some(engine) = self.engines.get_mut(engine) else {
            return;
        };
        if let Some(open) = engine.open.get_mut(&exchange) {
            open.answered = true;
            if engine.threads.get(&open.thread) == Some(&exchange) {
                engine.threads.remove(&open.thread);
            }
        }
    }

    /// A text was tokenized.
    pub(crate) fn call(&mut self, engine: &Arc<str>, call: TextCall) {
        let Some(engine) = self.engine(engine) else {
            self.unassigned += 1;
            return;
        };
        let mut lost = 0;
        if call.in_serving_thread {
            let exchange = engine.threads.get(&(call.tgid, call.tid));
            match exchange.and_then(|exchange| engine.open.get_mut(exchange)) {
                Some(open) if open.t0 <= call.begin => open.by_thread.add(&call),
                _ => lost += 1,
            }
        } else if engine.messages {
            lost += engine.expire(call.end);
            if engine.waiting.len() >= MAX_WAITING {
                lost += usize::from(engine.waiting.pop_front().is_some_and(|old| old.taken.is_none()));
            }
            engine.waiting.push_back(Waiting {
                call,
                contested: false,
                taken: None,
            });
        } else {
            let mut unanswered = engine
                .open
                .values_mut()
                .filter(|open| !open.answered && open.t0 <= call.begin);
            match (unanswered.next(), unanswered.next()) {
                (Some(open), None) => open.alone.add(&call),
                _ => lost += 1,
            }
        }
        self.unassigned += lost as u64;
    }

    /// A process of the engine sent a request on, with so many prompt tokens.
    pub(crate) fn sent_on(
        &mut self,
        engine: &Arc<str>,
        tgid: u32,
        at: Nanos,
        prompt: &str,
        response: &str,
        tokens: Option<u64>,
    ) {
        let Some(engine) = self.engine(engine) else { return };
        engine.messages = true;
        let lost = engine.expire(at);
        let lost = lost + engine.sent_on(tgid, at, prompt, response, tokens);
        self.unassigned += lost as u64;
    }

    /// A request has ended. Seconds in the tokenizer, where they are surely its own. `prompt_tokens`: as counted by
    /// somebody else than the tokenizer.
    pub(crate) fn take(
        &mut self,
        engine: &str,
        exchange: u64,
        response: Option<&str>,
        prompt_tokens: Option<u64>,
    ) -> Option<f64> {
        let engine = self.engines.get_mut(engine)?;
        let open = engine.open.remove(&exchange);
        if let Some(open) = &open
            && engine.threads.get(&open.thread) == Some(&exchange)
        {
            engine.threads.remove(&open.thread);
        }
        let answer = response.and_then(|response| engine.answers.remove(response));
        let t0 = open.as_ref().map(|open| open.t0);
        let by_message = answer.map(|answer| {
            (
                answer.span,
                !answer.doubt && t0.is_some_and(|t0| t0 <= answer.span.begin),
            )
        });
        let by_thread = open.as_ref().map(|open| (open.by_thread, true));
        let alone = open.map(|open| (open.alone, open.alone.agrees(prompt_tokens)));
        let mut result = None;
        for (span, sure) in [by_thread, by_message, alone].into_iter().flatten() {
            if span.calls == 0 {
                continue;
            }
            if sure && result.is_none() {
                self.tied += span.calls;
                result = Some(span.nanos as f64 / 1e9);
            } else {
                self.unassigned += span.calls;
            }
        }
        result
    }

    /// Time has passed: gives up calls whose request did not come.
    pub(crate) fn advance(&mut self, now: Nanos, out: &mut Vec<Observation>) {
        for engine in self.engines.values_mut() {
            self.unassigned += engine.expire(now) as u64;
        }
        let (tied, unassigned) = (
            std::mem::take(&mut self.tied),
            std::mem::take(&mut self.unassigned),
        );
        if tied > 0 || unassigned > 0 {
            out.push(Observation::TokenizerCalls { tied, unassigned });
        }
    }

    /// An engine is gone.
    pub(crate) fn down(&mut self, engine: &str) {
        let Some(engine) = self.engines.remove(engine) else {
            return;
        };
        let waiting = engine
            .waiting
            .iter()
            .filter(|waiting| waiting.taken.is_none())
            .count() as u64;
        let spans = engine
            .answers
            .values()
            .map(|answer| answer.span.calls)
            .sum::<u64>()
            + engine
                .open
                .values()
                .map(|open| open.by_thread.calls + open.alone.calls)
                .sum::<u64>();
        self.unassigned += waiting + spans;
    }

    /// Bytes, about.
    pub(crate) fn bytes(&self) -> usize {
        let of = |engine: &Engine| {
            engine.open.len() * (size_of::<Open>() + 64)
                + engine.waiting.len() * size_of::<Waiting>()
                + engine.answers.len() * (size_of::<Answer>() + 192)
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
    /// Forgets calls that no message can be about any more; answers how many were nobody's.
    fn expire(&mut self, now: Nanos) -> usize {
        let mut lost = 0;
        while let Some(oldest) = self.waiting.front()
            && oldest.call.end.saturating_add(MESSAGE_WITHIN_NS) < now
        {
            lost += usize::from(oldest.taken.is_none());
            self.waiting.pop_front();
        }
        lost
    }

    /// See [`Tokenizing::sent_on`]; answers how many calls turned out to be nobody's.
    fn sent_on(&mut self, tgid: u32, at: Nanos, prompt: &str, response: &str, tokens: Option<u64>) -> usize {
        let mut lost = 0;
        let key: Arc<str> = if let Some((key, _)) = self.answers.get_key_value(response) {
            key.clone()
        } else {
            while self.answers.len() >= MAX_ANSWERS
                && let Some(oldest) = self.order.pop_front()
            {
                lost += self
                    .answers
                    .remove(&oldest)
                    .map_or(0, |old| old.span.calls as usize);
            }
            // Ended ones stay in the order until they come to its front, or are too many.
            if self.order.len() >= 2 * MAX_ANSWERS {
                let answers = &self.answers;
                self.order.retain(|id| answers.contains_key(id));
            }
            let key: Arc<str> = response.into();
            self.order.push_back(key.clone());
            key
        };
        let answer = self.answers.entry(key.clone()).or_default();
        // Several choices of one prompt are sent on one by one, and were one text.
        if answer.prompts.iter().any(|known| **known == *prompt) {
            return lost;
        }
        if answer.prompts.len() >= MAX_PROMPTS {
            answer.doubt = true;
            return lost;
        }
        answer.prompts.push(prompt.into());
        let fits = |waiting: &Waiting| {
            let same = match (waiting.call.tokens, tokens) {
                (Some(given), Some(sent)) => given == sent,
                _ => true,
            };
            same && waiting.call.tgid == tgid && waiting.call.end <= at
        };
        let free: Vec<usize> = (0..self.waiting.len())
            .filter(|index| {
                self.waiting
                    .get(*index)
                    .is_some_and(|w| w.taken.is_none() && fits(w))
            })
            .collect();
        match free.as_slice() {
            [] => {
                answer.doubt = true;
                // Tokens may have been sent as such. Or the call that fits was taken for another request's: then it
                // was not surely that one's.
                let taken = self.waiting.iter_mut().filter(|w| w.taken.is_some() && fits(w));
                for waiting in taken {
                    if let Some(other) = waiting.taken.as_ref().and_then(|id| self.answers.get_mut(id)) {
                        other.doubt = true;
                    }
                }
            }
            [one] => {
                if let Some(waiting) = self.waiting.get_mut(*one) {
                    waiting.taken = Some(key);
                    if waiting.contested {
                        answer.doubt = true;
                        lost += 1;
                    } else {
                        answer.span.add(&waiting.call);
                    }
                }
            }
            [oldest, ..] => {
                answer.doubt = true;
                for index in &free {
                    if let Some(waiting) = self.waiting.get_mut(*index) {
                        waiting.contested = true;
                    }
                }
                // One of them it is, so one fewer waits.
                if let Some(waiting) = self.waiting.get_mut(*oldest) {
                    waiting.taken = Some(key);
                    lost += 1;
                }
            }
        }
        lost
    }
}

//! What an engine told of one response, and what of that is believed when it has ended.
//!
//! Owns: the shape that every engine's messages and calls are brought into. Refuses: ids (each engine's own file), and the
//! table of responses (`inside`).

use super::Begun;
use crate::{
    Nanos,
    prefix::{Shared, TAGS, Tail},
    timeline::Gaps,
};

/// Engine requests of one response: prompts times choices.
const MAX_MEMBERS: usize = 256;

/// What the engine told of one response. It may have several prompts, and several choices for each.
#[derive(Debug, Default)]
pub(super) struct Response {
    members: Vec<Member>,
    prompts: Vec<Prompt>,
    /// When its first request was added, by the clock of the events.
    pub(super) added: Nanos,
    /// When anything was told of it last, by the clock of the events.
    pub(super) touched: Nanos,
    scheduled: Option<Nanos>,
    first_token: Option<Nanos>,
    last_token: Option<Nanos>,
    output_tokens: u64,
    gaps: Gaps,
    /// Steps may have been missed, or members: what has been counted may be too little.
    lossy: bool,
    /// Two responses go by its id: nothing is certain of either.
    doubtful: bool,
}

/// One engine request.
#[derive(Debug)]
struct Member {
    id: Box<str>,
    prompt: usize,
    last_token: Option<Nanos>,
    finished: bool,
    given_up: bool,
    /// Where its prompt and answer end, while prompts are compared.
    tail: Option<Box<Tail>>,
}

#[derive(Debug)]
struct Prompt {
    id: Box<str>,
    /// What all engine requests for it have in common in their ids.
    stem: Box<str>,
    tokens: Option<u64>,
    cached: Option<u64>,
    shared: Option<Shared>,
}

/// What is believed of a response that has ended.
#[derive(Debug, Clone, Default, PartialEq)]
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
    pub(crate) reasoning_tokens: Option<u64>,
    /// Engine requests that it has: prompts times choices.
    pub(crate) requests: u64,
    /// How far its prompts agree with ones before them.
    pub(crate) shared: Option<Shared>,
    /// Seconds between successive tokens of one engine request, and how many tokens share them. Whole wherever
    /// `last_token` is there.
    pub(crate) gaps: Vec<(f64, u32)>,
}

impl Response {
    /// A response whose first request is added now.
    pub(super) fn new(now: Nanos) -> Response {
        Response {
            added: now,
            touched: now,
            ..Response::default()
        }
    }

    /// An engine request for `prompt` of it was added. `stem`: the part of its id that it shares with the other requests
    /// for the same prompt. Answers its place; `None` when it has too many.
    pub(super) fn add(&mut self, id: &str, prompt: &str, stem: &str, tokens: Option<u64>) -> Option<usize> {
        if self.members.len() >= MAX_MEMBERS {
            self.lossy = true;
            return None;
        }
        let mut known = self.prompts.iter_mut().enumerate();
        let prompt = if let Some((at, known)) = known.find(|(_, known)| *known.id == *prompt) {
            known.tokens = known.tokens.or(tokens);
            self.doubtful |= *known.stem != *stem;
            at
        } else {
            self.prompts.push(Prompt {
                id: prompt.into(),
                stem: stem.into(),
                tokens,
                cached: None,
                shared: None,
            });
            self.prompts.len() - 1
        };
        self.members.push(Member {
            id: id.into(),
            prompt,
            last_token: None,
            finished: false,
            given_up: false,
            tail: None,
        });
        Some(self.members.len() - 1)
    }

    /// The prompt of a request was compared with those before it. Of several choices, the engine counts as hit what the
    /// one hit that hit most.
    pub(super) fn begun(&mut self, member: usize, (shared, tail): Begun) {
        if let Some(member) = self.members.get_mut(member)
            && let Some(prompt) = self.prompts.get_mut(member.prompt)
        {
            member.tail = Some(Box::new(tail));
            let more = prompt
                .shared
                .as_ref()
                .is_none_or(|known| known.differs < shared.differs);
            if more {
                prompt.shared = Some(shared);
            }
        }
    }

    /// Where the prompt and answer of a request end.
    pub(super) fn tail(&mut self, member: usize) -> Option<&mut Tail> {
        self.members.get_mut(member)?.tail.as_deref_mut()
    }

    /// An engine request of it goes on with more input.
    pub(super) fn resume(&mut self, member: usize) {
        if let Some(member) = self.members.get_mut(member) {
            member.finished = false;
            // Where its answer goes on is not known any more.
            member.tail = None;
        }
    }

    /// The scheduler took a request of it.
    pub(super) fn scheduled(&mut self, at: Nanos) {
        self.scheduled = Some(self.scheduled.map_or(at, |first| first.min(at)));
    }

    /// A request of it has `count` more tokens, which existed at `at`; at most `limit` gaps are kept. Answers when it got
    /// tokens before; `None` when these are its first.
    pub(super) fn tokens(
        &mut self,
        member: usize,
        count: u32,
        at: Option<Nanos>,
        limit: usize,
    ) -> Option<Nanos> {
        self.output_tokens += u64::from(count);
        self.first_token = self.first_token.or(at);
        self.last_token = self.last_token.max(at);
        let (Some(member), Some(at)) = (self.members.get_mut(member), at) else {
            return None;
        };
        let before = member.last_token.replace(at)?;
        self.gaps.push(at.saturating_sub(before), count, limit);
        Some(before)
    }

    /// So much of a request's prompt was in the cache.
    pub(super) fn cached(&mut self, member: usize, tokens: u64) {
        if let Some(member) = self.members.get(member)
            && let Some(prompt) = self.prompts.get_mut(member.prompt)
        {
            prompt.cached = prompt.cached.max(Some(tokens));
        }
    }

    /// Prompt tokens of a request that must be computed, as far as is known.
    pub(super) fn computed(&self, member: usize) -> Option<u64> {
        let prompt = self.prompts.get(self.members.get(member)?.prompt)?;
        prompt.tokens?.checked_sub(prompt.cached?)
    }

    /// From when to when its prompt was read, as far as is believed while it is under way.
    pub(super) fn prefill(&self) -> Option<(Nanos, Nanos)> {
        Some((self.scheduled?, self.first_token.filter(|_| !self.lossy)?))
    }

    /// The engine has finished a request of it.
    pub(super) fn finish(&mut self, member: usize) {
        if let Some(member) = self.members.get_mut(member) {
            member.finished = true;
        }
    }

    /// The engine was told to give a request of it up.
    pub(super) fn give_up(&mut self, member: usize) {
        if let Some(member) = self.members.get_mut(member) {
            member.given_up = true;
        }
    }

    /// The engine works on none of its requests any more.
    pub(super) fn ended(&self) -> bool {
        self.members
            .iter()
            .all(|member| member.finished || member.given_up)
    }

    fn finished(&self) -> bool {
        self.members.iter().all(|member| member.finished)
    }

    /// Messages are missing. What had ended before is whole.
    pub(super) fn lost(&mut self) {
        self.lossy |= !self.finished();
    }

    /// Ids of its engine requests.
    pub(super) fn members(&self) -> impl Iterator<Item = &str> {
        self.members.iter().map(|member| &*member.id)
    }

    /// Heap bytes, about.
    pub(super) fn heap_bytes(&self) -> usize {
        self.members.len() * (size_of::<Member>() + size_of::<Tail>() + 64 + TAGS)
            + self.prompts.len() * (size_of::<Prompt>() + 96)
            + self.gaps.heap_bytes()
    }

    /// What is believed when the response has ended; `complete`: to its end. `None`: nothing.
    pub(super) fn told(&self, complete: bool) -> Option<Told> {
        if self.doubtful {
            return None;
        }
        // A response can be complete before the engine knows: a stop string is found in the API server, and the tokens
        // that came since are nobody's. A broken one has cost what the engine made.
        let counted = !self.lossy && (!complete || self.finished());
        let sum = |part: fn(&Prompt) -> Option<u64>| self.prompts.iter().map(part).sum::<Option<u64>>();
        Some(Told {
            scheduled: self.scheduled,
            first_token: self.first_token.filter(|_| !self.lossy),
            last_token: self.last_token.filter(|_| counted),
            input_tokens: sum(|prompt| prompt.tokens).filter(|_| self.members.len() < MAX_MEMBERS),
            cached_tokens: sum(|prompt| prompt.cached),
            output_tokens: counted.then_some(self.output_tokens),
            reasoning_tokens: None,
            requests: self.members.len() as u64,
            shared: match &self.prompts[..] {
                [prompt] => prompt.shared.clone(),
                // Each has its own last token that is always computed.
                _ => None,
            },
            gaps: if counted { self.gaps.seconds() } else { Vec::new() },
        })
    }
}

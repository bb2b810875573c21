//! What is in a step: which slots read their prompt in it, which generate, and how many tokens of each.
//!
//! Owns: one step until all its tokens were told, and what a batch's size says. Refuses: what slots work on (`slots`).

use super::Slot;
use crate::{
    Nanos, Observation, Source,
    engine::llama_cpp::{Batch, TokenSize},
    observation::{EngineStep, StepKind},
};
use std::{collections::BTreeMap, sync::Arc};

/// After so long without another, a step's tokens have all been told.
const SETTLED: Nanos = 1_000_000_000;

/// The steps of one process.
#[derive(Debug, Default)]
pub(super) struct Steps {
    size: TokenSize,
    /// The last step, whose tokens are still being told.
    last: Option<Last>,
    has_slots: bool,
    /// A step went by after the first calls of slots, and no slot turned up that was not known.
    settled: bool,
    /// More than one token a step was generated for one request, so a batch may hold drafted ones.
    drafts: bool,
}

#[derive(Debug)]
struct Last {
    engine: Arc<str>,
    model: Option<Arc<str>>,
    begin: Nanos,
    end: Nanos,
    batch: Batch,
    /// Slots that had a token before, by address, and how many they got.
    generating: BTreeMap<u64, u64>,
    reading: u64,
    /// A token of a slot that was not known came of it.
    surprise: bool,
}

/// What is known of a slot's prompt from the batches that it was in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Prompt {
    /// The units of those batches, tokens or bytes, and the tokens of others among them.
    Read { units: u64, bytes: bool, others: u64 },
    /// Another prompt was read at the same time.
    Unknown,
}

impl Default for Prompt {
    fn default() -> Prompt {
        Prompt::Read {
            units: 0,
            bytes: false,
            others: 0,
        }
    }
}

impl Prompt {
    /// It was read in this batch, among `others` tokens of other requests.
    fn read_in(&mut self, batch: Batch, others: u64) {
        *self = match (*self, batch) {
            (
                Prompt::Read {
                    units,
                    others: before,
                    ..
                },
                Batch::Tokens(tokens),
            ) => Prompt::Read {
                units: units + tokens,
                bytes: false,
                others: before + others,
            },
            (
                Prompt::Read {
                    units,
                    others: before,
                    ..
                },
                Batch::Bytes { bytes, .. },
            ) => Prompt::Read {
                units: units + bytes,
                bytes: true,
                others: before + others,
            },
            _ => Prompt::Unknown,
        };
    }
}

impl Steps {
    pub(super) fn has_slots(&self) -> bool {
        self.has_slots
    }

    pub(super) fn has_slots_now(&mut self) {
        self.has_slots = true;
    }

    /// The model was run over a batch: ends the step before.
    pub(super) fn step(
        &mut self,
        (engine, model): (&Arc<str>, Option<&Arc<str>>),
        (begin, end): (Nanos, Nanos),
        batch: Batch,
        slots: &mut BTreeMap<u64, Slot>,
        out: &mut Vec<Observation>,
    ) {
        // One of the two functions may call the other: the outer one returns last, and is the step.
        if self
            .last
            .as_ref()
            .is_some_and(|last| begin <= last.begin && last.end <= end)
        {
            self.last = None;
        } else {
            self.finish(out);
        }
        let in_batch = |slot: &&Slot| slot.launched <= begin;
        let generating: BTreeMap<u64, u64> = slots
            .iter()
            .filter(|(_, slot)| slot.tokens > 0)
            .map(|(address, _)| (*address, 0))
            .collect();
        let others = generating.len() as u64;
        let reads = slots
            .values()
            .filter(in_batch)
            .filter(|slot| slot.tokens == 0)
            .count() as u64;
        // A slot that was taken up while a step ran is in none yet.
        for slot in slots.values_mut() {
            if slot.tokens == 0 && slot.launched <= begin {
                if reads == 1 && self.settled {
                    slot.prompt.read_in(batch, others);
                } else {
                    slot.prompt = Prompt::Unknown;
                }
            }
        }
        self.last = Some(Last {
            engine: Arc::clone(engine),
            model: model.cloned(),
            begin,
            end,
            batch,
            generating,
            reading: reads,
            surprise: false,
        });
    }

    /// A slot got a token.
    pub(super) fn token(&mut self, address: u64, known: bool) {
        let Some(last) = &mut self.last else { return };
        last.surprise |= !known;
        if let Some(tokens) = last.generating.get_mut(&address) {
            *tokens += 1;
            self.drafts |= *tokens > 1;
        }
    }

    /// A slot has its first token: its prompt was read.
    pub(super) fn prompt_read(&mut self, slot: &Slot, prompt_tokens: Option<u64>) {
        if let (
            Prompt::Read {
                units,
                bytes: true,
                others,
            },
            Some(tokens),
        ) = (slot.prompt, prompt_tokens)
        {
            self.size.prompt(units, others, tokens);
        }
    }

    /// Prompt tokens that were computed for a slot, where that is certain.
    pub(super) fn computed(&self, slot: &Slot) -> Option<u64> {
        let Prompt::Read { units, bytes, others } = slot.prompt else {
            return None;
        };
        let tokens = if bytes { self.size.tokens(units)? } else { units };
        tokens
            .checked_sub(others)
            .filter(|tokens| *tokens > 0 && !self.drafts)
    }

    /// All tokens of the last step have been told: tells it.
    pub(super) fn finish(&mut self, out: &mut Vec<Observation>) {
        let Some(last) = self.last.take() else { return };
        let generating = last.generating.len() as u64;
        if last.surprise {
            self.settled = false;
        }
        // Each of its requests generated one token, and nothing else was in it.
        if self.settled
            && last.reading == 0
            && last.generating.values().all(|tokens| *tokens == 1)
            && let Batch::Bytes { bytes, .. } = last.batch
            && !self.drafts
        {
            self.size.generated(bytes, generating);
        }
        let known = self.has_slots && self.settled && !last.surprise;
        let (tokens, room) = match last.batch {
            Batch::Tokens(tokens) => (Some(tokens), None),
            Batch::Bytes { bytes, room } => (self.size.tokens(bytes), Some(room)),
            Batch::Unknown => (None, None),
        };
        let read = match last.reading {
            0 => Some(0),
            _ if self.drafts => None,
            _ => tokens.and_then(|tokens| tokens.checked_sub(generating)),
        };
        // A batch that is full may hold one prompt of several, and which is not known.
        let full = room.is_some() && tokens.is_none_or(|tokens| Some(tokens) >= room);
        let all_in = last.reading <= 1 || (room.is_some() && !full);
        let reading = if read == Some(0) { 0 } else { last.reading };
        out.push(Observation::Step(Box::new(EngineStep {
            engine: last.engine,
            model: last.model,
            start: Some(last.begin),
            end: last.end,
            kind: StepKind::of(reading, generating).filter(|_| known),
            prefill_tokens: read.filter(|_| known),
            decode_tokens: known.then(|| last.generating.values().sum()),
            requests: (known && all_in && reading + generating > 0).then_some(reading + generating),
            source: Source::Engine,
        })));
        self.settled = self.has_slots && !last.surprise;
    }

    /// Time has passed.
    pub(super) fn expire(&mut self, now: Nanos, out: &mut Vec<Observation>) {
        if self
            .last
            .as_ref()
            .is_some_and(|last| last.end.saturating_add(SETTLED) <= now)
        {
            self.finish(out);
        }
    }
}

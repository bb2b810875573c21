//! How much of the prompts begins like prompts before them, what an engine's cache made of that, and what keeps it from
//! more.
//!
//! Owns: which prompts are compared with which, the bounds of what is kept for that, when it is told. Refuses: keeping
//! prompts: there are keyed hashes of their blocks and of their first words, in memory, and sums.
//!
//! Prompts are compared by the tokens that an engine is given, where its messages tell them, else by their text. A prompt
//! counts as seen from the moment on that the engine is given it, as that is the order in which engines fill their caches.

mod blocks;
mod class;
mod differ;
mod report;
#[cfg(test)]
mod tests;
mod text;

pub use blocks::Seed;
pub use class::BreakClass;
pub use report::{BreakReport, PrefixBasis, PrefixReport};
pub use text::Part;

pub(crate) use blocks::{Shared, TAGS, Tail};

use crate::{Nanos, Observation, RequestRecord, engine::vllm::Added, observation::Labels};
use blocks::{BLOCK, Blocks};
use differ::{Hashes, Words};
use report::{Break, Key, Model, Row, shareable};
use std::{collections::BTreeMap, sync::Arc};
use text::PromptText;

/// Rows that are kept; requests of further scenes, models and engines count in one of [`OTHER`].
const MOST_ROWS: usize = 1024;
/// What stands for all that have no row of their own.
const OTHER: &str = "other";
/// Models and scenes of which first words are kept; of further ones it is not told what breaks their prefixes.
const MOST_HEADS: usize = 128;
/// Prompts of a scene whose first words are kept.
const HEADS: usize = 8;
/// Words that two prompts begin with when they are of one kind.
const ALIKE: usize = 8;
/// Bytes of text that stand in for a token when prompts are compared by text.
const TEXT_UNIT: usize = 4;
/// Least tokens after a difference that are worth telling.
const WORTH: u64 = BLOCK as u64;
/// How often rows are told.
const TELL: Nanos = 1_000_000_000;

/// What the advisor may keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrefixConfig {
    /// Compare prompts at all.
    pub enabled: bool,
    /// Bytes of hashes of blocks.
    pub max_bytes: usize,
    /// Keys the hashes; a secret of the process.
    pub seed: Seed,
}

impl Default for PrefixConfig {
    fn default() -> Self {
        PrefixConfig {
            enabled: false,
            max_bytes: 32 * 1024 * 1024,
            seed: Seed([0x5eed, 0x1e55]),
        }
    }
}

/// What was asked of an engine, but for its prompt: caches keep these apart.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Apart<'a> {
    pub(crate) process: u32,
    pub(crate) salt: &'a [u8],
    pub(crate) adapter: &'a [u8],
}

/// The advisor.
#[derive(Debug)]
pub(crate) struct Prefix {
    config: PrefixConfig,
    blocks: Blocks,
    models: BTreeMap<(Arc<str>, Arc<str>), Model>,
    rows: BTreeMap<Key, Row>,
    heads: BTreeMap<(Arc<str>, Arc<str>), Heads>,
    told: Nanos,
}

/// Beginnings of some prompts of a scene, those that were like another last at the end.
#[derive(Debug, Default)]
struct Heads(Vec<Head>);

/// The beginning of a prompt.
#[derive(Debug)]
struct Head {
    words: Hashes,
    /// Of its first tokens; empty where they are not told.
    tags: Box<[u8]>,
}

impl Prefix {
    pub(crate) fn new(config: PrefixConfig) -> Prefix {
        Prefix {
            config,
            blocks: Blocks::new(config.seed, config.max_bytes),
            models: BTreeMap::new(),
            rows: BTreeMap::new(),
            heads: BTreeMap::new(),
            told: 0,
        }
    }

    pub(crate) fn enabled(&self) -> bool {
        self.config.enabled
    }

    /// An engine was given a prompt of these tokens.
    pub(crate) fn given(
        &mut self,
        engine: &str,
        apart: Apart<'_>,
        tokens: impl Iterator<Item = u32>,
    ) -> (Shared, Tail) {
        let process = apart.process.to_le_bytes();
        let root =
            self.config
                .seed
                .root(&[b"tokens", engine.as_bytes(), &process, apart.salt, apart.adapter]);
        self.blocks.see(root, tokens)
    }

    /// The answer to a prompt has another token.
    pub(crate) fn grown(&mut self, tail: &mut Tail, token: u32) {
        self.blocks.grow(tail, token);
    }

    /// A request has ended. `shared`: of the tokens that the engine was given; `body`: of the request, where it is whole.
    pub(crate) fn finished(
        &mut self,
        labels: &Labels,
        process: u32,
        record: &RequestRecord,
        shared: Option<Shared>,
        body: Option<&[u8]>,
    ) {
        if !self.config.enabled {
            return;
        }
        let text = body.and_then(PromptText::of);
        let Some(tokens) = shared.as_ref().map(|shared| shared.units).or(record.input_tokens) else {
            return;
        };
        let (shared, basis) = match (shared, &text) {
            (Some(shared), _) => (shared, PrefixBasis::Tokens),
            (None, Some(text)) => (
                self.by_text(&labels.engine, process, text, tokens),
                PrefixBasis::Text,
            ),
            (None, None) => return,
        };
        let could = shareable(&shared, tokens);
        let hit = record.cached_input_tokens;
        let tags = match basis {
            PrefixBasis::Tokens => shared.tags,
            PrefixBasis::Text => Box::default(),
        };
        let could_most = could.first().copied().unwrap_or(0);
        let found = text
            .as_ref()
            .and_then(|text| self.compare(labels, text, tokens, tags, could_most));
        let model = (Arc::clone(&labels.engine), Arc::clone(&labels.model));
        if self.models.len() < MOST_ROWS || self.models.contains_key(&model) {
            let model = self.models.entry(model).or_default();
            if let (PrefixBasis::Tokens, Some(hit)) = (basis, hit) {
                model.hit(&could, hit);
            }
            if let (Some(hit), Some(seconds)) = (hit, record.prefill_s) {
                model.prefilled(tokens.saturating_sub(hit), seconds);
            }
        }
        let key = Key {
            engine: Arc::clone(&labels.engine),
            model: Arc::clone(&labels.model),
            scene: Arc::clone(&labels.scene),
            basis,
        };
        let other = || Key {
            engine: OTHER.into(),
            model: OTHER.into(),
            scene: OTHER.into(),
            basis,
        };
        let has_room = self.rows.len() < MOST_ROWS || self.rows.contains_key(&key);
        let key = if has_room { key } else { other() };
        self.rows.entry(key).or_default().add(tokens, &could, hit, found);
    }

    /// Time has passed: tells the rows that have changed. At [`Nanos::MAX`] at once.
    pub(crate) fn advance(&mut self, now: Nanos, out: &mut Vec<Observation>) {
        if now.saturating_sub(self.told) < TELL {
            return;
        }
        self.told = now;
        for (key, row) in &mut self.rows {
            if !std::mem::take(&mut row.changed) {
                continue;
            }
            let none = Model::default();
            let model = self
                .models
                .get(&(Arc::clone(&key.engine), Arc::clone(&key.model)));
            let report = PrefixReport {
                forgotten_blocks: self.blocks.forgotten(),
                ..row.report(key, model.unwrap_or(&none))
            };
            out.push(Observation::Prefix(Box::new(report)));
        }
    }

    /// Bytes, about.
    pub(crate) fn bytes(&self) -> usize {
        let heads = self.heads.values().flat_map(|heads| &heads.0);
        self.blocks.bytes()
            + self.rows.len() * (size_of::<Row>() + size_of::<Key>() + 64)
            + self.models.len() * (size_of::<Model>() + 96)
            + heads
                .map(|head| head.words.len() * 4 + head.tags.len() + 64)
                .sum::<usize>()
    }

    /// A prompt of so many tokens, compared by its text.
    fn by_text(&mut self, engine: &str, process: u32, text: &PromptText, tokens: u64) -> Shared {
        let process = process.to_le_bytes();
        let root = self.config.seed.root(&[b"text", engine.as_bytes(), &process]);
        let bytes = text.text.as_bytes();
        let units = bytes.chunks(TEXT_UNIT).map(|unit| {
            let mut whole = [0; TEXT_UNIT];
            whole.iter_mut().zip(unit).for_each(|(to, from)| *to = *from);
            u32::from_le_bytes(whole)
        });
        let (shared, _) = self.blocks.see(root, units);
        let share = |units: u64| {
            let all = u128::from(shared.units.max(1));
            let part = u128::from(units) * u128::from(tokens) / all;
            u64::try_from(part).unwrap_or(tokens)
        };
        let blocks = share(shared.blocks);
        Shared {
            units: tokens,
            blocks: blocks - blocks % BLOCK as u64,
            differs: share(shared.differs),
            tags: Box::default(),
        }
    }

    /// The first words of a prompt against those of its scene before it: where it differs though the rest is the same.
    fn compare(
        &mut self,
        labels: &Labels,
        text: &PromptText,
        tokens: u64,
        tags: Box<[u8]>,
        could: u64,
    ) -> Option<Break> {
        let words = Words::of(self.config.seed, &text.text);
        let key = (Arc::clone(&labels.model), Arc::clone(&labels.scene));
        if self.heads.len() >= MOST_HEADS && !self.heads.contains_key(&key) {
            return None;
        }
        let heads = &mut self.heads.entry(key).or_default().0;
        let found = heads
            .iter()
            .enumerate()
            .map(|(at, head)| (differ::common(&head.words, &words.hashes), at))
            .max();
        let known = found.and_then(|(_, at)| heads.get(at));
        let difference = known.and_then(|head| differ::difference(&head.words, &words.hashes));
        // Where the tokens differ; not known where it is beyond those that have tags.
        let token = known.and_then(|head| {
            let same = head.tags.iter().zip(&tags).take_while(|(a, b)| a == b).count();
            (same < head.tags.len().min(tags.len())).then_some(same as u64)
        });
        if let Some((common, at)) = found
            && (common >= ALIKE.min(words.hashes.len()) || difference.is_some())
        {
            heads.remove(at);
        } else if heads.len() >= HEADS {
            heads.remove(0);
        }
        heads.push(Head {
            words: words.hashes.as_slice().into(),
            tags,
        });
        let difference = difference?;
        let place = |word: usize| words.places.get(word).copied();
        let (start, _) = place(difference.from)?;
        let end = if difference.to > difference.from {
            place(difference.to - 1)?.1
        } else {
            start
        };
        let again = place(difference.to)?.0..place(difference.to + difference.again - 1)?.1;
        let whole = text.text.len().max(1) as u128;
        let share =
            |bytes: usize| u64::try_from(bytes as u128 * u128::from(tokens) / whole).unwrap_or(tokens);
        let token = token.unwrap_or_else(|| share(start));
        let lost_tokens = share(again.len()).min(tokens.saturating_sub(could));
        (lost_tokens >= WORTH).then(|| Break {
            class: BreakClass::of(&text.text, start, end),
            part: text.part_at(start),
            token,
            character: text
                .text
                .get(..start)
                .map_or(0, |text| text.chars().count() as u64),
            lost_tokens,
        })
    }
}

impl crate::context::Context<'_> {
    /// An engine was given a prompt: how far it agrees with one before it, where its tokens are told.
    pub(crate) fn begun(&mut self, engine: &str, added: &Added<'_>) -> Option<(Shared, Tail)> {
        if !self.prefix.enabled() || added.token_ids.is_empty() {
            return None;
        }
        let apart = Apart {
            process: self.engine.map_or(0, |engine| engine.pid),
            salt: added.cache_salt.0,
            adapter: added.adapter.0,
        };
        Some(self.prefix.given(engine, apart, added.token_ids.iter()))
    }
}

//! What is told of the prefixes of one scene's prompts, and the sums that it is made of.
//!
//! Owns: what an engine's cache can have hit, given its block size; that size, as far as hits show it; rates and seconds.
//! Refuses: hashes (`blocks`) and differences (`differ`).

use super::{BreakClass, Part, blocks::Shared};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Block sizes that are reckoned with, the likeliest first: where hits fit several, it is the first of them.
pub(super) const SIZES: [u64; 8] = [16, 32, 64, 128, 256, 512, 1024, 1];

/// One number for each of [`SIZES`].
pub(super) type BySize = [u64; SIZES.len()];

/// What the prefixes of prompts are compared by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PrefixBasis {
    /// The tokens that the engine was given.
    Tokens,
    /// The prompts' text, of which tokens are a share.
    Text,
}

/// Tokens of a prompt that a cache with blocks of each size can have, when all that came before is still in it. No engine
/// takes a whole prompt from its cache: the last token is always computed, for the one after it.
pub(super) fn shareable(shared: &Shared, tokens: u64) -> BySize {
    let most = tokens.saturating_sub(1);
    SIZES.map(|size| match size {
        1 => shared.differs.min(most),
        size => {
            let found = shared.blocks.min(most);
            found - found % size
        }
    })
}

/// What is known of one engine and model.
#[derive(Debug, Default)]
pub(super) struct Model {
    /// Hits that are what a cache with blocks of each size would have had.
    votes: BySize,
    /// Prompt tokens that were computed, and the seconds of it, of requests that tell both.
    computed: u64,
    seconds: f64,
}

impl Model {
    /// A request hit so much of what it could have. One without a hit tells nothing of sizes.
    pub(super) fn hit(&mut self, shareable: &BySize, hit: u64) {
        if hit > 0 {
            for (vote, could) in self.votes.iter_mut().zip(shareable) {
                *vote += u64::from(*could == hit);
            }
        }
    }

    /// A request computed so many prompt tokens in so many seconds.
    pub(super) fn prefilled(&mut self, tokens: u64, seconds: f64) {
        if seconds.is_finite() && seconds > 0.0 {
            self.computed = self.computed.saturating_add(tokens);
            self.seconds += seconds;
        }
    }

    /// Index in [`SIZES`] of the block size.
    pub(super) fn size(&self) -> usize {
        let mut best = 0;
        for (at, votes) in self.votes.iter().enumerate() {
            if Some(votes) > self.votes.get(best) {
                best = at;
            }
        }
        best
    }

    fn rate(&self) -> Option<f64> {
        (self.computed > 0 && self.seconds > 0.0).then(|| self.computed as f64 / self.seconds)
    }
}

/// A difference that keeps what follows it from being shared.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Break {
    pub(super) class: BreakClass,
    pub(super) part: Part,
    pub(super) token: u64,
    pub(super) character: u64,
    pub(super) lost_tokens: u64,
}

/// The sums of one engine, model and scene.
#[derive(Debug, Default)]
pub(super) struct Row {
    requests: u64,
    tokens: u64,
    shareable: BySize,
    told_requests: u64,
    hit: u64,
    lost: BySize,
    breaks: [Option<BreakReport>; BreakClass::ALL.len()],
    /// Since it was last told.
    pub(super) changed: bool,
}

impl Row {
    pub(super) fn add(&mut self, tokens: u64, could: &BySize, hit: Option<u64>, found: Option<Break>) {
        self.changed = true;
        self.requests += 1;
        self.tokens = self.tokens.saturating_add(tokens);
        for (sum, could) in self.shareable.iter_mut().zip(could) {
            *sum = sum.saturating_add(*could);
        }
        if let Some(hit) = hit {
            self.told_requests += 1;
            self.hit = self.hit.saturating_add(hit);
            for (sum, could) in self.lost.iter_mut().zip(could) {
                *sum = sum.saturating_add(could.saturating_sub(hit));
            }
        }
        if let Some(found) = found {
            let place = BreakClass::ALL.iter().position(|class| *class == found.class);
            if let Some(slot) = place.and_then(|at| self.breaks.get_mut(at)) {
                let known = slot.map_or((0, 0), |known| (known.requests, known.lost_tokens));
                *slot = Some(BreakReport {
                    class: found.class,
                    part: found.part,
                    token: found.token,
                    character: found.character,
                    requests: known.0 + 1,
                    lost_tokens: known.1.saturating_add(found.lost_tokens),
                    request_ratio: 0.0,
                });
            }
        }
    }

    pub(super) fn report(&self, key: &Key, model: &Model) -> PrefixReport {
        let size = match key.basis {
            PrefixBasis::Tokens => model.size(),
            // Pieces of text have one size.
            PrefixBasis::Text => 0,
        };
        let of = |sums: &BySize| sums.get(size).copied().unwrap_or(0);
        let ratio = |part: u64, of: u64| (of > 0).then(|| part as f64 / of as f64);
        let told = self.told_requests > 0;
        let rate = model.rate();
        let shareable = of(&self.shareable);
        let hit = told.then_some(self.hit);
        let lost = told.then(|| of(&self.lost));
        let seconds = |tokens: Option<u64>| Some(tokens? as f64 / rate?);
        let breaks = self.breaks.iter().flatten().map(|known| BreakReport {
            request_ratio: known.requests as f64 / self.requests.max(1) as f64,
            ..*known
        });
        let mut breaks: Vec<BreakReport> = breaks.collect();
        breaks.sort_by_key(|one| std::cmp::Reverse(one.lost_tokens));
        PrefixReport {
            engine: Arc::clone(&key.engine),
            model: Arc::clone(&key.model),
            scene: Arc::clone(&key.scene),
            basis: key.basis,
            block_tokens: (key.basis == PrefixBasis::Tokens)
                .then(|| SIZES.get(size).copied())
                .flatten(),
            requests: self.requests,
            prompt_tokens: self.tokens,
            shareable_tokens: shareable,
            shareable_ratio: ratio(shareable, self.tokens),
            told_requests: self.told_requests,
            hit_tokens: hit,
            hit_ratio: hit.and_then(|hit| ratio(hit, self.tokens)),
            lost_tokens: lost,
            prefill_tokens_per_second: rate,
            saved_s: seconds(hit),
            lost_s: seconds(lost),
            breaks,
            forgotten_blocks: 0,
        }
    }
}

/// Whose sums.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) engine: Arc<str>,
    pub(super) model: Arc<str>,
    pub(super) scene: Arc<str>,
    pub(super) basis: PrefixBasis,
}

/// How much of a scene's prompts begins like prompts before them, since the agent began.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PrefixReport {
    /// Engine instance id.
    pub engine: Arc<str>,
    /// Served model.
    pub model: Arc<str>,
    /// Scene.
    pub scene: Arc<str>,
    /// What prompts are compared by.
    pub basis: PrefixBasis,
    /// Tokens of a block of the engine's cache, as its hits show; 16 before they show another. Absent with text.
    pub block_tokens: Option<u64>,
    /// Requests that were looked at.
    pub requests: u64,
    /// Their prompt tokens.
    pub prompt_tokens: u64,
    /// Those that a cache could have, if it forgot nothing.
    pub shareable_tokens: u64,
    /// Their share of the prompt tokens; absent without any.
    pub shareable_ratio: Option<f64>,
    /// Requests whose hits the engine told.
    pub told_requests: u64,
    /// Prompt tokens that were in the engine's cache; absent where it tells of none.
    pub hit_tokens: Option<u64>,
    /// Their share of the prompt tokens.
    pub hit_ratio: Option<f64>,
    /// Tokens that a cache could have had and the engine computed.
    pub lost_tokens: Option<u64>,
    /// Prompt tokens that the engine computes in a second of prefill; absent where it tells no times.
    pub prefill_tokens_per_second: Option<f64>,
    /// Seconds of prefill that hits saved.
    pub saved_s: Option<f64>,
    /// Seconds of prefill for tokens that were lost.
    pub lost_s: Option<f64>,
    /// What keeps more from being shared, the costliest first.
    pub breaks: Vec<BreakReport>,
    /// Blocks of any engine that were forgotten to stay within bounds: what came before them is not found again.
    pub forgotten_blocks: u64,
}

/// A kind of difference after which prompts are the same again.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct BreakReport {
    /// What differs.
    pub class: BreakClass,
    /// In which part of the prompt it was last.
    pub part: Part,
    /// The token at which the last one began, counted from 0; with text: about.
    pub token: u64,
    /// The character of the prompt's text at which it began.
    pub character: u64,
    /// Requests that have one.
    pub requests: u64,
    /// Their share.
    pub request_ratio: f64,
    /// Tokens after it that are the same again, and that nothing can share; about.
    pub lost_tokens: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shared(blocks: u64, differs: u64, units: u64) -> Shared {
        Shared {
            units,
            blocks,
            differs,
            ..Shared::default()
        }
    }

    #[test]
    fn the_last_token_and_parts_of_blocks_are_computed() {
        for (blocks, differs, tokens, expected) in [
            (0, 0, 0, [0; 8]),
            (0, 9, 100, [0, 0, 0, 0, 0, 0, 0, 9]),
            (48, 50, 100, [48, 32, 0, 0, 0, 0, 0, 50]),
            (64, 64, 64, [48, 32, 0, 0, 0, 0, 0, 63]),
            (304, 310, 311, [304, 288, 256, 256, 256, 0, 0, 310]),
        ] {
            assert_eq!(shareable(&shared(blocks, differs, tokens), tokens), expected);
        }
    }

    #[test]
    fn hits_show_the_block_size() {
        let mut model = Model::default();
        let size = |model: &Model| SIZES[model.size()];
        assert_eq!(size(&model), 16);
        let could = |tokens| shareable(&shared(tokens, tokens, 10_000), 10_000);
        model.hit(&could(256), 256);
        assert_eq!(size(&model), 16, "all sizes up to 256 fit");
        model.hit(&could(304), 256);
        assert_eq!(size(&model), 64);
        model.hit(&could(464), 384);
        assert_eq!(size(&model), 128);
        model.hit(&could(464), 0);
        assert_eq!(size(&model), 128, "what was forgotten shows nothing");
    }

    #[test]
    fn a_row_tells_shares_seconds_and_the_costliest_break_first() {
        let key = Key {
            engine: "e".into(),
            model: "m".into(),
            scene: "s".into(),
            basis: PrefixBasis::Tokens,
        };
        let mut model = Model::default();
        model.prefilled(500, 0.5);
        model.prefilled(500, f64::NAN);
        let mut row = Row::default();
        let found = |class, lost_tokens| Break {
            class,
            part: Part::System,
            token: 3,
            character: 12,
            lost_tokens,
        };
        let could = shareable(&shared(64, 64, 100), 100);
        row.add(100, &could, Some(0), Some(found(BreakClass::Number, 10)));
        row.add(100, &could, Some(48), Some(found(BreakClass::Timestamp, 30)));
        row.add(200, &[0; 8], None, None);
        let report = row.report(&key, &model);
        assert_eq!(
            (report.requests, report.told_requests, report.prompt_tokens),
            (3, 2, 400)
        );
        assert_eq!(
            (report.shareable_tokens, report.hit_tokens, report.lost_tokens),
            (128, Some(48), Some(80))
        );
        assert_eq!(
            (report.shareable_ratio, report.hit_ratio),
            (Some(0.32), Some(0.12))
        );
        assert_eq!((report.saved_s, report.lost_s), (Some(0.048), Some(0.08)));
        let breaks: Vec<_> = report
            .breaks
            .iter()
            .map(|one| (one.class, one.requests, one.lost_tokens))
            .collect();
        assert_eq!(
            breaks,
            [(BreakClass::Timestamp, 1, 30), (BreakClass::Number, 1, 10)]
        );
        let unknown = Row::default().report(&key, &Model::default());
        assert_eq!(
            (unknown.hit_tokens, unknown.lost_s, unknown.shareable_ratio),
            (None, None, None)
        );
    }

    proptest! {
        #[test]
        fn never_more_than_the_prompt(blocks in 0_u64..40, more in 0_u64..16, rest in 0_u64..100) {
            let (blocks, differs) = (blocks * 16, blocks * 16 + more);
            let tokens = differs + rest;
            for could in shareable(&shared(blocks, differs, tokens), tokens) {
                prop_assert!(could < tokens || tokens == 0);
                prop_assert!(could <= differs);
            }
        }
    }
}

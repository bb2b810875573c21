//! Token counts of one request, per source, counted while it streams.
//!
//! Owns: which source's number goes into the record, and what is still to be added to the counters. Refuses: finding
//! counts in bytes (`protocol`).
//!
//! Counters only grow. They follow the chunks while a response streams, and jump to the reported number when that is
//! higher; when it is lower, the record tells the reported number and the counters keep the tokens that were seen.

use crate::{Source, protocol::Usage};

/// The count.
#[derive(Debug, Default)]
pub(crate) struct Tokens {
    engine: Usage,
    usage: Usage,
    fallback: Usage,
    /// Counted by the agent.
    counted: (Sourced, Sourced),
    /// Tokens in content-bearing chunks.
    in_chunks: u64,
    /// Tokens in chunks that came after the last report of `usage.output`.
    since_usage: u64,
    chunks: u64,
    added_input: u64,
    added_output: u64,
}

/// A number and where it came from.
pub(crate) type Sourced = Option<(u64, Source)>;

impl Tokens {
    /// A content-bearing chunk with `tokens` tokens by its own telling. Returns how many it counts for: when the same
    /// message reports the running total, the total's growth is the better measure of what the chunk carries.
    pub(crate) fn chunk(&mut self, tokens: u32, total: Option<u64>) -> u32 {
        let tokens = match total.and_then(|total| total.checked_sub(self.best_output_value())) {
            Some(grown @ 1..) => u32::try_from(grown).unwrap_or(u32::MAX),
            _ => tokens,
        };
        self.chunks += 1;
        self.in_chunks = self.in_chunks.saturating_add(u64::from(tokens));
        self.since_usage = self.since_usage.saturating_add(u64::from(tokens));
        tokens
    }

    /// Tokens came in a message without content, as when a character is not complete yet.
    pub(crate) fn without_content(&mut self, tokens: u32) {
        self.in_chunks = self.in_chunks.saturating_add(u64::from(tokens));
        self.since_usage = self.since_usage.saturating_add(u64::from(tokens));
    }

    /// The response reported these totals.
    pub(crate) fn report(&mut self, usage: Usage) {
        if usage.output.is_some() {
            self.since_usage = 0;
        }
        self.usage.take(usage);
    }

    /// The engine's own messages told these totals, all there are.
    pub(crate) fn report_engine(&mut self, usage: Usage) {
        self.engine = usage;
    }

    /// The response reported totals in a place that is only believed when there is no `usage`.
    pub(crate) fn report_fallback(&mut self, usage: Usage) {
        self.fallback.take(usage);
    }

    /// The agent has counted, or estimated.
    pub(crate) fn report_counted(&mut self, input: Sourced, output: Sourced) {
        self.counted = (input, output);
    }

    pub(crate) fn chunks(&self) -> u64 {
        self.chunks
    }

    pub(crate) fn input(&self) -> Sourced {
        let engine = self.engine.input.map(|n| (n, Source::Engine));
        let told = self.usage.input.or(self.fallback.input);
        engine.or(told.map(|n| (n, Source::Usage))).or(self.counted.0)
    }

    pub(crate) fn cached_input(&self) -> Option<u64> {
        self.engine
            .cached_input
            .or(self.usage.cached_input)
            .or(self.fallback.cached_input)
    }

    pub(crate) fn reasoning(&self) -> Option<u64> {
        self.engine.reasoning.or(self.usage.reasoning)
    }

    /// The response's own count, unless content followed its last report: then that count plus what followed. Without
    /// one, the chunks: each with content has at least one token, and engines that send each token by itself send no
    /// more. What was counted in the text wins where it shows that chunks carry several; an estimate, where it shows
    /// that beyond its own error.
    pub(crate) fn output(&self) -> Sourced {
        if let Some(told) = self.engine.output {
            return Some((told, Source::Engine));
        }
        match self.usage.output {
            Some(reported) if self.since_usage == 0 => Some((reported, Source::Usage)),
            Some(reported) => Some((reported.saturating_add(self.since_usage), Source::Chunk)),
            None => match self.fallback.output {
                Some(reported) if reported >= self.in_chunks => Some((reported, Source::Usage)),
                fallback if self.chunks > 0 || fallback.is_none() => match self.counted.1 {
                    Some((n, Source::Tokenizer)) if n > self.in_chunks => Some((n, Source::Tokenizer)),
                    Some((n, Source::Estimate)) if n / 2 > self.in_chunks => Some((n, Source::Estimate)),
                    _ if self.chunks > 0 => Some((self.in_chunks, Source::Chunk)),
                    _ => None,
                },
                fallback => fallback.map(|n| (n, Source::Usage)),
            },
        }
    }

    fn best_output_value(&self) -> u64 {
        self.output().map_or(0, |(n, _)| n)
    }

    /// What to add to the input and output counters now.
    pub(crate) fn take_growth(&mut self) -> (u64, u64) {
        let input = self.input().map_or(0, |(n, _)| n);
        let output = self.best_output_value().max(self.in_chunks);
        let growth = (
            input.saturating_sub(self.added_input),
            output.saturating_sub(self.added_output),
        );
        self.added_input += growth.0;
        self.added_output += growth.1;
        growth
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn usage(input: u64, output: u64) -> Usage {
        Usage {
            input: Some(input),
            output: Some(output),
            ..Usage::default()
        }
    }

    #[test]
    fn chunks_count_while_streaming_and_usage_decides_at_the_end() {
        let mut tokens = Tokens::default();
        assert_eq!((tokens.input(), tokens.output()), (None, None));
        tokens.chunk(1, None);
        tokens.chunk(1, None);
        assert_eq!(tokens.take_growth(), (0, 2));
        assert_eq!(tokens.output(), Some((2, Source::Chunk)));
        tokens.report(usage(10, 7));
        assert_eq!(tokens.take_growth(), (10, 5));
        assert_eq!(tokens.output(), Some((7, Source::Usage)));
        assert_eq!(tokens.take_growth(), (0, 0));
    }

    #[test]
    fn a_lower_report_leaves_the_counters_and_fills_the_record() {
        let mut tokens = Tokens::default();
        for _ in 0..5 {
            tokens.chunk(1, None);
        }
        assert_eq!(tokens.take_growth(), (0, 5));
        tokens.report(usage(3, 4));
        assert_eq!(tokens.output(), Some((4, Source::Usage)));
        assert_eq!(tokens.take_growth(), (3, 0));
    }

    #[test]
    fn a_running_total_tells_how_many_tokens_a_chunk_carries() {
        let mut tokens = Tokens::default();
        assert_eq!(tokens.chunk(1, Some(3)), 3);
        tokens.report(usage(9, 3));
        assert_eq!(tokens.chunk(1, Some(4)), 1);
        tokens.report(usage(9, 4));
        assert_eq!(tokens.output(), Some((4, Source::Usage)));
        tokens.chunk(1, None);
        assert_eq!(
            tokens.output(),
            Some((5, Source::Chunk)),
            "content after the last report"
        );
    }

    #[test]
    fn timings_are_believed_only_without_usage() {
        let mut tokens = Tokens::default();
        tokens.chunk(1, None);
        tokens.report_fallback(usage(20, 2));
        assert_eq!(tokens.output(), Some((2, Source::Usage)));
        assert_eq!(tokens.input(), Some((20, Source::Usage)));
        tokens.report(usage(21, 3));
        assert_eq!(
            (tokens.input(), tokens.output()),
            (Some((21, Source::Usage)), Some((3, Source::Usage)))
        );
    }

    #[test]
    fn what_the_agent_counted_stands_where_nothing_better_is_told() {
        let of = |n, source| Some((n, source));
        for (counted, chunks, expected) in [
            (of(9, Source::Tokenizer), 3, of(9, Source::Tokenizer)),
            (of(2, Source::Tokenizer), 3, of(3, Source::Chunk)),
            (of(5, Source::Estimate), 3, of(3, Source::Chunk)),
            (of(8, Source::Estimate), 3, of(8, Source::Estimate)),
            (None, 3, of(3, Source::Chunk)),
            (None, 0, None),
        ] {
            let mut tokens = Tokens::default();
            for _ in 0..chunks {
                tokens.chunk(1, None);
            }
            assert_eq!(tokens.take_growth(), (0, chunks));
            tokens.report_counted(of(7, Source::Tokenizer), counted);
            assert_eq!(tokens.input(), of(7, Source::Tokenizer));
            assert_eq!(tokens.output(), expected);
            let grown = expected.map_or(0, |(n, _)| n) - chunks;
            assert_eq!(tokens.take_growth(), (7, grown));
            tokens.report(usage(3, 4));
            assert_eq!(
                (tokens.input(), tokens.output()),
                (of(3, Source::Usage), of(4, Source::Usage))
            );
        }
    }

    proptest! {
        /// The counters' sum never falls below any count told so far, and ends at the highest one.
        #[test]
        fn growth_adds_up(steps in proptest::collection::vec((0u8..3, 0u32..1000, any::<bool>()), 0..60)) {
            let mut tokens = Tokens::default();
            let (mut input, mut output) = (0, 0);
            for (step, n, flush) in steps {
                match step {
                    0 => { tokens.chunk(n % 5, None); }
                    1 => tokens.report(usage(u64::from(n) / 2, u64::from(n))),
                    _ => { tokens.chunk(1, Some(u64::from(n))); }
                }
                if flush {
                    let growth = tokens.take_growth();
                    input += growth.0;
                    output += growth.1;
                    prop_assert!(output >= tokens.output().map_or(0, |o| o.0));
                }
            }
            let growth = tokens.take_growth();
            prop_assert!(input + growth.0 >= tokens.input().map_or(0, |i| i.0));
            prop_assert!(output + growth.1 >= tokens.output().map_or(0, |o| o.0));
        }
    }
}

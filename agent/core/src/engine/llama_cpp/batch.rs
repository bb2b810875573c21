//! How many tokens a batch holds.
//!
//! Owns: the two shapes of a batch, and when a count is believed. Refuses: which request a token is of.
//!
//! `llama_batch` is a public struct: its first word is the count. `llama_batch_ext` is an object whose layout nobody
//! promises, and that differs between builds: its tokens are taken to lie in the first vector in it, and how large one is
//! is learnt. A step in which each of k requests generates one token gives at most the size of one, because drafted tokens
//! (speculative decoding) would be in the batch too; a prompt whose length is known gives at least the size of one, because
//! a part of it may have come from the cache. More than half of it did not when the two are less than a factor of two
//! apart, and nothing can have been drafted then.

/// Words of memory that user addresses have.
const ADDRESSES: std::ops::Range<u64> = 0x1000..0x8000_0000_0000;
/// Tokens of a batch; a context has as many at most.
const MAX_TOKENS: u64 = 1 << 24;
/// Bytes of one token of a `llama_batch_ext`.
const SIZES: std::ops::RangeInclusive<u64> = 4..=4096;
/// Steps that must agree on the size of a token.
const AGREEING: u32 = 3;

/// What a call says of its batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Batch {
    /// It holds so many tokens.
    Tokens(u64),
    /// Its tokens take so many bytes; it has room for `room` tokens.
    Bytes { bytes: u64, room: u64 },
    /// Nothing that can be believed.
    Unknown,
}

impl Batch {
    /// A `llama_batch`: count; then the addresses of tokens, embeddings, positions, numbers of sequences, sequences and
    /// wanted outputs, of which one of the first two is there.
    pub(super) fn by_value(bytes: &[u8]) -> Batch {
        let words = bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word));
        let words: Vec<u64> = words.collect();
        let [count, tokens, embeddings, rest @ ..] = words.as_slice() else {
            return Batch::Unknown;
        };
        let count = count & 0xffff_ffff;
        let address = |word: &u64| *word == 0 || ADDRESSES.contains(word);
        let sound = (*tokens == 0) != (*embeddings == 0)
            && rest.len() == 4
            && address(tokens)
            && address(embeddings)
            && rest.iter().all(address)
            && (1..=MAX_TOKENS).contains(&count);
        if sound {
            Batch::Tokens(count)
        } else {
            Batch::Unknown
        }
    }

    /// A `llama_batch_ext`: its first word is the count that it has room for; then, somewhere, a vector.
    pub(super) fn of_object(bytes: &[u8]) -> Batch {
        let words = bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word));
        let words: Vec<u64> = words.collect();
        let vector = words.windows(3).find_map(|triple| {
            let [begin, end, capacity] = *triple else {
                return None;
            };
            let sound = begin % 8 == 0
                && ADDRESSES.contains(&begin)
                && ADDRESSES.contains(&capacity)
                && begin < end
                && end <= capacity
                && capacity - begin <= MAX_TOKENS * 16;
            sound.then(|| end - begin)
        });
        match (vector, words.first()) {
            (Some(bytes), Some(room)) if (1..=MAX_TOKENS).contains(&(room & 0xffff_ffff)) => Batch::Bytes {
                bytes,
                room: room & 0xffff_ffff,
            },
            _ => Batch::Unknown,
        }
    }
}

/// Bytes of one token in a `llama_batch_ext`: learnt, and believed when proven.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TokenSize {
    /// At most: the smallest share of one request in steps that only generate, and how often it was seen.
    upper: u64,
    seen: u32,
    /// A prompt showed that it is more than half of `upper`.
    proven: bool,
}

impl TokenSize {
    /// A step in which each of `requests` generated one token. `false`: that contradicts what was believed.
    pub(crate) fn generated(&mut self, bytes: u64, requests: u64) -> bool {
        let Some(share) = bytes.checked_div(requests) else {
            return true;
        };
        let fits = share * requests == bytes && SIZES.contains(&share);
        if fits && share == self.upper {
            self.seen = self.seen.saturating_add(1);
        } else if fits && (self.upper == 0 || share < self.upper) {
            let believed = self.size().is_some();
            *self = TokenSize {
                upper: share,
                seen: 1,
                proven: false,
            };
            return !believed;
        }
        true
    }

    /// A prompt of `prompt` tokens was read, in `bytes` of batches, among which were `others` tokens of other requests.
    pub(crate) fn prompt(&mut self, bytes: u64, others: u64, prompt: u64) {
        let own = bytes.saturating_sub(others.saturating_mul(self.upper));
        if self.seen >= AGREEING && own.saturating_mul(2) > self.upper.saturating_mul(prompt) {
            self.proven = true;
        }
    }

    /// Tokens in so many bytes, where that is certain.
    pub(crate) fn tokens(&self, bytes: u64) -> Option<u64> {
        let size = self.size()?;
        bytes.is_multiple_of(size).then_some(bytes / size)
    }

    fn size(&self) -> Option<u64> {
        (self.proven && self.seen >= AGREEING).then_some(self.upper)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// As captured from a real server: a step of 431 tokens.
    fn object(tokens: u64) -> Vec<u8> {
        let begin = 0x7f39_344c_ef10;
        let mut words = [
            0x800,
            0x240,
            0x240,
            0,
            0x6462_6d65_0000_0004,
            0x7f39_3545_96b0,
            0xc000,
            1,
            0,
            begin,
            begin,
            begin + 2048 * 112,
            0,
            0,
            0,
            0,
        ];
        words[10] = begin + tokens * 112;
        bytes(&words)
    }

    #[test]
    fn the_public_struct_is_checked_before_its_count_is_believed() {
        let address = 0x7f39_0000_1000;
        let good = [0xdead_0000_0007, address, 0, address, address, address, address];
        assert_eq!(Batch::by_value(&bytes(&good)), Batch::Tokens(7));
        let with = |at: usize, word| {
            let mut words = good;
            words[at] = word;
            Batch::by_value(&bytes(&words))
        };
        assert_eq!(with(0, 0), Batch::Unknown);
        assert_eq!(with(0, 0x8000_0000), Batch::Unknown);
        assert_eq!(with(1, 0), Batch::Unknown, "neither tokens nor embeddings");
        assert_eq!(with(2, address), Batch::Unknown, "both");
        assert_eq!(with(5, 12), Batch::Unknown, "no address");
        assert_eq!(with(6, 0), Batch::Tokens(7), "outputs are optional");
        assert_eq!(Batch::by_value(&bytes(&good[..6])), Batch::Unknown);
        assert_eq!(Batch::by_value(&[]), Batch::Unknown);
    }

    #[test]
    fn the_tokens_of_an_object_are_its_first_vector() {
        let vector = |tokens: u64| Batch::Bytes {
            bytes: tokens * 112,
            room: 2048,
        };
        assert_eq!(Batch::of_object(&object(431)), vector(431));
        assert_eq!(Batch::of_object(&object(1)), vector(1));
        assert_eq!(Batch::of_object(&object(0)), Batch::Unknown);
        assert_eq!(Batch::of_object(&object(5)[..80]), Batch::Unknown);
        assert_eq!(Batch::of_object(&[]), Batch::Unknown);
    }

    #[test]
    fn a_size_is_believed_when_prompts_and_generated_tokens_agree() {
        let mut size = TokenSize::default();
        for requests in [1, 2, 2] {
            assert!(size.generated(112 * requests, requests));
        }
        assert_eq!(size.tokens(224), None, "nothing has shown that none are drafted");
        size.prompt(112 * 15, 0, 40);
        assert_eq!(
            size.tokens(224),
            None,
            "more than half of the prompt may be cached"
        );
        size.prompt(112 * 32, 2, 40);
        assert_eq!((size.tokens(224), size.tokens(230)), (Some(2), None));
        assert!(!size.generated(56, 1), "a smaller share contradicts");
        assert_eq!(size.tokens(224), None);
    }

    #[test]
    fn drafted_tokens_are_never_taken_for_one() {
        let mut size = TokenSize::default();
        for _ in 0..10 {
            size.generated(3 * 112, 1);
            size.prompt(112 * 40, 0, 40);
        }
        assert_eq!(size.tokens(3 * 112), None);
        assert!(size.generated(0, 0));
        assert!(size.generated(7, 2), "no share at all");
    }
}

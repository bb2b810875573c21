//! Counting with a SentencePiece vocabulary as llama.cpp does: the pair of neighbours whose union scores highest is merged
//! first, and what is no word is bytes.
//!
//! Owns: the merging. Refuses: special tokens and added spaces (`gguf_vocabulary`), and unigram models (T5), which llama.cpp
//! reads in another way.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};

/// A vocabulary with scores.
#[derive(Debug)]
pub(super) struct Spm {
    scores: HashMap<Box<str>, f32>,
}

/// Two neighbours that may become one.
#[derive(Debug, PartialEq)]
struct Pair {
    score: f32,
    left: usize,
    right: usize,
    /// Bytes of both: another number means that one of them has changed since.
    bytes: usize,
}

impl Eq for Pair {}

impl Ord for Pair {
    /// The best first: the higher score, then the one further left.
    fn cmp(&self, other: &Pair) -> Ordering {
        self.score
            .total_cmp(&other.score)
            .then(other.left.cmp(&self.left))
    }
}

impl PartialOrd for Pair {
    fn partial_cmp(&self, other: &Pair) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// A piece of the text; empty once it was merged into the one before.
#[derive(Debug)]
struct Piece {
    start: usize,
    bytes: usize,
    before: Option<usize>,
    after: Option<usize>,
}

impl Spm {
    pub(super) fn new(words: impl Iterator<Item = (String, f32)>) -> Spm {
        Spm {
            scores: words.map(|(word, score)| (word.into(), score)).collect(),
        }
    }

    /// Tokens of a text in which spaces are `▁` already.
    pub(super) fn count(&self, text: &str) -> u64 {
        let mut pieces: Vec<Piece> = text
            .char_indices()
            .enumerate()
            .map(|(index, (start, character))| Piece {
                start,
                bytes: character.len_utf8(),
                before: index.checked_sub(1),
                after: Some(index + 1),
            })
            .collect();
        if let Some(last) = pieces.last_mut() {
            last.after = None;
        }
        let mut pairs = BinaryHeap::new();
        for right in 1..pieces.len() {
            self.offer(text, &pieces, Some(right - 1), Some(right), &mut pairs);
        }
        while let Some(pair) = pairs.pop() {
            let (left, right) = (pair.left, pair.right);
            if pieces[left].bytes == 0
                || pieces[right].bytes == 0
                || pieces[left].bytes + pieces[right].bytes != pair.bytes
            {
                continue;
            }
            pieces[left].bytes = pair.bytes;
            pieces[right].bytes = 0;
            let after = pieces[right].after;
            pieces[left].after = after;
            if let Some(after) = after {
                pieces[after].before = Some(left);
            }
            self.offer(text, &pieces, pieces[left].before, Some(left), &mut pairs);
            self.offer(text, &pieces, Some(left), after, &mut pairs);
        }
        pieces
            .iter()
            .filter(|piece| piece.bytes > 0)
            .map(|piece| {
                let word = &text[piece.start..piece.start + piece.bytes];
                if self.scores.contains_key(word) {
                    1
                } else {
                    piece.bytes as u64
                }
            })
            .sum()
    }

    fn offer(
        &self,
        text: &str,
        pieces: &[Piece],
        left: Option<usize>,
        right: Option<usize>,
        pairs: &mut BinaryHeap<Pair>,
    ) {
        let (Some(left), Some(right)) = (left, right) else {
            return;
        };
        let bytes = pieces[left].bytes + pieces[right].bytes;
        let start = pieces[left].start;
        if let Some(score) = self.scores.get(&text[start..start + bytes]) {
            pairs.push(Pair {
                score: *score,
                left,
                right,
                bytes,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn vocabulary() -> Spm {
        let words = [
            ("▁", -1.0),
            ("a", -2.0),
            ("b", -2.1),
            ("ab", -3.0),
            ("▁a", -4.0),
            ("abb", -9.0),
            ("▁ab", -5.0),
        ];
        Spm::new(words.into_iter().map(|(word, score)| (word.to_owned(), score)))
    }

    #[test]
    fn the_best_pair_is_merged_first_and_what_is_no_word_is_bytes() {
        let spm = vocabulary();
        for (text, count) in [
            ("", 0),
            ("a", 1),
            ("ab", 1),
            // `ab` beats `▁a`, and then makes `▁ab`, which beats `abb`.
            ("▁abb", 2),
            ("abb", 1),
            ("ba", 2),
            ("abab", 2),
            ("é", 2),
            ("a🙂b", 6),
        ] {
            assert_eq!(spm.count(text), count, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_has_fewer_tokens_than_its_longest_words_need(text in "[ab▁é]{0,60}") {
            let count = vocabulary().count(&text);
            prop_assert!(count <= text.len() as u64);
            prop_assert!(count >= (text.chars().count() as u64).div_ceil(3));
        }
    }
}

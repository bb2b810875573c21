//! Where a prompt differs from one before it though what follows is the same again.
//!
//! Owns: cutting a text into words, comparing by their hashes, the bounds of both. Refuses: keeping text: of a prompt
//! that is compared with later there are keyed hashes of its first words, in memory.

use super::blocks::Seed;
use std::{collections::HashMap, hash::Hasher as _};

/// Words of a prompt that are compared.
pub(super) const MOST_WORDS: usize = 2048;
/// Words within which what differs must end.
const WINDOW: usize = 256;
/// So many words that are the same again are no accident.
const SAME_AGAIN: usize = 8;

/// The first words of a prompt, hashed.
pub(super) type Hashes = Box<[u32]>;

/// The first words of the prompt at hand: their hashes, and where they are in its text.
#[derive(Debug, Default)]
pub(super) struct Words {
    pub(super) hashes: Vec<u32>,
    pub(super) places: Vec<(usize, usize)>,
}

impl Words {
    /// A word is a run of letters and digits, or any other character that is no space.
    pub(super) fn of(seed: Seed, text: &str) -> Words {
        let mut words = Words::default();
        let mut at = 0;
        while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
            if words.hashes.len() >= MOST_WORDS {
                break;
            }
            let letters = rest.find(|c: char| !c.is_alphanumeric()).unwrap_or(rest.len());
            let first = rest.chars().next().map_or(1, char::len_utf8);
            let len = if letters > 0 { letters } else { first };
            let word = rest.get(..len).unwrap_or(rest);
            if !word.trim().is_empty() {
                let mut hasher = seed.hasher();
                hasher.write(word.as_bytes());
                words.hashes.push(hasher.finish() as u32);
                words.places.push((at, at + len));
            }
            at += len;
        }
        words
    }
}

/// A difference, in words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Difference {
    /// The first word that differs.
    pub(super) from: usize,
    /// The first word of the later prompt from which on both are the same again.
    pub(super) to: usize,
    /// So many words are the same again, as far as both are known.
    pub(super) again: usize,
}

/// Words at the beginning that are the same.
pub(super) fn common(before: &[u32], now: &[u32]) -> usize {
    before.iter().zip(now).take_while(|(a, b)| a == b).count()
}

/// The first difference after which both are the same again; `None` where there is none, or nothing is the same after it.
pub(super) fn difference(before: &[u32], now: &[u32]) -> Option<Difference> {
    let from = common(before, now);
    let (before, now) = (before.get(from..)?, now.get(from..)?);
    if before.is_empty() || now.is_empty() {
        return None;
    }
    let near = |words: &'_ [u32]| words.len().min(WINDOW + SAME_AGAIN);
    let mut places: HashMap<&[u32], usize> = HashMap::with_capacity(WINDOW);
    for (at, words) in before.get(..near(before))?.windows(SAME_AGAIN).enumerate() {
        places.entry(words).or_insert(at);
    }
    let mut windows = now.get(..near(now))?.windows(SAME_AGAIN).enumerate();
    let (to, there) = windows.find_map(|(to, words)| Some((to, *places.get(words)?)))?;
    Some(Difference {
        from,
        to: from + to,
        again: common(before.get(there..)?, now.get(to..)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SEED: Seed = Seed([3, 5]);

    #[test]
    fn words_are_runs_of_letters_and_digits_and_signs() {
        let words = |text: &'static str| -> Vec<&str> {
            let words = Words::of(SEED, text);
            words.places.iter().map(|(from, to)| &text[*from..*to]).collect()
        };
        assert_eq!(
            words("It's  2026-11\n30é!"),
            ["It", "'", "s", "2026", "-", "11", "30é", "!"]
        );
        assert_eq!(words(" \n"), [""; 0]);
        assert_eq!(words("今天。好"), ["今天", "。", "好"]);
        let long = "a ".repeat(MOST_WORDS + 5);
        assert_eq!(Words::of(SEED, &long).hashes.len(), MOST_WORDS);
    }

    fn of(before: &str, now: &str) -> Option<(usize, usize, usize)> {
        let (before, now) = (Words::of(SEED, before), Words::of(SEED, now));
        difference(&before.hashes, &now.hashes).map(|d| (d.from, d.to, d.again))
    }

    #[test]
    fn a_difference_is_found_where_the_rest_is_the_same() {
        let rest = "a b c d e f g h i j k l";
        let with = |head: &str| format!("It is {head} now {rest}");
        assert_eq!(of(&with("one"), &with("two")), Some((2, 3, 13)));
        assert_eq!(of(&with("one"), &with("one")), None);
        assert_eq!(of(&with("one"), &with("2026-11-30")), Some((2, 7, 13)));
        assert_eq!(of(&with("2026-11-30"), &with("one")), Some((2, 3, 13)));
        assert_eq!(of(&with("one"), &with("")), Some((2, 2, 13)), "left out");
        assert_eq!(of(&with(""), &with("one")), Some((2, 3, 13)), "put in");
        assert_eq!(of("a b c", "a b c d"), None, "added behind");
        assert_eq!(
            of("a b c d e f g h", "x b c d e f g"),
            None,
            "too short to be sure"
        );
        assert_eq!(of("", "a"), None);
        let far = "x ".repeat(WINDOW + 20);
        assert_eq!(of(&with("one"), &with(&far)), None, "too far");
    }

    proptest! {
        #[test]
        fn a_difference_is_one(
            before in proptest::collection::vec(0_u32..3, 0..80),
            now in proptest::collection::vec(0_u32..3, 0..80),
        ) {
            if let Some(Difference { from, to, again }) = difference(&before, &now) {
                prop_assert!(from <= to && to + again <= now.len());
                prop_assert!(again >= SAME_AGAIN);
                prop_assert_eq!(&before[..from], &now[..from]);
                prop_assert_ne!(before.get(from), now.get(from));
            }
        }

        #[test]
        fn any_text_has_words_in_order(text in ".{0,80}") {
            let words = Words::of(SEED, &text);
            prop_assert_eq!(words.hashes.len(), words.places.len());
            let mut end = 0;
            for (from, to) in words.places {
                prop_assert!(end <= from && from < to);
                prop_assert!(!text[from..to].trim().is_empty());
                end = to;
            }
        }
    }
}

//! What stands beside a place in a text.
//!
//! Owns: boundaries of numbers and names, words close before a place, and where a long secret ends. Refuses: looking for a word
//! further than some dozens of bytes.

use super::Kind;
use regex::{Captures, Regex};

/// Bytes before a place in which a word makes a number likely to be what the word says.
const BEFORE: usize = 48;

/// A text, and looks around places in it.
#[derive(Clone, Copy)]
pub(super) struct Near<'a> {
    text: &'a str,
}

impl<'a> Near<'a> {
    pub(super) fn new(text: &'a str) -> Near<'a> {
        Near { text }
    }

    pub(super) fn text(self) -> &'a str {
        self.text
    }

    pub(super) fn get(self, start: usize, end: usize) -> &'a str {
        self.text.get(start..end).unwrap_or_default()
    }

    /// The byte before a place.
    pub(super) fn before(self, at: usize) -> Option<u8> {
        self.text.as_bytes().get(at.checked_sub(1)?).copied()
    }

    /// The byte at a place.
    pub(super) fn at(self, at: usize) -> Option<u8> {
        self.text.as_bytes().get(at).copied()
    }

    /// No ASCII letter, digit or underscore goes on before `start` or from `end` on; what ends an escaped character (`%3D`) or
    /// a colour's code (`[32m`) does not count.
    pub(super) fn is_word(self, start: usize, end: usize) -> bool {
        (!is_inner(self.before(start)) || self.is_behind_code(start)) && self.ends_word(end)
    }

    /// No ASCII letter, digit or underscore goes on from `end` on.
    pub(super) fn ends_word(self, end: usize) -> bool {
        !is_inner(self.at(end))
    }

    /// `%3D` or `[0;32m` stands before a place.
    fn is_behind_code(self, at: usize) -> bool {
        /// Longer than codes of colours.
        const LONGEST: usize = 16;
        let before = self.text.as_bytes().get(at.saturating_sub(LONGEST)..at);
        match before.unwrap_or_default() {
            // With a digit at its end it would be one with the number.
            [.., b'%', high, b'A'..=b'F' | b'a'..=b'f'] => high.is_ascii_hexdigit(),
            [code @ .., b'm'] => {
                let open = code
                    .iter()
                    .rposition(|byte| !byte.is_ascii_digit() && *byte != b';');
                open.is_some_and(|open| code.get(open) == Some(&b'['))
            }
            _ => false,
        }
    }

    /// As [`Near::is_word`], and what is there is not a part of a longer number: no sign or point ties it to more digits.
    pub(super) fn is_number(self, start: usize, end: usize) -> bool {
        let ties = |byte: Option<u8>| matches!(byte, Some(b'.' | b'-' | b'/' | b'+'));
        let digit = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_digit());
        let before = ties(self.before(start)) && start >= 2 && digit(self.before(start - 1));
        let after = ties(self.at(end)) && digit(self.at(end + 1));
        self.is_word(start, end) && !before && !after
    }

    /// A word that the expression knows stands in the line before this place, close to it.
    pub(super) fn follows(self, at: usize, word: &Regex) -> bool {
        let mut from = at.saturating_sub(BEFORE);
        while !self.text.is_char_boundary(from) {
            from += 1;
        }
        let before = self.get(from, at);
        let line = before.rsplit_once('\n').map_or(before, |(_, line)| line);
        word.is_match(line)
    }
}

/// Tells `add` the last group of what the expression finds where it is a secret: from its beginning, which decides, to the
/// first character that is `apart`. Nothing within that is looked at again, so the time is linear.
pub(super) fn secrets(
    text: &str,
    expression: &Regex,
    apart: impl Fn(char) -> bool,
    is_secret: impl Fn(&Captures<'_>, &str) -> bool,
    add: &mut dyn FnMut(usize, usize, Kind),
) {
    let mut at = 0;
    while let Some(found) = expression.captures_at(text, at) {
        let last = expression.captures_len() - 1;
        let (Some(all), Some(value)) = (found.get(0), found.get(last)) else {
            break;
        };
        at = all.end();
        if is_secret(&found, value.as_str()) {
            let rest = text.get(value.end()..).unwrap_or_default();
            let end = value.end() + rest.find(&apart).unwrap_or(rest.len());
            at = at.max(end);
            add(value.start(), end, Kind::Key);
        }
    }
}

/// What words and numbers are of.
fn is_inner(byte: Option<u8>) -> bool {
    byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Digits of a text that has other things between them.
pub(super) fn digits(text: &str) -> impl Iterator<Item = u32> + Clone {
    text.bytes()
        .filter(u8::is_ascii_digit)
        .map(|byte| u32::from(byte - b'0'))
}

/// An expression of this program's own, of which the tests compile every one.
pub(super) fn regex(pattern: &str) -> Regex {
    regex::RegexBuilder::new(pattern)
        .size_limit(32 << 20)
        .build()
        .unwrap_or_else(|error| unreachable!("{pattern}: {error}"))
}

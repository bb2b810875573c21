//! Patterns of the operator's.
//!
//! Owns: which are taken. Refuses: those that match nothing at all, and those that would take too much memory.

use super::{Kind, near::Near};
use regex::{Regex, RegexBuilder};

/// Most patterns.
const MAX_PATTERNS: usize = 64;
/// Most bytes of a pattern.
const MAX_PATTERN: usize = 1024;
/// Most bytes of a pattern's name.
const MAX_NAME: usize = 32;
/// Bytes that a compiled pattern may take.
const SIZE: usize = 1 << 20;

/// Patterns, each with its name.
#[derive(Debug, Clone, Default)]
pub struct Custom(Vec<(String, Regex)>);

/// Why a pattern is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadPattern {
    /// Its name is no name.
    #[error("its name {0:?} is not of lower-case letters, digits, - and _, at most {MAX_NAME} of them")]
    Name(String),
    /// Another has this name.
    #[error("its name {0:?} is that of a pattern before it")]
    Twice(String),
    /// It is no regular expression, or too large a one.
    #[error("it is no regular expression that can be used: {0}")]
    Expression(String),
    /// It is found in an empty text.
    #[error("it matches nothing at all, and so everywhere: ask for at least one character")]
    Empty,
    /// There are too many.
    #[error("there are more than {MAX_PATTERNS} patterns")]
    TooMany,
}

impl Custom {
    /// Adds a pattern in the syntax of the regex library (no look-around, no back-references: its time is linear).
    ///
    /// # Errors
    /// It can't be used; why.
    pub fn add(&mut self, name: &str, pattern: &str) -> Result<(), BadPattern> {
        let fits =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'_');
        if name.is_empty() || name.len() > MAX_NAME || !name.bytes().all(fits) {
            return Err(BadPattern::Name(name.chars().take(MAX_NAME).collect()));
        }
        if self.0.iter().any(|(known, _)| known == name) {
            return Err(BadPattern::Twice(name.to_owned()));
        }
        if self.0.len() >= MAX_PATTERNS {
            return Err(BadPattern::TooMany);
        }
        if pattern.len() > MAX_PATTERN {
            let why = format!("it is longer than {MAX_PATTERN} bytes");
            return Err(BadPattern::Expression(why));
        }
        let expression = RegexBuilder::new(pattern)
            .size_limit(SIZE)
            .dfa_size_limit(SIZE)
            .build()
            .map_err(|error| BadPattern::Expression(error.to_string()))?;
        if expression.is_match("") {
            return Err(BadPattern::Empty);
        }
        self.0.push((name.to_owned(), expression));
        Ok(())
    }

    pub(super) fn name(&self, index: u16) -> &str {
        self.0.get(usize::from(index)).map_or("", |(name, _)| name)
    }

    /// Whether there is a pattern of this name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(known, _)| known == name)
    }

    pub(super) fn find(&self, near: Near<'_>, add: &mut dyn FnMut(usize, usize, Kind)) {
        for ((_, expression), index) in self.0.iter().zip(0..) {
            for found in expression.find_iter(near.text()) {
                add(found.start(), found.end(), Kind::Custom(index));
            }
        }
    }
}

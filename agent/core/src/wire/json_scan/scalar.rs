//! A value as the JSON scanner reports it.
//!
//! Owns: conversions to what a field is expected to be; another type is `None`. Refuses: guessing between types.

/// A scalar at a wanted path.
#[derive(Debug, Clone, PartialEq)]
pub enum Scalar<'a> {
    /// A string, unescaped. Cut at the scanner's value limit; `truncated` says so.
    String {
        /// The text. What is no UTF-8, or half of a surrogate pair, is U+FFFD.
        text: &'a str,
        /// It was longer, or bytes of it are missing.
        truncated: bool,
    },
    /// A number.
    Number(f64),
    /// A boolean.
    Bool(bool),
    /// null.
    Null,
}

impl Scalar<'_> {
    /// The text of a string.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Scalar::String { text, .. } => Some(text),
            _ => None,
        }
    }

    /// The value of a number that is a whole number from 0 to 2⁵³, the range in which a JSON number is exact.
    pub fn as_u64(&self) -> Option<u64> {
        const EXACT: f64 = 9_007_199_254_740_992.0;
        match self {
            Scalar::Number(n) if (0.0..=EXACT).contains(n) && n.fract() == 0.0 => Some(*n as u64),
            _ => None,
        }
    }

    /// The value of a number.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Scalar::Number(n) => Some(*n),
            _ => None,
        }
    }

    /// The value of a boolean.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Scalar::Bool(b) => Some(*b),
            _ => None,
        }
    }
}

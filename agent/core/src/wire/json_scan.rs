//! Picks a few scalar fields out of a JSON text of any size, in constant memory, as the text streams by.
//!
//! Owns: a push scanner of structure (depth, strings, escapes) that reports the scalars at wanted paths, and that
//! survives missing bytes. Refuses: building values, and validation beyond what finding the fields needs.

/// A scalar at a wanted path.
#[derive(Debug, Clone, PartialEq)]
pub enum Scalar<'a> {
    /// A string, unescaped. Cut at the scanner's value limit; `truncated` says so.
    String {
        /// The text.
        text: &'a str,
        /// It was longer.
        truncated: bool,
    },
    /// A number.
    Number(f64),
    /// A boolean.
    Bool(bool),
    /// null.
    Null,
}

/// Push scanner. Paths are dotted, `*` stands for any array index: `choices.*.message.content`.
#[derive(Debug)]
pub struct JsonScan {
    _private: (),
}

impl JsonScan {
    /// A scanner for these paths. A match is reported by the path's index in this slice.
    pub fn new(_paths: &'static [&'static str]) -> JsonScan {
        JsonScan { _private: () }
    }

    /// The next bytes. `sink` gets the path's index, and the scalar.
    pub fn feed(&mut self, _bytes: &[u8], _sink: &mut dyn FnMut(usize, Scalar<'_>)) {}

    /// Bytes are missing. Scanning goes on under the likeliest assumption (a long string at the current depth was cut); values found
    /// afterwards are best effort.
    pub fn gap(&mut self) {}

    /// The text is complete and well-formed as far as the scanner looks; `false` before the end and after an error.
    pub fn complete(&self) -> bool {
        false
    }

    /// The text broke the grammar.
    pub fn failed(&self) -> bool {
        false
    }
}

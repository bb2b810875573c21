//! Private keys between the lines that PEM has around them.
//!
//! Owns: the lines, and what may stand between them: the key's text, in quotes and comments of source code too. Refuses:
//! certificates and public keys.
//!
//! By hand and not by an expression: keys that begin and never end would have one look at the rest of the text for each.

use super::{
    Kind, MARGIN,
    near::{Near, regex},
};
use regex::{Match, Regex};
use std::sync::LazyLock;

static BEGIN: LazyLock<Regex> =
    LazyLock::new(|| regex(r"-----BEGIN (?:[A-Z0-9]{1,32} ){0,4}PRIVATE KEY(?: BLOCK)?-----"));
static END: LazyLock<Regex> =
    LazyLock::new(|| regex(r"-----END (?:[A-Z0-9]{1,32} ){0,4}PRIVATE KEY(?: BLOCK)?-----"));

pub(super) fn find(near: Near<'_>, add: &mut dyn FnMut(usize, usize, Kind)) {
    let text = near.text();
    let mut ends = END.find_iter(text).peekable();
    // Where what may be between the lines ends, for the begin before it.
    let mut between = 0;
    let mut at = 0;
    while let Some(begin) = BEGIN.find_at(text, at) {
        if between <= begin.end() {
            between = run(text, begin.end(), |byte| {
                is_body(byte) || matches!(byte, b':' | b';' | b'.' | b'(' | b')')
            });
        }
        while ends.next_if(|end| end.start() < begin.end()).is_some() {}
        let end = ends
            .peek()
            .filter(|end| end.start() <= between && end.start() - begin.end() <= MARGIN);
        // One that is cut ends where what could be a part of it does.
        at = end.map_or_else(|| run(text, begin.end(), is_body), Match::end);
        add(begin.start(), at, Kind::Key);
    }
}

/// Where bytes end of which this is true.
fn run(text: &str, from: usize, holds: impl Fn(u8) -> bool) -> usize {
    let rest = text.as_bytes().get(from..).unwrap_or_default();
    from + rest.iter().position(|&byte| !holds(byte)).unwrap_or(rest.len())
}

/// Base64, spaces, and what strings, comments and quoted mails have around lines.
fn is_body(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || byte.is_ascii_whitespace()
        || matches!(
            byte,
            b'+' | b'/' | b'=' | b'"' | b'\'' | b'#' | b'|' | b'*' | b',' | b'\\' | b'>' | b'-'
        )
}

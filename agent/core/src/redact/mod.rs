//! Replacing what looks like personal data and credentials in a text.
//!
//! Owns: the detectors' order, what becomes of overlaps, placeholders and counts. Refuses: promising anonymity: a name, an
//! address or a story is not found; and looking at anything but the text itself. Every detector is one file.
//!
//! The time is linear in the text: `regex` never goes back, and every check beside it looks at a bounded surrounding.

mod assigned;
mod card;
mod custom;
mod email;
mod header;
mod iban;
mod id;
mod key;
mod near;
mod pem;
mod phone;
mod plain;
#[cfg(test)]
mod tests;
mod url;
mod value;

pub use custom::{BadPattern, Custom};

use near::Near;
use plain::Plain;
use std::{borrow::Cow, collections::BTreeMap};

/// Bytes that no secret is longer than: one that begins before a limit is found whole, or to the end of what is looked at, when
/// that lies so far behind the limit.
pub const MARGIN: usize = 16 * 1024;
/// How often a text is looked at: replacing one thing may uncover another beside it.
const ROUNDS: usize = 4;

/// A kind of what is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Passwords, API keys, tokens, cookies, private keys.
    Key,
    /// International bank account numbers.
    Iban,
    /// Numbers of persons and passports.
    Id,
    /// Numbers of payment cards.
    Card,
    /// E-mail addresses.
    Email,
    /// Telephone numbers.
    Phone,
    /// What the operator's pattern with this index finds.
    Custom(u16),
}

impl Kind {
    /// The kinds that are built in, the one that wins an overlap first.
    pub const BUILT_IN: [Kind; 6] = [
        Kind::Key,
        Kind::Iban,
        Kind::Id,
        Kind::Card,
        Kind::Email,
        Kind::Phone,
    ];

    /// Its name within brackets; that of an operator's pattern is in its [`Redactor`].
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Key => "KEY",
            Kind::Card => "CARD",
            Kind::Iban => "IBAN",
            Kind::Id => "ID",
            Kind::Email => "EMAIL",
            Kind::Phone => "PHONE",
            Kind::Custom(_) => "CUSTOM",
        }
    }
}

/// Bytes of the text that are to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Span {
    start: usize,
    end: usize,
    kind: Kind,
}

/// A text without what was found in it.
#[derive(Clone, PartialEq, Eq)]
pub struct Redacted<'a> {
    /// The text.
    pub text: Cow<'a, str>,
    /// Text behind the limit is missing.
    pub truncated: bool,
}

/// How often what was replaced, by name: `EMAIL`, `CUSTOM:name`.
pub type Counts = BTreeMap<String, u64>;

/// Finds and replaces.
#[derive(Debug, Clone, Default)]
pub struct Redactor {
    custom: Custom,
}

impl Redactor {
    /// With patterns of the operator's beside those that are built in.
    pub fn new(custom: Custom) -> Redactor {
        Redactor { custom }
    }

    /// The text without what is found, cut at `limit` bytes of the original. What begins before the limit is replaced as a
    /// whole, and what is beyond it and [`MARGIN`] is not looked at. Adds to `counts`.
    pub fn redact<'a>(&self, text: &'a str, limit: usize, counts: &mut Counts) -> Redacted<'a> {
        let seen = head(text, limit.saturating_add(MARGIN));
        let limit = floor(text, limit);
        let truncated = limit < text.len();
        let spans = self.spans(seen);
        if spans.is_empty() {
            let text = Cow::Borrowed(head(text, limit));
            return Redacted { text, truncated };
        }
        let mut out = self.replaced(seen, &spans, limit, counts);
        for _ in 1..ROUNDS {
            let spans = self.spans(&out);
            if spans.is_empty() {
                break;
            }
            out = self.replaced(&out, &spans, out.len(), counts);
        }
        Redacted {
            text: Cow::Owned(out),
            truncated,
        }
    }

    /// What is found in a text at the first look, by name and place; in order, without overlaps.
    pub fn find(&self, text: &str) -> Vec<(String, std::ops::Range<usize>)> {
        let spans = self.spans(text).into_iter();
        spans
            .map(|span| (self.name(span.kind).into_owned(), span.start..span.end))
            .collect()
    }

    fn name(&self, kind: Kind) -> Cow<'static, str> {
        match kind {
            Kind::Custom(index) => format!("CUSTOM:{}", self.custom.name(index)).into(),
            kind => Kind::name(kind).into(),
        }
    }

    /// What is to go: in order, without overlaps.
    fn spans(&self, text: &str) -> Vec<Span> {
        let mut found = Vec::new();
        self.look(&Plain::of(text), &mut found);
        // Beside, not instead: a space that is undone would end a password that has one.
        if let Some(plain) = Plain::of_address(text) {
            self.look(&plain, &mut found);
        }
        merged(found, text, &self.custom)
    }

    /// What detectors find in a text that is read so.
    fn look(&self, plain: &Plain<'_>, found: &mut Vec<Span>) {
        let near = Near::new(plain.text());
        let mut add = |start: usize, end: usize, kind: Kind| {
            if start < end {
                let (start, end) = plain.original(start, end);
                found.push(Span { start, end, kind });
            }
        };
        key::find(near, &mut add);
        pem::find(near, &mut add);
        assigned::find(near, &mut add);
        header::find(near, &mut add);
        url::find(near, &mut add);
        card::find(near, &mut add);
        iban::find(near, &mut add);
        id::find(near, &mut add);
        email::find(near, &mut add);
        phone::find(near, &mut add);
        self.custom.find(near, &mut add);
    }

    /// `text` up to `limit` with placeholders for spans.
    fn replaced(&self, text: &str, spans: &[Span], limit: usize, counts: &mut Counts) -> String {
        let mut out = String::with_capacity(text.len().min(limit) + 16);
        let mut at = 0;
        for span in spans.iter().take_while(|span| span.start < limit) {
            out.push_str(text.get(at..span.start).unwrap_or_default());
            let name = self.name(span.kind);
            out.push('[');
            out.push_str(&name);
            out.push(']');
            *counts.entry(name.into_owned()).or_default() += 1;
            at = span.end;
        }
        out.push_str(text.get(at..limit).unwrap_or_default());
        out
    }
}

/// Overlaps become one, of the kind that comes first in the list. Nothing within a placeholder is touched.
fn merged(mut found: Vec<Span>, text: &str, custom: &Custom) -> Vec<Span> {
    found.retain(|span| !is_placeholder(text, span, custom));
    found.sort_by_key(|span| (span.start, span.end));
    let mut out: Vec<Span> = Vec::with_capacity(found.len());
    for span in found {
        match out.last_mut() {
            Some(last) if span.start < last.end => {
                last.end = last.end.max(span.end);
                last.kind = last.kind.min(span.kind);
            }
            _ => out.push(span),
        }
    }
    out
}

/// Whether a span lies within what an earlier round, or whoever wrote the text, put in the place of something.
fn is_placeholder(text: &str, span: &Span, custom: &Custom) -> bool {
    /// Longer than any placeholder.
    const LONGEST: usize = 48;
    let bytes = text.as_bytes();
    let from = span.start.saturating_sub(LONGEST);
    let open = match bytes.get(span.start) {
        Some(b'[') => Some(span.start),
        _ => bytes
            .get(from..span.start)
            .and_then(|before| before.iter().rposition(|&byte| byte == b'['))
            .map(|at| from + at),
    };
    let Some(open) = open else { return false };
    let Some(close) = bytes
        .iter()
        .skip(open)
        .take(LONGEST)
        .position(|&byte| byte == b']')
    else {
        return false;
    };
    let inner = text.get(open + 1..open + close).unwrap_or_default();
    let pattern = inner.strip_prefix("CUSTOM:");
    let known = Kind::BUILT_IN.iter().any(|kind| kind.name() == inner)
        || pattern.is_some_and(|name| custom.has(name));
    known && span.end <= open + close + 1
}

/// The nearest boundary of characters at or before `at`.
fn floor(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// The beginning of a text.
fn head(text: &str, limit: usize) -> &str {
    text.get(..floor(text, limit)).unwrap_or_default()
}

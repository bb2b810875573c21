//! What kind of text a difference is: a time, a random id, a number, or words.
//!
//! Owns: the rules, by the shape of the text alone. Refuses: finding differences (`differ`), and keeping the text.

use serde::{Deserialize, Serialize};

/// What it is in a prompt that differs from the prompts before it. `class` label of `llm_prefix_breaks_total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BreakClass {
    /// A date, a time of day, a weekday or seconds of the Unix epoch.
    Timestamp,
    /// What a machine made up: a UUID, hexadecimal or base64 digits, a long number.
    RandomId,
    /// A number: a counter, a count, a version.
    Number,
    /// Words, as people write them.
    Text,
}

impl BreakClass {
    /// Every class, in label order.
    pub const ALL: [BreakClass; 4] = [
        BreakClass::Timestamp,
        BreakClass::RandomId,
        BreakClass::Number,
        BreakClass::Text,
    ];

    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            BreakClass::Timestamp => "timestamp",
            BreakClass::RandomId => "random_id",
            BreakClass::Number => "number",
            BreakClass::Text => "text",
        }
    }

    /// Of the text that differs, with what stands around it.
    pub(super) fn of(text: &str, start: usize, end: usize) -> BreakClass {
        let (Some(before), Some(inside), Some(after)) =
            (text.get(..start), text.get(start..end), text.get(end..))
        else {
            return BreakClass::Text;
        };
        if inside.chars().nth(MOST_CHARS).is_some() {
            return BreakClass::Text;
        }
        let left = before.len() - run(before.chars().rev());
        let right = end + run(after.chars());
        let whole = text.get(left..right).unwrap_or(inside);
        let mut words = whole.split_whitespace().map(trim).filter(|word| !word.is_empty());
        let Some(first) = words.next() else {
            return BreakClass::Text;
        };
        let previous = before
            .get(..left)
            .and_then(|text| text.split_whitespace().next_back());
        let next = words
            .next()
            .or_else(|| text.get(right..)?.split_whitespace().next());
        let beside = [previous, next].into_iter().flatten().map(trim);
        if is_time(first)
            || (is_number(first) && beside.clone().any(is_month))
            || is_weekday(first)
            || is_month(first) && beside.clone().any(is_number)
        {
            BreakClass::Timestamp
        } else if is_random(first) {
            BreakClass::RandomId
        } else if is_number(first) {
            BreakClass::Number
        } else {
            BreakClass::Text
        }
    }
}

/// A longer difference is words, whatever it begins with.
const MOST_CHARS: usize = 160;
/// Characters that a word is widened by on either side.
const MOST_AROUND: usize = 64;

/// Bytes of the characters up to a space.
fn run(chars: impl Iterator<Item = char>) -> usize {
    chars
        .take(MOST_AROUND)
        .take_while(|c| !c.is_whitespace())
        .map(char::len_utf8)
        .sum()
}

fn trim(word: &str) -> &str {
    word.trim_matches(|c: char| !c.is_alphanumeric())
}

/// Groups of digits, and what stands between them.
fn groups(word: &str) -> Vec<(usize, char)> {
    let mut out: Vec<(usize, char)> = Vec::new();
    let mut digits = 0;
    for c in word.chars() {
        if c.is_ascii_digit() {
            digits += 1;
        } else {
            out.push((digits, c));
            digits = 0;
        }
    }
    out.push((digits, '\0'));
    out
}

/// `2026-11-30`, `30.11.2026`, `2026-11-30T08:07:54Z`, `08:07`, `1796026074`, also behind a name and `=`.
fn is_time(word: &str) -> bool {
    let groups = groups(word);
    let date = groups.windows(3).any(|w| match *w {
        [(a, first), (b, second), (c, _)] if first == second && matches!(first, '-' | '/' | '.') => {
            matches!((a, b, c), (4, 1..=2, 1..=2) | (1..=2, 1..=2, 4))
        }
        _ => false,
    });
    let clock = groups.windows(2).any(|w| matches!(*w, [(1..=2, ':'), (2, _)]));
    date || clock
        || word
            .split(|c: char| !c.is_alphanumeric() && c != '.')
            .any(is_epoch)
}

/// Seconds since 1970 from 2001 to 2286, or thousandths, millionths or billionths of them.
fn is_epoch(word: &str) -> bool {
    let (whole, part) = word.split_once('.').unwrap_or((word, ""));
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    digits(whole) && digits(part) && matches!(whole.len(), 10 | 13 | 16 | 19) && whole.starts_with('1')
}

fn begins_with_any(word: &str, names: &[&str], longest: usize) -> bool {
    let word = word.to_ascii_lowercase();
    word.len() <= longest && names.iter().any(|name| word.starts_with(name))
}

fn is_month(word: &str) -> bool {
    const MONTHS: [&str; 12] = [
        "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
    ];
    begins_with_any(word, &MONTHS, 9) && word.bytes().all(|b| b.is_ascii_alphabetic())
}

fn is_weekday(word: &str) -> bool {
    const DAYS: [&str; 7] = [
        "monday",
        "tuesday",
        "wednesday",
        "thursday",
        "friday",
        "saturday",
        "sunday",
    ];
    begins_with_any(word, &DAYS, 9)
}

/// Has a piece that only a machine writes.
fn is_random(word: &str) -> bool {
    let pieces = || {
        word.split(|c: char| !c.is_ascii_alphanumeric())
            .filter(|piece| !piece.is_empty())
    };
    // A UUID, or as many hexadecimal digits in other groups.
    let hex = |piece: &str| piece.bytes().all(|b| b.is_ascii_hexdigit());
    let grouped: usize = pieces().filter(|piece| hex(piece)).map(str::len).sum();
    let digits = |piece: &str| piece.bytes().filter(u8::is_ascii_digit).count();
    grouped >= 20
        || pieces().any(|piece| {
            let (len, digits) = (piece.len(), digits(piece));
            let letters = len - digits;
            let cases = piece.bytes().any(|b| b.is_ascii_lowercase())
                && piece.bytes().any(|b| b.is_ascii_uppercase());
            (digits == len && len >= 9)
                || (hex(piece) && len >= 8 && digits > 0 && letters > 0)
                || (len >= 10 && digits >= 2 && letters >= 2)
                || (len >= 16 && digits >= 1 && cases)
        })
}

fn is_number(word: &str) -> bool {
    let mut digits = 0;
    word.len() <= 24
        && word.chars().all(|c| {
            digits += usize::from(c.is_ascii_digit());
            c.is_ascii_digit() || matches!(c, '.' | ',' | '/' | '_' | '-' | 'v' | 'x')
        })
        && digits > 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn class(text: &str) -> BreakClass {
        let start = text.find('[').expect("a beginning");
        let end = text.find(']').expect("an end") - 1;
        BreakClass::of(&text.replace(['[', ']'], ""), start, end)
    }

    #[test]
    fn shapes_tell_classes() {
        use BreakClass::{Number, RandomId, Text, Timestamp};
        for (text, expected) in [
            ("Now: [2026-11-30T08:07:54Z]. You are", Timestamp),
            ("Now: 2026-11-30T08:07:[54]Z. You are", Timestamp),
            ("Now: 2026-11-30 08:0[7]:54 UTC", Timestamp),
            ("It is [11/30/2026], so", Timestamp),
            ("It is 30.[11].2026, so", Timestamp),
            ("It is [9:05] PM", Timestamp),
            ("Today is [Monday], and", Timestamp),
            ("Today is Nov [30], 2026", Timestamp),
            ("Today is [3] November 2026", Timestamp),
            ("Today is [November] 3", Timestamp),
            ("<time>179602[6074]</time>", Timestamp),
            ("time=1796026074[123] You", Timestamp),
            ("time: [1796026074.25]", Timestamp),
            ("id 3f2504e0-4f89-11d3-9a0c-[0305e82c3301] end", RandomId),
            ("Request [req_8f3a9c1d7b2e]: answer", RandomId),
            ("commit [deadbeef12] is", RandomId),
            ("ulid [01ARZ3NDEKTSV4RRFFQ69G5FAV]", RandomId),
            ("key [dGhpcyBpcyBhIHRlc3Q0] end", RandomId),
            ("case [4711000012] is", RandomId),
            ("Ticket #[4711]: the", Number),
            ("Try [3] of 5", Number),
            ("version [1.2.3] of", Number),
            ("You help [Alice Miller], who", Text),
            ("You speak [French]", Text),
            ("You may [march] on", Text),
            ("[deliberately] so", Text),
            ("Nothing [] here", Text),
        ] {
            assert_eq!(class(text), expected, "{text}");
        }
        let long = format!("[2026-11-30 {}]", "word ".repeat(40));
        assert_eq!(class(&long), Text, "a long difference is words");
    }

    proptest! {
        #[test]
        fn any_text_and_any_place_have_a_class(text in ".{0,60}", start in 0_usize..80, len in 0_usize..80) {
            let _ = BreakClass::of(&text, start, start.saturating_add(len));
        }
    }
}

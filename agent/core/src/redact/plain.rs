//! A text as detectors read it: escapes undone, full-width characters, odd spaces and dashes as ASCII has them.
//!
//! Owns: the mapping back to the original. Refuses: changing what is kept: only where something is found comes from here.
//!
//! Prompts hold JSON, code and logs, in which a line end is `\n`, an `@` may be `\u0040` and a slash `\/`, once or several
//! times over; and people write １３８ or put a soft hyphen into a number.

use std::borrow::Cow;

/// Deeper than anybody nests JSON in JSON, or addresses in addresses.
const DEEPEST: usize = 16;

/// The text and, where it differs from the original, where each of its bytes came from.
pub(super) struct Plain<'a> {
    text: Cow<'a, str>,
    /// For each byte of `text`, and for its end: where what it stands for begins in the original. Empty: they are the same.
    from: Vec<u32>,
}

impl<'a> Plain<'a> {
    pub(super) fn of(original: &'a str) -> Plain<'a> {
        let same = Plain {
            text: Cow::Borrowed(original),
            from: Vec::new(),
        };
        if u32::try_from(original.len()).is_err() || !original.chars().any(is_odd) {
            return same;
        }
        Plain::read(original, |first, rest| match first {
            '\\' => escape(rest).unwrap_or((Some('\\'), 1)),
            other => (folded(other), other.len_utf8()),
        })
    }

    /// The text with `%20` and the like undone, as in addresses, also where they were escaped again (`%2520`); `None`: there
    /// are none.
    pub(super) fn of_address(original: &'a str) -> Option<Plain<'a>> {
        let mut signs = original.bytes().enumerate().filter(|(_, byte)| *byte == b'%');
        let any = signs.any(|(at, _)| {
            original
                .as_bytes()
                .get(at..)
                .is_some_and(|rest| percent(rest).is_some())
        });
        if !any || u32::try_from(original.len()).is_err() {
            return None;
        }
        Some(Plain::read(original, |first, rest| match first {
            '\\' => escape(rest).unwrap_or((Some('\\'), 1)),
            '%' => percent(rest).unwrap_or((Some('%'), 1)),
            other => (folded(other), other.len_utf8()),
        }))
    }

    /// The text as `one` reads it: what a character, and what goes with it, stands for, and its length.
    fn read(original: &'a str, one: impl Fn(char, &[u8]) -> (Option<char>, usize)) -> Plain<'a> {
        let mut text = String::with_capacity(original.len());
        let mut from: Vec<u32> = Vec::with_capacity(original.len() + 1);
        let mut at = 0;
        let mut rest = original;
        while let Some(first) = rest.chars().next() {
            let (stands_for, len) = one(first, rest.as_bytes());
            if let Some(char) = stands_for {
                text.push(char);
                from.resize(text.len(), at as u32);
            }
            at += len;
            rest = original.get(at..).unwrap_or_default();
        }
        from.push(at as u32);
        Plain {
            text: Cow::Owned(text),
            from,
        }
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Where bytes from `start` to `end` are in the original.
    pub(super) fn original(&self, start: usize, end: usize) -> (usize, usize) {
        if self.from.is_empty() {
            return (start, end);
        }
        let at = |index: usize| self.from.get(index).map_or(0, |from| *from as usize);
        (at(start), at(end))
    }
}

/// The character that escapes at the beginning of bytes of an address stand for, and their length; `None`: they are none, or
/// of a control character that nothing is looked for behind.
fn percent(bytes: &[u8]) -> Option<(Option<char>, usize)> {
    let (lead, mut len) = percent_byte(bytes)?;
    let count = match lead {
        b'\n' | b'\r' => return Some((Some('\n'), len)),
        b'\t' => return Some((Some(' '), len)),
        b' '..=b'~' => return Some((Some(char::from(lead)), len)),
        0xc2..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf4 => 4,
        _ => return None,
    };
    let mut encoded = [lead, 0, 0, 0];
    let encoded = encoded.get_mut(..count)?;
    for place in encoded.iter_mut().skip(1) {
        let (byte, more) = percent_byte(bytes.get(len..)?)?;
        *place = byte;
        len += more;
    }
    let char = std::str::from_utf8(encoded).ok()?.chars().next()?;
    Some((folded(char), len))
}

/// The byte that `%XX`, or `%25XX` and so on, stands for, and the length of that.
fn percent_byte(bytes: &[u8]) -> Option<(u8, usize)> {
    let pair = |at: usize| {
        let &[high, low] = bytes.get(at..at + 2)? else {
            return None;
        };
        let digit = |byte: u8| char::from(byte).to_digit(16);
        u8::try_from(digit(high)? * 16 + digit(low)?).ok()
    };
    if bytes.first() != Some(&b'%') {
        return None;
    }
    let mut at = 1;
    let mut byte = pair(at)?;
    for _ in 1..DEEPEST {
        // Nobody escapes letters and digits: those behind an escaped `%` are text.
        let Some(inner) = pair(at + 2).filter(|inner| byte == b'%' && !inner.is_ascii_alphanumeric()) else {
            break;
        };
        (at, byte) = (at + 2, inner);
    }
    Some((byte, at + 2))
}

fn is_odd(char: char) -> bool {
    char == '\\' || folded(char) != Some(char)
}

/// The character that detectors know; `None`: it is not seen at all.
fn folded(char: char) -> Option<char> {
    Some(match char {
        ..='\u{9f}' => char,
        '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2060}'..='\u{2064}' | '\u{feff}' => return None,
        '\u{a0}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}' => ' ',
        '\u{2010}'..='\u{2015}' | '\u{2212}' | '\u{fe63}' => '-',
        '\u{ff01}'..='\u{ff5e}' => char::from_u32(u32::from(char) - 0xfee0).unwrap_or(char),
        other => other,
    })
}

/// What a run of backslashes and what follows stands for, and its length; `None`: it is no escape.
fn escape(bytes: &[u8]) -> Option<(Option<char>, usize)> {
    let slashes = bytes
        .iter()
        .take(DEEPEST)
        .take_while(|&&byte| byte == b'\\')
        .count();
    let char = match bytes.get(slashes)? {
        b'n' | b'r' => '\n',
        b't' => ' ',
        b'/' => '/',
        b'"' => '"',
        b'u' => {
            let digits = bytes.get(slashes + 1..slashes + 5)?;
            let code = digits.iter().try_fold(0, |code, digit| {
                Some(code * 16 + char::from(*digit).to_digit(16)?)
            })?;
            // Halves of a pair stand for nothing that is looked for.
            let char = char::from_u32(code).map_or(Some('\u{fffd}'), folded);
            return Some((char, slashes + 5));
        }
        _ => return None,
    };
    Some((Some(char), slashes + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_read_as_it_is_meant() {
        for (original, expected) in [
            ("plain, 中文", "plain, 中文"),
            (r"a\nb\\nc\tA", "a\nb\nc A"),
            (r"alice\u0040example.com", "alice@example.com"),
            (r"x\u4e2d\/y\q", r"x中/y\q"),
            ("１３８\u{200b}００", "13800"),
            ("4111\u{a0}1111–1111", "4111 1111-1111"),
            (r"\ud83d\ude00 \u12", "\u{fffd}\u{fffd} \\u12"),
        ] {
            let plain = Plain::of(original);
            assert_eq!(plain.text(), expected, "{original}");
            let (start, end) = plain.original(0, plain.text().len());
            assert_eq!((start, end), (0, original.len()), "{original}");
        }
        assert!(Plain::of_address("100% of %zz, %e4%b8").is_none());
        let original = "q=call%20%2b1%E4x%";
        let plain = Plain::of_address(original).expect("there are some");
        assert_eq!(plain.text(), "q=call +1%E4x%");
        assert_eq!(plain.original(6, 7), (6, 9));
        assert_eq!(plain.original(0, plain.text().len()), (0, original.len()));
        for (original, expected) in [
            ("a%0Ab%0d%0Ac%09d%00", "a\nb\n\nc d%00"),
            ("%E6%89%8B%e6%9c%ba1", "手机1"),
            ("%E6%89%8B%E6%9C", "手%E6%9C"),
            ("%E6%89x%ED%A0%80%C0%80%20", "%E6%89x%ED%A0%80%C0%80 "),
            ("%EF%BC%91%C2%A0%E2%80%8B2", "1 2"),
            ("%F0%9F%98%80%41", "\u{1f600}A"),
            ("a%2520b%25252Fc%25E6%2589%258B", "a b/c手"),
            ("100%254155%25", "100%4155%"),
        ] {
            let plain = Plain::of_address(original).expect(original);
            assert_eq!(plain.text(), expected, "{original}");
            let (start, end) = plain.original(0, plain.text().len());
            assert_eq!((start, end), (0, original.len()), "{original}");
        }
        let plain = Plain::of_address("x%E6%89%8B%2520y").expect("there are some");
        assert_eq!((plain.original(1, 4), plain.original(4, 5)), ((1, 10), (10, 15)));
        let original = r"to \u0061\u0040b.com\n";
        let plain = Plain::of(original);
        let at = plain.text().find("a@b.com").expect("there");
        let (start, end) = plain.original(at, at + "a@b.com".len());
        assert_eq!(&original[start..end], r"\u0061\u0040b.com");
    }
}

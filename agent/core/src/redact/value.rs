//! What a value of a secret's name is: a secret, or what stands for one.
//!
//! Owns: where a value ends, whether it looks random, placeholders, templates, calls. Refuses: what stands before it.

use super::near::regex;
use regex::Regex;
use std::sync::LazyLock;

/// The bytes of a value: to what can't be a part of it.
pub(super) fn ends(value: &str, quoted: bool) -> usize {
    /// The next parameter of a query, the next member of a list of them, a mark of Chinese writing.
    static NEXT: LazyLock<Regex> =
        LazyLock::new(|| regex(r"[&;](?:amp;)?[A-Za-z0-9_.-]*=|;$|[<，。；、）】》！？]"));
    if quoted {
        return value.len();
    }
    let end = NEXT.find(value).map_or(value.len(), |next| next.start());
    let value = value.get(..end).unwrap_or_default();
    // A full stop or bracket at the end is the sentence's.
    value
        .trim_end_matches([',', '.', ')', ']', '}', ':', '*', ';'])
        .len()
}

/// A digit among letters, capitals within a word, or signs that words do not have.
pub(super) fn looks_random(value: &str) -> bool {
    let bytes = value.as_bytes();
    let digit = bytes.iter().any(u8::is_ascii_digit);
    let inner_upper = bytes
        .windows(2)
        .any(|pair| pair[0].is_ascii_lowercase() && pair[1].is_ascii_uppercase());
    let sign = bytes
        .iter()
        .any(|byte| matches!(byte, b'!' | b'@' | b'#' | b'$' | b'%' | b'^' | b'*' | b'~' | b'+'));
    let only_number = bytes
        .iter()
        .all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b','));
    (digit || inner_upper || sign) && !(only_number && value.len() < 6)
}

pub(super) fn has_digit_and_letter(value: &str) -> bool {
    value.bytes().any(|byte| byte.is_ascii_digit()) && value.bytes().any(|byte| byte.is_ascii_alphabetic())
}

/// What stands for a secret, or in the place of one.
pub(super) fn is_none(value: &str) -> bool {
    const WORDS: [&str; 66] = [
        "true",
        "false",
        "null",
        "none",
        "nil",
        "undefined",
        "required",
        "optional",
        "string",
        "str",
        "text",
        "bytes",
        "int",
        "integer",
        "bool",
        "boolean",
        "number",
        "object",
        "any",
        "field",
        "input",
        "hidden",
        "must",
        "should",
        "not",
        "the",
        "your",
        "a",
        "an",
        "is",
        "are",
        "to",
        "for",
        "and",
        "or",
        "with",
        "changed",
        "reset",
        "expired",
        "incorrect",
        "invalid",
        "wrong",
        "missing",
        "empty",
        "redacted",
        "masked",
        "encrypted",
        "hashed",
        "hash",
        "protected",
        "stored",
        "self",
        "this",
        "params",
        "args",
        "password",
        "token",
        "secret",
        "key",
        "value",
        "user",
        "username",
        "default",
        "unknown",
        "login",
        "example",
    ];
    let value = value.trim_matches(['"', '\'', '`', '*', ',', '.', ';', ':', '&']);
    if value.is_empty() {
        return true;
    }
    let lower = value.to_ascii_lowercase();
    let first = value.as_bytes()[0];
    let same = value.bytes().all(|byte| byte == first);
    let starts = |head: &str| lower.starts_with(head);
    same && !first.is_ascii_digit()
        || value.contains(',') && numbers(value)
        || WORDS.contains(&&*lower)
        || matches!(first, b'$' | b'<' | b'{' | b'%' | b'[' | b'(') && (value.len() < 3 || template(value))
        || lower.contains("your")
            && (lower.contains("key")
                || lower.contains("token")
                || lower.contains("password")
                || lower.contains("secret"))
        || [
            "xxx",
            "***",
            "...",
            "os.",
            "process.env",
            "env.",
            "getenv",
            "config.",
            "settings.",
            "self.",
            "this.",
            "request.",
            "args.",
            "secrets.",
            "vault:",
            "input(",
        ]
        .iter()
        .any(|head| starts(head))
        || call(value)
}

/// `[151644,8948`: numbers of tokens.
fn numbers(value: &str) -> bool {
    value
        .bytes()
        .all(|byte| byte.is_ascii_digit() || matches!(byte, b'[' | b']' | b',' | b'.' | b'-'))
}

/// `$NAME`, `${name}`, `<name>`, `{{ name }}`, `%NAME%`, `[KEY]`.
fn template(value: &str) -> bool {
    let inner = value.trim_matches(['$', '<', '>', '{', '}', '%', '[', ']', '(', ')', ' ']);
    let name =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b':' | b' ' | b'/');
    match value.as_bytes()[0] {
        b'$' => {
            value.starts_with("${")
                || value.starts_with("$(")
                || inner
                    .bytes()
                    .all(|byte| byte.is_ascii_uppercase() || byte == b'_')
        }
        b'<' => value.ends_with('>') || !value.contains('>') && inner.bytes().all(name),
        b'{' => value.starts_with("{{") || inner.bytes().all(name),
        b'%' => value.ends_with('%') || value == "%s",
        _ => inner.bytes().all(name),
    }
}

/// `get_secret(…`, `Field(`, `env["X`: code that fetches one.
fn call(value: &str) -> bool {
    let Some(at) = value.find(['(', '[']) else {
        return false;
    };
    let name = value.get(..at).unwrap_or_default();
    let argument = value.as_bytes().get(at + 1);
    let called = argument.is_none_or(|byte| {
        byte.is_ascii_alphanumeric() || matches!(byte, b'"' | b'\'' | b')' | b'_' | b'*' | b'.')
    });
    called
        && !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphabetic() || matches!(byte, b'_' | b'.' | b':'))
}

/// Base64 of `user:password`.
pub(super) fn is_basic(value: &str) -> bool {
    let mut bits = 0_u32;
    let mut count = 0;
    let mut out = Vec::with_capacity(value.len());
    for byte in value.bytes().take_while(|&byte| byte != b'=') {
        let six = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            _ => 63,
        };
        bits = bits << 6 | u32::from(six);
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
            bits &= (1 << count) - 1;
        }
    }
    out.contains(&b':') && std::str::from_utf8(&out).is_ok_and(|text| !text.contains(char::is_control))
}

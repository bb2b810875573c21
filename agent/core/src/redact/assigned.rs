//! Secrets that stand behind a name which says that they are: `password=…`, `"api_key": "…"`, `Authorization: …`, 密码：….
//!
//! Owns: the names, how a value is tied to them and where it ends. Refuses: values that are plainly none: placeholders,
//! types, calls, words of a sentence.

use super::{
    Kind,
    near::{Near, regex},
};
use regex::Regex;
use std::sync::LazyLock;

/// How what follows a name is judged.
#[derive(Clone, Copy, PartialEq)]
enum Value {
    /// Anything may be a password.
    Password,
    /// Keys and tokens look random.
    Key,
}

/// What ties a value to its name: a sign, a verb, or next to nothing: then the value must tell by itself.
const TIE: &str = r#"\*{0,2}(["'`]{0,2}\]?\s{0,3}(?::=|=>|[:=])\s{0,3}|\s{1,2}(?:is|was|为|是)\s{0,2}:?\s{0,2}|[为是]\s?:?\s?| (?:for [^\s]{1,64} )?to | )\*{0,2}"#;
/// The value: within quotes, or up to a space.
const VALUE: &str = r#"(?:[brf]?"([^"\n]{1,512})|[brf]?'([^'\n]{1,512})|`([^`\n]{1,512})|[“「]([^”」\n]{1,512})|(?:bearer |token )?([^\s"'`“”「」]{1,4096}))"#;

static PASSWORD: LazyLock<Regex> = LazyLock::new(|| {
    let name = r"(?i)(?:pass(?:word|wd|phrase|code)|passwd|pwd|\bpw|(?:\b|_)pass|密码|密碼|口令)(?:[_-]?(?:hash|value|text))?";
    regex(&[name, TIE, VALUE].concat())
});
static KEY: LazyLock<Regex> = LazyLock::new(|| {
    let name = r"(?i)(?:(?:api|access|secret|private|auth|encryption|encrypt|signing|master|account|shared|service|storage|license|subscription|deploy|webhook|app|client|consumer|session)[_ .-]?(?:key|token|secret)|secret|token|credentials?|jwt|(?:connection|conn)[_-]?str(?:ing)?|session[_-]?id|sessid|(?:2fa|mfa|backup|recovery)[ _-]?(?:backup|recovery|codes?|key)|x-[a-z-]{0,24}key|ocp-apim-subscription-key|密钥|秘钥|令牌|私钥)(?:[_-]?(?:id|base64|b64|value|hex))?";
    regex(&[name, TIE, VALUE].concat())
});
static CODE: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r#"(?i)(?:(?:verification|security|confirmation|auth|login|one[ -]?time|2fa|mfa|sms)[ _-]?(?:code|passcode)|\botp\b|\bcvv2?\b|\bcvc2?\b|\bpin(?:[ _-]?code)?\b|验证码|驗證碼|校验码|动态码)(?:["'`]{0,2}\s{0,2}[:=]\s{0,2}|\s{1,2}(?:is|was|为|是)\s{0,2}:?\s{0,2}|[为是]\s?:?\s?|\s)["'`“]?([0-9]{3,8}|[0-9]{3}[ -][0-9]{3})"#,
    )
});
/// The key is told of, and comes some words later: long enough to be nothing else.
static LATER: LazyLock<Regex> = LazyLock::new(|| {
    regex(r"(?i)\b(?:api|access|secret|auth)[ _-]?(?:key|token)\b[^\n]{1,40}?\b([A-Za-z0-9_-]{32,256})\b")
});
/// A card's number, its date, and its security code.
static DUMP: LazyLock<Regex> =
    LazyLock::new(|| regex(r"[0-9]{13,19}[|;,:/ ][01]?[0-9][|;,:/ ](?:20)?[0-9]{2}[|;,:/ ]([0-9]{3,4})\b"));
/// Chinese has no space between a name and its value.
static BESIDE: LazyLock<Regex> =
    LazyLock::new(|| regex(r"(?:密码|密碼|口令|密钥|秘钥|令牌)([A-Za-z0-9!@#$%^&*._+-]{6,256})"));
/// Options of commands: `--password x`.
static OPTION: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r#"(?i)(?:--(?:[a-z]{1,16}-)?(?:password|passwd|pass|token|secret|api-?key)|\bsshpass -p|\blogin [^\n]{0,128}? -p)[ =]{1,2}["']?([^\s"']{3,512})"#,
    )
});
/// A line or member of a header with credentials.
static AUTHORIZATION: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r#"(?i)(?:proxy-)?authorization["'`]?\s{0,3}[:=,]\s{0,3}["'`]?(bearer|basic|token|apikey|api-key|key|negotiate|ntlm|digest|hmac|aws4-hmac-sha256|hawk|signature)[ ]+([^\r\n"'`]{4,8192})"#,
    )
});
static COOKIE: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r#"(?i)(?:set-)?cookie2?["'`]?\s{0,3}[:=]\s{0,3}["'`]?([A-Za-z0-9_.!#$%&*+^|~-]{1,128}=[^\r\n"'`]{1,8192})"#,
    )
});
static BEARER: LazyLock<Regex> =
    LazyLock::new(|| regex(r"(?i)\bbearer[ ]{1,3}([A-Za-z0-9._~+/-]{8,}={0,3})"));
static BASIC: LazyLock<Regex> = LazyLock::new(|| regex(r"(?i)\bbasic[ ]{1,3}([A-Za-z0-9+/]{8,}={0,2})"));
/// `curl -u user:password`.
static USER: LazyLock<Regex> =
    LazyLock::new(|| regex(r#"(?:\s-u|--user|--proxy-user)[ =]{1,2}["']?([^\s:"'/]{1,128}:[^\s"']{2,256})"#));

pub(super) fn find(near: Near<'_>, add: &mut dyn FnMut(usize, usize, Kind)) {
    let text = near.text();
    for (expression, kind) in [(&PASSWORD, Value::Password), (&KEY, Value::Key)] {
        let mut at = 0;
        while let Some(found) = expression.captures_at(text, at) {
            let value = (2..=6).find_map(|index| Some((index, found.get(index)?)));
            let (Some(all), Some((group, value))) = (found.get(0), value) else {
                break;
            };
            let quoted = group < 6;
            let end = value.start() + ends(value.as_str(), quoted);
            let tie = found.get(1).map_or("", |tie| tie.as_str());
            // A value that is none may itself be the name of one: `token: password=x`.
            at = value.start();
            if is_name(near, all.start(), kind) && is_secret(near, tie, value.start(), end, quoted, kind) {
                add(value.start(), end, Kind::Key);
                at = at.max(end);
            }
        }
    }
    for found in CODE.captures_iter(text) {
        if let Some(code) = found.get(1).filter(|code| near.is_word(code.start(), code.end())) {
            add(code.start(), code.end(), Kind::Key);
        }
    }
    for found in AUTHORIZATION.captures_iter(text) {
        let (Some(scheme), Some(value)) = (found.get(1), found.get(2)) else {
            continue;
        };
        let lists = matches!(
            &*scheme.as_str().to_ascii_lowercase(),
            "digest" | "hmac" | "aws4-hmac-sha256" | "hawk" | "signature"
        );
        let token = value
            .as_str()
            .find([' ', '\\', ',', ')', '}', '>', '<'])
            .unwrap_or(value.len());
        let len = if lists { value.len() } else { token };
        let value_text = near.get(value.start(), value.start() + len);
        if lists || (len >= 4 && looks_random(value_text)) || len >= 16 && !is_none(value_text) {
            add(value.start(), value.start() + len, Kind::Key);
        }
    }
    let first =
        |expression: &Regex, holds: &dyn Fn(&str) -> bool, add: &mut dyn FnMut(usize, usize, Kind)| {
            for found in expression.captures_iter(text) {
                if let Some(value) = found.get(1).filter(|value| holds(value.as_str())) {
                    add(value.start(), value.end(), Kind::Key);
                }
            }
        };
    first(
        &COOKIE,
        &|value| !is_none(value.split_once('=').map_or("", |(_, value)| value)),
        add,
    );
    first(&BEARER, &looks_random, add);
    first(&BASIC, &is_basic, add);
    first(
        &BESIDE,
        &|value| looks_random(value) && has_digit_and_letter(value),
        add,
    );
    first(&LATER, &has_digit_and_letter, add);
    first(&DUMP, &|_| true, add);
    first(&OPTION, &|value| !is_none(value), add);
    first(
        &USER,
        &|value| !is_none(value.split_once(':').map_or("", |(_, value)| value)),
        add,
    );
}

/// The bytes of a value: to what can't be a part of it.
fn ends(value: &str, quoted: bool) -> usize {
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

/// Nothing before the name makes it the name of something else.
fn is_name(near: Near<'_>, start: usize, kind: Value) -> bool {
    let before = near.get(start.saturating_sub(16).min(start), start);
    let before = if before.is_empty() && start > 0 {
        near.get(start - 1, start)
    } else {
        before
    };
    let lower = before.to_ascii_lowercase();
    match kind {
        Value::Password => true,
        // `max_token`, `eos_token`, `public_key`: not secrets.
        Value::Key => {
            const OTHER: [&str; 15] = [
                "max_", "eos_", "bos_", "pad_", "unk_", "sep_", "cls_", "mask_", "public_", "num_", "per_",
                "next_", "stop_", "special_", "image_",
            ];
            !OTHER.iter().any(|other| lower.ends_with(other))
        }
    }
}

fn is_secret(near: Near<'_>, tie: &str, start: usize, end: usize, quoted: bool, kind: Value) -> bool {
    let value = near.get(start, end);
    if is_none(value) {
        return false;
    }
    if !quoted && matches!(tie.trim(), "" | "to") || tie.trim_end().ends_with(" to") {
        let least = if kind == Value::Key { 16 } else { 6 };
        let apart = !tie.is_empty() || near.before(start).is_some_and(|byte| !byte.is_ascii());
        return apart
            && value.is_ascii()
            && value.len() >= least
            && looks_random(value)
            && has_digit_and_letter(value);
    }
    match kind {
        Value::Key => {
            value.len() >= 8 && looks_random(value) && (value.len() >= 12 || has_digit_and_letter(value))
        }
        Value::Password => {
            if value.len() < 3 {
                return false;
            }
            if quoted || looks_random(value) {
                return true;
            }
            // A word: a password where nothing goes on behind it, part of a sentence where something does.
            let strict = !tie.contains('=');
            let last = near.at(end);
            let alone = match last {
                None | Some(b'\n' | b'\r' | b'"' | b'\'' | b',' | b';' | b'&' | b'}' | b')' | b'`') => true,
                Some(b'.') => !matches!(near.at(end + 1), Some(byte) if byte.is_ascii_alphanumeric()),
                Some(b' ') => !strict,
                Some(byte) => !byte.is_ascii() || !strict,
            };
            alone && value.is_ascii()
        }
    }
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

fn has_digit_and_letter(value: &str) -> bool {
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
    let value = value.trim_matches(['"', '\'', '`', '*', ',', '.', ';', ':']);
    if value.is_empty() {
        return true;
    }
    let lower = value.to_ascii_lowercase();
    let first = value.as_bytes()[0];
    let same = value.bytes().all(|byte| byte == first);
    let starts = |head: &str| lower.starts_with(head);
    same && !first.is_ascii_digit()
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
        b'[' => inner.bytes().all(name),
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
fn is_basic(value: &str) -> bool {
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

//! Secrets that stand behind a name which says that they are: `password=…`, `"api_key": "…"`, 密码：….
//!
//! Owns: the names, and how a value is tied to them. Refuses: values that are plainly none, and words of a sentence.

use super::{
    Kind, floor,
    near::{Near, regex, secrets},
    value::{ends, has_digit_and_letter, is_none, looks_random},
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
const TIE: &str = r#"\*{0,2}(["'`]{0,2}\]?(?:(?:[ \t]{0,40}|\s{0,3})(?::=|=>|={2,3}|[:=>])|[ \t]{1,40}->)(?:[ \t]{0,40}|\s{0,3})|\s{1,2}(?:is|was|为|是)\s{0,2}:?\s{0,2}|[为是]\s?:?\s?| (?:for [^\s]{1,64} )?to | )\*{0,2}"#;
/// The value: within quotes, or the first character of what goes to a space.
const VALUE: &str = r#"(?:(?:\[\s{0,2})?[brf]?"([^"\n]{1,512})|(?:\[\s{0,2})?[brf]?'([^'\n]{1,512})|`([^`\n]{1,512})|[“「]([^”」\n]{1,512})|(?:bearer |token )?([^\s"'`“”「」]))"#;
/// Bytes of a value without quotes that decide whether it is a secret.
const LOOK: usize = 512;

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
/// `curl -u user:password`.
static USER: LazyLock<Regex> =
    LazyLock::new(|| regex(r#"(?:\s-u|--user|--proxy-user)[ =]{1,2}["']?([^\s:"'/]{1,128}:[^\s"']{2,256})"#));

pub(super) fn find(near: Near<'_>, add: &mut dyn FnMut(usize, usize, Kind)) {
    let text = near.text();
    for (expression, kind) in [(&PASSWORD, Value::Password), (&KEY, Value::Key)] {
        let mut at = 0;
        // Where the characters without a space end that the last value was among: looked for once.
        let mut run = 0;
        while let Some(found) = expression.captures_at(text, at) {
            let value = (2..=6).find_map(|index| Some((index, found.get(index)?)));
            let (Some(all), Some((group, value))) = (found.get(0), value) else {
                break;
            };
            let quoted = group < 6;
            let start = value.start();
            if !quoted && run <= start {
                run = start + to(text, start, is_apart);
            }
            // Its beginning decides: a value that is none may itself hold names, and each of them looks at one.
            let seen = if quoted {
                value.end()
            } else {
                run.min(floor(text, start + LOOK))
            };
            let end = start + ends(near.get(start, seen), quoted);
            let tie = found.get(1).map_or("", |tie| tie.as_str());
            let listed = found
                .get(1)
                .is_some_and(|tie| near.get(tie.end(), start).contains('['));
            let shown = Shown { tie, quoted, listed };
            // A value that is none may itself be the name of one: `token: password=x`.
            at = start;
            if is_name(near, all.start(), kind) && is_secret(near, shown, start, end, kind) {
                let end = match group {
                    2 => end + to(text, end, |c| matches!(c, '"' | '\n')),
                    3 => end + to(text, end, |c| matches!(c, '\'' | '\n')),
                    4 => end + to(text, end, |c| matches!(c, '`' | '\n')),
                    5 => end + to(text, end, |c| matches!(c, '”' | '」' | '\n')),
                    _ => start + ends(near.get(start, run), quoted),
                };
                add(start, end, Kind::Key);
                at = at.max(end);
            }
        }
    }
    for found in CODE.captures_iter(text) {
        if let Some(code) = found.get(1).filter(|code| near.is_word(code.start(), code.end())) {
            add(code.start(), code.end(), Kind::Key);
        }
    }
    let random = |value: &str| looks_random(value) && has_digit_and_letter(value);
    let sign = |char: char| !char.is_ascii_alphanumeric() && !"!@#$%^&*._+-".contains(char);
    let space = |char: char| char.is_whitespace() || matches!(char, '"' | '\'');
    secrets(text, &BESIDE, sign, |_, value| random(value), add);
    secrets(text, &OPTION, space, |_, value| !is_none(value), add);
    let password = |value: &str| value.split_once(':').is_some_and(|(_, value)| !is_none(value));
    secrets(text, &USER, space, |_, value| password(value), add);
    // Both end where their expression says.
    secrets(
        text,
        &LATER,
        |_| true,
        |_, value| has_digit_and_letter(value),
        add,
    );
    secrets(text, &DUMP, |_| true, |_, _| true, add);
}

/// Bytes from a place to where this is true of a character, or to the end.
fn to(text: &str, at: usize, closes: impl Fn(char) -> bool) -> usize {
    let rest = text.get(at..).unwrap_or_default();
    rest.find(closes).unwrap_or(rest.len())
}

/// What ends a value without quotes; as in [`VALUE`].
fn is_apart(char: char) -> bool {
    char.is_whitespace() || matches!(char, '"' | '\'' | '`' | '“' | '”' | '「' | '」')
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
            // A word of its own: `developer_token` is one of a developer.
            !OTHER.iter().any(|other| {
                let rest = lower.strip_suffix(other);
                rest.is_some_and(|rest| !rest.ends_with(|char: char| char.is_ascii_alphanumeric()))
            })
        }
    }
}

/// How a value stands beside its name.
#[derive(Clone, Copy)]
struct Shown<'a> {
    tie: &'a str,
    quoted: bool,
    /// The first of a list.
    listed: bool,
}

fn is_secret(near: Near<'_>, shown: Shown<'_>, start: usize, end: usize, kind: Value) -> bool {
    let Shown { tie, quoted, listed } = shown;
    let value = near.get(start, end);
    // A list holds messages about a password too: `"password": ["This field is required."]`.
    if is_none(value) || listed && value.contains(' ') {
        return false;
    }
    let sign = tie.trim_matches(['*', '"', '\'', '`', ']', ' ', '\t', '\n', '\r']);
    let tagged = sign == ">" && near.get(end, end + 2) == "</";
    // `token == other`, `n > token`: a comparison with something, but for `<token>…</token>`.
    if !quoted && sign.starts_with("==") || sign == ">" && !tagged {
        return false;
    }
    // `<label for="password">Kennwort</label>`.
    if tagged && !tie.starts_with('>') && !looks_random(value) {
        return false;
    }
    if !quoted && matches!(sign, "" | "to" | "->") || tie.trim_end().ends_with(" to") {
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
                Some(b'<') => !strict || near.at(end + 1) == Some(b'/'),
                Some(byte) => !byte.is_ascii() || !strict,
            };
            alone && value.is_ascii()
        }
    }
}

//! Credentials in lines and members of headers: `Authorization: …`, `Cookie: …`.
//!
//! Owns: the schemes, and where a header's value ends. Refuses: headers that carry a key under a name of its own.

use super::{
    Kind, head,
    near::{Near, regex, secrets},
    value::{has_digit_and_letter, is_basic, is_none, looks_random},
};
use regex::Regex;
use std::sync::LazyLock;

/// A scheme that is known, and what follows.
static AUTHORIZATION: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r#"(?i)(?:proxy-)?authorization["'`]?\s{0,3}[:=,]\s{0,3}["'`]?(bearer|basic|token|apikey|api-key|key|negotiate|ntlm|digest|oauth|hmac|aws4-hmac-sha256|hawk|signature)[ ]+([^\r\n"'`])"#,
    )
});
/// Another scheme, or none: the value must tell by itself.
static OTHER: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r#"(?i)\bauthorization(?:["'`]?\s{0,3}:\s{0,3}["'`]?|["'`]?\]?\s{0,3}[=,]\s{0,3}["'`])(?:[a-z][a-z0-9-]{1,31}[ ]{1,3})?([^\s"'`,;<>]{12,4096})"#,
    )
});
/// Where a cookie begins; a value may be quoted.
static COOKIE: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r#"(?i)(?:set-)?cookie2?["'`]?\s{0,3}[:=]\s{0,3}["'`]?([A-Za-z0-9_.!#$%&*+^|~-]{1,128}="?[^\r\n"'`])"#,
    )
});
static BEARER: LazyLock<Regex> =
    LazyLock::new(|| regex(r"(?i)\bbearer[ ]{1,3}([A-Za-z0-9._~+/-]{8,}={0,3})"));
static BASIC: LazyLock<Regex> = LazyLock::new(|| regex(r"(?i)\bbasic[ ]{1,3}([A-Za-z0-9+/]{8,}={0,2})"));

/// What finds a header's value, and whether that is a secret.
type Check<'a> = (&'a Regex, &'a dyn Fn(&str) -> bool);

pub(super) fn find(near: Near<'_>, add: &mut dyn FnMut(usize, usize, Kind)) {
    let text = near.text();
    let mut at = 0;
    while let Some(found) = AUTHORIZATION.captures_at(text, at) {
        let (Some(scheme), Some(value)) = (found.get(1), found.get(2)) else {
            break;
        };
        let start = value.start();
        let line = near.get(start, value_end(text, start));
        at = value.end();
        let lists = matches!(
            &*scheme.as_str().to_ascii_lowercase(),
            "digest" | "oauth" | "hmac" | "aws4-hmac-sha256" | "hawk" | "signature"
        );
        let lists = lists && line.contains('=');
        let token = line
            .find([' ', '\\', ',', ')', '}', '>', '<', '"'])
            .unwrap_or(line.len());
        let value = if lists {
            line
        } else {
            near.get(start, start + token)
        };
        let random = value.len() >= 16 || value.len() >= 4 && looks_random(value);
        if lists || random && !is_none(value) {
            at = at.max(start + value.len());
            add(start, start + value.len(), Kind::Key);
        }
    }
    let random = |value: &str| has_digit_and_letter(value) && !is_none(value) && !value.contains("://");
    let ends = |char: char| char.is_whitespace() || matches!(char, '"' | '\'' | '`' | ',' | ';' | '<' | '>');
    secrets(text, &OTHER, ends, |_, value| random(value), add);
    let checks: [Check<'_>; 2] = [(&BEARER, &looks_random), (&BASIC, &is_basic)];
    for (expression, holds) in checks {
        for found in expression.captures_iter(text) {
            if let Some(value) = found.get(1).filter(|value| holds(value.as_str())) {
                add(value.start(), value.end(), Kind::Key);
            }
        }
    }
    let mut at = 0;
    while let Some(cookie) = COOKIE.captures_at(text, at).and_then(|found| found.get(1)) {
        let end = value_end(text, cookie.start());
        at = cookie.end().max(end);
        let cookie_text = near.get(cookie.start(), end);
        if !is_none(cookie_text.split_once('=').map_or("", |(_, value)| value)) {
            add(cookie.start(), end, Kind::Key);
        }
    }
}

/// Where a header's value ends: with the line, or a quote that is not one around a part of it: `a="x"; b=y`.
fn value_end(text: &str, start: usize) -> usize {
    /// Servers take no longer ones.
    const LONGEST: usize = 8192;
    let line = head(text.get(start..).unwrap_or_default(), LONGEST);
    let mut at = 0;
    loop {
        let rest = line.get(at..).unwrap_or_default();
        let Some(stop) = rest.find(['\r', '\n', '"', '\'', '`']) else {
            return start + line.len();
        };
        let (before, quoted) = rest.split_at(stop);
        let part = quoted.strip_prefix('"').filter(|_| before.ends_with('='));
        let part = part.and_then(|part| part.split_once('"'));
        match part {
            Some((inner, after))
                if !inner.contains(['\r', '\n'])
                    && !inner.starts_with(',')
                    && (after.is_empty() || after.starts_with([';', ',', ' ', '\r', '\n', '"', '\''])) =>
            {
                at += stop + inner.len() + 2;
            }
            _ => return start + at + stop,
        }
    }
}

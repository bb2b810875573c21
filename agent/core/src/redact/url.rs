//! Credentials within addresses.
//!
//! Owns: users and passwords before a host, tokens in queries. Refuses: addresses themselves.

use super::{
    Kind,
    near::{Near, regex, secrets},
    value::{is_none, looks_random},
};
use regex::{Captures, Regex};
use std::sync::LazyLock;

static USER: LazyLock<Regex> =
    LazyLock::new(|| regex(r#"[A-Za-z][A-Za-z0-9+.-]{1,31}://([^\s"'`<>@/?#:]{0,128}:[^\s"'`<>/]{1,256})@"#));
/// A token alone before the host.
static TOKEN: LazyLock<Regex> = LazyLock::new(|| regex(r#"https?://([A-Za-z0-9_-]{16,256})@"#));
static QUERY: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r#"(?i)[?&;#](?:amp;)?(access_token|id_token|refresh_token|auth_token|token|api_?key|apikey|key|sig|signature|sign|password|passwd|pwd|secret|auth|code|client_secret|app_?secret|session|sessionid|x-amz-signature|x-amz-credential|x-amz-security-token|x-goog-signature|x-oss-signature|awsaccesskeyid|ticket|jwt)=([^&\s"'`<>#)\]}，。]{1,4096})"#,
    )
});

pub(super) fn find(near: Near<'_>, add: &mut dyn FnMut(usize, usize, Kind)) {
    let text = near.text();
    for found in USER.captures_iter(text) {
        if let Some(user) = found.get(1) {
            let password = user.as_str().split_once(':').map_or("", |(_, password)| password);
            if !is_none(password) {
                add(user.start(), user.end(), Kind::Key);
            }
        }
    }
    for found in TOKEN.captures_iter(text) {
        if let Some(token) = found.get(1).filter(|token| looks_random(token.as_str())) {
            add(token.start(), token.end(), Kind::Key);
        }
    }
    let ends = |char: char| {
        char.is_whitespace()
            || matches!(
                char,
                '&' | '"' | '\'' | '`' | '<' | '>' | '#' | ')' | ']' | '}' | '，' | '。'
            )
    };
    let is_secret = |found: &Captures<'_>, value: &str| {
        let name = found.get(1).map_or("", |name| name.as_str());
        let least = match &*name.to_ascii_lowercase() {
            "password" | "passwd" | "pwd" => 1,
            "key" | "code" | "auth" | "session" | "ticket" | "sign" => 16,
            _ => 8,
        };
        value.len() >= least && !is_none(value) && (least == 1 || looks_random(value))
    };
    secrets(text, &QUERY, ends, is_secret, add);
}

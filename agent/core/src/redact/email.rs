//! E-mail addresses.
//!
//! Owns: their shapes, beside Chinese text without spaces too. Refuses: user names of SSH addresses, versions of packages,
//! names of files.

use super::{
    Kind,
    near::{Near, regex},
};
use regex::Regex;
use std::sync::LazyLock;

static ASCII: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"(?i)[a-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}(?:@|%40| ?[\[(] ?at ?[\])] ?)(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?(?:\.| ?[\[(] ?dot ?[\])] ?)){1,8}(?:xn--[a-z0-9-]{2,59}|[a-z]{2,24})",
    )
});
/// Letters of other scripts on either side.
static UNICODE: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"[\p{L}\p{N}._%+-]{1,64}@(?:[\p{L}\p{N}](?:[\p{L}\p{M}\p{N}-]{0,61})?\.){1,8}\p{L}[\p{L}\p{M}-]{1,23}",
    )
});
/// A mailbox of letters of other scripts, or a domain of them; else it is `ASCII`'s.
static PLAIN_DOMAIN: LazyLock<Regex> = LazyLock::new(|| regex(r"[\x00-\x7f]@[A-Za-z0-9]"));
/// What an image or script for dense screens is called: `icon@2x.png`.
const FILES: [&str; 12] = [
    "png", "jpg", "jpeg", "gif", "webp", "svg", "css", "js", "ts", "json", "html", "xml",
];

pub(super) fn find(near: Near<'_>, add: &mut dyn FnMut(usize, usize, Kind)) {
    let text = near.text();
    if memchr::memchr(b'@', text.as_bytes()).is_none() && !text.contains("%40") && !text.contains(['[', '('])
    {
        return;
    }
    for found in ASCII.find_iter(text) {
        // A mailbox begins with none of these: they stand before it.
        let begins = found.as_str().trim_start_matches([
            '.', '\'', '`', '/', '=', '&', '?', '{', '|', '*', '#', '!', '$', '%', '^', '}', '~', '-',
        ]);
        // What ties a mailbox to the name of a field or a parameter; `a+tag=1@` is all of it.
        let local = begins.split('@').next().unwrap_or_default();
        let tie = local
            .rfind(['=', '?', '&', '/', '{', '}', '|', '`'])
            .filter(|tie| !local.get(..*tie).unwrap_or_default().contains('+'));
        let begins = match tie {
            Some(tie) => begins
                .get(tie + 1..)
                .unwrap_or(begins)
                .trim_start_matches(['\'', '.']),
            None => begins,
        };
        let start = found.end() - begins.len();
        if !begins.starts_with('@') && is_address(near, begins, found.end()) {
            add(letters_before(text, start), found.end(), Kind::Email);
        }
    }
    for found in UNICODE.find_iter(text) {
        if !PLAIN_DOMAIN.is_match(found.as_str()) {
            add(found.start(), found.end(), Kind::Email);
        }
    }
}

/// Where letters begin that belong to the mailbox: those of scripts that are written with spaces between words.
fn letters_before(text: &str, start: usize) -> usize {
    const MOST: usize = 64;
    const IDEOGRAPHS: char = '\u{2e80}';
    let before = text.get(..start).unwrap_or_default();
    let letters = before.chars().rev().take(MOST).take_while(|char| {
        (char.is_alphanumeric() || matches!(char, '.' | '_' | '-' | '+')) && *char < IDEOGRAPHS
    });
    start - letters.map(char::len_utf8).sum::<usize>()
}

/// A user or password before the host of an address of the web: `url` sees to these.
fn in_url(near: Near<'_>, start: usize) -> bool {
    static HOST: LazyLock<Regex> = LazyLock::new(|| regex(r#"://[^\s/?#"'`<>,;|(){}\[\]]*$"#));
    near.follows(start, &HOST)
}

fn is_address(near: Near<'_>, address: &str, end: usize) -> bool {
    let (local, domain) = address.split_once('@').unwrap_or(("", address));
    if in_url(near, end - address.len()) {
        return false;
    }
    let mut labels = domain.rsplit('.');
    let top = labels.next().unwrap_or_default();
    let first = domain.split('.').next().unwrap_or_default();
    // `git@host:path` names no mailbox.
    let ssh = matches!(local, "git" | "hg" | "svn") && matches!(near.at(end), Some(b':' | b'/'));
    // `pkg@1.2.3-rc.beta`.
    let version = first.bytes().all(|byte| byte.is_ascii_digit())
        && !first.is_empty()
        && !top.is_empty()
        && domain.contains('-');
    let file = FILES.contains(&&*top.to_ascii_lowercase());
    !(ssh || version || file && address.contains('@'))
}

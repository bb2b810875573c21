//! Keys and tokens that are known by their own shape.
//!
//! Owns: the prefixes that issuers give their keys, JSON web tokens. Refuses: strings that only look random:
//! hashes, identifiers and images do too.

use super::{
    Kind,
    near::{Near, regex},
};
use regex::Regex;
use std::sync::LazyLock;

/// Prefixes, and what follows. Each is found by what it begins with, so many of them cost no more than a few.
const SHAPES: &[&str] = &[
    // OpenAI, Anthropic, OpenRouter, DeepSeek and others.
    r"sk-(?:ant-|proj-|svcacct-|admin-|or-v1-|lf-)?[A-Za-z0-9_-]{16,}",
    // Stripe, Clerk.
    r"(?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{10,}",
    r"whsec_[A-Za-z0-9+/=]{16,}",
    // GitHub, GitLab.
    r"gh[pousr]_[A-Za-z0-9]{20,}",
    r"github_pat_[A-Za-z0-9_]{20,}",
    r"gl(?:pat|dt|rt|oas|ptt|cbt|ft|imt|agent|soat|ffct)-[A-Za-z0-9_.-]{16,}",
    // AWS.
    r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}",
    r"ABSK[A-Za-z0-9+/]{60,}={0,2}",
    // Google.
    r"AIza[A-Za-z0-9_-]{30,}",
    r"ya29\.[A-Za-z0-9_-]{16,}",
    r"GOCSPX-[A-Za-z0-9_-]{16,}",
    r"1//0[A-Za-z0-9_-]{30,}",
    // Slack.
    r"xox[a-z]-[A-Za-z0-9-]{10,}",
    r"xapp-[0-9]-[A-Za-z0-9-]{16,}",
    r"hooks\.slack\.com/(?:services|workflows)/[A-Za-z0-9/]{20,}",
    // Hugging Face, Replicate, Groq, xAI, NVIDIA, Perplexity, Together.
    r"hf_[A-Za-z0-9]{20,}",
    r"api_org_[A-Za-z0-9]{20,}",
    r"r8_[A-Za-z0-9]{20,}",
    r"gsk_[A-Za-z0-9]{20,}",
    r"xai-[A-Za-z0-9]{20,}",
    r"nvapi-[A-Za-z0-9_-]{20,}",
    r"pplx-[A-Za-z0-9]{20,}",
    r"tgp_v1_[A-Za-z0-9_-]{20,}",
    // Package registries and builders.
    r"npm_[A-Za-z0-9]{30,}",
    r"pypi-[A-Za-z0-9_-]{40,}",
    r"rubygems_[a-f0-9]{40,}",
    r"dckr_pat_[A-Za-z0-9_-]{20,}",
    // Clouds and services.
    r"do[opr]_v1_[a-f0-9]{40,}",
    r"SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}",
    r"key-[0-9a-f]{32}",
    r"SK[0-9a-f]{32}",
    r"shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}",
    r"LTAI[A-Za-z0-9]{12,24}",
    r"AKID[A-Za-z0-9]{20,}",
    r"lin_api_[A-Za-z0-9]{20,}",
    r"ntn_[A-Za-z0-9]{20,}",
    r"figd_[A-Za-z0-9_-]{20,}",
    r"sq0(?:csp|atp)-[A-Za-z0-9_-]{20,}",
    r"gls[ao]_[A-Za-z0-9_]{20,}",
    r"sntry[su]_[A-Za-z0-9_=+/-]{20,}",
    r"PMAK-[a-f0-9-]{30,}",
    r"NRAK-[A-Z0-9]{20,}",
    r"ATATT3[A-Za-z0-9_=-]{20,}",
    r"hvs\.[A-Za-z0-9_-]{20,}",
    r"dp\.(?:pt|st|sa|ct)\.[A-Za-z0-9_.-]{20,}",
    r"AGE-SECRET-KEY-1[A-Z0-9]{40,}",
    r"[0-9]{8,10}:AA[A-Za-z0-9_-]{30,}",
    r"[MNO][A-Za-z0-9_-]{23,27}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,40}",
    // One-time codes of Google.
    r"G-[0-9]{6}",
];

/// What a key begins behind: no letter or digit, unless it is the end of `%3D` or of a colour's code.
const BEHIND: &str = r"(?:\A|[^A-Za-z0-9]|%[0-9A-Fa-f]{2}|\[[0-9;]{0,8}m)";
static TOKEN: LazyLock<Regex> = LazyLock::new(|| regex(&format!("{BEHIND}({})", SHAPES.join("|"))));
/// JSON web tokens: signed, not signed, encrypted. By themselves: what may go on for long before it fails would have others
/// look at the same text again.
static JWT: LazyLock<Regex> = LazyLock::new(|| {
    let shape = r"eyJ[A-Za-z0-9_-]{8,}\.(?:eyJ[A-Za-z0-9_-]{4,}|[A-Za-z0-9_-]*\.[A-Za-z0-9_-]+)(?:\.[A-Za-z0-9_-]+)*\.?";
    regex(&format!("{BEHIND}({shape})"))
});
static PUTTY: LazyLock<Regex> =
    LazyLock::new(|| regex(r"Private-Lines: ?[0-9]{1,3}\s+(?:[A-Za-z0-9+/=]{16,76}\s*)+"));

pub(super) fn find(near: Near<'_>, add: &mut dyn FnMut(usize, usize, Kind)) {
    let text = near.text();
    for expression in [&TOKEN, &JWT] {
        for found in expression.captures_iter(text).filter_map(|found| found.get(1)) {
            // A one-time code is short enough to be the beginning of something else.
            let goes_on = found.len() == 8 && !near.is_word(found.start(), found.end());
            if !goes_on && is_key(found.as_str()) {
                add(found.start(), found.end(), Kind::Key);
            }
        }
    }
    for found in PUTTY.find_iter(text) {
        add(found.start(), found.end(), Kind::Key);
    }
}

/// Not a class of a style sheet or a sentence with hyphens: those have no digits, or hardly any.
fn is_key(found: &str) -> bool {
    let digits = found.bytes().filter(u8::is_ascii_digit).count();
    let upper = found.bytes().any(|byte| byte.is_ascii_uppercase());
    let words = found.split(['-', '_']).filter(|part| !part.is_empty());
    let longest = words.map(str::len).max().unwrap_or(0);
    match found.get(..3) {
        Some("sk-") => digits >= 2 && longest >= 12 || digits >= 1 && upper && longest >= 8,
        Some("key" | "xai") => digits >= 2,
        _ => digits >= 1 || upper,
    }
}

//! What an HTTP destination answered.
//!
//! Owns: the answer, what its status means by the protocols' common rules, `Retry-After`, and how it is told to people.
//! Refuses: what a body means (the destination's).

use super::{Fault, Verdict};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use jiff::fmt::rfc2822;
use reqwest::header::{DATE, HeaderMap, RETRY_AFTER};
use std::time::Duration;

/// Characters of a body that are told.
const TOLD: usize = 200;
/// A secret shorter than this is a part of words.
const SHORTEST: usize = 4;

/// The answer to an [`HttpRequest`](super::HttpRequest).
#[derive(Debug, Clone, PartialEq, Default)]
pub struct HttpAnswer {
    /// Status code.
    pub status: u16,
    /// Headers.
    pub headers: HeaderMap,
    /// Body, up to a limit; secrets of the request are blanked in it.
    pub body: Vec<u8>,
    /// The body is longer than that limit, and its end is missing.
    pub cut: bool,
}

impl HttpAnswer {
    /// What the status alone means by the rules of OTLP: 2xx is taken, 413 too large, 408, 429, 502, 503 and 504 to be tried again,
    /// all else refused. But what is about credentials and addresses is tried again too: no record is lost for what an operator
    /// can mend.
    pub fn verdict(&self) -> Verdict {
        let reason = self.told();
        match self.status {
            200..=299 => Verdict::ACCEPTED,
            413 => Verdict::TooLarge { reason },
            300..=399 | 401..=405 | 407 | 408 | 421 | 429 | 502 | 503 | 504 => self.retry(),
            _ => Verdict::Refused { reason },
        }
    }

    /// To be tried again, not before the answer says.
    pub fn retry(&self) -> Verdict {
        Verdict::Retry {
            reason: match self.status {
                401 | 403 | 407 => {
                    format!(
                        "the credentials or their rights have to be mended: {}",
                        self.told()
                    )
                }
                300..=399 | 404 | 405 | 421 => format!("the address has to be mended: {}", self.told()),
                _ => self.told(),
            },
            after: self.retry_after(),
            fault: match self.status {
                401 | 402 | 404 | 407 | 421 => Fault::Destination,
                // Who inspects requests on their way also answers these, to single ones.
                300..=399 | 403 | 405 | 429 | 503 => Fault::Load,
                _ => Fault::Unclear,
            },
        }
    }

    /// `Retry-After`, in seconds or as a date, which is taken by the answer's own clock.
    pub fn retry_after(&self) -> Option<Duration> {
        let text = |name| self.headers.get(name)?.to_str().ok().map(str::trim);
        let asked = text(RETRY_AFTER)?;
        if let Ok(seconds) = asked.parse() {
            return Some(Duration::from_secs(seconds));
        }
        let at = rfc2822::parse(asked).ok()?.timestamp();
        let now = rfc2822::parse(text(DATE)?).ok()?.timestamp();
        Some(Duration::try_from(at.duration_since(now)).unwrap_or_default())
    }

    /// Status and the beginning of the body, for a log.
    pub fn told(&self) -> String {
        let text = String::from_utf8_lossy(&self.body[..self.body.len().min(4 * TOLD)]);
        match clean(&text).as_str() {
            "" => format!("HTTP {}", self.status),
            text => format!("HTTP {}: {text}", self.status),
        }
    }
}

/// Text of a destination for a log: its beginning, without control characters.
pub(super) fn clean(text: &str) -> String {
    let clean: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(TOLD)
        .collect();
    clean.trim().to_owned()
}

/// Blanks the secrets of a request in its answer: a destination may repeat what it refuses. The answer stays as long as it is, or
/// the lengths that stand in a binary one would be wrong.
pub(super) fn forget(answer: &mut [u8], request: &HeaderMap) {
    for secret in secrets(request) {
        let found: Vec<usize> = memchr::memmem::find_iter(answer, &secret).collect();
        for at in found {
            answer[at..at + secret.len()].fill(b'*');
        }
    }
}

/// The same in a text for a log, which does not tell how long they are.
pub(super) fn forgotten_text(text: String, request: &HeaderMap) -> String {
    let mut bytes = text.into_bytes();
    forget(&mut bytes, request);
    bytes.dedup_by(|next, last| *next == b'*' && *last == b'*');
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The same in what is told of it: an answer may have them in an encoding of its own.
pub(super) fn forgotten(mut verdict: Verdict, request: &HeaderMap) -> Verdict {
    if let Some(reason) = verdict.reason_mut() {
        *reason = forgotten_text(std::mem::take(reason), request);
    }
    verdict
}

/// What must not be told: values of headers, without their scheme too, of `Basic` decoded, and all as JSON has them. The longest
/// first: others are parts of them.
fn secrets(request: &HeaderMap) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for value in request.values().filter(|value| value.is_sensitive()) {
        let whole = value.as_bytes();
        all.push(whole.to_vec());
        let Some((scheme, secret)) = split(whole, b' ') else {
            continue;
        };
        all.push(secret.to_vec());
        if scheme.eq_ignore_ascii_case(b"basic")
            && let Ok(pair) = BASE64_STANDARD.decode(secret)
        {
            all.extend(split(&pair, b':').map(|(_, password)| password.to_vec()));
            all.push(pair);
        }
    }
    let escaped = |secret: &Vec<u8>| {
        let json = serde_json::to_string(std::str::from_utf8(secret).ok()?).ok()?;
        Some(json.as_bytes()[1..json.len() - 1].to_vec())
    };
    let of_json: Vec<_> = all.iter().filter_map(escaped).collect();
    all.extend(of_json);
    all.retain(|secret| secret.len() >= SHORTEST);
    all.sort_unstable_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
    all.dedup();
    all
}

fn split(text: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    let position = memchr::memchr(at, text)?;
    Some((&text[..position], &text[position + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use reqwest::header::HeaderValue;

    fn answer(status: u16, headers: &[(&'static str, &str)], body: &str) -> HttpAnswer {
        let headers = headers
            .iter()
            .map(|(name, value)| (name.parse().expect("a name"), value.parse().expect("a value")));
        HttpAnswer {
            status,
            headers: headers.collect(),
            body: body.as_bytes().to_vec(),
            cut: false,
        }
    }

    #[test]
    fn statuses_and_delays_are_read() {
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        for (headers, after) in [
            (&[("retry-after", " 120 ")][..], seconds(120)),
            (
                &[
                    ("retry-after", "Wed, 21 Oct 2026 07:28:00 GMT"),
                    ("date", "Wed, 21 Oct 2026 07:27:10 GMT"),
                ],
                seconds(50),
            ),
            (
                &[
                    ("retry-after", "Wed, 21 Oct 2026 07:28:00 GMT"),
                    ("date", "Wed, 21 Oct 2026 08:00:00 GMT"),
                ],
                seconds(0),
            ),
            (&[("retry-after", "soon")], None),
            (&[("retry-after", "-1")], None),
            (&[], None),
        ] {
            assert_eq!(answer(503, headers, "").retry_after(), after, "{headers:?}");
        }
        let verdict = |status| answer(status, &[], "").verdict();
        assert!(
            [200, 202, 204]
                .iter()
                .all(|&status| verdict(status) == Verdict::ACCEPTED)
        );
        for status in [302, 401, 403, 404, 408, 429, 502, 503, 504] {
            assert!(matches!(verdict(status), Verdict::Retry { .. }), "{status}");
        }
        for status in [400, 415, 422, 500, 501] {
            assert!(matches!(verdict(status), Verdict::Refused { .. }), "{status}");
        }
        assert!(matches!(verdict(413), Verdict::TooLarge { .. }));
    }

    #[test]
    fn what_is_told_is_short_clean_and_without_secrets() {
        let mut secret = HeaderValue::from_static("Bearer s3cret");
        secret.set_sensitive(true);
        let request = HeaderMap::from_iter([(reqwest::header::AUTHORIZATION, secret)]);
        let mut told = answer(401, &[], "no:\n\u{1b}[31m s3cret, Bearer s3cret is old");
        let length = told.body.len();
        forget(&mut told.body, &request);
        assert_eq!(told.body.len(), length, "what is binary can still be read");
        let text = told.told();
        assert!(!text.contains("s3cret"), "{text}");
        let text = forgotten_text(text, &request);
        assert_eq!(text, "HTTP 401: no:  [31m *, * is old");
        // ann:hun"ter2
        let mut secret = HeaderValue::from_static("Basic YW5uOmh1biJ0ZXIy");
        secret.set_sensitive(true);
        let request = HeaderMap::from_iter([(reqwest::header::AUTHORIZATION, secret)]);
        let text = r#"Basic YW5uOmh1biJ0ZXIy, YW5uOmh1biJ0ZXIy, ann:hun"ter2, hun"ter2, hun\"ter2 of ann"#;
        let mut told = answer(401, &[], text);
        forget(&mut told.body, &request);
        let text = forgotten_text(told.told(), &request);
        assert_eq!(text, "HTTP 401: *, *, *, *, * of ann");
        let verdict = forgotten(Verdict::retry(r#"not hun"ter2"#), &request);
        assert_eq!(verdict, Verdict::retry("not *"));
        assert_eq!(forgotten(Verdict::ACCEPTED, &request), Verdict::ACCEPTED);
        assert_eq!(
            answer(500, &[], &"é".repeat(10_000)).told().chars().count(),
            10 + TOLD
        );
    }
}

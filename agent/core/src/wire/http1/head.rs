//! Heads: where one ends, what its fields say, and how the body that follows is framed.
//!
//! Owns: the call into `httparse`, the dropping of credentials, RFC 9112 section 6.3 (message body length). Refuses:
//! buffering, and anything after the head.

use super::{Expected, Head, MAX_HEADERS, RequestHead, ResponseHead, Side};
use crate::scene;
use memchr::{memchr_iter, memmem};

/// How the body after a head is delimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    None,
    Length(u64),
    Chunked,
    UntilClose,
    /// No body; the connection stops being HTTP.
    Upgrade,
}

/// What the current line holds so far; finds the blank line that ends a head or trailers, in pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Line {
    #[default]
    Empty,
    /// A carriage return alone.
    Return,
    Other,
}

impl Line {
    fn push(&mut self, part: &[u8]) {
        *self = match (*self, part) {
            (same, []) => same,
            (Line::Empty, [b'\r']) => Line::Return,
            _ => Line::Other,
        };
    }

    /// Position just after the first blank line that ends within `bytes`.
    pub(super) fn find_blank(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut start = 0;
        for newline in memchr_iter(b'\n', bytes) {
            self.push(&bytes[start..newline]);
            start = newline + 1;
            if std::mem::take(self) != Line::Other {
                return Some(start);
            }
        }
        self.push(&bytes[start..]);
        None
    }
}

/// The fields that decide about framing.
#[derive(Debug, Default)]
pub(super) struct BodyHeaders {
    chunked: bool,
    /// `Transfer-Encoding` is there; `chunked` says whether it ends in chunked.
    encoded: bool,
    length: Option<u64>,
    /// `Content-Length` is no number, or several that differ.
    bad_length: bool,
}

impl BodyHeaders {
    fn note(&mut self, name: &str, value: &[u8]) {
        match name {
            "transfer-encoding" => {
                self.encoded = true;
                let last = value.rsplit(|&b| b == b',').next().unwrap_or_default();
                self.chunked = last.trim_ascii().eq_ignore_ascii_case(b"chunked");
            }
            "content-length" => {
                for item in value.split(|&b| b == b',') {
                    match parse_length(item.trim_ascii()) {
                        Some(len) if self.length.is_none_or(|seen| seen == len) => self.length = Some(len),
                        _ => self.bad_length = true,
                    }
                }
            }
            _ => {}
        }
    }

    /// Framing of a request's body; `None` when the head contradicts itself.
    pub(super) fn request_framing(&self) -> Option<Framing> {
        match (self.encoded, self.chunked, self.length) {
            (true, true, _) => Some(Framing::Chunked),
            (true, false, _) => None,
            _ if self.bad_length => None,
            (false, _, Some(len)) => Some(Framing::Length(len)),
            (false, _, None) => Some(Framing::None),
        }
    }

    /// Framing of a final response's body; `None` when the head contradicts itself.
    pub(super) fn response_framing(&self, status: u16, expected: Expected) -> Option<Framing> {
        if status == 101 || (expected == Expected::Connect && (200..300).contains(&status)) {
            return Some(Framing::Upgrade);
        }
        if expected == Expected::Head || status == 204 || status == 304 {
            return Some(Framing::None);
        }
        match (self.encoded, self.chunked, self.length) {
            (true, true, _) => Some(Framing::Chunked),
            (true, false, _) => Some(Framing::UntilClose),
            _ if self.bad_length => None,
            (false, _, Some(len)) => Some(Framing::Length(len)),
            (false, _, None) => Some(Framing::UntilClose),
        }
    }
}

fn parse_length(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Parses a whole head, blank line included. An observer has to read what real peers accept from each other, so the
/// parser is set to be tolerant; a head that it refuses all the same, or that ends elsewhere, is `None`.
pub(super) fn parse(side: Side, bytes: &[u8]) -> Option<(Head, BodyHeaders)> {
    let mut config = httparse::ParserConfig::default();
    config
        .allow_multiple_spaces_in_request_line_delimiters(true)
        .allow_multiple_spaces_in_response_status_delimiters(true)
        .allow_spaces_after_header_name_in_responses(true)
        .allow_obsolete_multiline_headers_in_responses(true)
        .ignore_invalid_headers_in_requests(true)
        .ignore_invalid_headers_in_responses(true);
    let mut slots = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let complete = httparse::Status::Complete(bytes.len());
    match side {
        Side::Request => {
            let mut request = httparse::Request::new(&mut slots);
            if config.parse_request(&mut request, bytes) != Ok(complete) {
                return None;
            }
            let (headers, body) = fields(request.headers);
            let head = RequestHead {
                method: request.method?.to_owned(),
                target: redact_query(request.path?),
                headers,
                api_key: api_key(request.headers),
            };
            Some((Head::Request(head), body))
        }
        Side::Response => {
            let mut response = httparse::Response::new(&mut slots);
            if config.parse_response(&mut response, bytes) != Ok(complete) {
                return None;
            }
            let (headers, body) = fields(response.headers);
            let status = response.code.filter(|code| *code >= 100)?;
            Some((Head::Response(ResponseHead { status, headers }), body))
        }
    }
}

fn fields(headers: &[httparse::Header<'_>]) -> (Vec<(String, String)>, BodyHeaders) {
    let mut body = BodyHeaders::default();
    let mut kept = Vec::with_capacity(headers.len());
    for header in headers {
        let name = header.name.to_ascii_lowercase();
        body.note(&name, header.value);
        if !is_credential(&name) {
            let value = String::from_utf8_lossy(header.value.trim_ascii()).into_owned();
            kept.push((name, value));
        }
    }
    (kept, body)
}

/// The fingerprint of the API key: what follows the scheme of `Authorization`, else the first field made for keys.
fn api_key(headers: &[httparse::Header<'_>]) -> Option<[u8; 32]> {
    const FIELDS: [&str; 4] = ["authorization", "x-api-key", "api-key", "x-goog-api-key"];
    FIELDS.iter().find_map(|field| {
        let header = headers.iter().find(|h| h.name.eq_ignore_ascii_case(field))?;
        let value = header.value.trim_ascii();
        let key = match value.iter().position(|byte| *byte == b' ') {
            Some(scheme) if *field == "authorization" => value[scheme..].trim_ascii(),
            _ => value,
        };
        (!key.is_empty()).then(|| scene::fingerprint(key))
    })
}

/// Whether a field of this (lower-case) name carries a credential.
pub(crate) fn is_credential(name: &str) -> bool {
    const EXACT: [&str; 7] = [
        "cookie",
        "cookie2",
        "set-cookie",
        "set-cookie2",
        "api-key",
        "apikey",
        "authentication-info",
    ];
    // Singular `-token`: `x-ratelimit-remaining-tokens` is a count.
    const ENDINGS: [&str; 7] = [
        "authorization",
        "-api-key",
        "-apikey",
        "-token",
        "-secret",
        "-password",
        "-access-key",
    ];
    EXACT.contains(&name) || ENDINGS.iter().any(|ending| name.ends_with(ending)) || name == "token"
}

/// The target with the values of credential parameters replaced.
fn redact_query(target: &str) -> String {
    const PARAMETERS: [&str; 10] = [
        "key",
        "api_key",
        "apikey",
        "api-key",
        "access_token",
        "token",
        "auth",
        "sig",
        "signature",
        "password",
    ];
    let Some(question) = memmem::find(target.as_bytes(), b"?") else {
        return target.to_owned();
    };
    let (path, query) = target.split_at(question + 1);
    let mut redacted = path.to_owned();
    for (index, pair) in query.split('&').enumerate() {
        if index > 0 {
            redacted.push('&');
        }
        match pair.split_once('=') {
            Some((name, _)) if PARAMETERS.iter().any(|p| name.eq_ignore_ascii_case(p)) => {
                redacted.push_str(name);
                redacted.push_str("=REDACTED");
            }
            _ => redacted.push_str(pair),
        }
    }
    redacted
}

//! Is this HTTP/1 at all? Judged from the first bytes of a stream.
//!
//! Owns: telling HTTP/1 from TLS, HTTP/2 and the rest as early as the bytes allow, so that a connection which is of no
//! use can be muted. Refuses: parsing. A verdict other than `More` never changes as more bytes arrive.

use super::Side;
use crate::Anomaly;
use memchr::memchr;

/// Longest method name that is believed.
const MAX_METHOD: usize = 32;
/// Only this much is looked at, again with each piece that arrives; a request line that is longer passes for one.
const MAX_LINE: usize = 1024;

/// What the first bytes say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Http,
    /// Too few to tell.
    More,
    Other(Anomaly),
}

const NOT_HTTP: Verdict = Verdict::Other(Anomaly::NotHttp);

/// Judges the first bytes of a stream; leading blank lines are taken off already.
pub(super) fn first_bytes(side: Side, bytes: &[u8]) -> Verdict {
    match bytes {
        [] | [0x16] => Verdict::More,
        // TLS handshake record, any 3.x version (RFC 8446 section 5.1).
        [0x16, 0x03, ..] => Verdict::Other(Anomaly::Tls),
        // A server that refuses a ClientHello answers with an alert record.
        [0x15] if side == Side::Response => Verdict::More,
        [0x15, 0x03, ..] if side == Side::Response => Verdict::Other(Anomaly::Tls),
        _ => match side {
            Side::Request => request(bytes),
            Side::Response => response(bytes),
        },
    }
}

fn request(bytes: &[u8]) -> Verdict {
    let method = bytes
        .iter()
        .take_while(|b| b.is_ascii_alphabetic() || matches!(b, b'-' | b'_'))
        .count();
    if !bytes[0].is_ascii_uppercase() || method > MAX_METHOD {
        return NOT_HTTP;
    }
    match bytes.get(method) {
        None => return Verdict::More,
        Some(b' ') => {}
        Some(_) => return NOT_HTTP,
    }
    let looked_at = &bytes[..bytes.len().min(MAX_LINE)];
    let newline = memchr(b'\n', looked_at);
    let line = &looked_at[..newline.unwrap_or(looked_at.len())];
    if line
        .iter()
        .any(|&b| b < 0x20 && !matches!(b, b'\r' | b'\t') || b == 0x7f)
    {
        return NOT_HTTP;
    }
    if newline.is_none() {
        return if looked_at.len() == MAX_LINE {
            Verdict::Http
        } else {
            Verdict::More
        };
    }
    let version = line
        .trim_ascii_end()
        .rsplit(|&b| b == b' ')
        .next()
        .unwrap_or_default();
    if version.starts_with(b"HTTP/1.") {
        Verdict::Http
    } else if line.starts_with(b"PRI * HTTP/2") {
        // The connection preface (RFC 9113 section 3.4).
        Verdict::Other(Anomaly::Http2)
    } else {
        NOT_HTTP
    }
}

fn response(bytes: &[u8]) -> Verdict {
    const START: &[u8] = b"HTTP/1.";
    if bytes.len() >= START.len() && bytes.starts_with(START) {
        return Verdict::Http;
    }
    if START.starts_with(bytes) {
        return Verdict::More;
    }
    // An HTTP/2 server speaks first with a SETTINGS frame on stream 0 (RFC 9113 sections 4.1, 6.5).
    let settings = |index: usize, byte: u8| match index {
        0 | 5..=8 => byte == 0,
        3 => byte == 4,
        4 => byte <= 1,
        _ => true,
    };
    if !bytes
        .iter()
        .take(9)
        .enumerate()
        .all(|(index, &byte)| settings(index, byte))
    {
        NOT_HTTP
    } else if bytes.len() < 9 {
        Verdict::More
    } else {
        Verdict::Other(Anomaly::Http2)
    }
}

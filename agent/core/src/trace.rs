//! Which trace a request belongs to.
//!
//! Owns: reading the headers that say so (W3C Trace Context, B3, request ids), their order, and the id of a request that
//! none of them names. Refuses: ids that are not what their format asks for; the next header is then asked.

use crate::{identity::mix, protocol::clean_name, scene};
use serde::{Deserialize, Serialize};

/// Where the id of a request's trace came from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TraceSource {
    /// The header that the operator named.
    Header,
    /// `traceparent` (W3C Trace Context).
    Traceparent,
    /// `b3`, or `X-B3-TraceId`.
    B3,
    /// `X-Request-Id`.
    RequestId,
    /// No header told: it is made from our own id.
    #[default]
    Derived,
}

/// A trace that a request's headers name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Trace {
    /// 32 lower-case hex digits, not all zero.
    pub(crate) id: Box<str>,
    /// The span that asked: 16 lower-case hex digits, not all zero.
    pub(crate) parent: Option<Box<str>>,
    pub(crate) source: TraceSource,
}

/// The trace that headers (names in lower case) name: by the operator's header where one is named, else the first valid
/// one of `traceparent`, B3 and `x-request-id`.
pub(crate) fn of_headers(headers: &[(String, String)], own: Option<&str>) -> Option<Trace> {
    let value = |name: &str| {
        let (_, value) = headers.iter().find(|(known, _)| known == name)?;
        Some(value.trim())
    };
    let by_id = |name: &str, source| {
        let id = id_of_text(value(name)?)?;
        Some(Trace {
            id,
            parent: None,
            source,
        })
    };
    let by_two = |(id, parent): (&str, Option<&str>), source| Trace {
        id: format!("{id:0>32}").into(),
        parent: parent.map(Box::from),
        source,
    };
    own.and_then(|own| by_id(own, TraceSource::Header))
        .or_else(|| {
            Some(by_two(
                traceparent(value("traceparent")?)?,
                TraceSource::Traceparent,
            ))
        })
        .or_else(|| Some(by_two(b3(value("b3")?)?, TraceSource::B3)))
        .or_else(|| {
            let id = value("x-b3-traceid").filter(|id| is_b3_trace(id))?;
            let parent = value("x-b3-spanid").filter(|id| is_id(id, 16));
            Some(by_two((id, parent), TraceSource::B3))
        })
        .or_else(|| by_id("x-request-id", TraceSource::RequestId))
}

/// The trace id to use when the request brought none. Never all zero, which W3C forbids.
pub(crate) fn derived_id(id: u64) -> String {
    format!("{:016x}{:016x}", mix(id) | 1, mix(!id))
}

/// Lower-case hex, of this length, not all zero.
fn is_id(text: &str, len: usize) -> bool {
    text.len() == len && is_hex(text) && text.bytes().any(|b| b != b'0')
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// Trace and parent of a valid `traceparent` header (W3C Trace Context, level 1).
fn traceparent(header: &str) -> Option<(&str, Option<&str>)> {
    let mut fields = header.split('-');
    let (version, trace, parent, flags) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
    let known = version.len() == 2 && is_hex(version) && version != "ff";
    // Only version 00 is defined to end here; later ones may add fields.
    let ends = version != "00" || fields.next().is_none();
    let valid = is_id(trace, 32) && is_id(parent, 16) && flags.len() == 2 && is_hex(flags);
    (known && ends && valid).then_some((trace, Some(parent)))
}

/// Trace and span of a valid `b3` header: `trace-span`, then perhaps a sampling state, then perhaps the span's parent. A
/// state alone names no trace.
fn b3(header: &str) -> Option<(&str, Option<&str>)> {
    let mut fields = header.split('-');
    let (trace, span) = (fields.next()?, fields.next()?);
    let state = fields.next().is_none_or(|state| matches!(state, "0" | "1" | "d"));
    let parent = fields.next().is_none_or(|parent| is_id(parent, 16));
    let valid = is_b3_trace(trace) && is_id(span, 16) && state && parent && fields.next().is_none();
    valid.then_some((trace, Some(span)))
}

/// 128 bits, or the lower 64 of them.
fn is_b3_trace(text: &str) -> bool {
    is_id(text, 32) || is_id(text, 16)
}

/// A trace id for any text that names a request: the digits of a UUID or of a hexadecimal id as they are, so that they can
/// be searched for; of other text a digest, which is the same for the same text.
fn id_of_text(text: &str) -> Option<Box<str>> {
    let text = clean_name(text)?;
    let first = text.bytes().next()?;
    // It tells no request from another: no id (zeros), or one that was blanked.
    if text.bytes().all(|byte| byte == first || byte == b'-') {
        return None;
    }
    let mut digits = text.to_ascii_lowercase();
    let dashes = text.bytes().enumerate().filter(|(_, byte)| *byte == b'-');
    if text.len() == 36 && dashes.map(|(at, _)| at).eq([8, 13, 18, 23]) {
        digits.retain(|digit| digit != '-');
    }
    if is_b3_trace(&digits) {
        return Some(format!("{digits:0>32}").into());
    }
    let digest = scene::hex(scene::fingerprint(text.as_bytes()).get(..16)?);
    is_id(&digest, 32).then_some(digest.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const SPAN: &str = "00f067aa0ba902b7";

    #[test]
    fn traceparent_is_believed_only_when_valid() {
        for (header, expected) in [
            (format!("00-{TRACE}-{SPAN}-01"), true),
            (format!("cc-{TRACE}-{SPAN}-01-later"), true),
            (format!("00-{TRACE}-{SPAN}-01-extra"), false),
            (format!("ff-{TRACE}-{SPAN}-01"), false),
            (format!("00-{TRACE}-0000000000000000-01"), false),
            (format!("00-{}-{SPAN}-01", "0".repeat(32)), false),
            (format!("00-{}-{SPAN}-01", TRACE.to_uppercase()), false),
            (format!("00-{TRACE}-{SPAN}"), false),
            (String::new(), false),
        ] {
            let expected = expected.then_some((TRACE, Some(SPAN)));
            assert_eq!(traceparent(&header), expected, "{header}");
        }
    }

    #[test]
    fn b3_is_believed_only_when_valid() {
        let short = "a3ce929d0e0e4736";
        for (header, expected) in [
            (format!("{TRACE}-{SPAN}-1-05e3ac9a4f6e3b90"), Some(TRACE)),
            (format!("{TRACE}-{SPAN}-d"), Some(TRACE)),
            (format!("{TRACE}-{SPAN}"), Some(TRACE)),
            (format!("{short}-{SPAN}-0"), Some(short)),
            (format!("{TRACE}-{SPAN}-2"), None),
            (format!("{TRACE}-{SPAN}-1-5"), None),
            (format!("{TRACE}-{SPAN}-1-05e3ac9a4f6e3b90-x"), None),
            (format!("{}-{SPAN}-1", &TRACE[1..]), None),
            (format!("{TRACE}-{}-1", "0".repeat(16)), None),
            (TRACE.to_owned(), None),
            ("0".to_owned(), None),
            ("d".to_owned(), None),
        ] {
            let expected = expected.map(|trace| (trace, Some(SPAN)));
            assert_eq!(b3(&header), expected, "{header}");
        }
    }

    #[test]
    fn any_text_may_name_a_request() {
        let padded = "0000000000000000a3ce929d0e0e4736";
        // printf %s req-1 | sha256sum
        let digest = &scene::hex(&scene::fingerprint(b"req-1"))[..32];
        for (text, expected) in [
            ("4bf92f35-77b3-4da6-a3ce-929d0e0e4736", Some(TRACE)),
            ("4BF92F35-77B3-4DA6-A3CE-929D0E0E4736", Some(TRACE)),
            (TRACE, Some(TRACE)),
            ("a3ce929d0e0e4736", Some(padded)),
            (" req-1 ", Some(digest)),
            ("00000000-0000-0000-0000-000000000000", None),
            ("xxxxxxxxxxxxxxxx", None),
            ("-", None),
            ("", None),
        ] {
            assert_eq!(id_of_text(text).as_deref(), expected, "{text:?}");
        }
        // Dashes elsewhere are part of the text.
        assert_ne!(
            id_of_text("4bf92f357-7b3-4da6-a3ce-929d0e0e4736").as_deref(),
            Some(TRACE)
        );
    }

    #[test]
    fn the_first_valid_header_decides_and_the_operator_s_comes_first() {
        let traceparent = format!("00-{TRACE}-{SPAN}-01");
        let b3 = format!("{}-{SPAN}-1", "b".repeat(31) + "3");
        let all = [
            ("x-correlation-id", "11111111111111111111111111111112"),
            ("traceparent", &*traceparent),
            ("b3", &*b3),
            ("x-b3-traceid", "2222222222222223"),
            ("x-b3-spanid", "3333333333333334"),
            ("x-request-id", "44444444444444444444444444444445"),
        ];
        let told = |headers: &[(&str, &str)], own: Option<&str>| {
            let headers: Vec<_> = headers
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect();
            of_headers(&headers, own).map(|trace| {
                let parent = trace.parent.as_deref().unwrap_or("-").to_owned();
                (trace.source, trace.id[30..].to_owned(), parent)
            })
        };
        let expected = |source, end: &str, parent: &str| Some((source, end.to_owned(), parent.to_owned()));
        let own = Some("x-correlation-id");
        assert_eq!(told(&all, own), expected(TraceSource::Header, "12", "-"));
        assert_eq!(told(&all, None), expected(TraceSource::Traceparent, "36", SPAN));
        assert_eq!(
            told(&all[1..], own),
            expected(TraceSource::Traceparent, "36", SPAN)
        );
        assert_eq!(told(&all[2..], own), expected(TraceSource::B3, "b3", SPAN));
        assert_eq!(
            told(&all[3..], own),
            expected(TraceSource::B3, "23", "3333333333333334")
        );
        assert_eq!(told(&all[5..], own), expected(TraceSource::RequestId, "45", "-"));
        assert_eq!(told(&[], own), None);
        // One that is not valid is as good as none.
        let broken = [
            ("traceparent", "00-1-2-3"),
            ("b3", "0"),
            ("x-b3-traceid", "x"),
            all[5],
        ];
        assert_eq!(told(&broken, own), expected(TraceSource::RequestId, "45", "-"));
    }

    #[test]
    fn a_derived_id_is_valid() {
        assert!((0..1000).all(|id| is_id(&derived_id(id), 32)));
    }
}

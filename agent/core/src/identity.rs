//! Ids of a request: ours, and the trace's.
//!
//! Owns: making them from facts alone, so that a replay gives the same ids, and reading W3C `traceparent`. Refuses:
//! randomness and clocks.

use crate::{Nanos, event::ConnId};

/// Finaliser of `splitmix64`: a bijection that spreads every input bit over the output.
const fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The id of the `seq`-th exchange of a connection. `at` tells runs of the agent apart, which reuse connection ids.
pub(crate) fn request_id(conn: ConnId, seq: u64, at: Nanos) -> u64 {
    mix(mix(mix(conn.0) ^ seq) ^ at)
}

/// 16 lower-case hex digits.
pub(crate) fn hex_id(id: u64) -> String {
    format!("{id:016x}")
}

/// The trace id to use when the request brought none. Never all zero, which W3C forbids.
pub(crate) fn derived_trace_id(id: u64) -> String {
    format!("{:016x}{:016x}", mix(id) | 1, mix(!id))
}

/// The trace id of a valid `traceparent` header (W3C Trace Context, level 1): lower-case hex, neither id all zero.
pub(crate) fn traceparent_trace_id(header: &str) -> Option<&str> {
    let hex = |s: &str| s.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    let mut fields = header.split('-');
    let (version, trace, parent, flags) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
    let known = version.len() == 2 && hex(version) && version != "ff";
    // Only version 00 is defined to end here; later ones may add fields.
    let ends = version != "00" || fields.next().is_none();
    let valid = |id: &str, len: usize| id.len() == len && hex(id) && id.bytes().any(|b| b != b'0');
    (known && ends && valid(trace, 32) && valid(parent, 16) && flags.len() == 2 && hex(flags))
        .then_some(trace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_depend_on_every_fact_and_nothing_else() {
        let id = request_id(ConnId(1), 2, 3);
        assert_eq!(id, request_id(ConnId(1), 2, 3));
        for other in [
            request_id(ConnId(2), 2, 3),
            request_id(ConnId(1), 3, 3),
            request_id(ConnId(1), 2, 4),
        ] {
            assert_ne!(id, other);
        }
        assert_eq!(hex_id(id).len(), 16);
        assert_eq!(derived_trace_id(id).len(), 32);
    }

    #[test]
    fn traceparent_is_believed_only_when_valid() {
        let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
        for (header, expected) in [
            (format!("00-{trace}-00f067aa0ba902b7-01"), Some(trace)),
            (format!("cc-{trace}-00f067aa0ba902b7-01-later"), Some(trace)),
            (format!("00-{trace}-00f067aa0ba902b7-01-extra"), None),
            (format!("ff-{trace}-00f067aa0ba902b7-01"), None),
            (format!("00-{trace}-0000000000000000-01"), None),
            (format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32)), None),
            (format!("00-{}-00f067aa0ba902b7-01", trace.to_uppercase()), None),
            (format!("00-{trace}-00f067aa0ba902b7"), None),
            (String::new(), None),
        ] {
            assert_eq!(traceparent_trace_id(&header), expected, "{header}");
        }
    }
}

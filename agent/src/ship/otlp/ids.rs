//! Trace and span ids.
//!
//! Owns: their bytes, none of them zero, the same for the same record each time it is sent. Refuses: deciding which trace
//! a request belongs to (the core's).

/// Bytes of `N` lower- or upper-case hexadecimal digits; `None` for other text, and for zero, which OTLP forbids.
pub(super) fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let text = text.as_bytes();
    if text.len() != 2 * N {
        return None;
    }
    let mut out = [0; N];
    for (byte, pair) in out.iter_mut().zip(text.chunks_exact(2)) {
        let digit = |at: usize| char::from(*pair.get(at)?).to_digit(16);
        *byte = (digit(0)? << 4 | digit(1)?) as u8;
    }
    (out != [0; N]).then_some(out)
}

/// The id of a span from the record's id; made of its text where that is no id.
pub(super) fn span(id: &str) -> [u8; 8] {
    from_hex(id).unwrap_or_else(|| derived(id, 0))
}

/// The trace's id; made of the record's id where there is no valid one.
pub(super) fn trace(trace_id: &str, id: &str) -> [u8; 16] {
    from_hex(trace_id).unwrap_or_else(|| {
        let mut out = [0; 16];
        out[..8].copy_from_slice(&derived(id, 1));
        out[8..].copy_from_slice(&derived(id, 2));
        out
    })
}

/// The id of the record's span of this number, from 1.
pub(super) fn child(id: &str, number: u8) -> [u8; 8] {
    derived(id, 0x100 | u64::from(number))
}

/// FNV-1a, mixed by the end of SplitMix64 so that near inputs are far apart. Ids need to differ, not to be secret.
fn derived(text: &str, salt: u64) -> [u8; 8] {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64 ^ salt.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for byte in text.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (hash ^ (hash >> 31)).max(1).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn ids_are_read_and_made() {
        assert_eq!(from_hex("00000000000000aF"), Some([0, 0, 0, 0, 0, 0, 0, 0xaf]));
        for bad in [
            "",
            "0000000000000000",
            "00000000000000g1",
            "+000000000000001",
            "é000000000000001",
        ] {
            assert_eq!(from_hex::<8>(bad), None, "{bad}");
        }
        assert_eq!(span("00000000000000af"), [0, 0, 0, 0, 0, 0, 0, 0xaf]);
        assert_ne!(span("0000000000000000"), [0; 8]);
        assert_ne!(trace("none", "00000000000000af"), [0; 16]);
        let mut seen = HashSet::new();
        for id in 0..1000_u64 {
            let id = format!("{id:016x}");
            assert!(seen.insert(span(&id)));
            for number in 1..6 {
                assert!(seen.insert(child(&id, number)));
                assert_eq!(child(&id, number), child(&id, number));
            }
        }
    }
}

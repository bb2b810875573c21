//! Our own id of a request.
//!
//! Owns: making it from facts alone, so that a replay gives the same ids. Refuses: randomness and clocks, and the trace's
//! id (`trace`).

use crate::{Nanos, event::ConnId};

/// Finaliser of `splitmix64`: a bijection that spreads every input bit over the output.
pub(crate) const fn mix(mut x: u64) -> u64 {
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
    }
}

//! Records for the tests of destinations for logs.

use super::testing;
use crate::store::tables::record::KeptRecord;

/// A record that ended `n` milliseconds into a second of May 2026, with id `n`.
pub(super) fn kept(n: u64) -> KeptRecord {
    let mut kept = testing::kept(&format!("{n:016x}"));
    let record = &mut kept.record;
    (record.engine, record.model, record.scene) = ("llama-cpp-8080".into(), "smollm2".into(), "chat".into());
    record.trace_id = format!("4bf92f3577b34da6{n:016x}");
    record.response_id = Some(format!("chatcmpl-{n}"));
    record.http_status = Some(200);
    record.e2e_s = Some(1.25);
    record.input_tokens = Some(38);
    record.output_tokens = Some(60);
    record.finish_reason = Some("length".to_owned());
    record.client = Some([192, 0, 2, 7].into());
    kept.ended_unix_ms = 1_780_000_000_000 + n as i64;
    kept.rules = vec!["slow_e2e".to_owned()];
    kept.token_gaps_from_ns = Some(1_250_000_000);
    kept.token_gaps = vec![(0.05, 3), (0.1, 1), (0.05, 1)];
    kept
}

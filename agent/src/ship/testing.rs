//! Records to send, for the tests of destinations.

use crate::export::metrics::tests::{labels, record};
use crate::store::tables::record::KeptRecord;
use infertap_core::Status;

/// A record with this id, 16 hexadecimal digits.
pub(crate) fn kept(id: &str) -> KeptRecord {
    let mut record = record(&labels("e", "m", "s"), Status::Ok);
    record.id = id.to_owned();
    record.trace_id = format!("{id:0>32}");
    KeptRecord {
        record,
        ended_unix_ms: 1_796_060_000_123,
        rules: vec!["slow_ttft".to_owned()],
        token_gaps_from_ns: None,
        token_gaps: Vec::new(),
        content: None,
    }
}

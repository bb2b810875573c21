//! Records to send, for the tests of destinations.

use crate::export::metrics::tests::{labels, record};
use crate::ship::otlp::OtlpConfig;
use crate::ship::{Outlet, Outlets};
use crate::store::tables::record::KeptRecord;
use infertap_core::Status;
use std::sync::Arc;

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
        gpu: Vec::new(),
        gateway: None,
    }
}

/// A destination that has taken something.
pub(crate) fn outlets() -> Arc<Outlets> {
    let limits = OtlpConfig::default().link().limits();
    let outlet = Outlet::new("otlp", limits, None);
    outlet.delivered();
    Arc::new(Outlets {
        list: vec![Arc::new(outlet)],
        ..Outlets::default()
    })
}

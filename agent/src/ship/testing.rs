//! Records to send, for the tests of destinations.

use crate::export::metrics::tests::{labels, record};
use crate::ship::otlp::OtlpConfig;
use crate::ship::{Courier, Limits, Next, Outcome, Outlet, Outlets, Verdict};
use crate::store::tables::record::KeptRecord;
use infertap_core::Status;
use std::sync::Arc;
use std::time::{Duration, Instant};

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
    Arc::new(Outlets::with(Outlet::new("otlp", limits, None)))
}

/// What becomes of one record among others that are taken, when each batch with it is judged so.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub(crate) enum Fate {
    /// It is taken too.
    Taken,
    /// It is lost, and counted; all others are taken.
    Lost,
    /// It waits for ever, but the others pass it.
    Passed,
    /// All wait with it.
    Blocks,
}

/// Tries it for hours of a clock of its own, while other records come. `judge` gets the number of records in the batch.
pub(crate) fn fate(judge: impl Fn(usize) -> Verdict) -> Fate {
    const SPOILT: &str = "00000000deadbeef";
    const OTHERS: u64 = 2_000;
    let limits = Limits {
        queue_records: 5_000,
        queue_bytes: usize::MAX,
        batch_records: 16,
        batch_bytes: usize::MAX,
        batch_wait: Duration::from_secs(5),
        max_age: None,
    };
    let (mut courier, mut now) = (Courier::new(limits, 1), Instant::now());
    for id in 0..OTHERS {
        if id == 5 {
            courier.offer(now, Arc::new(kept(SPOILT)));
        }
        courier.offer(now, Arc::new(kept(&format!("{id:016x}"))));
        // Many come at once, then a few from time to time.
        for _ in 0..if id < 50 { 0 } else { 8 } {
            match courier.next(now) {
                Next::Send(_, records) => {
                    let spoilt = records.iter().any(|kept| kept.record.id == SPOILT);
                    let verdict = if spoilt {
                        judge(records.len())
                    } else {
                        Verdict::ACCEPTED
                    };
                    now += Duration::from_millis(100);
                    courier.done(now, &verdict);
                }
                Next::At(at) => now = at,
                Next::Idle | Next::End => break,
            }
        }
        now += Duration::from_secs(10);
    }
    courier.stop();
    let taken = courier.counted(Outcome::Sent);
    let lost: u64 = Outcome::ALL
        .map(|outcome| courier.counted(outcome))
        .iter()
        .sum::<u64>()
        - taken;
    let waiting = courier.waiting().0;
    match (taken, lost, waiting) {
        (_, 0, 0) => Fate::Taken,
        (_, 0, waiting) if waiting as u64 == OTHERS + 1 => Fate::Blocks,
        // The youngest still wait for company.
        (_, 0, waiting) if waiting < 20 => Fate::Passed,
        (_, 1, waiting) if waiting < 20 => Fate::Lost,
        other => panic!("taken, lost and waiting are {other:?}"),
    }
}

//! Destinations that behave badly.

use super::testing::kept;
use super::*;
use crate::export::metrics::lock;
use crate::store::tables::record::KeptRecord;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

mod replaced;

const LIMITS: Limits = Limits {
    queue_records: 10,
    queue_bytes: usize::MAX,
    batch_records: 4,
    batch_bytes: usize::MAX,
    batch_wait: Duration::from_millis(20),
    max_age: None,
};
const SOON: Duration = Duration::from_secs(20);

/// Answers as it is told, the last answer for ever; `None` hangs.
struct Fake {
    answers: Mutex<Vec<Option<Verdict>>>,
    encoded: Arc<AtomicU64>,
    got: Arc<Mutex<Vec<Vec<String>>>>,
}

impl Destination for Fake {
    type Payload = Vec<String>;

    fn name(&self) -> &'static str {
        "fake"
    }

    fn encode(&self, records: &[Arc<KeptRecord>]) -> Vec<String> {
        self.encoded.fetch_add(1, SeqCst);
        records.iter().map(|kept| kept.record.id.clone()).collect()
    }

    async fn send(&self, payload: &Vec<String>) -> Verdict {
        let answer = {
            let mut answers = lock(&self.answers);
            let first = answers.first().cloned().flatten();
            if answers.len() > 1 {
                answers.remove(0);
            }
            first
        };
        let Some(verdict) = answer else {
            return std::future::pending().await;
        };
        if verdict == Verdict::ACCEPTED {
            lock(&self.got).push(payload.clone());
        }
        verdict
    }
}

struct Running {
    outlets: Outlets,
    outlet: Arc<Outlet>,
    encoded: Arc<AtomicU64>,
    got: Arc<Mutex<Vec<Vec<String>>>>,
}

fn running(answers: Vec<Option<Verdict>>) -> Running {
    let outlets = Outlets::default();
    let (encoded, got) = (Arc::default(), Arc::default());
    let fake = Fake {
        answers: Mutex::new(answers),
        encoded: Arc::clone(&encoded),
        got: Arc::clone(&got),
    };
    let outlet = outlets.add(fake, LIMITS, Duration::from_millis(50));
    Running {
        outlets,
        outlet,
        encoded,
        got,
    }
}

async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + SOON;
    while !condition() {
        assert!(Instant::now() < end, "{what} did not come");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn offer(outlets: &Outlets, ids: std::ops::Range<u64>) {
    for id in ids {
        outlets.offer(&Arc::new(kept(&format!("{id:016x}"))));
    }
}

#[tokio::test]
async fn records_arrive_in_order_after_failures_and_are_encoded_once() {
    let fake = running(vec![Some(Verdict::retry("503")), None, Some(Verdict::ACCEPTED)]);
    offer(&fake.outlets, 0..6);
    until("all", || fake.outlet.counted(Outcome::Sent) == 6).await;
    let got: Vec<String> = lock(&fake.got).concat();
    let expected: Vec<String> = (0..6).map(|id| format!("{id:016x}")).collect();
    assert_eq!(got, expected);
    assert_eq!(fake.outlet.failures(), 2, "the one that hung too");
    assert_eq!(fake.encoded.load(SeqCst), 2, "one batch each");
    assert_eq!(fake.outlet.waiting(), (0, 0));
    assert!(fake.outlet.delivered_at().is_some());
    fake.outlets.finish(SOON).await;
}

#[tokio::test]
async fn one_that_hangs_costs_its_queue_and_the_end_does_not_wait_for_it() {
    let fake = running(vec![None]);
    offer(&fake.outlets, 0..4);
    until("an attempt", || fake.encoded.load(SeqCst) == 1).await;
    offer(&fake.outlets, 4..1004);
    assert_eq!(fake.outlet.waiting().0, 14, "the queue and the batch in hand");
    assert_eq!(fake.outlet.counted(Outcome::QueueFull), 990);
    fake.outlets.finish(Duration::from_millis(10)).await;
    assert_eq!(fake.outlet.waiting().0, 0);
    assert_eq!(fake.outlet.counted(Outcome::Shutdown), 14);
    offer(&fake.outlets, 0..1);
    assert_eq!(
        fake.outlet.counted(Outcome::Shutdown),
        15,
        "what comes later is counted too"
    );
}

#[tokio::test]
async fn the_end_sends_what_is_there_at_once() {
    let fake = running(vec![Some(Verdict::retry("503")), Some(Verdict::ACCEPTED)]);
    offer(&fake.outlets, 0..9);
    until("an attempt", || fake.outlet.failures() == 1).await;
    fake.outlets.finish(SOON).await;
    assert_eq!(fake.outlet.counted(Outcome::Sent), 9);
}

/// Encodes as the function does.
struct Encodes<F>(F);

impl<F: Fn(&[Arc<KeptRecord>]) + Send + Sync + 'static> Destination for Encodes<F> {
    type Payload = ();

    fn name(&self) -> &'static str {
        "encodes"
    }

    fn encode(&self, records: &[Arc<KeptRecord>]) {
        (self.0)(records);
    }

    async fn send(&self, (): &()) -> Verdict {
        Verdict::ACCEPTED
    }
}

#[tokio::test(flavor = "current_thread")]
async fn a_batch_that_takes_long_to_encode_keeps_nobody_else_waiting() {
    let (begins, mut begun) = tokio::sync::mpsc::unbounded_channel();
    let (proceed, may_proceed) = std::sync::mpsc::channel();
    let may_proceed = Mutex::new(may_proceed);
    let outlets = Outlets::default();
    let encode = move |_: &[Arc<KeptRecord>]| {
        let _ = begins.send(());
        let told = lock(&may_proceed).recv_timeout(SOON);
        assert!(told.is_ok(), "nobody else could run");
    };
    let outlet = outlets.add(Encodes(encode), LIMITS, SOON);
    offer(&outlets, 0..1);
    begun.recv().await.expect("it encodes");
    proceed.send(()).expect("it waits");
    until("the record", || outlet.counted(Outcome::Sent) == 1).await;
}

#[tokio::test]
async fn a_record_that_can_not_be_encoded_is_lost_alone() {
    let outlets = Outlets::default();
    let encode = |records: &[Arc<KeptRecord>]| {
        let spoilt = |kept: &Arc<KeptRecord>| kept.record.id.ends_with('5');
        assert!(!records.iter().any(spoilt), "as this test wants it");
    };
    let outlet = outlets.add(Encodes(encode), LIMITS, SOON);
    offer(&outlets, 0..9);
    until("all", || outlet.waiting().0 == 0).await;
    let counts = [Outcome::Sent, Outcome::Refused, Outcome::TooLarge].map(|of| outlet.counted(of));
    assert_eq!(counts, [8, 1, 0]);
}

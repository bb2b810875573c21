//! Couriers through failures, with a clock of the test's own.

use super::*;
use crate::ship::testing::kept;
use proptest::prelude::*;

mod spoilt;

const LIMITS: Limits = Limits {
    queue_records: 100,
    queue_bytes: usize::MAX,
    batch_records: 8,
    batch_bytes: usize::MAX,
    batch_wait: Duration::from_secs(5),
    max_age: None,
};

fn offer(courier: &mut Courier, now: Instant, ids: std::ops::Range<u64>) {
    for id in ids {
        courier.offer(now, Arc::new(kept(&format!("{id:016x}"))));
    }
}

fn sent(next: &Next) -> Vec<u64> {
    let Next::Send(_, records) = next else {
        panic!("{next:?} is nothing to send");
    };
    let id = |record: &Arc<KeptRecord>| u64::from_str_radix(&record.record.id, 16).expect("an id");
    records.iter().map(id).collect()
}

fn counts(courier: &Courier) -> Vec<(&'static str, u64)> {
    Outcome::ALL
        .map(|outcome| (outcome.as_str(), courier.counted(outcome)))
        .into_iter()
        .filter(|(_, count)| *count > 0)
        .collect()
}

fn retry() -> Verdict {
    Verdict::retry("503")
}

fn too_large() -> Verdict {
    Verdict::TooLarge { reason: "413".into() }
}

#[test]
fn a_batch_goes_when_it_is_full_or_old() {
    let start = Instant::now();
    let mut courier = Courier::new(LIMITS, 1);
    assert_eq!(courier.next(start), Next::Idle);
    offer(&mut courier, start, 0..7);
    let due = start + LIMITS.batch_wait;
    assert_eq!(courier.next(start), Next::At(due));
    let next = courier.next(due);
    assert_eq!(sent(&next), [0, 1, 2, 3, 4, 5, 6]);
    assert_eq!(courier.next(due), next, "the same until it is done");
    courier.done(due, &Verdict::ACCEPTED);
    assert_eq!(courier.next(due), Next::Idle);
    offer(&mut courier, due, 7..16);
    assert_eq!(sent(&courier.next(due)).len(), 8, "a full one goes at once");
    courier.done(
        due,
        &Verdict::Accepted {
            rejected: 3,
            reason: None,
        },
    );
    assert!(matches!(courier.next(due), Next::At(_)));
    assert_eq!(counts(&courier), [("sent", 12), ("rejected", 3)]);
    courier.stop();
    assert_eq!(sent(&courier.next(due)), [15], "and any, at the end");
    courier.done(due, &Verdict::Refused { reason: "400".into() });
    assert_eq!(courier.next(due), Next::End);
    assert_eq!(counts(&courier), [("sent", 12), ("rejected", 3), ("refused", 1)]);
}

#[test]
fn bytes_bound_batches_and_the_queue() {
    let now = Instant::now();
    let one = kept("0000000000000000").bytes();
    let mut courier = Courier::new(
        Limits {
            batch_bytes: 3 * one,
            queue_bytes: 10 * one,
            ..LIMITS
        },
        1,
    );
    offer(&mut courier, now, 0..20);
    assert_eq!(courier.waiting(), (10, 10 * one));
    assert_eq!(sent(&courier.next(now)), [10, 11, 12]);
    assert_eq!(courier.waiting(), (10, 10 * one), "what is tried counts");
    assert_eq!(counts(&courier), [("queue_full", 10)]);
    // One that is larger than the bounds still goes, alone.
    let mut courier = Courier::new(
        Limits {
            batch_bytes: 1,
            queue_bytes: 1,
            ..LIMITS
        },
        1,
    );
    offer(&mut courier, now, 0..2);
    assert_eq!(sent(&courier.next(now)), [1]);
}

#[test]
fn an_hour_of_503_costs_the_queue_and_every_record_is_counted() {
    let start = Instant::now();
    let end = start + Duration::from_hours(1);
    let mut courier = Courier::new(LIMITS, 1);
    let (mut now, mut id, mut attempts) = (start, 0, 0);
    while now < end {
        // Ten records a second.
        offer(&mut courier, now, id..id + 1);
        id += 1;
        if matches!(courier.next(now), Next::Send(..)) {
            attempts += 1;
            courier.done(now, &retry());
        }
        assert!(courier.waiting().0 <= 100 + 8);
        now += Duration::from_millis(100);
    }
    assert!((60..130).contains(&attempts), "{attempts} attempts in an hour");
    assert_eq!(id, 36_000);
    assert_eq!(counts(&courier), [("queue_full", 36_000 - 108)]);
    // It comes back: all that the queue holds arrives, in order.
    let mut got = Vec::new();
    loop {
        match courier.next(now) {
            next @ Next::Send(..) => {
                got.extend(sent(&next));
                courier.done(now, &Verdict::ACCEPTED);
            }
            Next::At(at) => now = at,
            _ => break,
        }
    }
    let mut expected: Vec<u64> = (0..8).collect();
    expected.extend(36_000 - 100..36_000);
    assert_eq!(got, expected);
    assert_eq!(counts(&courier), [("sent", 108), ("queue_full", 36_000 - 108)]);
}

#[test]
fn delays_are_kept_and_what_waits_too_long_is_dropped() {
    let start = Instant::now();
    let max_age = Some(Duration::from_mins(5));
    let mut courier = Courier::new(Limits { max_age, ..LIMITS }, 1);
    offer(&mut courier, start, 0..8);
    sent(&courier.next(start));
    let after = Some(Duration::from_secs(100));
    courier.done(
        start,
        &Verdict::Retry {
            reason: "429".into(),
            after,
            fault: Fault::Load,
        },
    );
    let Next::At(at) = courier.next(start) else {
        panic!("it is to wait");
    };
    assert!(at >= start + Duration::from_secs(100));
    offer(&mut courier, start + Duration::from_secs(200), 8..9);
    assert_eq!(sent(&courier.next(at)).len(), 8);
    courier.done(at, &retry());
    let later = start + Duration::from_secs(301);
    assert_eq!(sent(&courier.next(later)), [8], "the others are too old");
    assert_eq!(counts(&courier), [("expired", 8)]);
}

#[test]
fn what_is_too_large_is_halved_until_one_is_left() {
    let mut now = Instant::now();
    let mut courier = Courier::new(LIMITS, 1);
    offer(&mut courier, now, 0..8);
    // The destination takes two at a time, and never number 5.
    let (mut got, mut sizes) = (Vec::new(), Vec::new());
    loop {
        let next = courier.next(now);
        match next {
            Next::Send(..) => {}
            Next::At(at) => {
                now = at;
                continue;
            }
            _ => break,
        }
        let ids = sent(&next);
        sizes.push(ids.len());
        if ids.len() > 2 || ids.contains(&5) {
            courier.done(now, &too_large());
        } else {
            courier.done(now, &Verdict::ACCEPTED);
            got.extend(ids);
        }
    }
    assert_eq!(got, [0, 1, 2, 3, 4, 6, 7]);
    assert_eq!(counts(&courier), [("sent", 7), ("too_large", 1)]);
    assert!(sizes.len() < 14, "{sizes:?}");
}

#[test]
fn a_part_is_tried_again() {
    let now = Instant::now();
    let mut courier = Courier::new(LIMITS, 1);
    offer(&mut courier, now, 0..8);
    let Next::Send(first, _) = courier.next(now) else {
        panic!("a batch");
    };
    let partly = |again: &[usize], rejected| Verdict::Partly {
        again: again.to_vec(),
        rejected,
        reason: "429 within".into(),
        after: None,
        fault: Fault::Load,
    };
    courier.done(now, &partly(&[99, 7, 1, 7], 2));
    let Next::At(at) = courier.next(now) else {
        panic!("it is to wait");
    };
    let next = courier.next(at);
    assert_eq!(sent(&next), [1, 7]);
    assert!(matches!(next, Next::Send(second, _) if second != first));
    courier.done(at, &partly(&[], 0));
    assert_eq!(courier.next(at), Next::Idle);
    assert_eq!(counts(&courier), [("sent", 6 + 2 - 2), ("rejected", 2)]);
}

proptest! {
    /// Whatever happens, each record is waiting or has exactly one outcome, and the bounds hold.
    #[test]
    fn no_record_is_lost_uncounted(steps in prop::collection::vec((0_u8..10, 0_u64..20), 1..200)) {
        let limits = Limits {
            queue_records: 20,
            max_age: Some(Duration::from_secs(30)),
            ..LIMITS
        };
        let mut courier = Courier::new(limits, 3);
        let mut now = Instant::now();
        let mut offered = 0;
        for (step, by) in steps {
            now += Duration::from_millis(by * 250);
            offer(&mut courier, now, offered..offered + by);
            offered += by;
            if let Next::Send(_, records) = courier.next(now) {
                let verdict = match step {
                    0 => Verdict::ACCEPTED,
                    1 => Verdict::Accepted { rejected: by as usize, reason: None },
                    2 => Verdict::Refused { reason: String::new() },
                    3 => too_large(),
                    4 => Verdict::Partly {
                        again: vec![0, by as usize],
                        rejected: 1,
                        reason: String::new(),
                        after: None,
                        fault: Fault::Load,
                    },
                    5 => continue,
                    6 | 7 => Verdict::unclear("500"),
                    _ => retry(),
                };
                prop_assert!(!records.is_empty() && records.len() <= limits.batch_records);
                courier.done(now, &verdict);
            }
            let (waiting, bytes) = courier.waiting();
            prop_assert!(waiting <= limits.queue_records + limits.batch_records + aside::PLACES);
            prop_assert_eq!(waiting == 0, bytes == 0);
            let done: u64 = Outcome::ALL.map(|outcome| courier.counted(outcome)).iter().sum();
            prop_assert_eq!(done + waiting as u64, offered);
        }
        courier.drop_all();
        let done: u64 = Outcome::ALL.map(|outcome| courier.counted(outcome)).iter().sum();
        prop_assert_eq!(done, offered);
    }
}

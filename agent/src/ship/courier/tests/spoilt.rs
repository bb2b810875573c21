//! Couriers among records that are never taken, or only by chance.

use super::*;

/// Sends 256 records of which these are never taken, and others that come later; for hours, in the end.
fn among_spoilt(spoilt: u64, fault: Fault, partly: bool) -> (Courier, Instant) {
    let limits = Limits {
        queue_records: 5_000,
        batch_records: 256,
        ..LIMITS
    };
    let is_spoilt = |id: &u64| *id < 6 * spoilt && id.is_multiple_of(6);
    let (mut courier, mut now) = (Courier::new(limits, 1), Instant::now());
    let first_hour = now + Duration::from_hours(1);
    offer(&mut courier, now, 0..256);
    for id in 256..3_000 {
        offer(&mut courier, now, id..id + 1);
        for _ in 0..8 {
            let next = courier.next(now);
            match next {
                Next::Send(..) => {
                    let ids = sent(&next);
                    let again: Vec<usize> = (0..ids.len()).filter(|&at| is_spoilt(&ids[at])).collect();
                    let reason = "500".to_owned();
                    let verdict = match (again.is_empty(), partly) {
                        (true, _) => Verdict::ACCEPTED,
                        (false, true) => Verdict::Partly {
                            again,
                            rejected: 0,
                            reason,
                            after: None,
                            fault,
                        },
                        (false, false) => Verdict::Retry {
                            reason,
                            after: None,
                            fault,
                        },
                    };
                    now += Duration::from_millis(100);
                    courier.done(now, &verdict);
                }
                Next::At(at) => now = at,
                Next::Idle | Next::End => break,
            }
        }
        now += Duration::from_secs(10);
        if now > first_hour && id % 100 == 0 {
            let waiting = courier.waiting().0;
            assert!(
                waiting < 100,
                "{waiting} wait after an hour: {:?}",
                counts(&courier)
            );
        }
    }
    (courier, now)
}

#[test]
fn more_spoilt_records_than_have_a_place_aside_hold_up_nobody() {
    for partly in [true, false] {
        let (courier, _) = among_spoilt(40, Fault::Unclear, partly);
        assert_eq!(courier.counted(Outcome::Refused), 40, "{partly}");
        let rest = courier.counted(Outcome::Sent) + courier.waiting().0 as u64;
        assert_eq!(rest, 3_000 - 40, "{partly}");
        assert!(courier.waiting().0 < 20, "the youngest wait for company");
        // Nobody is given up for a limit of load.
        let (courier, _) = among_spoilt(40, Fault::Load, partly);
        let others = courier.counted(Outcome::Sent);
        assert_eq!(others + courier.waiting().0 as u64, 3_000, "{partly}");
        assert!(others > 2_900, "{others} were taken, {partly}");
    }
}

#[test]
fn what_waits_behind_younger_ones_is_too_old_in_its_time() {
    let now = Instant::now();
    let max_age = Some(Duration::from_mins(5));
    let limits = Limits {
        max_age,
        batch_records: 1,
        ..LIMITS
    };
    let mut courier = Courier::new(limits, 1);
    offer(&mut courier, now, 0..1);
    let mut others = Courier::new(LIMITS, 1);
    offer(&mut others, now + Duration::from_mins(4), 1..3);
    courier.take_over(others.take_back());
    courier.next(now + Duration::from_secs(299));
    assert_eq!(counts(&courier), []);
    let next = courier.next(now + Duration::from_secs(301));
    assert_eq!(sent(&next), [1], "number 0 is the last of the queue");
    assert_eq!(counts(&courier), [("expired", 1)]);
}

#[test]
fn a_record_that_spoils_its_batch_holds_up_the_others_for_seconds() {
    let limits = Limits {
        batch_records: 256,
        queue_records: 1_000,
        ..LIMITS
    };
    let start = Instant::now();
    let (mut courier, mut now) = (Courier::new(limits, 1), start);
    offer(&mut courier, now, 0..256);
    while courier.counted(Outcome::Sent) < 255 {
        let next = courier.next(now);
        match next {
            Next::Send(..) if sent(&next).contains(&0) => {
                // And it asks for patience with that one.
                let after = (sent(&next).len() == 1).then(|| Duration::from_mins(9));
                let alone = sent(&next).len() == 1 && courier.counted(Outcome::Sent) > 0;
                courier.done(
                    now,
                    &Verdict::Retry {
                        reason: "500".into(),
                        after: after.filter(|_| alone),
                        fault: Fault::Unclear,
                    },
                );
            }
            Next::Send(..) => {
                courier.done(now, &Verdict::ACCEPTED);
            }
            Next::At(at) => now = at,
            other => panic!("{other:?}"),
        }
    }
    let took = now.duration_since(start);
    assert!(took < Duration::from_secs(30), "{took:?}");
}

#[test]
fn a_record_that_fails_by_chance_is_not_given_up_within_minutes() {
    let start = Instant::now();
    let (mut courier, mut now, mut id) = (Courier::new(LIMITS, 1), start, 1);
    offer(&mut courier, now, 0..8);
    let mut given_up = None;
    while given_up.is_none() && now < start + Duration::from_hours(1) {
        id += 1;
        offer(&mut courier, now, 100 + id..101 + id);
        for _ in 0..8 {
            let next = courier.next(now);
            match next {
                Next::Send(..) => {
                    let spoilt = sent(&next).contains(&0);
                    let verdict = if spoilt {
                        Verdict::unclear("502")
                    } else {
                        Verdict::ACCEPTED
                    };
                    if courier.done(now, &verdict) > 0 {
                        given_up = Some(now.duration_since(start));
                    }
                }
                Next::At(at) => now = now.max(at.min(now + Duration::from_secs(5))),
                _ => break,
            }
        }
        now += Duration::from_secs(1);
    }
    let given_up = given_up.expect("in the end it is");
    assert!(given_up > Duration::from_mins(15), "{given_up:?}");
    assert!(given_up < Duration::from_mins(25), "{given_up:?}");
}

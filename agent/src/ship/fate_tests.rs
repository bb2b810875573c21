//! What answers of destinations mean, and that none of them is asked for ever about a record that it never takes: but for what
//! an operator can mend.

use super::testing::{
    Fate::{self, Blocks, Lost, Passed, Taken},
    fate,
};
use super::*;

const OK: &str = r#"{"items": [{"create": {"status": 201}}]}"#;

/// Body, whether its end is missing.
type Body = (&'static str, bool);

fn destinations() -> [Box<dyn HttpDestination>; 3] {
    [
        Box::new(otlp::over_http()),
        Box::new(Loki::new(
            &LokiSection::default(),
            &crate::export::MetricsConfig::default(),
            None,
        )),
        Box::new(Elasticsearch::new(&ElasticsearchSection::default(), None)),
    ]
}

fn answer(status: u16, (body, cut): Body) -> HttpAnswer {
    HttpAnswer {
        status,
        body: body.as_bytes().to_vec(),
        cut,
        ..HttpAnswer::default()
    }
}

#[test]
fn answers_decide_what_becomes_of_a_record_that_is_never_taken() {
    let item = |status| -> &'static str {
        match status {
            201 => OK,
            400 => r#"{"items": [{"create": {"status": 400, "error": {"type": "mapping"}}}]}"#,
            403 => r#"{"items": [{"create": {"status": 403, "error": {"type": "block"}}}]}"#,
            429 => r#"{"items": [{"create": {"status": 429, "error": {"type": "rejected"}}}]}"#,
            _ => r#"{"items": [{"create": {"status": 500, "error": {"type": "script"}}}]}"#,
        }
    };
    // OTLP, Loki, Elasticsearch.
    let table: &[(u16, Body, [Fate; 3])] = &[
        (200, (OK, false), [Taken, Taken, Taken]),
        (200, ("", false), [Taken, Taken, Lost]),
        (200, ("<html>", false), [Taken, Taken, Lost]),
        (200, (r#"{"items": []}"#, false), [Taken, Taken, Lost]),
        (200, ("[[[[", true), [Taken, Taken, Lost]),
        (200, (item(400), false), [Taken, Taken, Lost]),
        (200, (item(403), false), [Taken, Taken, Passed]),
        (200, (item(429), false), [Taken, Taken, Passed]),
        (200, (item(500), false), [Taken, Taken, Lost]),
        (301, ("", false), [Passed, Passed, Passed]),
        (400, ("", false), [Lost, Lost, Lost]),
        (401, ("", false), [Blocks, Blocks, Blocks]),
        (403, ("", false), [Passed, Passed, Passed]),
        (404, ("", false), [Blocks, Blocks, Blocks]),
        (405, ("", false), [Passed, Passed, Passed]),
        (407, ("", false), [Blocks, Blocks, Blocks]),
        (408, ("", false), [Lost, Lost, Lost]),
        (413, ("", false), [Lost, Lost, Lost]),
        (415, ("", false), [Lost, Lost, Lost]),
        (422, ("", false), [Lost, Lost, Lost]),
        (429, ("", false), [Passed, Passed, Passed]),
        (429, ("", true), [Passed, Passed, Passed]),
        (500, ("", false), [Lost, Lost, Lost]),
        (502, ("", false), [Lost, Lost, Lost]),
        (503, ("", false), [Passed, Passed, Passed]),
        (504, ("", true), [Lost, Lost, Lost]),
    ];
    for (status, body, expected) in table {
        for (destination, expected) in destinations().iter().zip(expected) {
            let name = destination.name();
            // OTLP refuses whole batches: which of it is bad is not told, and may be all.
            if name == "otlp" && matches!(status, 400 | 415 | 422 | 500) {
                let verdict = destination.judge(16, &answer(*status, *body));
                assert!(matches!(verdict, Verdict::Refused { .. }), "{status} {verdict:?}");
                continue;
            }
            let judged = |records: usize| match destination.judge(records, &answer(*status, *body)) {
                // An answer about one document, to many.
                Verdict::Retry { reason, .. } if reason.contains("is about 1 documents") => {
                    Verdict::unclear(reason)
                }
                other => other,
            };
            assert_eq!(fate(judged), *expected, "{name} {status} {body:?}");
        }
    }
}

#[test]
fn nothing_is_tried_for_ever_but_what_an_operator_can_mend() {
    for status in 200..600 {
        let mended = matches!(status, 300..=399 | 401..=405 | 407 | 421 | 429 | 503);
        for body in [("", false), ("<html>", false), ("{}", true)] {
            for destination in destinations() {
                let verdict = destination.judge(1, &answer(status, body));
                let for_ever = matches!(
                    verdict,
                    Verdict::Retry { fault, .. } | Verdict::Partly { fault, .. } if fault != Fault::Unclear
                );
                assert_eq!(
                    for_ever,
                    mended,
                    "{} {status} {body:?}: {verdict:?}",
                    destination.name()
                );
            }
        }
    }
}

#[test]
fn a_destination_that_hangs_or_fails_for_all_loses_nothing() {
    use std::time::Instant;
    let limits = LokiSection::default().link().limits();
    let (mut courier, mut now) = (Courier::new(limits, 1), Instant::now());
    for id in 0..1_000 {
        courier.offer(now, Arc::new(testing::kept(&format!("{id:016x}"))));
    }
    for _ in 0..2_000 {
        match courier.next(now) {
            Next::Send(..) => {
                courier.done(now, &Verdict::unclear("no answer within 10 s"));
            }
            Next::At(at) => now = at,
            other => panic!("{other:?} with records that wait"),
        }
    }
    assert_eq!(courier.waiting().0, 1_000);
    let mut batches = 0;
    while courier.waiting().0 > 0 {
        match courier.next(now) {
            Next::Send(..) => {
                batches += 1;
                courier.done(now, &Verdict::ACCEPTED);
            }
            Next::At(at) => now = at,
            other => panic!("{other:?} with records that wait"),
        }
    }
    assert_eq!(courier.counted(Outcome::Sent), 1_000);
    assert!(batches < 50, "batches grow again: {batches}");
}

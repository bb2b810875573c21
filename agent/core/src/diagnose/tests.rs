//! Tables of shares and causes, and of gaps and prefills; what holds for any of them.

use super::*;
use crate::{Nanos, Status, request::Sources};
use proptest::prelude::*;

const MS: Nanos = 1_000_000;

pub(crate) fn record(e2e: f64, [queue, prefill, decode]: [Option<f64>; 3]) -> RequestRecord {
    let engine = |known: bool| known.then_some(Source::Engine);
    RequestRecord {
        id: "1".into(),
        trace_id: String::new(),
        trace_source: crate::TraceSource::Derived,
        parent_span_id: None,
        response_id: None,
        engine: "e".into(),
        model: "m".into(),
        scene: "s".into(),
        client: None,
        client_namespace: None,
        client_pod: None,
        client_workload: None,
        client_workload_kind: None,
        protocol: "openai_chat".into(),
        streamed: true,
        status: Status::Ok,
        http_status: Some(200),
        finish_reason: None,
        t0_ns: Some(0),
        t1_ns: None,
        t2_ns: None,
        t3_ns: None,
        t4_ns: None,
        queue_s: queue,
        prefill_s: prefill,
        decode_s: decode,
        tokenize_s: None,
        ttft_s: None,
        tpot_s: None,
        e2e_s: Some(e2e),
        input_tokens: None,
        output_tokens: None,
        cached_input_tokens: None,
        reasoning_tokens: None,
        chunks: 0,
        request_bytes: 1,
        response_bytes: 1,
        sources: Sources {
            t1: engine(queue.is_some()),
            t2: engine(prefill.is_some()).or(decode.map(|_| Source::Chunk)),
            t3: decode.map(|_| Source::Chunk),
            ..Sources::default()
        },
        incomplete: Vec::new(),
        diagnosis: None,
        t1_error_s: None,
        gpu_alloc_failures: None,
        cost: None,
        energy_j: None,
    }
}

fn cause(e2e: f64, phases: [Option<f64>; 3], interference: f64, stall: f64) -> Option<Cause> {
    let ns = |seconds: f64| (seconds * 1e9) as u64;
    let evidence = Evidence {
        interference: Some(Interference {
            ns: ns(interference),
            by: Vec::new(),
        }),
        stalled_ns: Some(ns(stall)),
        ..Evidence::default()
    };
    diagnose(&record(e2e, phases), evidence, &DiagnosisConfig::default())?.cause
}

#[test]
fn the_largest_of_what_is_amiss_comes_before_decode() {
    let known = |queue, prefill, decode| [Some(queue), Some(prefill), Some(decode)];
    for (phases, interference, stall, expected) in [
        (known(0.0, 1.0, 9.0), 0.0, 0.0, Some(Cause::Decode)),
        (known(3.0, 1.0, 6.0), 0.0, 0.0, Some(Cause::Queue)),
        (known(2.9, 1.0, 6.1), 0.0, 0.0, None),
        (known(3.1, 6.5, 0.4), 0.0, 0.0, Some(Cause::Prefill)),
        (known(0.5, 1.0, 8.5), 2.5, 0.0, Some(Cause::Interference)),
        (known(0.5, 1.0, 8.5), 1.9, 0.0, Some(Cause::Decode)),
        (known(4.0, 1.0, 5.0), 2.5, 0.0, Some(Cause::Queue)),
        (known(0.0, 1.0, 9.0), 0.0, 8.0, Some(Cause::Client)),
        (known(0.0, 1.0, 9.0), 4.0, 3.5, Some(Cause::Interference)),
        ([None, None, Some(9.0)], 0.0, 0.0, Some(Cause::Decode)),
        ([None, None, Some(2.0)], 0.0, 0.0, None),
        ([None, None, None], 0.0, 5.0, Some(Cause::Client)),
        ([None, None, None], 0.0, 0.0, None),
    ] {
        assert_eq!(
            cause(10.0, phases, interference, stall),
            expected,
            "{phases:?} {interference} {stall}"
        );
    }
}

#[test]
fn thresholds_are_the_operators_and_nothing_reaches_one_of_zero() {
    let record = record(10.0, [Some(0.0), Some(2.0), Some(8.0)]);
    let with = |config: DiagnosisConfig| {
        diagnose(&record, Evidence::default(), &config)
            .expect("known")
            .cause
    };
    let default = DiagnosisConfig::default();
    assert_eq!(
        with(DiagnosisConfig {
            decode: 0.9,
            ..default
        }),
        None
    );
    assert_eq!(
        with(DiagnosisConfig {
            prefill: 0.2,
            ..default
        }),
        Some(Cause::Prefill)
    );
    assert_eq!(
        with(DiagnosisConfig {
            queue: 0.0,
            ..default
        }),
        Some(Cause::Decode)
    );
}

#[test]
fn a_diagnosis_is_as_good_as_the_weakest_of_what_it_rests_on() {
    let source = |phases| {
        diagnose(
            &record(10.0, phases),
            Evidence::default(),
            &DiagnosisConfig::default(),
        )
        .and_then(|diagnosis| diagnosis.source)
    };
    assert_eq!(source([Some(1.0), Some(1.0), None]), Some(Source::Engine));
    assert_eq!(source([Some(1.0), Some(1.0), Some(8.0)]), Some(Source::Chunk));
    assert_eq!(source([None, None, Some(8.0)]), Some(Source::Chunk));
}

#[test]
fn a_client_that_never_read_again_is_measured_against_the_time_until_it_left() {
    let evidence = Evidence {
        stalled_ns: Some(30_000 * MS),
        stalled_after_ns: 28_000 * MS,
        ..Evidence::default()
    };
    let diagnosis = diagnose(
        &record(12.0, [None, None, Some(11.0)]),
        evidence,
        &DiagnosisConfig::default(),
    )
    .expect("known");
    assert_eq!(
        (diagnosis.cause, diagnosis.client),
        (Some(Cause::Client), Some(0.75))
    );
}

fn prefill(id: u64, from: u64, to: u64) -> Prefill {
    Prefill {
        from: from * MS,
        to: to * MS,
        id: Some(id),
        response_id: None,
        trace: None,
    }
}

/// Gaps between these times.
fn gaps(times: &[u64]) -> Vec<Gap> {
    times
        .windows(2)
        .map(|pair| Gap {
            from: pair[0] * MS,
            to: pair[1] * MS,
        })
        .collect()
}

fn found(times: &[u64], prefills: &[Prefill], stalls: &Stalls) -> (u64, Vec<(String, u64)>) {
    let found = interference(&gaps(times), prefills.to_vec(), stalls);
    let by = found
        .by
        .iter()
        .map(|blamed| {
            let id = blamed.id.as_deref().unwrap_or("").trim_start_matches('0');
            (id.to_owned(), (blamed.seconds * 1e3).round() as u64)
        })
        .collect();
    (found.ns / MS, by)
}

#[test]
fn only_the_part_beyond_the_typical_gap_that_a_prefill_covers_counts() {
    let none = Stalls::default();
    let a = |ms| ("a".to_owned(), ms);
    // Tokens each 10 ms, and one gap of 100 ms.
    let times = [0, 10, 20, 30, 130, 140, 150, 160];
    assert_eq!(found(&times, &[prefill(10, 30, 130)], &none), (90, vec![a(90)]));
    assert_eq!(found(&times, &[prefill(10, 100, 200)], &none), (30, vec![a(30)]));
    assert_eq!(found(&times, &[prefill(10, 0, 30)], &none), (0, vec![]));
    assert_eq!(found(&times, &[], &none), (0, vec![]));
    assert_eq!(found(&[0], &[prefill(10, 0, 30)], &none), (0, vec![]));
    // The batch has grown: gaps are longer from then on, and only the first holds the prefill.
    let grown = [0, 10, 20, 30, 40, 60, 75, 90, 105];
    assert_eq!(found(&grown, &[prefill(10, 40, 60)], &none), (10, vec![a(10)]));
}

#[test]
fn several_share_the_blame_and_overlaps_count_once() {
    let none = Stalls::default();
    let times = [0, 10, 20, 120, 130, 140];
    let (total, by) = found(&times, &[prefill(10, 20, 80), prefill(11, 50, 110)], &none);
    assert_eq!(total, 90);
    assert_eq!(by, [("a".to_owned(), 45), ("b".to_owned(), 45)]);
    let many: Vec<Prefill> = (1..=50).map(|id| prefill(id, 20, 60 + id)).collect();
    let (total, by) = found(&times, &many, &none);
    assert_eq!((total, by.len()), (90, 5), "the worst few");
}

#[test]
fn what_the_client_kept_waiting_is_no_interference() {
    let mut stalls = Stalls::default();
    stalls.refused(30 * MS);
    stalls.wrote(100 * MS, 100 * MS, false);
    let times = [0, 10, 20, 30, 130, 140, 150, 160];
    assert_eq!(found(&times, &[prefill(10, 30, 130)], &stalls).0, 20);
}

proptest! {
    /// No more than the gaps are long, and no more is blamed on anyone than there is.
    #[test]
    fn interference_is_within_the_decode(
        lengths in proptest::collection::vec(0u64..200, 0..60),
        prefills in proptest::collection::vec((0u64..4000, 0u64..900), 0..100),
        waits in proptest::collection::vec((0u64..4000, 0u64..300), 0..10),
    ) {
        let mut times = vec![0];
        for length in lengths {
            times.push(times[times.len() - 1] + length);
        }
        let prefills: Vec<Prefill> =
            prefills.into_iter().zip(1..).map(|((from, length), id)| prefill(id, from, from + length)).collect();
        let mut stalls = Stalls::default();
        for (at, length) in waits {
            stalls.refused(at * MS);
            stalls.wrote((at + length) * MS, (at + length) * MS, false);
        }
        let found = interference(&gaps(&times), prefills, &stalls);
        prop_assert!(found.ns <= times[times.len() - 1] * MS);
        prop_assert!(found.by.len() <= 5);
        prop_assert!(found.by.iter().map(|blamed| blamed.seconds).sum::<f64>() <= found.ns as f64 / 1e9 + 1e-9);
        prop_assert!(found.by.is_sorted_by(|a, b| a.seconds >= b.seconds));
    }

    /// Whatever is claimed, shares are shares.
    #[test]
    fn shares_are_within_0_and_1(
        e2e in proptest::option::of(-1.0_f64..100.0),
        phases in proptest::array::uniform3(proptest::option::of(0.0_f64..200.0)),
        interference_ns in proptest::option::of(any::<u64>()),
        stalled in proptest::option::of(any::<u64>()),
        after in any::<u64>(),
    ) {
        let mut record = record(1.0, phases);
        record.e2e_s = e2e;
        let evidence = Evidence {
            interference: interference_ns.map(|ns| Interference { ns, by: Vec::new() }),
            stalled_ns: stalled,
            stalled_after_ns: after,
            ..Evidence::default()
        };
        let Some(diagnosis) = diagnose(&record, evidence, &DiagnosisConfig::default()) else { return Ok(()) };
        for cause in Cause::ALL {
            prop_assert!(diagnosis.share(cause).is_none_or(|share| (0.0..=1.0).contains(&share)));
        }
        prop_assert!(diagnosis.interference_s.unwrap_or(0.0) <= record.decode_s.unwrap_or(0.0));
        if let Some(cause) = diagnosis.cause {
            prop_assert!(diagnosis.share(cause) >= Some(DiagnosisConfig::default().of(cause)));
        }
        let json = serde_json::to_string(&diagnosis).expect("serialises");
        prop_assert_eq!(serde_json::from_str::<Diagnosis>(&json).expect("reads back").cause, diagnosis.cause);
    }
}

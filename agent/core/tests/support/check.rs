//! What must hold of any observations, whatever happened.

use super::*;

/// Every `Finished` and every `Tokens` has its `Started` before it, with the same labels; none finishes twice; no token
/// sum is below the record's count. Returns how many are still open.
pub fn check_pairing(out: &[Observation]) -> usize {
    let mut open: HashMap<_, i64> = HashMap::new();
    for observation in out {
        match observation {
            Observation::Started(labels) => *open.entry(labels.clone()).or_default() += 1,
            Observation::Tokens { labels, count, .. } => {
                assert!(
                    open.get(labels).is_some_and(|n| *n > 0),
                    "tokens of nobody: {labels:?}"
                );
                assert!(*count > 0);
            }
            Observation::Finished(finished) => {
                let labels = &finished.labels;
                let count = open
                    .get_mut(labels)
                    .unwrap_or_else(|| panic!("never started: {labels:?}"));
                *count -= 1;
                assert!(*count >= 0, "finished twice: {labels:?}");
                check_record(finished);
            }
            Observation::Anomaly { count, .. } => assert!(*count > 0),
            Observation::Step(step) => {
                assert!(step.start.is_none_or(|start| start <= step.end), "{step:?}");
                assert_ne!(step.requests, Some(0), "{step:?}");
            }
            Observation::Ignore(_)
            | Observation::Gateway(_)
            | Observation::Joined(_)
            | Observation::Engine(_)
            | Observation::Capacity(_)
            | Observation::Pressure(_)
            | Observation::Prefix(_)
            | Observation::EngineMessages { .. }
            | Observation::Gpu(_)
            | Observation::Charge(_)
            | Observation::Unpriced { .. }
            | Observation::Count(_)
            | Observation::TokenCount(_)
            | Observation::TokenizerCalls { .. } => {}
        }
    }
    open.values().map(|n| *n as usize).sum()
}

fn check_record(finished: &infertap_core::observation::Finished) {
    let record = &finished.record;
    let labels = &finished.labels;
    assert_eq!(
        (&record.model, &record.engine, &record.scene),
        (&labels.model, &labels.engine, &labels.scene)
    );
    let spans = [
        record.queue_s,
        record.prefill_s,
        record.decode_s,
        record.ttft_s,
        record.tpot_s,
        record.e2e_s,
    ];
    for span in spans.into_iter().flatten() {
        assert!(span.is_finite() && span >= 0.0, "{record:?}");
    }
    let points: Vec<_> = [
        record.t0_ns,
        record.t1_ns,
        record.t2_ns,
        record.t3_ns,
        record.t4_ns,
    ]
    .into_iter()
    .flatten()
    .collect();
    assert!(points.is_sorted(), "{record:?}");
    assert!(finished.gaps.iter().all(|(gap, _)| *gap >= 0.0));
    check_diagnosis(record);
    assert_eq!(record.sources.t2.is_some(), record.t2_ns.is_some());
    assert_eq!(
        record.sources.input_tokens.is_some(),
        record.input_tokens.is_some()
    );
    assert_eq!(
        record.sources.output_tokens.is_some(),
        record.output_tokens.is_some()
    );
    assert_eq!(
        record.status == infertap_core::Status::Incomplete,
        !record.incomplete.is_empty(),
        "{record:?}"
    );
}

fn check_diagnosis(record: &RequestRecord) {
    let Some(diagnosis) = &record.diagnosis else {
        return;
    };
    assert!(record.incomplete.is_empty(), "{record:?}");
    for cause in Cause::ALL {
        assert!(
            diagnosis
                .share(cause)
                .is_none_or(|share| (0.0..=1.0).contains(&share)),
            "{record:?}"
        );
    }
    assert!(
        diagnosis.interference_s.unwrap_or(0.0) <= record.decode_s.unwrap_or(0.0),
        "{record:?}"
    );
    assert!(
        diagnosis
            .cause
            .is_none_or(|cause| diagnosis.share(cause).is_some()),
        "{record:?}"
    );
}

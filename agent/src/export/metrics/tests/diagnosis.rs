//! Bottlenecks, and how long requests wait by how many there are.

use super::*;
use infertap_core::{
    Diagnosis,
    capacity::{Basis, CapacityReport, Knee},
};

/// A request of which everything but interference is known.
pub(super) fn of(cause: Option<Cause>) -> Diagnosis {
    Diagnosis {
        cause,
        queue: Some(0.0),
        prefill: Some(0.1),
        decode: Some(0.9),
        interference: None,
        client: Some(0.0),
        interference_s: None,
        interference_by: Vec::new(),
        client_stall_s: Some(0.0),
        in_flight_at_arrival: Some(4),
        running_at_arrival: None,
        source: Some(Source::Engine),
    }
}

pub(crate) fn capacity(engine: &str, concurrency: Option<u64>) -> Observation {
    Observation::Capacity(Box::new(CapacityReport {
        engine: engine.into(),
        model: Some("smollm2".into()),
        knee: concurrency.map(|concurrency| Knee {
            concurrency,
            free_up_to: concurrency.saturating_sub(1),
            basis: Basis::Queue,
            below_s: 0.001,
            at_s: 0.5,
        }),
        by_concurrency: Vec::new(),
    }))
}

#[test]
fn a_cause_counts_from_zero_once_its_share_is_known() {
    let metrics = metrics();
    let labels = labels("e", "m", "s");
    let with = |cause| {
        let mut record = record(&labels, Status::Ok);
        record.diagnosis = Some(of(cause));
        finished(&labels, record)
    };
    let counts = || samples(&metrics, "llm_bottleneck_total");
    metrics.apply(&finished(&labels, record(&labels, Status::Ok)));
    assert_eq!(counts(), [""; 0], "nothing is known of where its time went");
    metrics.apply_all(&[with(Some(Cause::Queue)), with(Some(Cause::Queue)), with(None)]);
    expect![[r#"
        llm_bottleneck_total{cause="client",model="m",scene="s"} 0
        llm_bottleneck_total{cause="decode",model="m",scene="s"} 0
        llm_bottleneck_total{cause="prefill",model="m",scene="s"} 0
        llm_bottleneck_total{cause="queue",model="m",scene="s"} 2"#]]
    .assert_eq(&counts().join("\n"));
}

#[test]
fn waits_are_told_by_band_and_go_with_their_engine() {
    let metrics = metrics();
    let labels = labels("llama_cpp-8080", "m", "s");
    let mut waited = record(&labels, Status::Ok);
    waited.queue_s = Some(0.5);
    let mut incomplete = waited.clone();
    incomplete.status = Status::Incomplete;
    let start = Observation::Started(labels.clone());
    metrics.apply_all(&[
        start.clone(),
        finished(&labels, waited),
        start,
        finished(&labels, incomplete),
    ]);
    let queue = || samples(&metrics, "llm_queue_by_concurrency_seconds_count");
    assert_eq!(
        queue(),
        [r#"llm_queue_by_concurrency_seconds_count{concurrency="4-7",engine="llama_cpp-8080",model="m"} 1"#]
    );
    let ttft = || samples(&metrics, "llm_ttft_by_concurrency_seconds_count");
    assert_eq!(ttft().len(), 1);
    metrics.engine_down("llama_cpp-8080");
    assert_eq!((queue(), ttft()), (Vec::new(), Vec::new()));
}

#[test]
fn the_estimate_is_there_while_there_is_one() {
    let metrics = metrics();
    let estimate = || samples(&metrics, "llm_capacity_concurrency");
    let line = |n: u64| {
        vec![format!(
            r#"llm_capacity_concurrency{{engine="vllm-8000",model="smollm2"}} {n}"#
        )]
    };
    metrics.apply(&capacity("vllm-8000", None));
    assert_eq!(estimate(), [""; 0]);
    metrics.apply_all(&[capacity("vllm-8000", Some(4)), capacity("vllm-8000", Some(8))]);
    assert_eq!(estimate(), line(8));
    metrics.apply(&capacity("vllm-8000", None));
    assert_eq!(estimate(), [""; 0]);
    metrics.apply(&capacity("vllm-8000", Some(2)));
    metrics.engine_down("vllm-8000");
    assert_eq!(estimate(), [""; 0]);
}

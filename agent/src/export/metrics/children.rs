//! The children of one model and scene, each made when it has a value.
//!
//! Owns: them. Refuses: label caps and which observation goes where (`series`).

use super::{
    families::{Families, HISTOGRAMS, Hist},
    histogram::{Exemplar, Histogram},
};
use infertap_core::{Cause, Diagnosis, Status};
use prometheus::{IntCounter, IntCounterVec};
use std::sync::Arc;

/// Children of one model and scene.
pub(super) struct Series {
    pub(super) labels: [Arc<str>; 2],
    /// One a status, in the order of [`Status::ALL`].
    pub(super) requests: Vec<(IntCounter, Option<Exemplar>)>,
    pub(super) input_tokens: Option<IntCounter>,
    pub(super) output_tokens: Option<IntCounter>,
    pub(super) cached_input_tokens: Option<IntCounter>,
    pub(super) reasoning_tokens: Option<IntCounter>,
    histograms: [Option<Histogram>; HISTOGRAMS],
    /// In the order of [`Cause::ALL`].
    bottlenecks: [Option<IntCounter>; Cause::ALL.len()],
}

impl Series {
    pub(super) fn new(families: &Families, model: &Arc<str>, scene: &Arc<str>) -> Series {
        // All statuses from 0 on: a first error is then an increase, which a counter born at 1 would hide.
        let request = |status: Status| {
            families
                .requests
                .with_label_values(&[&**model, &**scene, status.as_str()])
        };
        Series {
            labels: [Arc::clone(model), Arc::clone(scene)],
            requests: Status::ALL
                .into_iter()
                .map(|status| (request(status), None))
                .collect(),
            input_tokens: None,
            output_tokens: None,
            cached_input_tokens: None,
            reasoning_tokens: None,
            histograms: Default::default(),
            bottlenecks: Default::default(),
        }
    }

    /// A cause's series begins, at 0, with the first request of which its share is known.
    pub(super) fn diagnosed(&mut self, families: &Families, diagnosis: &Diagnosis) {
        let labels = &self.labels;
        for (cause, slot) in Cause::ALL.into_iter().zip(&mut self.bottlenecks) {
            if diagnosis.share(cause).is_some() {
                slot.get_or_insert_with(|| {
                    let values = [&*labels[0], &*labels[1], cause.as_str()];
                    families.bottleneck.with_label_values(&values)
                })
                .inc_by(u64::from(diagnosis.cause == Some(cause)));
            }
        }
    }

    pub(super) fn observe(
        &mut self,
        families: &Families,
        which: Hist,
        value: f64,
        count: u64,
        exemplar: Option<Exemplar>,
    ) {
        let labels = &self.labels;
        self.histograms[which as usize]
            .get_or_insert_with(|| families.histograms[which as usize].child(labels))
            .observe(value, count, exemplar);
    }
}

/// Adds to a counter of these labels, which begins with it.
pub(super) fn add(slot: &mut Option<IntCounter>, family: &IntCounterVec, labels: &[Arc<str>; 2], count: u64) {
    slot.get_or_insert_with(|| family.with_label_values(&[&*labels[0], &*labels[1]]))
        .inc_by(count);
}

//! What became of content, as Prometheus metrics.
//!
//! Owns: the series of `infertap_content_total` and `infertap_content_redactions_total`. Refuses: making content.

use super::Metrics;
use infertap_core::content::{Absent, Side, Transcript};
use infertap_core::redact::Kind;
use prometheus::IntCounterVec;

const KEPT: &str = "kept";
const CUSTOM: &str = "custom";

/// Counts what was made, on whatever thread that is.
#[derive(Debug)]
pub(crate) struct ContentCounts {
    content: IntCounterVec,
    redactions: IntCounterVec,
}

impl ContentCounts {
    /// This was made.
    pub(crate) fn made(&self, made: &Transcript) {
        for (name, side) in sides(made) {
            let outcome = side.absent.map_or(KEPT, Absent::as_str);
            self.content.with_label_values(&[name, outcome]).inc();
        }
        for (kind, count) in &made.redactions {
            let kind = if kind.starts_with("CUSTOM") {
                CUSTOM.to_owned()
            } else {
                kind.to_ascii_lowercase()
            };
            self.redactions.with_label_values(&[&*kind]).inc_by(*count);
        }
    }
}

fn sides(made: &Transcript) -> [(&'static str, &Side); 2] {
    [("input", &made.input), ("output", &made.output)]
}

impl Metrics {
    /// Content is kept from here on: all counts are there, from 0.
    pub(crate) fn content_begin(&self) -> ContentCounts {
        for (side, _) in sides(&Transcript::default()) {
            for outcome in Absent::ALL.map(Absent::as_str).into_iter().chain([KEPT]) {
                self.content.with_label_values(&[side, outcome]);
            }
        }
        for kind in Kind::BUILT_IN {
            self.redactions
                .with_label_values(&[&*kind.name().to_ascii_lowercase()]);
        }
        self.redactions.with_label_values(&[CUSTOM]);
        ContentCounts {
            content: self.content.clone(),
            redactions: self.redactions.clone(),
        }
    }
}

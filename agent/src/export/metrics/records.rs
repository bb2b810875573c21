//! Which requests keep their record, as Prometheus metrics.
//!
//! Owns: the series of `infertap_records_total`. Refuses: deciding (the core's `sampling`).

use super::Metrics;
use infertap_core::sampling::{Decision, Rule};

const KEPT: &str = "kept";
const CAPPED: &str = "capped";
const DROPPED: &str = "dropped";

impl Metrics {
    /// Records are kept from here on: all counts are there, from 0.
    pub(crate) fn records_begin(&self) {
        for rule in Rule::ALL {
            for decision in [KEPT, CAPPED] {
                self.records.with_label_values(&[rule.as_str(), decision]);
            }
        }
        self.records.with_label_values(&[Rule::Head.as_str(), DROPPED]);
    }

    /// It was decided whether a request keeps its record.
    pub(crate) fn record_decided(&self, decision: Decision) {
        let count = |rule: Rule, decision| self.records.with_label_values(&[rule.as_str(), decision]).inc();
        if decision.matched.is_empty() {
            count(Rule::Head, DROPPED);
        }
        for rule in decision.matched.iter() {
            let capped = decision.capped.contains(rule);
            count(rule, if capped { CAPPED } else { KEPT });
        }
    }
}

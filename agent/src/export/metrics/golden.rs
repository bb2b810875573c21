//! An exposition to compare: what observations amount to, without what varies between runs.
//!
//! Owns: what is left out. Only `llm_*` families and the agent's counts of anomalies and label overflows are kept; of
//! those, counters at zero and buckets that add nothing are left out. What remains is valid text format 0.0.4.

use super::{
    catalog::{ANOMALIES, LABEL_OVERFLOW},
    openmetrics::Escaped,
};
use prometheus::proto::{MetricFamily, MetricType};
use std::fmt::Write;

/// The comparable part of `families`.
pub(super) fn golden(families: &[MetricFamily]) -> String {
    let mut out = String::new();
    for family in families {
        let name = family.name();
        let kept = name.starts_with("llm_") || name == ANOMALIES.name || name == LABEL_OVERFLOW.name;
        if kept {
            // Writing to a String can't fail.
            let _ = family_text(&mut out, family);
        }
    }
    out
}

fn family_text(out: &mut String, family: &MetricFamily) -> std::fmt::Result {
    let name = family.name();
    let kind = family.get_field_type();
    let mut titled = false;
    for metric in family.get_metric() {
        let pairs = metric
            .get_label()
            .iter()
            .map(|pair| format!("{}=\"{}\"", pair.name(), Escaped(pair.value())));
        let labels = pairs.collect::<Vec<_>>().join(",");
        if kind == MetricType::COUNTER && metric.get_counter().get_value() == 0.0 {
            continue;
        }
        if !titled {
            writeln!(out, "# TYPE {name} {}", format!("{kind:?}").to_lowercase())?;
            titled = true;
        }
        match kind {
            MetricType::COUNTER => writeln!(out, "{name}{{{labels}}} {}", metric.get_counter().get_value())?,
            MetricType::GAUGE => writeln!(out, "{name}{{{labels}}} {}", metric.get_gauge().get_value())?,
            _ => {
                let histogram = metric.get_histogram();
                let mut before = 0;
                for bucket in histogram.get_bucket() {
                    let count = bucket.cumulative_count();
                    if count != before {
                        writeln!(
                            out,
                            "{name}_bucket{{{labels},le=\"{}\"}} {count}",
                            bucket.upper_bound()
                        )?;
                        before = count;
                    }
                }
                let count = histogram.get_sample_count();
                writeln!(out, "{name}_bucket{{{labels},le=\"+Inf\"}} {count}")?;
                // Nanoseconds are what the clock gives; digits beyond are the order of additions.
                let sum = (histogram.get_sample_sum() * 1e9).round() / 1e9;
                writeln!(out, "{name}_sum{{{labels}}} {sum}")?;
                writeln!(out, "{name}_count{{{labels}}} {count}")?;
            }
        }
    }
    Ok(())
}

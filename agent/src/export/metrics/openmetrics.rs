//! OpenMetrics 1.0 text: what the classic text format can't say (units, exemplars, an end marker).
//!
//! Owns: the encoding of metric families. Refuses: gathering them, and choosing a format (`negotiate`). Numbers are
//! written as the reference implementation writes them, for `le` is compared as text by some consumers.

use super::{catalog::unit, histogram::Exemplar};
use prometheus::proto::{LabelPair, Metric, MetricFamily, MetricType};
use std::fmt::{self, Write};

/// The content type of this format.
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Most characters that the label names and values of an exemplar may have together.
const MAX_EXEMPLAR_CHARS: usize = 128;

/// Where exemplars are looked up; families do not carry them.
pub(crate) trait Exemplars {
    /// Of a counter's sample.
    fn counter(&self, family: &MetricFamily, metric: &Metric) -> Option<Exemplar>;
    /// Of a histogram's buckets, `+Inf` last; empty when there are none.
    fn buckets(&self, family: &MetricFamily, metric: &Metric) -> Vec<Option<Exemplar>>;
}

/// Encodes `families`, which hold counters, gauges and histograms.
pub(crate) fn encode(families: &[MetricFamily], exemplars: &dyn Exemplars) -> String {
    let mut out = String::with_capacity(
        families
            .iter()
            .map(|family| 512 + 256 * family.get_metric().len())
            .sum(),
    );
    for family in families {
        // Writing to a String can't fail.
        let _ = encode_family(&mut out, family, exemplars);
    }
    out.push_str("# EOF\n");
    out
}

fn encode_family(out: &mut String, family: &MetricFamily, exemplars: &dyn Exemplars) -> fmt::Result {
    let full = family.name();
    let kind = family.get_field_type();
    let (name, word) = match kind {
        MetricType::COUNTER => (full.strip_suffix("_total").unwrap_or(full), "counter"),
        MetricType::GAUGE => (full, "gauge"),
        MetricType::HISTOGRAM => (full, "histogram"),
        MetricType::SUMMARY | MetricType::UNTYPED => return Ok(()),
    };
    writeln!(out, "# TYPE {name} {word}")?;
    if let Some(unit) = unit(name) {
        writeln!(out, "# UNIT {name} {unit}")?;
    }
    writeln!(out, "# HELP {name} {}", Escaped(family.help()))?;
    for metric in family.get_metric() {
        let labels = metric.get_label();
        match kind {
            MetricType::COUNTER => {
                write!(
                    out,
                    "{name}_total{} {}",
                    Labels(labels, None),
                    Float(metric.get_counter().get_value())
                )?;
                finish(out, exemplars.counter(family, metric).as_ref())?;
            }
            MetricType::GAUGE => {
                writeln!(
                    out,
                    "{name}{} {}",
                    Labels(labels, None),
                    Float(metric.get_gauge().get_value())
                )?;
            }
            _ => {
                let histogram = metric.get_histogram();
                let exemplars = exemplars.buckets(family, metric);
                let bounds = histogram
                    .get_bucket()
                    .iter()
                    .map(|b| (b.upper_bound(), b.cumulative_count()));
                let all = bounds.chain([(f64::INFINITY, histogram.get_sample_count())]);
                for (i, (bound, count)) in all.enumerate() {
                    write!(out, "{name}_bucket{} {count}", Labels(labels, Some(bound)))?;
                    finish(out, exemplars.get(i).and_then(Option::as_ref))?;
                }
                let labels = Labels(labels, None);
                writeln!(out, "{name}_sum{labels} {}", Float(histogram.get_sample_sum()))?;
                writeln!(out, "{name}_count{labels} {}", histogram.get_sample_count())?;
            }
        }
    }
    Ok(())
}

/// Ends a sample's line, with its exemplar when it has one that fits.
fn finish(out: &mut String, exemplar: Option<&Exemplar>) -> fmt::Result {
    const NAME: &str = "trace_id";
    if let Some(exemplar) = exemplar
        && NAME.len() + exemplar.trace_id.chars().count() <= MAX_EXEMPLAR_CHARS
    {
        write!(
            out,
            " # {{{NAME}=\"{}\"}} {}",
            Escaped(&exemplar.trace_id),
            Float(exemplar.value)
        )?;
        if let Some(ms) = exemplar.at_ms {
            write!(out, " {}.{:03}", ms / 1000, ms % 1000)?;
        }
    }
    out.write_char('\n')
}

/// `{name="value",…,le="bound"}`, or nothing.
struct Labels<'a>(&'a [LabelPair], Option<f64>);

impl fmt::Display for Labels<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = '{';
        for pair in self.0 {
            write!(f, "{separator}{}=\"{}\"", pair.name(), Escaped(pair.value()))?;
            separator = ',';
        }
        if let Some(bound) = self.1 {
            write!(f, "{separator}le=\"{}\"", Float(bound))?;
            separator = ',';
        }
        if separator == ',' {
            f.write_char('}')
        } else {
            Ok(())
        }
    }
}

/// Backslash, quote and line feed escaped, in labels and in help alike.
pub(super) struct Escaped<'a>(pub(super) &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        while let Some(at) = rest.find(['\\', '"', '\n']) {
            f.write_str(&rest[..at])?;
            f.write_str(match rest.as_bytes()[at] {
                b'\\' => "\\\\",
                b'"' => "\\\"",
                _ => "\\n",
            })?;
            rest = &rest[at + 1..];
        }
        f.write_str(rest)
    }
}

/// The canonical number, as Go's `%g` with the shortest digits that read back the same: always a point or an exponent,
/// an exponent below 1e-4 and from 1e6 on.
struct Float(f64);

impl fmt::Display for Float {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.0;
        if value.is_nan() {
            return f.write_str("NaN");
        }
        if value.is_infinite() {
            return f.write_str(if value > 0.0 { "+Inf" } else { "-Inf" });
        }
        let scientific = format!("{value:e}");
        let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
        let exponent: i32 = exponent.parse().unwrap_or(0);
        if (-4..6).contains(&exponent) {
            let plain = value.to_string();
            f.write_str(&plain)?;
            return if plain.contains('.') {
                Ok(())
            } else {
                f.write_str(".0")
            };
        }
        let sign = if exponent < 0 { '-' } else { '+' };
        write!(f, "{mantissa}e{sign}{:02}", exponent.abs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_canonical() {
        for (value, expected) in [
            (0.0, "0.0"),
            (1.0, "1.0"),
            (-2.5, "-2.5"),
            (0.0025, "0.0025"),
            (0.0001, "0.0001"),
            (0.000_012_5, "1.25e-05"),
            (600.0, "600.0"),
            (262_144.0, "262144.0"),
            (1_048_576.0, "1.048576e+06"),
            (1e6, "1e+06"),
            (1e100, "1e+100"),
            (123_456.789, "123456.789"),
            (f64::INFINITY, "+Inf"),
            (f64::NEG_INFINITY, "-Inf"),
            (f64::NAN, "NaN"),
        ] {
            assert_eq!(Float(value).to_string(), expected);
        }
    }

    #[test]
    fn text_is_escaped() {
        assert_eq!(Escaped("a\\b\"c\nd é").to_string(), "a\\\\b\\\"c\\nd é");
        assert_eq!(Escaped("\n").to_string(), "\\n");
    }

    #[test]
    fn an_exemplar_that_is_too_long_is_left_out() {
        let line = |length: usize| {
            let mut out = String::new();
            let exemplar = Exemplar {
                trace_id: "é".repeat(length).into(),
                value: 0.5,
                at_ms: Some(1_700_000_000_007),
            };
            finish(&mut out, Some(&exemplar)).expect("a String takes all");
            out
        };
        assert_eq!(line(1), " # {trace_id=\"é\"} 0.5 1700000000.007\n");
        assert_eq!(line(121), "\n");
        assert!(line(120).starts_with(" # {"));
    }
}

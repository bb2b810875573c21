//! Families that are made when scraped, of what others count.
//!
//! Owns: the shape of their descriptions and samples. Refuses: the numbers; histograms, which are observed.

use super::catalog::{Definition, Kind};
use prometheus::{
    core::Desc,
    proto::{Counter, Gauge, LabelPair, Metric, MetricFamily, MetricType},
};
use std::collections::HashMap;

/// What a collector of these families says of itself.
///
/// # Errors
/// A name or a label is none that Prometheus takes.
pub(super) fn descs(definitions: &[&Definition]) -> prometheus::Result<Vec<Desc>> {
    let desc = |definition: &&Definition| {
        Desc::new(
            definition.name.to_owned(),
            definition.help.to_owned(),
            definition.labels.iter().map(|&label| label.to_owned()).collect(),
            HashMap::new(),
        )
    };
    definitions.iter().map(desc).collect()
}

/// One label of a sample.
pub(super) fn pair(name: &str, value: &str) -> LabelPair {
    let mut pair = LabelPair::default();
    pair.set_name(name.to_owned());
    pair.set_value(value.to_owned());
    pair
}

/// One sample.
pub(super) fn sample(definition: &Definition, labels: Vec<LabelPair>, value: f64) -> Metric {
    let mut metric = Metric::default();
    metric.set_label(labels);
    if definition.kind == Kind::Counter {
        let mut counter = Counter::default();
        counter.set_value(value);
        metric.set_counter(counter);
    } else {
        let mut gauge = Gauge::default();
        gauge.set_value(value);
        metric.set_gauge(gauge);
    }
    metric
}

/// A family of these samples.
pub(super) fn family(definition: &Definition, samples: Vec<Metric>) -> MetricFamily {
    let mut family = MetricFamily::default();
    family.set_name(definition.name.to_owned());
    family.set_help(definition.help.to_owned());
    family.set_field_type(if definition.kind == Kind::Counter {
        MetricType::COUNTER
    } else {
        MetricType::GAUGE
    });
    family.set_metric(samples);
    family
}

/// A family whose samples have these values of the definition's labels.
pub(super) fn family_of<'a, V>(
    definition: &Definition,
    values: impl IntoIterator<Item = (V, f64)>,
) -> MetricFamily
where
    V: IntoIterator<Item = &'a str>,
{
    let samples = values.into_iter().map(|(labels, value)| {
        let pairs = definition.labels.iter().zip(labels);
        sample(
            definition,
            pairs.map(|(name, value)| pair(name, value)).collect(),
            value,
        )
    });
    family(definition, samples.collect())
}

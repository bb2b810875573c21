//! Histograms that take n equal observations at once and remember the latest exemplar of each bucket.
//!
//! Owns: a family of them as a collector of the registry. Refuses: exposition (the encoders'). Each child is its own
//! lock: observing waits for nothing but a scrape that copies the same child.

use super::catalog::Definition;
use prometheus::{
    core::{Collector, Desc},
    proto,
};
use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Locks, also after a panic elsewhere: counts stay usable.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Which trace to look at for a value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Exemplar {
    /// W3C trace id.
    pub(crate) trace_id: Arc<str>,
    /// The value that was observed.
    pub(crate) value: f64,
    /// Milliseconds since 1970, when the wall clock is known.
    pub(crate) at_ms: Option<u64>,
}

/// A family of histograms; a clone is the same family.
#[derive(Debug, Clone)]
pub(crate) struct HistogramFamily(Arc<Family>);

#[derive(Debug)]
struct Family {
    desc: Desc,
    bounds: Arc<[f64]>,
    children: Mutex<BTreeMap<Vec<Arc<str>>, Histogram>>,
}

/// One series; a clone is the same series.
#[derive(Debug, Clone)]
pub(crate) struct Histogram(Arc<Child>);

#[derive(Debug)]
struct Child {
    bounds: Arc<[f64]>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Not cumulative; one more than bounds, for what is above the last.
    buckets: Box<[u64]>,
    sum: f64,
    /// By bucket, ascending; only of buckets that have one, which are few.
    exemplars: Vec<(usize, Exemplar)>,
}

impl HistogramFamily {
    /// A family with these upper bounds, which are ascending and finite.
    pub(crate) fn new(definition: &Definition, bounds: &[f64]) -> prometheus::Result<HistogramFamily> {
        let labels = definition.labels.iter().map(|&label| label.to_owned()).collect();
        let desc = Desc::new(
            definition.name.to_owned(),
            definition.help.to_owned(),
            labels,
            HashMap::new(),
        )?;
        Ok(HistogramFamily(Arc::new(Family {
            desc,
            bounds: bounds.into(),
            children: Mutex::default(),
        })))
    }

    /// The child with these label values, in the order of the definition; made when there is none.
    pub(crate) fn child(&self, values: &[Arc<str>]) -> Histogram {
        let mut children = lock(&self.0.children);
        if let Some(child) = children.get(values) {
            return child.clone();
        }
        let buckets = self.0.bounds.len() + 1;
        let child = Histogram(Arc::new(Child {
            bounds: Arc::clone(&self.0.bounds),
            state: Mutex::new(State {
                buckets: vec![0; buckets].into(),
                sum: 0.0,
                exemplars: Vec::new(),
            }),
        }));
        children.insert(values.to_vec(), child.clone());
        child
    }

    /// Ends the series with these label values.
    pub(crate) fn remove(&self, values: &[Arc<str>]) {
        lock(&self.0.children).remove(values);
    }

    /// Exemplars of the child with these labels, one a bucket, `+Inf` last.
    pub(crate) fn exemplars(&self, labels: &[proto::LabelPair]) -> Option<Vec<Option<Exemplar>>> {
        let values: Option<Vec<Arc<str>>> = self
            .0
            .desc
            .variable_labels
            .iter()
            .map(|name| {
                labels
                    .iter()
                    .find(|pair| pair.name() == name)
                    .map(|pair| Arc::from(pair.value()))
            })
            .collect();
        let child = lock(&self.0.children).get(&values?)?.clone();
        let mut exemplars = vec![None; self.0.bounds.len() + 1];
        for (bucket, exemplar) in &lock(&child.0.state).exemplars {
            exemplars[*bucket] = Some(exemplar.clone());
        }
        Some(exemplars)
    }

    /// Name of the family.
    pub(crate) fn name(&self) -> &str {
        &self.0.desc.fq_name
    }
}

impl Histogram {
    /// Observes `value` `count` times. The caller has checked that it is finite and not negative.
    pub(crate) fn observe(&self, value: f64, count: u64, exemplar: Option<Exemplar>) {
        let bucket = self.0.bounds.partition_point(|bound| *bound < value);
        let mut state = lock(&self.0.state);
        state.buckets[bucket] += count;
        state.sum += value * count as f64;
        if let Some(exemplar) = exemplar {
            match state
                .exemplars
                .binary_search_by_key(&bucket, |(bucket, _)| *bucket)
            {
                Ok(at) => state.exemplars[at].1 = exemplar,
                Err(at) => state.exemplars.insert(at, (bucket, exemplar)),
            }
        }
    }

    fn proto(&self) -> proto::Histogram {
        let state = lock(&self.0.state);
        let mut cumulative = 0;
        let buckets = self
            .0
            .bounds
            .iter()
            .zip(&state.buckets)
            .map(|(bound, count)| {
                cumulative += count;
                let mut bucket = proto::Bucket::default();
                bucket.set_upper_bound(*bound);
                bucket.set_cumulative_count(cumulative);
                bucket
            })
            .collect();
        let mut histogram = proto::Histogram::default();
        histogram.set_bucket(buckets);
        histogram.set_sample_count(state.buckets.iter().sum());
        histogram.set_sample_sum(state.sum);
        histogram
    }
}

impl Collector for HistogramFamily {
    fn desc(&self) -> Vec<&Desc> {
        vec![&self.0.desc]
    }

    fn collect(&self) -> Vec<proto::MetricFamily> {
        let children: Vec<_> = lock(&self.0.children)
            .iter()
            .map(|(values, child)| (values.clone(), child.clone()))
            .collect();
        let metrics = children
            .into_iter()
            .map(|(values, child)| {
                let mut labels: Vec<proto::LabelPair> = self
                    .0
                    .desc
                    .variable_labels
                    .iter()
                    .zip(&values)
                    .map(|(name, value)| {
                        let mut pair = proto::LabelPair::default();
                        pair.set_name(name.clone());
                        pair.set_value(value.to_string());
                        pair
                    })
                    .collect();
                labels.sort();
                let mut metric = proto::Metric::from_label(labels);
                metric.set_histogram(child.proto());
                metric
            })
            .collect();
        let mut family = proto::MetricFamily::default();
        family.set_name(self.0.desc.fq_name.clone());
        family.set_help(self.0.desc.help.clone());
        family.set_field_type(proto::MetricType::HISTOGRAM);
        family.set_metric(metrics);
        vec![family]
    }
}

#[cfg(test)]
mod tests {
    use super::super::catalog;
    use super::*;
    use proptest::prelude::*;

    fn family(bounds: &[f64]) -> HistogramFamily {
        HistogramFamily::new(catalog::TTFT, bounds).expect("valid")
    }

    fn values(model: &str, scene: &str) -> [Arc<str>; 2] {
        [model.into(), scene.into()]
    }

    #[test]
    fn bounds_are_inclusive_and_counts_cumulative() {
        let family = family(&[1.0, 2.0]);
        let child = family.child(&values("m", "s"));
        child.observe(1.0, 1, None);
        child.observe(1.5, 3, None);
        child.observe(9.0, 2, None);
        let histogram = child.proto();
        let cumulative: Vec<u64> = histogram
            .get_bucket()
            .iter()
            .map(proto::Bucket::cumulative_count)
            .collect();
        assert_eq!(cumulative, [1, 4]);
        assert_eq!(histogram.get_sample_count(), 6);
        assert!((histogram.get_sample_sum() - 23.5).abs() < 1e-9);
    }

    #[test]
    fn the_latest_exemplar_of_each_bucket_is_kept() {
        let family = family(&[1.0, 2.0]);
        let child = family.child(&values("m", "s"));
        let exemplar = |trace: &str, value| Exemplar {
            trace_id: trace.into(),
            value,
            at_ms: Some(5),
        };
        child.observe(0.5, 1, Some(exemplar("old", 0.5)));
        child.observe(0.7, 1, Some(exemplar("new", 0.7)));
        child.observe(0.8, 1, None);
        child.observe(3.0, 1, Some(exemplar("inf", 3.0)));
        let labels = family.collect()[0].get_metric()[0].get_label().to_vec();
        assert_eq!(
            family.exemplars(&labels),
            Some(vec![Some(exemplar("new", 0.7)), None, Some(exemplar("inf", 3.0))])
        );
        assert_eq!(family.exemplars(&[]), None);
    }

    proptest! {
        #[test]
        fn the_buckets_are_those_of_the_prometheus_crate(observed in proptest::collection::vec(0.0_f64..4.0, 0..50)) {
            let bounds = [0.5, 1.0, 2.0, 3.0];
            let child = family(&bounds).child(&values("m", "s"));
            let options = prometheus::HistogramOpts::new("x", "x").buckets(bounds.to_vec());
            let theirs = prometheus::Histogram::with_opts(options).expect("valid");
            for value in observed {
                child.observe(value, 1, None);
                theirs.observe(value);
            }
            let theirs = theirs.collect()[0].get_metric()[0].get_histogram().clone();
            let ours = child.proto();
            prop_assert_eq!(ours.get_bucket(), theirs.get_bucket());
            prop_assert_eq!(ours.get_sample_count(), theirs.get_sample_count());
        }
    }
}

//! How long requests wait, by how many their engine had already, and where queueing begins: series of model and engine.
//!
//! Owns: the bands of the `concurrency` label, which series an engine has, and their end with it. Refuses: label caps (it
//! is told label values) and the estimate (the core's).

use super::{families::CapacityFamilies, histogram::Histogram};
use infertap_core::RequestRecord;
use prometheus::IntGaugeVec;
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

/// Upper bounds of the waits' buckets, seconds: decades, for there is a histogram a band.
pub(super) const BUCKETS: &[f64] = &[0.001, 0.01, 0.1, 1.0, 10.0];

/// Values of the label `concurrency`: none, one, and then doublings.
const BANDS: [&str; 12] = [
    "0", "1", "2-3", "4-7", "8-15", "16-31", "32-63", "64-127", "128-255", "256-511", "512-1023", "1024+",
];

fn band(in_flight: u64) -> usize {
    let band = in_flight.checked_ilog2().map_or(0, |octave| octave as usize + 1);
    band.min(BANDS.len() - 1)
}

/// Queue times and times to first token of one band.
type Waits = [Option<Histogram>; 2];

/// The series of one engine.
#[derive(Default)]
struct Engine {
    waits: HashMap<(Arc<str>, usize), Waits>,
    /// Models of its estimate's series; one, unless discovery learned it late.
    estimated: HashSet<Arc<str>>,
}

/// The state behind the families.
pub(super) struct CapacitySeries {
    families: CapacityFamilies,
    /// By label value.
    engines: HashMap<Arc<str>, Engine>,
}

impl CapacitySeries {
    pub(super) fn new(families: CapacityFamilies) -> CapacitySeries {
        CapacitySeries {
            families,
            engines: HashMap::new(),
        }
    }

    /// A request of the engine and model with these label values has ended.
    pub(super) fn finished(
        &mut self,
        engine: &Arc<str>,
        model: &Arc<str>,
        in_flight: u64,
        record: &RequestRecord,
    ) {
        let CapacitySeries { families, engines } = self;
        let of_families = [&families.queue, &families.ttft];
        let values = [record.queue_s, record.ttft_s];
        if values.iter().all(Option::is_none) {
            return;
        }
        let band = band(in_flight);
        let waits = engines
            .entry(Arc::clone(engine))
            .or_default()
            .waits
            .entry((Arc::clone(model), band))
            .or_default();
        for ((slot, family), value) in waits.iter_mut().zip(of_families).zip(values) {
            // Those that no clock gives are counted where all durations are observed.
            if let Some(value) = value.filter(|value| value.is_finite() && *value >= 0.0) {
                slot.get_or_insert_with(|| family.child(&labels(engine, model, band)))
                    .observe(value, 1, None);
            }
        }
    }

    /// The estimate for the engine and model with these label values; absent while queueing was not seen.
    pub(super) fn estimate(&mut self, engine: &Arc<str>, model: &Arc<str>, concurrency: Option<u64>) {
        let estimated = &mut self.engines.entry(Arc::clone(engine)).or_default().estimated;
        let gauge = &self.families.estimate;
        // Of one engine there is one estimate.
        for stale in estimated.extract_if(|known| concurrency.is_none() || known != model) {
            remove(gauge, &stale, engine);
        }
        if let Some(concurrency) = concurrency {
            gauge
                .with_label_values(&[&**model, &**engine])
                .set(i64::try_from(concurrency).unwrap_or(i64::MAX));
            estimated.insert(Arc::clone(model));
        }
    }

    /// The engine with this label value is gone.
    pub(super) fn down(&mut self, engine: &Arc<str>) {
        let Some(series) = self.engines.remove(engine) else {
            return;
        };
        for (model, band) in series.waits.keys() {
            let labels = labels(engine, model, *band);
            self.families.queue.remove(&labels);
            self.families.ttft.remove(&labels);
        }
        for model in &series.estimated {
            remove(&self.families.estimate, model, engine);
        }
    }
}

/// In the order of the definitions.
fn labels(engine: &Arc<str>, model: &Arc<str>, band: usize) -> [Arc<str>; 3] {
    let concurrency = BANDS.get(band).copied().unwrap_or_default();
    [Arc::clone(model), Arc::clone(engine), concurrency.into()]
}

fn remove(gauge: &IntGaugeVec, model: &str, engine: &str) {
    // It was set before, so a failure to find it is no news.
    let _ = gauge.remove_label_values(&[model, engine]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bands_are_what_their_names_say() {
        for (in_flight, expected) in [
            (0, "0"),
            (1, "1"),
            (2, "2-3"),
            (3, "2-3"),
            (4, "4-7"),
            (31, "16-31"),
            (512, "512-1023"),
            (1023, "512-1023"),
            (1024, "1024+"),
            (u64::MAX, "1024+"),
        ] {
            assert_eq!(BANDS[band(in_flight)], expected, "{in_flight}");
        }
    }
}

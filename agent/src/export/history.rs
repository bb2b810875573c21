//! What engines and GPUs did lately, in memory, for `/api/v1/trace`.
//!
//! Owns: a ring of moments bounded in bytes, and leaving out what repeats what was said before. Refuses: requests
//! (`recent` has them) and drawing (the core's `chrome_trace`).

use crate::clock::monotonic_ns;
use crate::export::metrics::lock;
use crate::sampler::nvml::{Gauge, GpuStatus, GpuView};
use infertap_core::chrome_trace::{GpuMoment, Moment};
use infertap_core::observation::EngineLoad;
use infertap_core::{Nanos, Observation};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex};

/// GPUs and engines of which is known what was kept last. More than any host has; past it nothing is left out.
const MAX_NAMES: usize = 1024;

/// The ring.
#[derive(Debug)]
pub(super) struct History {
    capacity: usize,
    ring: Mutex<Ring>,
}

#[derive(Debug, Default)]
struct Ring {
    /// In the order in which they were told.
    moments: VecDeque<Moment>,
    /// The latest that had to go.
    forgotten: Option<Nanos>,
    loads: HashMap<Arc<str>, EngineLoad>,
    /// When each GPU was read last, and whether it was away then.
    readings: HashMap<Arc<str>, (Nanos, bool)>,
}

impl History {
    /// A ring of so many bytes; with less than one moment takes nothing is kept.
    pub(super) fn new(bytes: usize) -> History {
        let capacity = bytes / size_of::<Moment>();
        History {
            capacity,
            ring: Mutex::new(Ring {
                // The memory is not used before there is something in it.
                moments: VecDeque::with_capacity(capacity),
                ..Ring::default()
            }),
        }
    }

    /// Keeps what observations tell of engines.
    pub(super) fn apply(&self, observations: &[Observation]) {
        if self.capacity == 0 {
            return;
        }
        let mut ring = None;
        for observation in observations {
            match observation {
                Observation::Step(step) => ring
                    .get_or_insert_with(|| lock(&self.ring))
                    .push(self.capacity, Moment::Step((**step).clone())),
                Observation::Engine(report) => {
                    if let Some(load) = report.load {
                        ring.get_or_insert_with(|| lock(&self.ring)).load(
                            self.capacity,
                            &report.engine,
                            load,
                        );
                    }
                }
                _ => {}
            }
        }
    }

    /// Keeps what was read of GPUs.
    pub(super) fn gpus(&self, view: &GpuView) {
        if self.capacity == 0 || view.gpus.is_empty() {
            return;
        }
        let mut ring = lock(&self.ring);
        for gpu in &view.gpus {
            ring.reading(self.capacity, gpu);
        }
    }

    /// What ended at `from` or later and `admits` admits, and until when some of it is forgotten. Loads that had been told
    /// before and still held at `from` are told then.
    pub(super) fn since(
        &self,
        from: Nanos,
        admits: impl Fn(&Moment) -> bool,
    ) -> (Vec<Moment>, Option<Nanos>) {
        let ring = lock(&self.ring);
        let mut held = BTreeMap::new();
        let mut kept = Vec::new();
        for moment in ring.moments.iter().filter(|moment| admits(moment)) {
            if moment.at() >= from {
                kept.push(moment.clone());
            } else if let Moment::Load { engine, load, .. } = moment {
                held.insert(engine, *load);
            }
        }
        kept.extend(held.into_iter().map(|(engine, load)| Moment::Load {
            engine: Arc::clone(engine),
            at: from,
            load,
        }));
        (kept, ring.forgotten)
    }
}

impl Ring {
    fn push(&mut self, capacity: usize, moment: Moment) {
        while self.moments.len() >= capacity {
            let gone = self.moments.pop_front().map(|moment| moment.at());
            self.forgotten = self.forgotten.max(gone);
        }
        self.moments.push_back(moment);
    }

    fn load(&mut self, capacity: usize, engine: &Arc<str>, load: EngineLoad) {
        // A thousandth of the cache more or less is no news.
        let load = EngineLoad {
            kv_cache_usage: load.kv_cache_usage.map(|usage| (usage * 1000.0).round() / 1000.0),
            ..load
        };
        if self.loads.get(engine) == Some(&load) {
            return;
        }
        if self.loads.len() >= MAX_NAMES {
            self.loads.clear();
        }
        self.loads.insert(Arc::clone(engine), load);
        let moment = Moment::Load {
            engine: Arc::clone(engine),
            at: monotonic_ns(),
            load,
        };
        self.push(capacity, moment);
    }

    fn reading(&mut self, capacity: usize, gpu: &GpuStatus) {
        let last = self.readings.get(&gpu.gpu).copied();
        let away = gpu.away.is_some();
        if last.is_some_and(|(at, was_away)| was_away == away && (away || at == gpu.read_at)) {
            return;
        }
        if self.readings.len() >= MAX_NAMES {
            self.readings.clear();
        }
        let at = if away { monotonic_ns() } else { gpu.read_at };
        self.readings.insert(Arc::clone(&gpu.gpu), (at, away));
        let gauge = |wanted| {
            let mut gauges = gpu.gauges.iter();
            gauges
                .find(|(gauge, _)| *gauge == wanted && !away)
                .map(|(_, value)| *value)
        };
        let moment = Moment::Gpu(GpuMoment {
            gpu: Arc::clone(&gpu.gpu),
            since: last.filter(|(_, was_away)| !was_away).map(|(at, _)| at),
            at,
            utilization: gauge(Gauge::Utilization),
            power_watts: gauge(Gauge::Power),
            memory_used_bytes: gauge(Gauge::MemoryUsed),
            away,
        });
        self.push(capacity, moment);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::gpus::tests::gpu;
    use crate::export::metrics::tests::engines::engine_report;
    use crate::sampler::nvml::Fault;
    use infertap_core::Source;
    use infertap_core::observation::EngineStep;

    fn step(end: Nanos) -> Observation {
        Observation::Step(Box::new(EngineStep {
            engine: "e".into(),
            model: None,
            start: None,
            end,
            kind: None,
            prefill_tokens: None,
            decode_tokens: None,
            requests: None,
            source: Source::Engine,
        }))
    }

    fn ends(history: &History, from: Nanos) -> (Vec<Nanos>, Option<Nanos>) {
        let (moments, forgotten) = history.since(from, |_| true);
        (moments.iter().map(Moment::at).collect(), forgotten)
    }

    #[test]
    fn the_oldest_make_room_and_it_is_known_until_when() {
        let history = History::new(3 * size_of::<Moment>() + 1);
        history.apply(&[step(1), step(2), step(3)]);
        assert_eq!(ends(&history, 0), (vec![1, 2, 3], None));
        history.apply(&[step(4), step(5)]);
        assert_eq!(ends(&history, 0), (vec![3, 4, 5], Some(2)));
        assert_eq!(ends(&history, 5), (vec![5], Some(2)));
        let none = History::new(size_of::<Moment>() - 1);
        none.apply(&[step(1), engine_report("e", 1)]);
        assert_eq!(ends(&none, 0), (vec![], None));
    }

    #[test]
    fn a_load_is_kept_when_it_changes() {
        let history = History::new(1 << 16);
        let told: Vec<Observation> = [1, 1, 2, 2, 1].map(|waiting| engine_report("e", waiting)).into();
        history.apply(&told);
        history.apply(&[engine_report("other", 1)]);
        let (moments, _) = history.since(0, |_| true);
        let waiting: Vec<u64> = moments
            .iter()
            .map(|moment| match moment {
                Moment::Load { load, .. } => load.waiting,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(waiting, [1, 2, 1, 1]);
        let (of_other, _) = history.since(0, |moment| moment.engine().is_some_and(|id| &**id == "other"));
        assert_eq!(of_other.len(), 1);
        // Of both engines the last one still holds.
        let (held, _) = history.since(u64::MAX, |_| true);
        let told: Vec<_> = held
            .iter()
            .map(|moment| (moment.at(), moment.engine().map(|id| &**id)))
            .collect();
        assert_eq!(told, [(u64::MAX, Some("e")), (u64::MAX, Some("other"))]);
    }

    #[test]
    fn a_reading_is_kept_once_and_knows_the_one_before() {
        let history = History::new(1 << 16);
        let mut view = GpuView {
            gpus: vec![gpu("0")],
            ..GpuView::default()
        };
        let mut read = |at: Nanos, away: Option<Fault>| {
            view.gpus[0].read_at = at;
            view.gpus[0].away = away;
            view.gpus[0].gauges = vec![(Gauge::Power, at as f64)];
            history.gpus(&view);
        };
        read(10, None);
        read(10, None);
        read(20, None);
        read(20, Some(Fault::Lost));
        read(20, Some(Fault::Lost));
        read(u64::MAX, None);
        let (moments, _) = history.since(0, |_| true);
        let told: Vec<_> = moments
            .iter()
            .map(|moment| match moment {
                Moment::Gpu(gpu) => (gpu.since, gpu.power_watts.is_some(), gpu.away),
                other => panic!("{other:?}"),
            })
            .collect();
        // What was read before it went away is no beginning of a mean.
        let expected = [
            (None, true, false),
            (Some(10), true, false),
            (Some(20), false, true),
            (None, true, false),
        ];
        assert_eq!(told, expected);
    }
}

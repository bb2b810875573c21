//! `llm_requests_running`: starts and ends paired exactly, series gone with their engine.
//!
//! Owns: the pairing. Refuses: label caps (it is told the label values of a start, and remembers them for the end, so
//! that an end always takes from the series that its start added to, whatever has been admitted or released between).

use prometheus::{IntGauge, IntGaugeVec};
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

type Pair = (Arc<str>, Arc<str>);

/// The state behind the gauge.
#[derive(Debug)]
pub(crate) struct Running {
    gauge: IntGaugeVec,
    /// By engine and model as observed; only while requests are in flight, so bounded by the core's bounds.
    in_flight: HashMap<Pair, InFlight>,
    /// Models of the series of each engine; both are capped label values.
    series: HashMap<Arc<str>, HashSet<Arc<str>>>,
    /// Label values of engines that are gone while requests of theirs are in flight.
    down: HashSet<Arc<str>>,
}

#[derive(Debug)]
struct InFlight {
    gauge: IntGauge,
    engine: Arc<str>,
    count: u64,
}

impl Running {
    pub(crate) fn new(gauge: IntGaugeVec) -> Running {
        Running {
            gauge,
            in_flight: HashMap::new(),
            series: HashMap::new(),
            down: HashSet::new(),
        }
    }

    /// A request of `raw` (engine, model) began; `labels` tells the label values for them when they are not known here.
    pub(crate) fn started(&mut self, raw: Pair, labels: impl FnOnce() -> Pair) {
        let entry = self.in_flight.entry(raw).or_insert_with(|| {
            let (engine, model) = labels();
            let gauge = self.gauge.with_label_values(&[&*model, &*engine]);
            self.series.entry(Arc::clone(&engine)).or_default().insert(model);
            InFlight {
                gauge,
                engine,
                count: 0,
            }
        });
        entry.count += 1;
        entry.gauge.inc();
    }

    /// A request of `raw` (engine, model) ended. Returns the label value of an engine that is now gone for good. An end
    /// without its start (it began before the metrics did) changes nothing.
    pub(crate) fn finished(&mut self, raw: &Pair) -> Option<Arc<str>> {
        let entry = self.in_flight.get_mut(raw)?;
        entry.count -= 1;
        entry.gauge.dec();
        if entry.count > 0 {
            return None;
        }
        let engine = self.in_flight.remove(raw)?.engine;
        if self.down.contains(&engine) && self.idle(&engine) {
            self.remove(&engine);
            return Some(engine);
        }
        None
    }

    /// The engine with this label value is there (again).
    pub(crate) fn up(&mut self, engine: &Arc<str>) {
        self.down.remove(engine);
    }

    /// The engine with this label value is gone. True when its series are gone too; else they go with its last request.
    pub(crate) fn down(&mut self, engine: &Arc<str>) -> bool {
        if self.idle(engine) {
            self.remove(engine);
            return true;
        }
        self.down.insert(Arc::clone(engine));
        false
    }

    fn idle(&self, engine: &Arc<str>) -> bool {
        self.in_flight.values().all(|entry| entry.engine != *engine)
    }

    fn remove(&mut self, engine: &Arc<str>) {
        self.down.remove(engine);
        for model in self.series.remove(engine).unwrap_or_default() {
            // The series was made in `started`, so a failure to find it is no news.
            let _ = self.gauge.remove_label_values(&[&*model, &**engine]);
        }
    }
}

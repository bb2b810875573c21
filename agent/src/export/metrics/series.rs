//! Observations of requests and engines onto series: which child of which family, resolved once and kept.
//!
//! Owns: label caps in use, the cache of resolved children, exemplars of counters. Refuses: the registry and formats.
//! A child is made when it has a value, so that what is not known stays absent.

use super::{
    capacity::CapacitySeries,
    children::{Series, add},
    config::MetricsConfig,
    families::{CapacityFamilies, Families, Hist, InsideFamilies},
    histogram::Exemplar,
    inside::InsideSeries,
    labels::{Capper, OTHER, UNKNOWN, descriptive},
    pressure::{PressureFamilies, PressureSeries},
    running::Running,
    traces::Traces,
};
use infertap_core::{
    EngineInfo, Status,
    capacity::CapacityReport,
    observation::{EngineReport, EngineStep, Finished, Labels, TokenDirection},
    pressure::PressureReport,
};
use prometheus::IntGaugeVec;
use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

/// Resolved label triples that are kept; past it the cache starts anew.
const MAX_RESOLVED: usize = 4096;

fn status_index(status: Status) -> usize {
    Status::ALL.iter().position(|known| *known == status).unwrap_or(0)
}

/// What is known of labels and engines.
pub(super) struct State {
    pub(super) models: Capper,
    pub(super) scenes: Capper,
    engines: Capper,
    running: Running,
    inside: InsideSeries,
    capacity: CapacitySeries,
    pressure: PressureSeries,
    /// Labels as observed → index of their series. Only those that no cap has touched.
    resolved: HashMap<Labels, usize>,
    /// Model and scene as exported → index of their series; bounded by the caps.
    by_pair: HashMap<(Arc<str>, Arc<str>), usize>,
    series: Vec<Series>,
    /// The entry of `resolved` that was asked for last: streams ask for the same one again and again.
    last: Option<(Labels, usize)>,
    /// Label values of each engine's `llm_engine_info`, by id.
    infos: HashMap<Arc<str>, Vec<String>>,
    /// GPUs of each engine, by id.
    gpus: HashMap<Arc<str>, String>,
    /// Aspects of each engine's `infertap_engine_coverage`, by label value.
    coverage: HashMap<Arc<str>, BTreeSet<&'static str>>,
}

impl State {
    pub(super) fn new(
        config: &MetricsConfig,
        running: IntGaugeVec,
        inside: InsideFamilies,
        capacity: CapacityFamilies,
        pressure: PressureFamilies,
    ) -> State {
        State {
            models: Capper::new(config.max_models),
            scenes: Capper::new(config.max_scenes),
            engines: Capper::new(config.max_engines),
            running: Running::new(running),
            inside: InsideSeries::new(inside),
            capacity: CapacitySeries::new(capacity),
            pressure: PressureSeries::new(pressure),
            resolved: HashMap::new(),
            by_pair: HashMap::new(),
            series: Vec::new(),
            last: None,
            infos: HashMap::new(),
            gpus: HashMap::new(),
            coverage: HashMap::new(),
        }
    }

    /// Index of the series for `labels`. With `count`, values that a cap replaces are counted.
    fn resolve(&mut self, families: &Families, labels: &Labels, count: bool) -> usize {
        if let Some((last, index)) = &self.last
            && last == labels
        {
            return *index;
        }
        if let Some(&index) = self.resolved.get(labels) {
            self.last = Some((labels.clone(), index));
            return index;
        }
        let model = self.models.admit(&labels.model);
        let scene = self.scenes.admit(&labels.scene);
        let engine = self.engines.admit(&labels.engine);
        if count {
            families.overflow_model.inc_by(u64::from(model.overflow));
            families.overflow_scene.inc_by(u64::from(scene.overflow));
            families.overflow_engine.inc_by(u64::from(engine.overflow));
        }
        let series = &mut self.series;
        let index = *self
            .by_pair
            .entry((Arc::clone(&model.value), Arc::clone(&scene.value)))
            .or_insert_with(|| {
                series.push(Series::new(families, &model.value, &scene.value));
                series.len() - 1
            });
        if !(model.overflow || scene.overflow || engine.overflow) {
            if self.resolved.len() >= MAX_RESOLVED {
                self.resolved.clear();
            }
            self.resolved.insert(labels.clone(), index);
        }
        index
    }

    pub(super) fn started(&mut self, families: &Families, labels: &Labels) {
        self.resolve(families, labels, false);
        let (engines, models) = (&mut self.engines, &mut self.models);
        self.running
            .started((Arc::clone(&labels.engine), Arc::clone(&labels.model)), || {
                (
                    engines.admit(&labels.engine).value,
                    models.admit(&labels.model).value,
                )
            });
    }

    pub(super) fn tokens(
        &mut self,
        families: &Families,
        labels: &Labels,
        direction: TokenDirection,
        count: u64,
    ) {
        if count == 0 {
            return;
        }
        let index = self.resolve(families, labels, false);
        let series = &mut self.series[index];
        match direction {
            TokenDirection::Input => {
                add(
                    &mut series.input_tokens,
                    &families.input_tokens,
                    &series.labels,
                    count,
                );
            }
            TokenDirection::Output => {
                add(
                    &mut series.output_tokens,
                    &families.output_tokens,
                    &series.labels,
                    count,
                );
            }
        }
    }

    /// Returns how many durations were refused because no clock gives them (negative, not finite).
    pub(super) fn finished(
        &mut self,
        families: &Families,
        finished: &Finished,
        traces: &Traces,
        wall_clock: fn() -> Option<u64>,
    ) -> u64 {
        let labels = &finished.labels;
        let gone = self
            .running
            .finished(&(Arc::clone(&labels.engine), Arc::clone(&labels.model)));
        let index = self.resolve(families, labels, true);
        if let Some(engine) = gone {
            self.release(&engine);
        }
        let record = &finished.record;
        let series = &mut self.series[index];

        let trace_id = Some(&*record.trace_id)
            .filter(|trace_id| !trace_id.is_empty() && traces.has(finished.id))
            .map(Arc::<str>::from);
        let at_ms = wall_clock();
        let exemplar = |value| {
            trace_id.as_ref().map(|trace_id| Exemplar {
                trace_id: Arc::clone(trace_id),
                value,
                at_ms,
            })
        };
        let (requests, latest) = &mut series.requests[status_index(record.status)];
        requests.inc();
        *latest = exemplar(1.0).or_else(|| latest.take());

        if let Some(count) = record.cached_input_tokens {
            add(
                &mut series.cached_input_tokens,
                &families.cached_input_tokens,
                &series.labels,
                count,
            );
        }
        if let Some(count) = record.reasoning_tokens {
            add(
                &mut series.reasoning_tokens,
                &families.reasoning_tokens,
                &series.labels,
                count,
            );
        }
        for (direction, source) in finished.token_sources {
            if let Some(source) = source {
                families
                    .token_source
                    .with_label_values(&[&*series.labels[0], direction.as_str(), source.as_str()])
                    .inc();
            }
        }
        if record.status == Status::Incomplete {
            return 0;
        }
        families.count_phases(&series.labels[0], record);

        if let Some(diagnosis) = &record.diagnosis {
            series.diagnosed(families, diagnosis);
        }
        if let Some(in_flight) = finished.in_flight_at_arrival
            && let Some(engine) = self.engines.get(&labels.engine)
            && &*engine != OTHER
        {
            self.capacity
                .finished(&engine, &series.labels[0], in_flight, record);
        }

        let single = |value: Option<f64>| value.map(|value| (value, 1));
        let tokens = |count: Option<u64>| count.map(|count| (count as f64, 1));
        let values = [
            (Hist::Ttft, single(record.ttft_s)),
            (Hist::Tpot, single(record.tpot_s)),
            (Hist::E2e, single(record.e2e_s)),
            (Hist::Queue, single(record.queue_s)),
            (Hist::Prefill, single(record.prefill_s)),
            (Hist::Decode, single(record.decode_s)),
            (Hist::Tokenize, single(record.tokenize_s)),
            (Hist::InputTokens, tokens(record.input_tokens)),
            (Hist::OutputTokens, tokens(record.output_tokens)),
        ];
        let values = values
            .into_iter()
            .filter_map(|(which, value)| Some((which, value?)));
        // The tokens of one chunk share the gap before it, so a stream's gaps add up to its decode time.
        let gaps = finished
            .gaps
            .iter()
            .map(|&(gap, tokens)| (Hist::Itl, (gap / f64::from(tokens.max(1)), u64::from(tokens))));
        let mut refused = 0;
        for (which, (value, count)) in values.chain(gaps) {
            if count == 0 {
                continue;
            }
            if value.is_finite() && value >= 0.0 {
                series.observe(families, which, value, count, exemplar(value));
            } else {
                refused += 1;
            }
        }
        refused
    }

    pub(super) fn engine_up(&mut self, families: &Families, info: &EngineInfo) {
        let Some(engine) = self.own_engine(families, &info.id) else {
            return;
        };
        self.running.up(&engine);
        let model = info.model.as_ref().map(|model| self.models.admit(model));
        if model.as_ref().is_some_and(|model| model.overflow) {
            families.overflow_model.inc();
        }
        let text = |value: &Option<String>| value.as_deref().map(descriptive).unwrap_or_default();
        // In the order of the definition's labels.
        let values = vec![
            engine.to_string(),
            model.map(|model| model.value.to_string()).unwrap_or_default(),
            info.kind.as_str().to_owned(),
            text(&info.version),
            info.pid.to_string(),
            text(&info.container),
            text(&info.pod_uid),
            String::new(),
            self.gpus.get(&info.id).cloned().unwrap_or_default(),
        ];
        self.set_info(families, &info.id, values);
    }

    fn set_info(&mut self, families: &Families, id: &Arc<str>, values: Vec<String>) {
        families.info.with_label_values(&values).set(1);
        if self.infos.get(id).is_none_or(|old| *old != values)
            && let Some(old) = self.infos.insert(Arc::clone(id), values)
        {
            // It was set by the same engine before, so a failure to find it is no news.
            let _ = families.info.remove_label_values(&old);
        }
    }

    /// An engine that is up has its processes on these GPUs.
    pub(super) fn engine_gpus(&mut self, families: &Families, id: &Arc<str>, gpus: &str) {
        if let Some(mut values) = self.infos.get(id).cloned()
            && let Some(label) = values.last_mut()
        {
            gpus.clone_into(label);
            self.gpus.insert(Arc::clone(id), gpus.to_owned());
            self.set_info(families, id, values);
        }
    }

    /// The label value of an engine, or of what is none.
    pub(super) fn engine_label(&self, id: &Arc<str>) -> Arc<str> {
        match &**id {
            OTHER | UNKNOWN => Arc::clone(id),
            _ => self.engines.get(id).unwrap_or_else(|| OTHER.into()),
        }
    }

    /// Ends an engine's series; returns the coverage series that end with it (engine, aspect).
    pub(super) fn engine_down(&mut self, families: &Families, id: &str) -> Vec<(Arc<str>, &'static str)> {
        self.gpus.remove(id);
        if let Some(values) = self.infos.remove(id) {
            // As in `engine_up`.
            let _ = families.info.remove_label_values(&values);
        }
        let Some(engine) = self.engines.get(id) else {
            return Vec::new();
        };
        self.inside.down(&engine);
        self.capacity.down(&engine);
        self.pressure.down(&engine);
        if self.running.down(&engine) {
            self.release(&engine);
        }
        let aspects = self.coverage.remove(&engine).unwrap_or_default();
        aspects
            .into_iter()
            .map(|aspect| (Arc::clone(&engine), aspect))
            .collect()
    }

    /// An engine's scheduler told how it is doing. Engines past the cap are left out: gauges of several would be none's.
    pub(super) fn engine_report(&mut self, families: &Families, report: &EngineReport) {
        if let Some(engine) = self.own_engine(families, &report.engine) {
            let unknown = || Arc::from(UNKNOWN);
            let model = self.models.admit(&report.model.clone().unwrap_or_else(unknown));
            self.inside.report(&engine, &model.value, report);
        }
    }

    /// An engine's memory was judged. Engines past the cap are left out, as above.
    pub(super) fn pressure_report(&mut self, families: &Families, report: &PressureReport) {
        if let Some(engine) = self.own_engine(families, &report.engine) {
            self.pressure.report(&engine, report);
        }
    }

    /// An engine made a step. Answers how many durations were refused. Engines past the cap are left out.
    pub(super) fn engine_step(&mut self, families: &Families, step: &EngineStep) -> u64 {
        self.own_engine(families, &step.engine)
            .map_or(0, |engine| self.inside.step(&engine, step))
    }

    /// The engine's label value, when it has one of its own.
    pub(super) fn own_engine(&mut self, families: &Families, id: &Arc<str>) -> Option<Arc<str>> {
        let engine = self.engines.admit(id);
        if engine.overflow || &*engine.value == OTHER {
            families.overflow_engine.inc();
            return None;
        }
        Some(engine.value)
    }

    /// An engine's capacity was estimated anew. Engines past the cap are left out, as above.
    pub(super) fn capacity_report(&mut self, families: &Families, report: &CapacityReport) {
        if let Some(engine) = self.own_engine(families, &report.engine) {
            let unknown = || Arc::from(UNKNOWN);
            let model = self.models.admit(&report.model.clone().unwrap_or_else(unknown));
            let concurrency = report.knee.map(|knee| knee.concurrency);
            self.capacity.estimate(&engine, &model.value, concurrency);
        }
    }

    /// The label value under which an aspect of `engine` is exported.
    pub(super) fn cover(&mut self, engine: &str, aspect: &'static str) -> Option<Arc<str>> {
        let admitted = self.engines.admit(&Arc::from(engine));
        if admitted.overflow || &*admitted.value == OTHER {
            return None;
        }
        self.coverage
            .entry(Arc::clone(&admitted.value))
            .or_default()
            .insert(aspect);
        Some(admitted.value)
    }

    fn release(&mut self, engine: &str) {
        self.engines.release(engine);
        // Entries of the cache stand for admitted values; this one is no longer.
        self.resolved.clear();
        self.last = None;
    }

    pub(super) fn request_exemplar(&self, model: &str, scene: &str, status: &str) -> Option<Exemplar> {
        let index = *self.by_pair.get(&(Arc::from(model), Arc::from(scene)))?;
        let status = Status::ALL.iter().position(|known| known.as_str() == status)?;
        self.series[index].requests[status].1.clone()
    }
}

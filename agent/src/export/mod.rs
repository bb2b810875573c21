//! Exporters: what the core observed, given to whoever asks.
//!
//! Owns: [`Exporter`], which the agent's loop feeds and the HTTP server reads. Refuses: deciding what was observed (the
//! core's) and deciding when the agent is ready (`run`'s).

mod cuda;
pub(crate) mod gpus;
mod history;
pub mod http;
pub mod metrics;
mod recent;
mod trace;

pub use cuda::{CudaStatus, CudaStream};
pub(crate) use http::BudgetsAnswer;
pub use http::{BindError, ServerConfig, bind};
pub use metrics::{Metrics, MetricsConfig};
pub use recent::{Filter, Recent, RecentRequest};

use crate::budget::Keeper;
use crate::pods::PodsStatus;
use crate::records::{Found, Records};
use crate::sampler::nvml::{GpuView, NvmlState};
use crate::usage::SharedLedger;
use gpus::Gpus;
use history::History;
use infertap_core::{
    EngineInfo, EngineKind, Observation,
    capacity::CapacityReport,
    gpu::GpuShare,
    ledger::{ContextLimit, ContextLimits, LedgerConfig},
    observation::EngineLoad,
    prefix::{PrefixBasis, PrefixReport},
    pressure::PressureReport,
    sampling::Rule,
};
use metrics::{MetricsError, lock};
use serde::Serialize;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

/// Whether the agent observes what it was asked to; the answer of `/readyz`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Readiness {
    /// The probes are attached.
    pub ready: bool,
    /// Why not, or what works only in part; each a sentence for the operator.
    pub reasons: Vec<String>,
}

/// What may be amiss beside the probes: one sentence each, told by `/readyz` for as long as it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Note {
    /// The configuration was changed and refused.
    Config,
    /// What should outlive the agent is kept in memory only.
    Store,
}

/// An engine as `/api/v1/engines` tells it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EngineStatus {
    /// What discovery knows.
    #[serde(flatten)]
    pub info: Arc<EngineInfo>,
    /// Aspect → observed, as in `infertap_engine_coverage`.
    pub coverage: BTreeMap<&'static str, bool>,
    /// How busy it is, where its scheduler tells, as it told last.
    pub load: Option<EngineLoad>,
    /// GPUs that its processes are on, by their short names; empty where none is known.
    pub gpus: Vec<Arc<str>>,
    /// How long its requests wait, by how many it has, and where queueing begins; absent before the first that ended.
    pub capacity: Option<Arc<CapacityReport>>,
    /// How short of memory it is and why; absent before that is first known.
    pub pressure: Option<Arc<PressureReport>>,
    /// Its CUDA calls, where they are counted.
    pub cuda: Option<Arc<CudaStatus>>,
}

/// Aspects of an engine's coverage: its CUDA calls, and the GPUs that it is on.
const CUDA: &str = "cuda";
const NVML: &str = "nvml";

/// Metrics, recent requests, engines and readiness, behind one port. All methods take `&self` and may be called from any
/// thread.
#[derive(Debug)]
pub struct Exporter {
    metrics: Metrics,
    recent: Recent,
    history: History,
    budgets: Keeper,
    pods: Arc<PodsStatus>,
    usage: SharedLedger,
    records: Records,
    engines: Mutex<BTreeMap<Arc<str>, EngineStatus>>,
    gateways: Mutex<BTreeMap<Arc<str>, Arc<EngineInfo>>>,
    gpus: Mutex<Arc<Gpus>>,
    readiness: Mutex<Readiness>,
    notes: Mutex<BTreeMap<Note, String>>,
    prefixes: Mutex<BTreeMap<PrefixKey, Arc<PrefixReport>>>,
}

/// Engine, model, scene, and what prompts are compared by. As many as the core has rows.
type PrefixKey = (Arc<str>, Arc<str>, Arc<str>, PrefixBasis);

impl Exporter {
    /// An exporter that has seen nothing and is not ready; usage is kept within the default bounds.
    pub fn new(metrics: &MetricsConfig, server: &ServerConfig) -> Result<Arc<Exporter>, MetricsError> {
        let usage = SharedLedger::new(&LedgerConfig::default(), ContextLimits::default());
        Exporter::with_usage(metrics, server, usage)
    }

    /// As [`Exporter::new`], with this ledger.
    pub fn with_usage(
        metrics: &MetricsConfig,
        server: &ServerConfig,
        usage: SharedLedger,
    ) -> Result<Arc<Exporter>, MetricsError> {
        if let Some((key, reason)) = server.invalid().into_iter().next() {
            return Err(MetricsError::Config { key, reason });
        }
        Ok(Arc::new(Exporter {
            metrics: Metrics::new(metrics)?,
            recent: Recent::new(server.recent_requests),
            history: History::new(usize::try_from(server.history_memory.get()).unwrap_or(usize::MAX)),
            budgets: Keeper::default(),
            pods: Arc::default(),
            usage,
            records: Records::default(),
            engines: Mutex::default(),
            gateways: Mutex::default(),
            gpus: Mutex::default(),
            readiness: Mutex::new(Readiness {
                ready: false,
                reasons: vec!["starting: probes are not attached yet".to_owned()],
            }),
            notes: Mutex::default(),
            prefixes: Mutex::default(),
        }))
    }

    /// The metrics, for what is not an observation: events, losses, probes.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Takes observations, in order.
    pub fn apply(&self, observations: &[Observation]) {
        self.history.apply(observations);
        let mut found = Found::default();
        self.budgets
            .apply(observations, |finished| found.add(finished.id, Rule::OverBudget));
        let overflow = self.usage.apply(observations, |finished, near| {
            self.metrics.near_context_limit(&finished.labels, near);
            if near {
                found.add(finished.id, Rule::NearContextLimit);
            }
        });
        self.metrics.usage_overflow(overflow);
        // Before the metrics: their exemplars point to what was kept.
        let gateways = !lock(&self.gateways).is_empty();
        let traces = self.records.apply(observations, &found, gateways, &self.metrics);
        self.metrics.apply_traced(observations, &traces);
        for observation in observations {
            match observation {
                Observation::Finished(finished) => self.recent.push(&finished.record),
                Observation::Gpu(GpuShare::Whole { id, joules }) => self.recent.energy(id, *joules),
                Observation::Joined(joined) => self.recent.join(joined),
                Observation::EngineMessages { engine, understood } => {
                    self.engine_coverage(engine, "engine_messages", *understood);
                }
                Observation::Engine(report) => {
                    if let (Some(load), Some(engine)) =
                        (report.load, lock(&self.engines).get_mut(&report.engine))
                    {
                        engine.load = Some(load);
                    }
                }
                Observation::Capacity(report) => {
                    if let Some(engine) = lock(&self.engines).get_mut(&report.engine) {
                        engine.capacity = Some(Arc::new(CapacityReport::clone(report)));
                    }
                }
                Observation::Prefix(report) => {
                    let key = (
                        Arc::clone(&report.engine),
                        Arc::clone(&report.model),
                        Arc::clone(&report.scene),
                        report.basis,
                    );
                    let report = Arc::new(PrefixReport::clone(report));
                    lock(&self.prefixes).insert(key, report);
                }
                Observation::Pressure(report) => {
                    if let Some(engine) = lock(&self.engines).get_mut(&report.engine) {
                        engine.pressure = Some(Arc::new(PressureReport::clone(report)));
                    }
                }
                _ => {}
            }
        }
    }

    /// Discovery found an engine or a gateway, or learned more about it.
    pub fn engine_up(&self, info: &Arc<EngineInfo>) {
        if info.kind == EngineKind::Gateway {
            lock(&self.gateways).insert(Arc::clone(&info.id), Arc::clone(info));
            return;
        }
        self.metrics.engine_up(info);
        lock(&self.engines)
            .entry(Arc::clone(&info.id))
            .and_modify(|known| known.info = Arc::clone(info))
            .or_insert_with(|| EngineStatus {
                info: Arc::clone(info),
                coverage: BTreeMap::new(),
                load: None,
                gpus: Vec::new(),
                capacity: None,
                pressure: None,
                cuda: None,
            });
    }

    /// An engine or a gateway is gone.
    pub fn engine_down(&self, id: &str) {
        if lock(&self.gateways).remove(id).is_some() {
            return;
        }
        self.context_limit(&id.into(), None);
        self.metrics.engine_down(id);
        lock(&self.engines).remove(id);
    }

    /// An engine's context limit is known, or no longer.
    pub fn context_limit(&self, id: &Arc<str>, limit: Option<ContextLimit>) {
        self.usage.lock().limits.engine(id, limit);
        self.metrics.context_limit(id, limit);
    }

    /// Says whether an aspect (`socket`, `tls`, `tokenizer`, …) of an engine that is up is observed.
    pub fn engine_coverage(&self, id: &str, aspect: &'static str, observed: bool) {
        if let Some(engine) = lock(&self.engines).get_mut(id) {
            self.cover(engine, aspect, observed);
            if aspect == CUDA {
                let gpus = self.gpus();
                self.cover_gpus(engine, &gpus.view.state);
            }
        }
    }

    fn cover(&self, engine: &mut EngineStatus, aspect: &'static str, observed: bool) {
        engine.coverage.insert(aspect, observed);
        self.metrics.engine_coverage(&engine.info.id, aspect, observed);
    }

    /// An engine that is on GPUs is covered where they are read. One that has CUDA mapped could be.
    fn cover_gpus(&self, engine: &mut EngineStatus, state: &NvmlState) {
        match state {
            NvmlState::Up if !engine.gpus.is_empty() => self.cover(engine, NVML, true),
            NvmlState::Absent(_) | NvmlState::Down(_) if engine.coverage.contains_key(CUDA) => {
                self.cover(engine, NVML, false);
            }
            _ => {}
        }
    }

    /// What was counted of an engine's CUDA calls.
    pub fn engine_cuda(&self, id: &str, status: CudaStatus) {
        if let Some(engine) = lock(&self.engines).get_mut(id) {
            engine.cuda = Some(Arc::new(status));
        }
    }

    /// Gateways that are up, by id.
    pub fn gateways(&self) -> Vec<Arc<EngineInfo>> {
        lock(&self.gateways).values().cloned().collect()
    }

    /// Engines that are up, by id.
    pub fn engines(&self) -> Vec<EngineStatus> {
        lock(&self.engines).values().cloned().collect()
    }

    /// How much of the prompts begins like prompts before them, as told last; by engine, model and scene.
    pub fn prefixes(&self) -> Vec<Arc<PrefixReport>> {
        lock(&self.prefixes).values().cloned().collect()
    }

    /// GPUs were read; `engine_of` tells whose a process is.
    pub fn gpus_read(&self, view: &Arc<GpuView>, engine_of: &dyn Fn(u32) -> Option<Arc<str>>) {
        self.history.gpus(view);
        let gpus = Gpus::new(Arc::clone(view), engine_of);
        self.metrics.gpus(Arc::clone(view), gpus.engines_on_gpus());
        let mut of_engines = gpus.of_engines();
        for (id, engine) in lock(&self.engines).iter_mut() {
            let names = of_engines.remove(id).unwrap_or_default();
            if names != engine.gpus {
                self.metrics.engine_gpus(id, &names.join(","));
                engine.gpus = names;
            }
            self.cover_gpus(engine, &view.state);
        }
        self.records.gpus_read(&gpus);
        *lock(&self.gpus) = Arc::new(gpus);
    }

    /// The last picture of all GPUs.
    pub(crate) fn gpus(&self) -> Arc<Gpus> {
        Arc::clone(&lock(&self.gpus))
    }

    /// What is used of budgets.
    pub fn budgets(&self) -> &Keeper {
        &self.budgets
    }

    /// How asking for pods is doing.
    pub fn pods(&self) -> &Arc<PodsStatus> {
        &self.pods
    }

    /// Who used how much, when.
    pub fn usage(&self) -> &SharedLedger {
        &self.usage
    }

    /// Requests that keep their record.
    pub fn records(&self) -> &Records {
        &self.records
    }

    /// Requests that ended lately.
    pub fn recent(&self) -> &Recent {
        &self.recent
    }

    /// Says whether the agent observes what it should; `reasons` are told to who asks, also when it is ready.
    pub fn set_ready(&self, ready: bool, reasons: Vec<String>) {
        *lock(&self.readiness) = Readiness { ready, reasons };
    }

    /// Says what is amiss beside the probes, or that it no longer is.
    pub fn note(&self, note: Note, sentence: Option<String>) {
        let mut notes = lock(&self.notes);
        match sentence {
            Some(sentence) => drop(notes.insert(note, sentence)),
            None => drop(notes.remove(&note)),
        }
    }

    /// What was said last, and what is amiss beside it.
    pub fn readiness(&self) -> Readiness {
        let mut readiness = lock(&self.readiness).clone();
        readiness.reasons.extend(lock(&self.notes).values().cloned());
        readiness
    }
}

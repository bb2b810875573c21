//! Prometheus metrics: observations in, expositions out.
//!
//! Owns: the registry, the mapping of observations to metrics, label caps, exemplars. Refuses: HTTP (`export::http`)
//! and the meaning of a request (the core's). Durations of incomplete requests are never observed; what is not known
//! stays absent.

mod agent;
mod budget;
mod capacity;
mod catalog;
mod children;
mod config;
mod content;
mod cost;
mod cuda;
mod events;
mod exports;
mod families;
mod gateway;
mod golden;
mod gpu;
mod gpu_join;
mod histogram;
mod inside;
mod kubernetes;
mod labels;
mod openmetrics;
mod prefix;
mod pressure;
mod process;
mod records;
mod reference;
mod register;
mod running;
mod scraped;
mod series;
mod store;
mod traces;
mod usage;
mod values;

pub use catalog::{CATALOG, Definition, Kind};
pub use config::MetricsConfig;
pub(crate) use content::ContentCounts;
pub use cuda::{Copies, CudaCalls, DIRECTIONS};
pub use labels::{Admitted, Capper, OTHER, UNKNOWN};
pub use reference::reference;
pub use values::AgentLoss;

pub(crate) use gpu::EngineOnGpu;
pub(crate) use histogram::lock;
pub(crate) use traces::Traces;

use events::{EVENT_KINDS, kind_index};
use families::Families;
use histogram::Exemplar;
use infertap_abi::DropReason;
use infertap_core::{Anomaly, CountOutcome, EngineInfo, EventKind, Observation};
use prometheus::{
    Encoder, GaugeVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry, TextEncoder,
    proto::{Metric, MetricFamily},
};
use register::{counter_vec, gauge_vec, options};
use series::State;
use std::{
    slice,
    sync::{Arc, Mutex},
    time::{SystemTime, UNIX_EPOCH},
};

/// Exposition format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Prometheus text format 0.0.4.
    Text,
    /// OpenMetrics 1.0, with exemplars.
    OpenMetrics,
}

impl Format {
    /// Its `Content-Type`.
    pub const fn content_type(self) -> &'static str {
        match self {
            Format::Text => "text/plain; version=0.0.4; charset=utf-8",
            Format::OpenMetrics => openmetrics::CONTENT_TYPE,
        }
    }
}

/// Why metrics could not be made.
#[derive(Debug, thiserror::Error)]
pub enum MetricsError {
    /// The configuration is refused.
    #[error("{key}: {reason}")]
    Config {
        /// The key, as in `metrics.max_models`.
        key: String,
        /// Why, and what would be right.
        reason: String,
    },
    /// The registry refuses a metric, or an exposition failed.
    #[error("metrics registry: {0}")]
    Registry(#[from] prometheus::Error),
}

/// Every metric of the agent. All methods take `&self` and may be called from any thread; the hot ones
/// ([`Metrics::event`], [`Metrics::apply`]) cost an atomic addition, or one lock and one table look-up.
pub struct Metrics {
    registry: Registry,
    families: Families,
    state: Mutex<State>,
    events: Vec<IntCounter>,
    dropped: IntCounterVec,
    anomalies: Vec<IntCounter>,
    /// By [`values::TOKENIZER_CALLS`].
    tokenizer_calls: [IntCounter; 2],
    /// By [`CountOutcome::ALL`].
    token_counts: [IntCounter; CountOutcome::ALL.len()],
    probe_up: IntGaugeVec,
    coverage: GaugeVec,
    cuda: cuda::Cuda,
    export_failures: IntCounterVec,
    agent: agent::AgentMetrics,
    budgets: budget::BudgetMetrics,
    records: IntCounterVec,
    content: IntCounterVec,
    redactions: IntCounterVec,
    open_connections: IntGauge,
    gpus: gpu::GpuCollector,
    gpu_shares: gpu_join::GpuShares,
    usage: usage::UsageMetrics,
    costs: cost::Costs,
    gateways: gateway::GatewayMetrics,
    prefixes: prefix::Prefixes,
    wall_clock: fn() -> Option<u64>,
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Metrics {
    /// All metrics, registered. Exemplars carry the wall-clock time of their observation.
    pub fn new(config: &MetricsConfig) -> Result<Metrics, MetricsError> {
        let metrics = Metrics::with_clock(config, || {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
            u64::try_from(since.as_millis()).ok()
        })?;
        metrics
            .registry
            .register(Box::new(process::ProcessCollector::new()?))?;
        Ok(metrics)
    }

    /// As [`Metrics::new`], for replays: no wall clock and not the cost of this process, so the same observations give
    /// the same exposition.
    pub fn for_replay(config: &MetricsConfig) -> Result<Metrics, MetricsError> {
        Metrics::with_clock(config, || None)
    }

    fn with_clock(config: &MetricsConfig, wall_clock: fn() -> Option<u64>) -> Result<Metrics, MetricsError> {
        if let Some((key, reason)) = config.invalid().into_iter().next() {
            return Err(MetricsError::Config { key, reason });
        }
        let registry = Registry::new();
        let families = Families::register(&registry, config)?;

        let events = counter_vec(&registry, catalog::EVENTS)?;
        let events = EVENT_KINDS
            .iter()
            .map(|kind| events.with_label_values(&[kind]))
            .collect();
        let tokenizer_calls = counter_vec(&registry, catalog::TOKENIZER_CALLS)?;
        let tokenizer_calls =
            values::TOKENIZER_CALLS.map(|(outcome, _)| tokenizer_calls.with_label_values(&[outcome]));
        let token_counts = counter_vec(&registry, catalog::TOKEN_COUNTS)?;
        let token_counts =
            CountOutcome::ALL.map(|outcome| token_counts.with_label_values(&[outcome.as_str()]));
        let anomalies = counter_vec(&registry, catalog::ANOMALIES)?;
        let anomalies = Anomaly::ALL
            .iter()
            .map(|kind| anomalies.with_label_values(&[kind.as_str()]))
            .collect();
        let dropped = counter_vec(&registry, catalog::EVENTS_DROPPED)?;
        for reason in DropReason::ALL {
            dropped.with_label_values(&[reason.label()]);
        }
        for loss in AgentLoss::ALL {
            dropped.with_label_values(&[loss.as_str()]);
        }
        let export_failures = counter_vec(&registry, catalog::EXPORT_FAILURES)?;
        export_failures.with_label_values(&["prometheus"]);
        let coverage = GaugeVec::new(options(catalog::ENGINE_COVERAGE), catalog::ENGINE_COVERAGE.labels)?;
        registry.register(Box::new(coverage.clone()))?;
        let open_connections = IntGauge::with_opts(options(catalog::OPEN_CONNECTIONS))?;
        registry.register(Box::new(open_connections.clone()))?;
        let gpus = gpu::GpuCollector::new()?;
        registry.register(Box::new(gpus.clone()))?;
        let abi = infertap_abi::VERSION.to_string();
        gauge_vec(&registry, catalog::BUILD_INFO)?
            .with_label_values(&[env!("CARGO_PKG_VERSION"), std::env::consts::ARCH, &abi])
            .set(1);

        Ok(Metrics {
            state: Mutex::new(State::new(
                config,
                families.running.clone(),
                families.inside.clone(),
                families.capacity.clone(),
                families.pressure.clone(),
            )),
            events,
            dropped,
            anomalies,
            tokenizer_calls,
            token_counts,
            probe_up: gauge_vec(&registry, catalog::PROBE_UP)?,
            coverage,
            cuda: cuda::Cuda::register(&registry)?,
            export_failures,
            agent: agent::AgentMetrics::register(&registry)?,
            budgets: budget::BudgetMetrics::register(&registry)?,
            records: counter_vec(&registry, catalog::RECORDS_TOTAL)?,
            content: counter_vec(&registry, catalog::CONTENT_TOTAL)?,
            redactions: counter_vec(&registry, catalog::CONTENT_REDACTIONS)?,
            open_connections,
            gpus,
            gpu_shares: gpu_join::GpuShares::register(&registry)?,
            usage: usage::UsageMetrics::register(&registry)?,
            costs: cost::Costs::register(&registry)?,
            gateways: gateway::GatewayMetrics::register(&registry)?,
            prefixes: prefix::Prefixes::register(&registry)?,
            wall_clock,
            families,
            registry,
        })
    }

    /// Takes one observation. [`Metrics::apply_all`] takes many for the price of one lock.
    pub fn apply(&self, observation: &Observation) {
        self.apply_all(slice::from_ref(observation));
    }

    /// Takes observations, in order.
    pub fn apply_all(&self, observations: &[Observation]) {
        self.apply_traced(observations, &Traces::Any);
    }

    /// As [`Metrics::apply_all`], with only these traces as exemplars.
    pub(crate) fn apply_traced(&self, observations: &[Observation], traces: &Traces) {
        let mut state = lock(&self.state);
        for observation in observations {
            match observation {
                Observation::Started(labels) => state.started(&self.families, labels),
                Observation::Tokens {
                    labels,
                    direction,
                    count,
                    ..
                } => state.tokens(&self.families, labels, *direction, *count),
                Observation::Finished(finished) => {
                    let refused = state.finished(&self.families, finished, traces, self.wall_clock);
                    self.anomaly(Anomaly::TimeWentBack, refused);
                }
                Observation::Anomaly { kind, count } => self.anomaly(*kind, *count),
                Observation::Capacity(report) => state.capacity_report(&self.families, report),
                Observation::Pressure(report) => state.pressure_report(&self.families, report),
                Observation::Engine(report) => state.engine_report(&self.families, report),
                Observation::Step(step) => {
                    let refused = state.engine_step(&self.families, step);
                    self.anomaly(Anomaly::TimeWentBack, refused);
                }
                Observation::TokenizerCalls { tied, unassigned } => {
                    self.tokenizer_calls[0].inc_by(*tied);
                    self.tokenizer_calls[1].inc_by(*unassigned);
                }
                Observation::Prefix(report) => self.prefixes.apply(report, &mut state),
                Observation::Gpu(share) => self.gpu_shares.apply(share, &mut state),
                Observation::Charge(charge) => self.costs.charge(charge, &mut state),
                Observation::Unpriced {
                    labels,
                    direction,
                    count,
                } => self.costs.unpriced(labels, *direction, *count, &mut state),
                Observation::Gateway(exchange) => self.gateways.served(exchange),
                Observation::Joined(joined) => self.gateways.joined(&joined.part),
                Observation::TokenCount(outcome) => self.token_counts[*outcome as usize].inc(),
                // Coverage is told with its engine, by `Exporter::apply`.
                Observation::EngineMessages { .. } | Observation::Count(_) | Observation::Ignore(_) => {}
            }
        }
    }

    fn anomaly(&self, kind: Anomaly, count: u64) {
        if let Some(at) = Anomaly::ALL.iter().position(|known| *known == kind) {
            self.anomalies[at].inc_by(count);
        }
    }

    /// Discovery found an engine, or learned more about it.
    pub fn engine_up(&self, info: &EngineInfo) {
        lock(&self.state).engine_up(&self.families, info);
    }

    /// An engine is gone: its series end, that of its running requests with the last of them.
    pub fn engine_down(&self, id: &str) {
        let mut state = lock(&self.state);
        self.gpu_shares.down(&state.engine_label(&id.into()));
        for (engine, aspect) in state.engine_down(&self.families, id) {
            self.cuda.down(&engine);
            // The series was made in `engine_coverage`, so a failure to find it is no news.
            let _ = self.coverage.remove_label_values(&[&*engine, aspect]);
        }
    }

    /// Says whether an aspect (`socket`, `tls`, `tokenizer`, …) of an engine is observed. Engines past the cap are left out.
    pub fn engine_coverage(&self, engine: &str, aspect: &'static str, observed: bool) {
        if let Some(engine) = lock(&self.state).cover(engine, aspect) {
            self.coverage
                .with_label_values(&[&*engine, aspect])
                .set(f64::from(u8::from(observed)));
        }
    }

    /// An engine made these CUDA calls since this was last told, and holds so much. Engines past the cap are left out.
    pub fn cuda(&self, engine: &Arc<str>, calls: &CudaCalls, allocated: Option<u64>) {
        if let Some(engine) = lock(&self.state).own_engine(&self.families, engine) {
            self.cuda.calls(&engine, calls, allocated);
        }
    }

    /// An event is given to the core.
    pub fn event(&self, kind: &EventKind<'_>) {
        self.events[kind_index(kind)].inc();
    }

    /// The kernel side has lost `total` events for `reason` since the programs were loaded.
    pub fn kernel_drops(&self, reason: DropReason, total: u64) {
        let counter = self.dropped.with_label_values(&[reason.label()]);
        counter.inc_by(total.saturating_sub(counter.get()));
    }

    /// The user side has lost `count` more events.
    pub fn agent_loss(&self, loss: AgentLoss, count: u64) {
        self.dropped.with_label_values(&[loss.as_str()]).inc_by(count);
    }

    /// A probe was attached or detached. The names are the loader's own, so they are few.
    pub fn probe_up(&self, probe: &str, up: bool) {
        self.probe_up.with_label_values(&[probe]).set(i64::from(up));
    }

    /// An export failed.
    pub fn export_failed(&self, exporter: &'static str) {
        self.export_failures.with_label_values(&[exporter]).inc();
    }

    /// Connections tracked now.
    pub fn open_connections(&self, count: usize) {
        self.open_connections
            .set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// All families that have values, by name, their series by label values.
    pub fn gather(&self) -> Vec<MetricFamily> {
        self.registry.gather()
    }

    /// The exposition in `format`.
    pub fn encode(&self, format: Format) -> Result<String, MetricsError> {
        let families = self.gather();
        match format {
            Format::Text => {
                let mut out = Vec::new();
                TextEncoder::new().encode(&families, &mut out)?;
                Ok(String::from_utf8_lossy(&out).into_owned())
            }
            Format::OpenMetrics => Ok(openmetrics::encode(&families, self)),
        }
    }

    /// What the observations so far amount to, without what varies between runs: see `golden`.
    pub fn golden(&self) -> String {
        golden::golden(&self.gather())
    }
}

impl openmetrics::Exemplars for Metrics {
    fn counter(&self, family: &MetricFamily, metric: &Metric) -> Option<Exemplar> {
        if family.name() != catalog::REQUESTS.name {
            return None;
        }
        let label = |name| {
            metric
                .get_label()
                .iter()
                .find(|pair| pair.name() == name)
                .map(prometheus::proto::LabelPair::value)
        };
        lock(&self.state).request_exemplar(label("model")?, label("scene")?, label("status")?)
    }

    fn buckets(&self, family: &MetricFamily, metric: &Metric) -> Vec<Option<Exemplar>> {
        let histogram = self
            .families
            .histograms
            .iter()
            .find(|histogram| histogram.name() == family.name());
        histogram
            .and_then(|histogram| histogram.exemplars(metric.get_label()))
            .unwrap_or_default()
    }
}

#[cfg(test)]
pub(crate) use gateway::tests as gateway_tests;
#[cfg(test)]
pub(crate) mod tests;

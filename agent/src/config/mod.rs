//! Configuration: text → [`Config`], in layers, with every mistake named and placed.
//!
//! Owns: the sections that belong to no module, the list of all sections, the order of layers (defaults, then file,
//! then environment, then flags), checking and printing. Refuses: what a section means; the module that uses it
//! declares it with [`config_section!`](crate::config_section) and is embedded in [`Config`] below.
//!
//! A new key is one line in its section; a new section is one line in [`Config`] and one in [`SECTIONS`]. Then run
//! the tests with `UPDATE_EXPECT=1`, which writes the sample file and the reference that users read.

mod client;
mod diagnosis;
mod file;
mod gpu_price;
mod layers;
mod live;
mod names;
mod prefix;
mod pressure;
mod price;
mod print;
mod problem;
mod scene;
mod section;
mod trace;
mod units;
mod validate;

pub use client::ClientSection;
pub use diagnosis::DiagnosisSection;
pub use gpu_price::GpuPriceSection;
pub use layers::{Loaded, Override, check_file, load, text_value};
pub use live::LIVE;
pub use prefix::PrefixSection;
pub use pressure::PressureSection;
pub use price::PriceConfig;
pub use print::{effective, reference, sample};
pub use problem::{Origin, Problem, Problems};
pub use scene::{Hashed, SceneConfig, hash};
pub use section::{Key, Section};
pub use trace::TraceSection;
pub use units::{Size, Span};
pub use validate::Invalid;

use crate::budget::BudgetConfig;
use crate::config_section;
use crate::content::{ContentConfig, ContentPattern, ContentScene};
use crate::count::TokensConfig;
use crate::discover::{DiscoverConfig, RuleConfig};
use crate::export::{MetricsConfig, ServerConfig};
use crate::pods::KubernetesSection;
use crate::records::RecordsConfig;
use crate::sampler::nvml::GpuConfig;
use crate::ship::otlp::OtlpConfig;
use crate::ship::{ElasticsearchSection, JsonLinesSection, LokiSection};
use crate::store::StoreConfig;
use crate::usage::{ContextLimitConfig, UsageConfig};
use serde::{Deserialize, Serialize};

/// Where the file is looked for when none is named; it need not be there.
pub const DEFAULT_FILE: &str = "/etc/infertap/infertap.toml";
/// Prefix of the environment variables that override keys.
pub const ENV_PREFIX: &str = "INFERTAP_";

/// The whole configuration.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The HTTP server.
    pub server: ServerConfig,
    /// What the probes capture.
    pub capture: CaptureConfig,
    /// Which processes are engines.
    pub discover: DiscoverConfig,
    /// What is asked of engines beyond their clients' sockets.
    pub engine: EngineConfig,
    /// What is read of GPUs.
    pub gpu: GpuConfig,
    /// Where requests' time goes.
    pub diagnosis: DiagnosisSection,
    /// Who sent requests.
    pub client: ClientSection,
    /// Which pods clients are.
    pub kubernetes: KubernetesSection,
    /// Which traces requests belong to.
    pub trace: TraceSection,
    /// What requests are for.
    pub scene: Vec<SceneConfig>,
    /// How much scenes may use.
    pub budget: Vec<BudgetConfig>,
    /// What tokens cost.
    pub price: Vec<PriceConfig>,
    /// What GPUs cost.
    pub gpu_price: GpuPriceSection,
    /// When engines are short of memory.
    pub pressure: PressureSection,
    /// How tokens are counted.
    pub tokens: TokensConfig,
    /// What outlives the agent.
    pub store: StoreConfig,
    /// Who used how much.
    pub usage: UsageConfig,
    /// How much models hold.
    pub context_limit: Vec<ContextLimitConfig>,
    /// What prompts have in common.
    pub prefix: PrefixSection,
    /// Which requests keep their record.
    pub records: RecordsConfig,
    /// Where traces go.
    pub otlp: OtlpConfig,
    /// What is kept of prompts and answers.
    pub content: ContentConfig,
    /// Where logs go: Loki.
    pub loki: LokiSection,
    /// Elasticsearch or OpenSearch.
    pub elasticsearch: ElasticsearchSection,
    /// A file or standard output.
    pub json_lines: JsonLinesSection,
    /// Labels and buckets.
    pub metrics: MetricsConfig,
    /// The agent's own log.
    pub log: LogConfig,
}

/// One section, as the checks and the printer see it.
#[derive(Debug, Clone, Copy)]
pub struct SectionInfo {
    /// Its name: `[name]`, or `[[name]]` for a list.
    pub name: &'static str,
    /// It is a list of tables.
    pub list: bool,
    /// Its documentation.
    pub doc: &'static [&'static str],
    /// Its keys.
    pub keys: &'static [Key],
    /// For lists: what the sample file shows, commented out.
    pub example: &'static str,
}

impl SectionInfo {
    const fn of<S: Section>(name: &'static str) -> SectionInfo {
        SectionInfo {
            name,
            list: false,
            doc: S::DOC,
            keys: S::KEYS,
            example: "",
        }
    }

    const fn list_of<S: Section>(name: &'static str, example: &'static str) -> SectionInfo {
        SectionInfo {
            name,
            list: true,
            doc: S::DOC,
            keys: S::KEYS,
            example,
        }
    }
}

/// Every section, in the order in which they are printed.
pub const SECTIONS: &[SectionInfo] = &[
    SectionInfo::of::<ServerConfig>("server"),
    SectionInfo::of::<CaptureConfig>("capture"),
    SectionInfo::of::<DiscoverConfig>("discover"),
    SectionInfo::list_of::<RuleConfig>("discover.rule", RuleConfig::EXAMPLE),
    SectionInfo::of::<EngineConfig>("engine"),
    SectionInfo::of::<GpuConfig>("gpu"),
    SectionInfo::of::<DiagnosisSection>("diagnosis"),
    SectionInfo::of::<ClientSection>("client"),
    SectionInfo::of::<KubernetesSection>("kubernetes"),
    SectionInfo::of::<TraceSection>("trace"),
    SectionInfo::list_of::<SceneConfig>("scene", SceneConfig::EXAMPLE),
    SectionInfo::list_of::<BudgetConfig>("budget", BudgetConfig::EXAMPLE),
    SectionInfo::list_of::<PriceConfig>("price", PriceConfig::EXAMPLE),
    SectionInfo::of::<GpuPriceSection>("gpu_price"),
    SectionInfo::of::<PressureSection>("pressure"),
    SectionInfo::of::<TokensConfig>("tokens"),
    SectionInfo::of::<StoreConfig>("store"),
    SectionInfo::of::<UsageConfig>("usage"),
    SectionInfo::list_of::<ContextLimitConfig>("context_limit", ContextLimitConfig::EXAMPLE),
    SectionInfo::of::<PrefixSection>("prefix"),
    SectionInfo::of::<RecordsConfig>("records"),
    SectionInfo::of::<OtlpConfig>("otlp"),
    SectionInfo::of::<ContentConfig>("content"),
    SectionInfo::list_of::<ContentScene>("content.scene", ContentScene::EXAMPLE),
    SectionInfo::list_of::<ContentPattern>("content.pattern", ContentPattern::EXAMPLE),
    SectionInfo::of::<LokiSection>("loki"),
    SectionInfo::of::<ElasticsearchSection>("elasticsearch"),
    SectionInfo::of::<JsonLinesSection>("json_lines"),
    SectionInfo::of::<MetricsConfig>("metrics"),
    SectionInfo::of::<LogConfig>("log"),
];

config_section! {
    /// What the probes capture, and how much memory that may take.
    pub struct CaptureConfig {
        /// How sockets are read: "tracepoint" (system call tracepoints: cheapest for the watched process, and sees
        /// every kind of program; every other process pays some 0.2 µs a system call) or "uprobe" (libc's socket
        /// functions: other processes pay nothing, the watched process pays more, and statically linked programs
        /// are not seen).
        pub socket_probe: SocketProbe = SocketProbe::Tracepoint,
        /// Whether a request begins when its first byte reaches the server's socket (true), or when the server reads it:
        /// a server whose threads are busy reads late. Needs the tracepoints tcp:tcp_probe and tcp:tcp_rcv_space_adjust,
        /// which every TCP segment that the host receives passes. With socket_probe = "uprobe", where other processes pay
        /// nothing, a request always begins when it is read.
        pub arrivals: bool = true,
        /// Size of the ring buffer between the kernel and the agent; a power of two from 64KiB to 1GiB. When it
        /// overflows, events are lost, which infertap_events_dropped_total{reason="ring_full"} counts.
        pub ring_bytes: Size = Size::bytes(8 << 20),
        /// Connections followed at once, 64 to 1000000; past it the least recently active is given up, and counted.
        pub max_connections: usize = 16_384,
        /// Time without a byte after which an open request is given up with status "timeout"; 1s to 1d.
        pub idle_timeout: Span = Span::seconds(600),
    }
}

/// How sockets are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum SocketProbe {
    /// System call tracepoints.
    Tracepoint,
    /// Uprobes on libc's socket functions.
    Uprobe,
}

config_section! {
    /// What is learnt of engines beyond their clients' sockets.
    pub struct EngineConfig {
        /// Read what engines tell within themselves: the messages between their processes, and their calls (steps,
        /// tokenizers). With false only the sockets of clients are read: queue and prefill times are then inferred
        /// where they can be, and no number has the source "engine".
        pub hooks: bool = true,
        /// Infer when the scheduler started a request where the engine does not tell (see docs/inference.md). Such
        /// numbers have the source "estimate" and state their error; they are observed into llm_queue_seconds and
        /// llm_prefill_seconds, and llm_phase_source_total tells how many they are. With false they are absent.
        pub estimates: bool = true,
    }
}

config_section! {
    /// The agent's own log, on standard error.
    pub struct LogConfig {
        /// "error", "warn", "info", "debug" or "trace", or a filter in the syntax of the tracing library, as in
        /// "info,infertap::probe=debug".
        pub level: String = "info".to_owned(),
        /// "text" for people, "json" for log collectors (one object a line).
        pub format: LogFormat = LogFormat::Text,
    }
}

/// How log lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

impl Config {
    /// What requests are for, by the rules; none where they are invalid, which no loaded configuration is.
    pub fn scenes(&self) -> std::sync::Arc<infertap_core::SceneRules> {
        scene::rules(&self.scene).unwrap_or_default().into()
    }

    /// What is missing for a rule that asks for the client's pod; `None` where there is none or pods are asked for.
    pub fn pods_wanted(&self) -> Option<String> {
        let rule = self
            .scenes()
            .first_by_pod()
            .filter(|_| !self.kubernetes.enabled)?;
        Some(format!(
            "scene[{rule}] asks for the client's pod and can't match: pods are not known without kubernetes.enabled"
        ))
    }

    /// Whose word is taken for who their client is; nobody's where it is invalid, which no loaded configuration is.
    pub fn proxies(&self) -> std::sync::Arc<infertap_core::client::Proxies> {
        self.client.proxies().unwrap_or_default().into()
    }

    /// The budgets; none where one is invalid, which no loaded configuration has.
    pub fn budgets(&self) -> Vec<infertap_core::budget::Budget> {
        crate::budget::budgets(&self.budget).unwrap_or_default()
    }

    /// What tokens cost; nothing is priced where the prices are invalid, which those of no loaded configuration are.
    pub fn prices(&self) -> std::sync::Arc<infertap_core::PriceBook> {
        price::book(&self.price).unwrap_or_default().into()
    }

    /// What a GPU costs, where that is given.
    pub fn gpu_price(&self) -> Option<infertap_core::money::GpuPrice> {
        self.gpu_price.price().ok().flatten()
    }

    /// What a replay charges by these prices, and how it sums up.
    pub fn replay_pricing(&self) -> crate::recording::Pricing {
        crate::recording::Pricing {
            book: self.prices(),
            gpu: self.gpu_price(),
            limits: self.usage.limits(&self.context_limit),
            ledger: self.usage.ledger(),
        }
    }

    /// The header that names traces before all others; none where it is invalid, which no loaded configuration is.
    pub fn trace_header(&self) -> Option<Box<str>> {
        self.trace.header().unwrap_or_default()
    }

    /// What the core is told: its bounds, and what it may use.
    pub fn pipeline(&self) -> infertap_core::PipelineConfig {
        let capture = &self.capture;
        infertap_core::PipelineConfig {
            max_connections: capture.max_connections,
            idle_timeout_ns: u64::try_from(capture.idle_timeout.duration().as_nanos()).unwrap_or(u64::MAX),
            engine_hooks: self.engine.hooks,
            diagnosis: self.diagnosis.thresholds(),
            capacity_half_life_ns: self.diagnosis.half_life_ns(),
            estimates: self.engine.estimates,
            scenes: self.scenes(),
            proxies: self.proxies(),
            max_pods: self.kubernetes.max_pods,
            trace_header: self.trace_header(),
            pressure: self.pressure.thresholds(),
            count_wait_ns: u64::try_from(self.tokens.wait.duration().as_nanos()).unwrap_or(u64::MAX),
            count_request_bytes: usize::try_from(self.tokens.request_bytes.get()).unwrap_or(usize::MAX),
            content: self.content.rules().into(),
            content_limits: self.content.limits(),
            count_bytes: usize::try_from(self.tokens.memory.get()).unwrap_or(usize::MAX),
            ..Default::default()
        }
    }
}

#[cfg(test)]
mod tests;

//! Every metric that is exported: name, type, labels, help, and what its reference page says of it.
//!
//! Owns: the list; metrics are registered from it and `docs/metrics.md` is rendered from it, so neither can drift.
//! Refuses: values.

use std::sync::LazyLock;

/// Type of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only grows while the agent runs.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Cumulative buckets, sum and count.
    Histogram,
}

impl Kind {
    /// The word of the exposition formats.
    pub const fn as_str(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

/// One metric.
#[derive(Debug, PartialEq, Eq)]
pub struct Definition {
    /// Name as in the text format, `_total` included.
    pub name: &'static str,
    /// Type.
    pub kind: Kind,
    /// Label names.
    pub labels: &'static [&'static str],
    /// Help text of the exposition.
    pub help: &'static str,
    /// Where its values come from.
    pub source: &'static str,
    /// When a series is absent.
    pub absent: &'static str,
}

/// Units that a metric's name may end with (before `_total`).
const UNITS: [&str; 8] = [
    "seconds", "bytes", "tokens", "ratio", "joules", "watts", "celsius", "hertz",
];

/// The unit in a family name (without `_total`): its last word when that is a unit.
pub(super) fn unit(family: &str) -> Option<&'static str> {
    let last = family.rsplit('_').next()?;
    UNITS
        .into_iter()
        .find(|unit| *unit == last && family.len() > unit.len())
}

macro_rules! catalog {
    ($(#[$doc:meta])* $vis:vis const $list:ident; $($id:ident: $kind:ident $name:literal [$($label:literal),*] $help:literal source $source:literal absent $absent:literal;)*) => {
        $(
            #[doc = $help]
            pub(crate) const $id: &Definition = &Definition {
                name: $name,
                kind: Kind::$kind,
                labels: &[$($label),*],
                help: $help,
                source: $source,
                absent: $absent,
            };
        )*

        $(#[$doc])*
        $vis const $list: &[&Definition] = &[$($id),*];
    };
}

mod budget;
mod content;
mod cost;
mod cuda;
mod exports;
mod gateway;
mod gpu;
mod gpu_join;
mod kubernetes;
mod prefix;
mod records;
mod store;
mod usage;

pub(super) use budget::*;
pub(super) use content::*;
pub(super) use cost::*;
pub(super) use cuda::*;
pub(super) use exports::*;
pub(super) use gateway::*;
pub(super) use gpu::*;
pub(super) use gpu_join::*;
pub(super) use kubernetes::*;
pub(super) use prefix::*;
pub(super) use records::*;
pub(super) use store::*;
pub(super) use usage::*;

/// Every metric, in the order of the reference.
pub static CATALOG: LazyLock<Vec<&'static Definition>> = LazyLock::new(|| {
    [
        REQUESTS_AND_AGENT,
        budget::BUDGETS,
        usage::USAGE,
        cost::MONEY,
        gpu_join::GPU_JOIN,
        gpu::GPUS,
        cuda::CUDA,
        store::STORE,
        prefix::PREFIXES,
        records::RECORDS,
        gateway::GATEWAYS,
        exports::EXPORTS,
        kubernetes::KUBERNETES,
        content::CONTENT,
    ]
    .concat()
});

catalog! {
    /// Of requests, engines, and the agent itself.
    const REQUESTS_AND_AGENT;
    REQUESTS: Counter "llm_requests_total" ["model", "scene", "status"]
        "Requests that ended, by how they ended."
        source "The exchange on the socket: response status, errors inside a stream, who closed first, what was lost."
        absent "Until the first request of a model and scene; then all statuses are there, from 0.";
    INPUT_TOKENS: Counter "llm_input_tokens_total" ["model", "scene"]
        "Prompt tokens, those served from the prefix cache included."
        source "Best of engine, usage, tokenizer, estimate: see llm_token_source_total."
        absent "While no request has told its prompt tokens: unknown is not zero.";
    OUTPUT_TOKENS: Counter "llm_output_tokens_total" ["model", "scene"]
        "Generated tokens, counted while they stream, reasoning and cancelled requests included."
        source "Best of engine, usage, tokenizer, chunk; reconciled upwards when the response ends."
        absent "While no token was seen.";
    CACHED_INPUT_TOKENS: Counter "llm_cached_input_tokens_total" ["model", "scene"]
        "Prompt tokens that came from the prefix cache; part of llm_input_tokens_total."
        source "The response's usage, or the engine."
        absent "Where neither tells.";
    REASONING_TOKENS: Counter "llm_reasoning_tokens_total" ["model", "scene"]
        "Generated tokens that were reasoning; part of llm_output_tokens_total."
        source "The response's usage, or the engine."
        absent "Where neither tells.";
    TOKEN_SOURCE: Counter "llm_token_source_total" ["model", "direction", "source"]
        "Requests by where their token count came from: engine, usage, tokenizer, chunk or estimate."
        source "The reconciled count of each finished request; direction is input or output."
        absent "For a direction whose count is unknown.";
    PHASE_SOURCE: Counter "llm_phase_source_total" ["model", "phase", "source"]
        "Requests by where their queue and prefill times came from: engine, or estimate where they are inferred."
        source "What llm_queue_seconds and llm_prefill_seconds observed; phase is queue or prefill. docs/inference.md has the method and its error."
        absent "For a phase that is unknown, and for incomplete requests.";
    TTFT: Histogram "llm_ttft_seconds" ["model", "scene"]
        "Time from the first byte of a request to its first content-bearing chunk."
        source "Socket reads and writes; for a response that is not streamed, the engine."
        absent "For incomplete requests, for responses without content, and for unstreamed ones when the engine does not tell.";
    TPOT: Histogram "llm_tpot_seconds" ["model", "scene"]
        "Time per output token after the first: (last token - first token) / (output tokens - 1)."
        source "Token times (engine, else chunks) and the reconciled token count."
        absent "For incomplete requests and those of fewer than two tokens.";
    ITL: Histogram "llm_itl_seconds" ["model", "scene"]
        "Gap between successive output tokens; a chunk of k tokens counts as k gaps of 1/k."
        source "Content-bearing chunks, or the engine's steps. One observation a gap, not one a request."
        absent "For incomplete requests and those without two token times.";
    E2E: Histogram "llm_e2e_latency_seconds" ["model", "scene"]
        "Time from the first byte of a request to the last byte of its response."
        source "Socket reads and writes. Cancelled and failed requests are in it."
        absent "For incomplete requests and those without a response.";
    QUEUE: Histogram "llm_queue_seconds" ["model", "scene"]
        "Time from the first byte of a request until the scheduler started it."
        source "Engine messages or steps, else inferred: see llm_phase_source_total."
        absent "Where neither tells; for incomplete requests.";
    PREFILL: Histogram "llm_prefill_seconds" ["model", "scene"]
        "Time from the scheduler's start of a request until its first token exists."
        source "Engine messages or steps, else inferred: see llm_phase_source_total."
        absent "Where neither tells; for incomplete requests.";
    DECODE: Histogram "llm_decode_seconds" ["model", "scene"]
        "Time between the first and the last output token."
        source "Engine, else first and last content-bearing chunk."
        absent "For incomplete requests and those without two token times.";
    TOKENIZE: Histogram "llm_tokenize_seconds" ["model", "scene"]
        "Time that a request spent in the tokenizer."
        source "A probe on the engine's tokenizer."
        absent "Where no tokenizer probe is attached; for requests whose calls are not surely their own; for incomplete ones.";
    REQUEST_INPUT_TOKENS: Histogram "llm_request_input_tokens" ["model", "scene"]
        "Prompt tokens per request."
        source "As llm_input_tokens_total."
        absent "For requests whose count is unknown, and incomplete ones, whose count may be partial.";
    REQUEST_OUTPUT_TOKENS: Histogram "llm_request_output_tokens" ["model", "scene"]
        "Generated tokens per request."
        source "As llm_output_tokens_total."
        absent "For requests whose count is unknown, and incomplete ones, whose count may be partial.";
    RUNNING: Gauge "llm_requests_running" ["model", "engine"]
        "Requests in flight: begun and not ended."
        source "The exchange on the socket."
        absent "Until an engine's first request of a model; removed when the engine is gone and its last request has ended.";
    QUEUE_LENGTH: Gauge "llm_queue_length" ["model", "engine"]
        "Requests that wait for the engine's scheduler."
        source "The scheduler's own statistics in the engine's messages, after its last step; all engine cores together."
        absent "Where the engine's messages are not read or tell no statistics (vLLM's --disable-log-stats); when the engine is gone.";
    KV_CACHE_USAGE: Gauge "llm_kv_cache_usage_ratio" ["model", "engine"]
        "Used part of the engine's key-value cache, 0 to 1."
        source "As llm_queue_length; the mean over the engine cores."
        absent "As llm_queue_length.";
    PREEMPTIONS: Counter "llm_preemptions_total" ["model", "engine"]
        "Requests that the scheduler put back into the queue because others needed their memory."
        source "Events in the engine's messages."
        absent "Where the engine's messages are not read; when the engine is gone.";
    PREFIX_QUERIED: Counter "llm_prefix_cache_queried_tokens_total" ["model", "engine"]
        "Prompt tokens that the engine looked up in its prefix cache."
        source "As llm_queue_length."
        absent "As llm_queue_length.";
    PREFIX_HIT: Counter "llm_prefix_cache_hit_tokens_total" ["model", "engine"]
        "Prompt tokens that the engine found in its prefix cache; part of llm_prefix_cache_queried_tokens_total."
        source "As llm_queue_length."
        absent "As llm_queue_length.";
    SCHEDULED: Gauge "llm_requests_scheduled" ["model", "engine"]
        "Requests that the engine's scheduler runs: those in flight that neither wait for it nor are outside of it."
        source "As llm_queue_length."
        absent "As llm_queue_length.";
    ENGINE_STEP: Histogram "llm_engine_step_seconds" ["engine", "kind"]
        "Duration of the engine's steps, each one pass over a batch of requests. kind is prefill, decode, mixed, or unknown."
        source "The engine's messages or calls, one observation a step: from its start, or the end of the step before when the engine was busy since, to its end."
        absent "Where neither is read; for steps whose start is not known; when the engine is gone.";
    BATCH_SIZE: Histogram "llm_batch_size" ["engine", "kind"]
        "Requests in a step of the engine. kind as in llm_engine_step_seconds."
        source "As llm_engine_step_seconds."
        absent "Where neither is read; for steps in which other requests may have been; when the engine is gone.";
    BOTTLENECK: Counter "llm_bottleneck_total" ["model", "scene", "cause"]
        "Requests by what most of their time went into: queue, prefill, decode, interference or client."
        source "Each request's diagnosis, with the thresholds of [diagnosis]. Requests that nothing dominates are in no series."
        absent "For a cause, until the first request of which it is known how much of its time went there.";
    CAPACITY: Gauge "llm_capacity_concurrency" ["model", "engine"]
        "Requests in flight from which on the next one has to wait: what the engine serves at once, as estimated."
        source "Queue times by requests in flight at arrival, else times to first token; older requests count for less."
        absent "While queueing was not seen, or too few requests were; when the engine is gone.";
    QUEUE_BY_CONCURRENCY: Histogram "llm_queue_by_concurrency_seconds" ["model", "engine", "concurrency"]
        "Queue time, by the requests that the engine had in flight when the request arrived, itself not counted."
        source "As llm_queue_seconds, and the requests on the engine's sockets. Buckets are decades from 1 ms to 10 s."
        absent "As llm_queue_seconds; for requests that were under way before the agent; when the engine is gone.";
    TTFT_BY_CONCURRENCY: Histogram "llm_ttft_by_concurrency_seconds" ["model", "engine", "concurrency"]
        "Time to first token, by the requests that the engine had in flight when the request arrived, itself not counted."
        source "As llm_ttft_seconds, and the requests on the engine's sockets. Buckets are decades from 1 ms to 10 s."
        absent "As llm_ttft_seconds; for requests that were under way before the agent; when the engine is gone.";
    MEMORY_PRESSURE: Gauge "llm_memory_pressure" ["engine", "state"]
        "How short of memory an engine is: 1 for its state, none, some or severe, 0 for the others."
        source "The worst of the reasons in llm_memory_pressure_reason, with the thresholds of [pressure]: docs/memory-pressure.md."
        absent "Where nothing of the engine's memory is seen: neither control groups, GPU, CUDA calls nor scheduler; when the engine is gone.";
    MEMORY_PRESSURE_REASON: Gauge "llm_memory_pressure_reason" ["engine", "reason"]
        "How bad one reason alone makes the state: 1 some, 2 severe, 0 when it is a reason no longer."
        source "As llm_memory_pressure; the figures behind each are on /api/v1/engines."
        absent "For a reason, until it first is one; when the engine is gone.";
    GPU_HEADROOM: Gauge "llm_gpu_memory_headroom_bytes" ["engine"]
        "Memory that is left on that GPU of the engine which has the least."
        source "NVML, and which GPUs the engine's processes are on."
        absent "Where that is not known; when the GPU is not read for a minute, or the engine is gone.";
    GPU_TIME_TO_FULL: Gauge "llm_gpu_memory_time_to_full_seconds" ["engine"]
        "Time until nothing is left on a GPU of the engine, if its memory in use goes on growing as it does."
        source "As llm_gpu_memory_headroom_bytes: a robust line through the time of pressure.trend_window."
        absent "While memory in use does not grow steadily enough to tell, or lasts for more than a day.";
    CGROUP_MEMORY: Gauge "llm_engine_cgroup_memory_bytes" ["engine"]
        "Memory of the control groups that the engine's processes are in, page cache and other processes in them included."
        source "memory.current, or memory.usage_in_bytes of version 1."
        absent "Where the engine is in no control group of its own, or none is reached; when the engine is gone.";
    CGROUP_LIMIT: Gauge "llm_engine_cgroup_memory_limit_bytes" ["engine"]
        "Smallest hard limit of the engine's control groups and of those above them."
        source "memory.max, or memory.limit_in_bytes of version 1."
        absent "Where there is none; as llm_engine_cgroup_memory_bytes.";
    CGROUP_HEADROOM: Gauge "llm_engine_cgroup_memory_headroom_bytes" ["engine"]
        "What is left to the nearest of these limits. Page cache counts as used, although the kernel drops it when it needs to."
        source "As llm_engine_cgroup_memory_bytes and llm_engine_cgroup_memory_limit_bytes."
        absent "As llm_engine_cgroup_memory_limit_bytes.";
    CGROUP_SWAP: Gauge "llm_engine_cgroup_swap_bytes" ["engine"]
        "Swap in use by the engine's control groups."
        source "memory.swap.current, or memory.memsw.usage_in_bytes of version 1."
        absent "Where swap is not accounted; as llm_engine_cgroup_memory_bytes.";
    CGROUP_EVENTS: Counter "llm_engine_cgroup_memory_events_total" ["engine", "event"]
        "How often the engine's control groups, and those above that limit them, met their limits: low, high, max or oom."
        source "memory.events.local, or memory.failcnt of version 1 (as max); since the engine was found."
        absent "For events that the version does not tell; as llm_engine_cgroup_memory_bytes.";
    OOM_KILLS: Counter "llm_engine_oom_kills_total" ["engine"]
        "Processes in the engine's control groups that an out-of-memory killer killed."
        source "memory.events.local, or memory.oom_control of version 1; read once more when the engine is gone."
        absent "As llm_engine_cgroup_memory_bytes, but it stays when an engine is gone that lost any.";
    MEMORY_STALLS: Counter "llm_engine_memory_pressure_seconds_total" ["engine", "scope", "kind"]
        "Time in which tasks waited for memory: some of them, or full, all that had work."
        source "memory.pressure of the engine's control group (scope cgroup), or /proc/pressure/memory (scope host) where that has none."
        absent "On kernels without pressure stall information; when the engine is gone.";
    ENGINE_INFO: Gauge "llm_engine_info" ["engine", "model", "kind", "version", "pid", "container", "pod", "namespace", "gpus"]
        "1 for each engine that is running; its labels tell what is known of it."
        source "Discovery (procfs, cgroups). A label whose value is not known is empty; pod is the pod's UID."
        absent "When the engine is gone; for engines past the cap on engine values.";
    EVENTS: Counter "infertap_events_total" ["kind"]
        "Events that reached the core, by kind."
        source "Ring-buffer records, and discovery."
        absent "Never.";
    EVENTS_DROPPED: Counter "infertap_events_dropped_total" ["reason"]
        "Events lost before they reached the core, by reason."
        source "Drop counters of the BPF programs, and the agent's own."
        absent "Never.";
    TOKENIZER_CALLS: Counter "infertap_tokenizer_calls_total" ["outcome"]
        "Texts that engines tokenized, by whether it is known for which request."
        source "Probes on tokenizers' functions; what ties a call to a request is in docs/tokenizers.md."
        absent "Never.";
    TOKEN_COUNTS: Counter "infertap_token_counts_total" ["outcome"]
        "Requests whose tokens the agent set out to count itself, by how that ended."
        source "The core, for requests whose engine and response told no count; docs/tokens.md tells what follows from each."
        absent "Never.";
    ANOMALIES: Counter "infertap_anomalies_total" ["kind"]
        "Traffic or state that did not fit: not parsed, out of bounds, evicted."
        source "The core."
        absent "Never.";
    PROBE_UP: Gauge "infertap_probe_up" ["probe"]
        "1 while a probe is attached, 0 while it is not."
        source "The probe loader."
        absent "For probes that the configuration switches off.";
    ATTACH_WAITING: Gauge "infertap_attach_waiting_processes" []
        "Processes whose probes wait to be attached or detached, because others are at it."
        source "The agent's attaching thread, each second."
        absent "Never.";
    ATTACH_SECONDS: Counter "infertap_attach_seconds_total" []
        "Time that the agent has spent attaching probes and looking for what to attach to; events are read meanwhile."
        source "The agent's attaching thread, each second. An increase of one second a second means that it stands still."
        absent "Never.";
    ENGINE_COVERAGE: Gauge "infertap_engine_coverage" ["engine", "aspect"]
        "1 when an aspect of an engine is observed, 0 when it could be and is not."
        source "The probe loader and discovery."
        absent "When the engine is gone; for aspects that the engine does not have.";
    LABEL_OVERFLOW: Counter "infertap_label_overflow_total" ["label"]
        "Requests and engines whose label value was replaced by other, because it was past the cap or too long."
        source "The label caps of [metrics]."
        absent "Never.";
    CONFIG_OK: Gauge "infertap_config_ok" []
        "Whether the configuration as it was read last is in effect (1), or was refused and the one before is (0)."
        source "The agent, at its start and whenever the file changes or it gets SIGHUP."
        absent "Never.";
    CONFIG_RELOADS: Counter "infertap_config_reloads_total" ["outcome"]
        "Times that the configuration was read again, by outcome: `applied` or `refused`."
        source "The agent, whenever the file changes or it gets SIGHUP."
        absent "Never.";
    EXPORT_FAILURES: Counter "infertap_export_failures_total" ["exporter"]
        "Exports that failed, by exporter: expositions, or attempts to deliver records. exporter is prometheus, or a section of the configuration."
        source "The exporters."
        absent "Never for prometheus; for others, when not configured.";
    CPU_SECONDS: Counter "infertap_cpu_seconds_total" []
        "CPU time of the agent, user and system. BPF programs run on the observed processes' time and are not in it."
        source "/proc/self/stat, at scrape time."
        absent "When procfs cannot be read.";
    MEMORY_BYTES: Gauge "infertap_memory_bytes" []
        "Resident memory of the agent. The kernel memory of BPF maps is not in it."
        source "/proc/self/stat, at scrape time."
        absent "When procfs cannot be read.";
    OPEN_CONNECTIONS: Gauge "infertap_open_connections" []
        "Connections of observed processes that are tracked now."
        source "The core's connection table."
        absent "Never.";
    BUILD_INFO: Gauge "infertap_build_info" ["version", "arch", "abi"]
        "1; its labels tell the agent's version, CPU architecture and event layout version."
        source "The build."
        absent "Never.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_conventions() {
        for (i, definition) in CATALOG.iter().enumerate() {
            let name = definition.name;
            assert_eq!(
                name.ends_with("_total"),
                definition.kind == Kind::Counter,
                "{name}"
            );
            assert!(
                ["llm_", "gpu_", "cuda_", "infertap_"]
                    .iter()
                    .any(|prefix| name.starts_with(prefix)),
                "{name}"
            );
            assert!(
                definition.help.ends_with('.') && !definition.help.contains('\n'),
                "{name}"
            );
            assert!(
                CATALOG[..i].iter().all(|other| other.name != name),
                "{name} is there twice"
            );
            for forbidden in ["user", "request_id", "trace_id", "prompt"] {
                assert!(
                    !definition.labels.contains(&forbidden),
                    "{name} has a label of high cardinality"
                );
            }
        }
    }

    #[test]
    fn the_unit_is_the_last_word_and_never_the_whole_name() {
        for (family, expected) in [
            ("llm_ttft_seconds", Some("seconds")),
            ("infertap_memory_bytes", Some("bytes")),
            ("llm_input_tokens", Some("tokens")),
            ("llm_requests_running", None),
            ("llm_kiloseconds", None),
            ("seconds", None),
        ] {
            assert_eq!(unit(family), expected, "{family}");
        }
    }
}

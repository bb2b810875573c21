//! The families whose series belong to requests and engines.
//!
//! Owns: their registration. Refuses: which series there are (`series`).

use super::{
    capacity, catalog, config::MetricsConfig, counter_vec, gauge_vec, histogram::HistogramFamily, options,
    pressure::PressureFamilies,
};
use infertap_core::RequestRecord;
use prometheus::{GaugeVec, IntCounter, IntCounterVec, IntGaugeVec, Registry};

/// Index of each histogram in [`Families::histograms`].
#[derive(Clone, Copy)]
pub(super) enum Hist {
    Ttft,
    Tpot,
    Itl,
    E2e,
    Queue,
    Prefill,
    Decode,
    Tokenize,
    InputTokens,
    OutputTokens,
}

pub(super) const HISTOGRAMS: usize = 10;

/// The families whose values only an engine's own messages tell.
#[derive(Clone)]
pub(super) struct InsideFamilies {
    pub(super) queue_length: IntGaugeVec,
    pub(super) scheduled: IntGaugeVec,
    pub(super) kv_cache_usage: GaugeVec,
    pub(super) preemptions: IntCounterVec,
    pub(super) prefix_queried: IntCounterVec,
    pub(super) prefix_hit: IntCounterVec,
    pub(super) step: HistogramFamily,
    pub(super) batch_size: HistogramFamily,
}

/// The families that tell how long requests wait, by how many there are.
#[derive(Clone)]
pub(super) struct CapacityFamilies {
    pub(super) queue: HistogramFamily,
    pub(super) ttft: HistogramFamily,
    pub(super) estimate: IntGaugeVec,
}

/// The families whose series belong to requests and engines.
pub(super) struct Families {
    pub(super) requests: IntCounterVec,
    pub(super) input_tokens: IntCounterVec,
    pub(super) output_tokens: IntCounterVec,
    pub(super) cached_input_tokens: IntCounterVec,
    pub(super) reasoning_tokens: IntCounterVec,
    pub(super) token_source: IntCounterVec,
    pub(super) phase_source: IntCounterVec,
    pub(super) histograms: [HistogramFamily; HISTOGRAMS],
    pub(super) running: IntGaugeVec,
    pub(super) inside: InsideFamilies,
    pub(super) capacity: CapacityFamilies,
    pub(super) pressure: PressureFamilies,
    pub(super) bottleneck: IntCounterVec,
    pub(super) info: IntGaugeVec,
    pub(super) overflow_model: IntCounter,
    pub(super) overflow_scene: IntCounter,
    pub(super) overflow_engine: IntCounter,
    pub(super) overflow_xid: IntCounter,
}

impl Families {
    /// Counts where the queue and prefill times of a record came from.
    pub(super) fn count_phases(&self, model: &str, record: &RequestRecord) {
        // Both end or begin at T1, and are no better than it.
        for (phase, value) in [("queue", record.queue_s), ("prefill", record.prefill_s)] {
            if let (Some(_), Some(source)) = (value, record.sources.t1) {
                let labels = [model, phase, source.as_str()];
                self.phase_source.with_label_values(&labels).inc();
            }
        }
    }

    pub(super) fn register(registry: &Registry, config: &MetricsConfig) -> prometheus::Result<Families> {
        let histogram = |definition, bounds: &[f64]| {
            let family = HistogramFamily::new(definition, bounds)?;
            registry.register(Box::new(family.clone()))?;
            prometheus::Result::Ok(family)
        };
        let kv_cache_usage = GaugeVec::new(options(catalog::KV_CACHE_USAGE), catalog::KV_CACHE_USAGE.labels)?;
        registry.register(Box::new(kv_cache_usage.clone()))?;
        let overflow = counter_vec(registry, catalog::LABEL_OVERFLOW)?;
        Ok(Families {
            requests: counter_vec(registry, catalog::REQUESTS)?,
            input_tokens: counter_vec(registry, catalog::INPUT_TOKENS)?,
            output_tokens: counter_vec(registry, catalog::OUTPUT_TOKENS)?,
            cached_input_tokens: counter_vec(registry, catalog::CACHED_INPUT_TOKENS)?,
            reasoning_tokens: counter_vec(registry, catalog::REASONING_TOKENS)?,
            token_source: counter_vec(registry, catalog::TOKEN_SOURCE)?,
            phase_source: counter_vec(registry, catalog::PHASE_SOURCE)?,
            // In the order of `Hist`.
            histograms: [
                histogram(catalog::TTFT, &config.ttft_buckets)?,
                histogram(catalog::TPOT, &config.tpot_buckets)?,
                histogram(catalog::ITL, &config.itl_buckets)?,
                histogram(catalog::E2E, &config.e2e_latency_buckets)?,
                histogram(catalog::QUEUE, &config.queue_buckets)?,
                histogram(catalog::PREFILL, &config.prefill_buckets)?,
                histogram(catalog::DECODE, &config.decode_buckets)?,
                histogram(catalog::TOKENIZE, &config.tokenize_buckets)?,
                histogram(catalog::REQUEST_INPUT_TOKENS, &config.request_tokens_buckets)?,
                histogram(catalog::REQUEST_OUTPUT_TOKENS, &config.request_tokens_buckets)?,
            ],
            running: gauge_vec(registry, catalog::RUNNING)?,
            inside: InsideFamilies {
                queue_length: gauge_vec(registry, catalog::QUEUE_LENGTH)?,
                scheduled: gauge_vec(registry, catalog::SCHEDULED)?,
                kv_cache_usage,
                preemptions: counter_vec(registry, catalog::PREEMPTIONS)?,
                prefix_queried: counter_vec(registry, catalog::PREFIX_QUERIED)?,
                prefix_hit: counter_vec(registry, catalog::PREFIX_HIT)?,
                step: histogram(catalog::ENGINE_STEP, &config.engine_step_buckets)?,
                batch_size: histogram(catalog::BATCH_SIZE, &config.batch_size_buckets)?,
            },
            capacity: CapacityFamilies {
                queue: histogram(catalog::QUEUE_BY_CONCURRENCY, capacity::BUCKETS)?,
                ttft: histogram(catalog::TTFT_BY_CONCURRENCY, capacity::BUCKETS)?,
                estimate: gauge_vec(registry, catalog::CAPACITY)?,
            },
            pressure: PressureFamilies::register(registry)?,
            bottleneck: counter_vec(registry, catalog::BOTTLENECK)?,
            info: gauge_vec(registry, catalog::ENGINE_INFO)?,
            overflow_model: overflow.with_label_values(&["model"]),
            overflow_scene: overflow.with_label_values(&["scene"]),
            overflow_engine: overflow.with_label_values(&["engine"]),
            overflow_xid: overflow.with_label_values(&["xid"]),
        })
    }
}

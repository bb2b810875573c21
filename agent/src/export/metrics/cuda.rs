//! CUDA calls of engines, as series of the engine: what was counted in the kernel, added up over its processes.
//!
//! Owns: which series there are: all of an engine's, from 0, once its calls are counted. Refuses: counting, and label caps
//! (it is told label values).

use super::{Definition, catalog, counter_vec, gauge_vec, options};
use prometheus::{CounterVec, IntCounterVec, IntGaugeVec, Registry};
use serde::Serialize;
use std::{collections::BTreeSet, sync::Arc, sync::Mutex};

use super::histogram::lock;

/// Directions of copies: `direction` of the metrics, and the order of [`CudaCalls::copies`].
pub const DIRECTIONS: [&str; 6] = [
    "host_to_device",
    "device_to_host",
    "device_to_device",
    "peer",
    "host_to_host",
    "unknown",
];

/// Copies in one direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Copies {
    /// Calls.
    pub calls: u64,
    /// Bytes that they copied, or will have.
    pub bytes: u64,
}

/// CUDA calls that were made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CudaCalls {
    /// Kernels launched one by one.
    pub kernel_launches: u64,
    /// Graphs launched.
    pub graph_launches: u64,
    /// In the order of [`DIRECTIONS`].
    pub copies: [Copies; DIRECTIONS.len()],
    /// Allocations that were made.
    pub allocations: u64,
    /// Allocations that failed.
    pub alloc_failures: u64,
    /// Frees of memory whose allocation was not seen.
    pub unknown_frees: u64,
    /// Waits.
    pub syncs: u64,
    /// How long they took, nanoseconds.
    pub sync_ns: u64,
}

impl CudaCalls {
    /// What came after `before`. Each number on its own: none goes back.
    #[must_use]
    pub fn since(&self, before: &CudaCalls) -> CudaCalls {
        let mut copies = self.copies;
        for (now, then) in copies.iter_mut().zip(&before.copies) {
            now.calls = now.calls.saturating_sub(then.calls);
            now.bytes = now.bytes.saturating_sub(then.bytes);
        }
        CudaCalls {
            kernel_launches: self.kernel_launches.saturating_sub(before.kernel_launches),
            graph_launches: self.graph_launches.saturating_sub(before.graph_launches),
            copies,
            allocations: self.allocations.saturating_sub(before.allocations),
            alloc_failures: self.alloc_failures.saturating_sub(before.alloc_failures),
            unknown_frees: self.unknown_frees.saturating_sub(before.unknown_frees),
            syncs: self.syncs.saturating_sub(before.syncs),
            sync_ns: self.sync_ns.saturating_sub(before.sync_ns),
        }
    }

    /// Adds `more`.
    pub fn add(&mut self, more: &CudaCalls) {
        self.kernel_launches += more.kernel_launches;
        self.graph_launches += more.graph_launches;
        for (sum, more) in self.copies.iter_mut().zip(&more.copies) {
            sum.calls += more.calls;
            sum.bytes = sum.bytes.saturating_add(more.bytes);
        }
        self.allocations += more.allocations;
        self.alloc_failures += more.alloc_failures;
        self.unknown_frees += more.unknown_frees;
        self.syncs += more.syncs;
        self.sync_ns = self.sync_ns.saturating_add(more.sync_ns);
    }
}

/// The families, and whose series they have.
pub(super) struct Cuda {
    kernel_launches: IntCounterVec,
    graph_launches: IntCounterVec,
    copies: IntCounterVec,
    copied_bytes: IntCounterVec,
    allocations: IntCounterVec,
    alloc_failures: IntCounterVec,
    allocated: IntGaugeVec,
    syncs: IntCounterVec,
    sync_seconds: CounterVec,
    engines: Mutex<BTreeSet<Arc<str>>>,
}

impl Cuda {
    pub(super) fn register(registry: &Registry) -> prometheus::Result<Cuda> {
        let seconds = |definition: &Definition| {
            let counter = CounterVec::new(options(definition), definition.labels)?;
            registry.register(Box::new(counter.clone()))?;
            prometheus::Result::Ok(counter)
        };
        Ok(Cuda {
            kernel_launches: counter_vec(registry, catalog::CUDA_KERNEL_LAUNCHES)?,
            graph_launches: counter_vec(registry, catalog::CUDA_GRAPH_LAUNCHES)?,
            copies: counter_vec(registry, catalog::CUDA_MEMCPY)?,
            copied_bytes: counter_vec(registry, catalog::CUDA_MEMCPY_BYTES)?,
            allocations: counter_vec(registry, catalog::CUDA_ALLOCATIONS)?,
            alloc_failures: counter_vec(registry, catalog::CUDA_ALLOC_FAILURES)?,
            allocated: gauge_vec(registry, catalog::CUDA_ALLOCATED)?,
            syncs: counter_vec(registry, catalog::CUDA_SYNCS)?,
            sync_seconds: seconds(catalog::CUDA_SYNC_SECONDS)?,
            engines: Mutex::default(),
        })
    }

    /// Calls of the engine with this label value, and what it holds, where that is known.
    pub(super) fn calls(&self, engine: &Arc<str>, calls: &CudaCalls, allocated: Option<u64>) {
        lock(&self.engines).insert(Arc::clone(engine));
        let label = [&**engine];
        self.kernel_launches
            .with_label_values(&label)
            .inc_by(calls.kernel_launches);
        self.graph_launches
            .with_label_values(&label)
            .inc_by(calls.graph_launches);
        for (direction, copies) in DIRECTIONS.iter().zip(&calls.copies) {
            self.copies
                .with_label_values(&[&**engine, direction])
                .inc_by(copies.calls);
            self.copied_bytes
                .with_label_values(&[&**engine, direction])
                .inc_by(copies.bytes);
        }
        self.allocations
            .with_label_values(&label)
            .inc_by(calls.allocations);
        self.alloc_failures
            .with_label_values(&label)
            .inc_by(calls.alloc_failures);
        self.syncs.with_label_values(&label).inc_by(calls.syncs);
        self.sync_seconds
            .with_label_values(&label)
            .inc_by(calls.sync_ns as f64 / 1e9);
        match allocated {
            Some(bytes) => {
                let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
                self.allocated.with_label_values(&label).set(bytes);
            }
            // It may never have been known.
            None => drop(self.allocated.remove_label_values(&label)),
        }
    }

    /// The engine with this label value is gone.
    pub(super) fn down(&self, engine: &str) {
        if !lock(&self.engines).remove(engine) {
            return;
        }
        let label = [engine];
        // The series were made in `calls`, so a failure to find one is no news.
        for family in [
            &self.kernel_launches,
            &self.graph_launches,
            &self.allocations,
            &self.alloc_failures,
            &self.syncs,
        ] {
            let _ = family.remove_label_values(&label);
        }
        let _ = self.sync_seconds.remove_label_values(&label);
        let _ = self.allocated.remove_label_values(&label);
        for direction in DIRECTIONS {
            let _ = self.copies.remove_label_values(&[engine, direction]);
            let _ = self.copied_bytes.remove_label_values(&[engine, direction]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::metrics::{Format, Metrics, MetricsConfig};

    fn lines(metrics: &Metrics) -> String {
        let text = metrics.encode(Format::Text).expect("encodes");
        let cuda = |line: &&str| line.starts_with("cuda_") && !line.contains("memcpy");
        text.lines().filter(cuda).flat_map(|line| [line, "\n"]).collect()
    }

    #[test]
    fn an_engine_has_all_its_series_from_the_first_count_to_its_end() {
        let metrics = Metrics::for_replay(&MetricsConfig::default()).expect("the defaults are valid");
        let engine = Arc::from("vllm-8000");
        assert_eq!(lines(&metrics), "", "without CUDA there are none");
        metrics.engine_coverage(&engine, "cuda", true);
        metrics.cuda(&engine, &CudaCalls::default(), Some(0));
        let more = CudaCalls {
            kernel_launches: 7,
            sync_ns: 1_500_000_000,
            ..CudaCalls::default()
        };
        metrics.cuda(&engine, &more, Some(4096));
        let text = lines(&metrics);
        for line in [
            "cuda_kernel_launches_total{engine=\"vllm-8000\"} 7",
            "cuda_graph_launches_total{engine=\"vllm-8000\"} 0",
            "cuda_sync_seconds_total{engine=\"vllm-8000\"} 1.5",
            "cuda_allocated_bytes{engine=\"vllm-8000\"} 4096",
        ] {
            assert!(text.contains(&format!("{line}\n")), "{line} in\n{text}");
        }
        metrics.cuda(&engine, &more, None);
        let text = lines(&metrics);
        assert!(
            text.contains("cuda_kernel_launches_total{engine=\"vllm-8000\"} 14\n"),
            "{text}"
        );
        assert!(
            !text.contains("cuda_allocated_bytes"),
            "what is not known is absent: {text}"
        );
        metrics.engine_down(&engine);
        assert_eq!(lines(&metrics), "");
        assert!(
            !metrics
                .encode(Format::Text)
                .expect("encodes")
                .contains("cuda_memcpy")
        );
    }
}

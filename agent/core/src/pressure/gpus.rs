//! Memory of the GPUs, whoever uses it.
//!
//! Owns: what was read of each last, and how its use grows. Refuses: which engine uses which (`engine`).

use super::{report::GpuMemory, trend::Trend};
use crate::{Nanos, gpu::GpuReading};
use std::{collections::HashMap, sync::Arc};

/// GPUs and MIG instances that are known at once; a host has far fewer.
const MAX_GPUS: usize = 256;
/// One that was not read for so long is not known any more.
const KEEP: Nanos = 60 * 1_000_000_000;
/// A GPU that is full in more than a day is not about to be.
const HORIZON_S: f64 = 86_400.0;

/// All GPUs.
#[derive(Debug, Default)]
pub(super) struct Gpus {
    known: HashMap<Arc<str>, Gpu>,
}

#[derive(Debug)]
struct Gpu {
    parent: Option<Arc<str>>,
    at: Nanos,
    used: u64,
    total: u64,
    trend: Trend,
}

impl Gpus {
    /// `false`: there is no room for another one.
    pub(super) fn read(&mut self, at: Nanos, reading: &GpuReading, trend_window_ns: Nanos) -> bool {
        let (Some(used), Some(total)) = (reading.memory_used, reading.memory_total) else {
            return true;
        };
        if self.known.len() >= MAX_GPUS && !self.known.contains_key(&reading.uuid) {
            self.known.retain(|_, gpu| at.saturating_sub(gpu.at) <= KEEP);
            if self.known.len() >= MAX_GPUS {
                return false;
            }
        }
        let gpu = self
            .known
            .entry(Arc::clone(&reading.uuid))
            .or_insert_with(|| Gpu {
                parent: None,
                at,
                used,
                total,
                trend: Trend::new(trend_window_ns),
            });
        if reading.since.is_none() {
            // The first reading, or the first after it was away.
            gpu.trend = Trend::new(trend_window_ns);
        }
        gpu.parent.clone_from(&reading.parent);
        gpu.trend.add(at, used);
        (gpu.at, gpu.used, gpu.total) = (at, used, total);
        true
    }

    pub(super) fn parent(&self, uuid: &str) -> Option<&Arc<str>> {
        self.known.get(uuid)?.parent.as_ref()
    }

    pub(super) fn memory(&self, uuid: &str, now: Nanos) -> Option<GpuMemory> {
        let (uuid, gpu) = self.known.get_key_value(uuid)?;
        if now.saturating_sub(gpu.at) > KEEP {
            return None;
        }
        let headroom = gpu.total.saturating_sub(gpu.used);
        let time_to_full = gpu.trend.growth().map(|growth| headroom as f64 / growth);
        Some(GpuMemory {
            gpu: Arc::clone(uuid),
            used_bytes: gpu.used,
            total_bytes: gpu.total,
            headroom_bytes: headroom,
            time_to_full_s: time_to_full.filter(|seconds| *seconds <= HORIZON_S),
        })
    }

    /// Heap bytes, about.
    pub(super) fn bytes(&self) -> usize {
        let of = |gpu: &Gpu| size_of::<Gpu>() + 96 + gpu.trend.bytes();
        self.known.values().map(of).sum()
    }
}

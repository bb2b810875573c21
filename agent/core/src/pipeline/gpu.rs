//! GPUs and the work that engines give them, on their way to what joins them.
//!
//! Owns: of which engine a process is. Refuses: their meaning (`gpu`, `infer`).

use super::Pipeline;
use crate::{
    Anomaly, Nanos, Observation,
    gpu::{CudaBurst, GpuReading},
};
use std::sync::Arc;

impl Pipeline {
    /// A GPU was read.
    pub(super) fn join_gpu(&mut self, at: Nanos, reading: &Arc<GpuReading>) {
        let engines = &self.engines;
        self.gpu
            .read(at, reading, |tgid| Some(engines.of(tgid)?.id.clone()));
    }

    /// A process waited for work that it had given to its GPUs.
    pub(super) fn cuda_burst(&mut self, burst: CudaBurst) {
        if let Some(engine) = self.engines.of(burst.tgid) {
            self.gpu.burst(&engine.id, burst);
            if self.config.estimates {
                self.infer.burst(&engine.id, burst.begin);
            }
        }
    }

    /// Time has passed: settles whose the GPUs were. `seen`: what was observed from there on is new.
    pub(super) fn advance_gpu(&mut self, now: Nanos, seen: usize, out: &mut Vec<Observation>) {
        self.gpu.observed(now, out.get(seen..).unwrap_or_default());
        self.gpu.advance(now, out);
        let (late, evicted) = self.gpu.take_lost();
        for _ in 0..late {
            self.anomalies.add(Anomaly::GpuLate);
        }
        for _ in 0..evicted {
            self.anomalies.add(Anomaly::Evicted);
        }
    }
}

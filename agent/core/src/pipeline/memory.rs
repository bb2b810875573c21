//! Events about memory, on their way to what judges it.
//!
//! Owns: counting what finds no room. Refuses: the judgement (`pressure`).

use super::Pipeline;
use crate::{
    Anomaly, Nanos, Observation,
    gpu::{AllocFailure, GpuReading},
    pressure::MemoryReading,
};

impl Pipeline {
    pub(super) fn gpu_read(&mut self, at: Nanos, reading: &GpuReading) {
        if !self
            .pressure
            .gpu(at, reading, &self.engines, &self.config.pressure)
        {
            self.anomalies.add(Anomaly::Evicted);
        }
    }

    pub(super) fn alloc_failed(&mut self, at: Nanos, failure: &AllocFailure) {
        self.pressure
            .alloc_failed(at, failure, &self.engines, &self.config.pressure);
    }

    pub(super) fn memory_read(&mut self, at: Nanos, reading: &MemoryReading, out: &mut Vec<Observation>) {
        self.pressure
            .read(at, reading, &self.engines, &self.config.pressure, out);
    }

    pub(super) fn judge_memory(&mut self, now: Nanos, out: &mut Vec<Observation>) {
        let config = &self.config.pressure;
        self.pressure
            .advance(now, &self.inside, &self.engines, config, out);
    }
}

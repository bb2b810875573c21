//! Readings of GPUs, on their way from the sampler to the core, the recorder and the exporter.
//!
//! Owns: that a process on a GPU is looked up where its engine is known. Refuses: reading GPUs (`sampler`).

use super::Tap;
use crate::sampler::nvml::{GpuUpdate, Output};
use infertap_core::EventKind;
use std::sync::Arc;
use std::sync::mpsc::Sender;

impl Tap {
    /// Takes what the sampler read.
    pub(super) fn gpus(&mut self, update: GpuUpdate) {
        for (at, reading) in update.readings {
            if let Some(recorder) = &self.recorder {
                recorder.gpu(at, &reading);
            }
            self.tell(at, EventKind::Gpu(reading));
        }
        let pipeline = &self.pipeline;
        self.exporter
            .gpus_read(&update.view, &|pid| pipeline.engine_of(pid));
    }
}

/// The sampler's way to the tap thread.
pub(in crate::run) struct GpuOutput {
    pub(in crate::run) commands: Sender<super::Command>,
    pub(in crate::run) exporter: Arc<crate::export::Exporter>,
}

impl Output for GpuOutput {
    fn update(&self, update: GpuUpdate) -> bool {
        self.commands.send(super::Command::Gpu(Box::new(update))).is_ok()
    }

    fn probe_up(&self, up: bool) {
        self.exporter.metrics().probe_up("nvml", up);
    }
}

//! Pods, between who watches them and the core.
//!
//! Owns: telling the core of each change. Refuses: asking for pods (`pods`).

use super::Tap;
use crate::clock::monotonic_ns;
use crate::pods::PodBatch;
use infertap_core::{Event, EventKind};

impl Tap {
    pub(super) fn pods_changed(&mut self, batch: &PodBatch) {
        let at = monotonic_ns();
        for change in &batch.changes {
            let kind = EventKind::Pod(change);
            self.exporter.metrics().event(&kind);
            self.pipeline.handle(Event { at, kind }, &mut self.observations);
        }
        self.exporter.pods().holds(self.pipeline.pods());
    }
}

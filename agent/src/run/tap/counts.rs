//! Counts of tokens: from the core to the counting thread, and back.
//!
//! Owns: passing them on, off the ring's path. Refuses: waiting for any of them.

use super::Tap;
use crate::clock::monotonic_ns;
use crate::config::Config;
use infertap_core::{Event, EventKind, Observation, PipelineConfig, prefix::Seed};
use std::hash::{BuildHasher as _, RandomState};

/// What the core is told; `counts`: somebody counts for it.
pub(super) fn pipeline(config: &Config, counts: bool) -> PipelineConfig {
    PipelineConfig {
        count: counts,
        prefix: config.prefix.core(seed()),
        ..config.pipeline()
    }
}

/// A secret of this process: what is hashed with it tells nothing to others. The standard library's maps have such secrets,
/// from the system's random numbers; one of them makes two.
fn seed() -> Seed {
    let secret = RandomState::new();
    Seed([secret.hash_one(0_u64), secret.hash_one(1_u64)])
}

impl Tap {
    /// Gives what is to be counted to the thread that does. What it has no room for is answered at once.
    pub(super) fn ask_for_counts(&mut self) {
        let Some(counter) = &self.counter else { return };
        let mut refused = Vec::new();
        for observation in &self.observations {
            if let Observation::Count(job) = observation {
                refused.extend(counter.submit(job));
            }
        }
        for counted in refused {
            self.counted(counted);
        }
    }

    /// Takes the counts that are there.
    pub(super) fn take_counts(&mut self) {
        while let Some(counted) = self.counter.as_ref().and_then(crate::count::Counter::answer) {
            self.counted(counted);
        }
        self.publish();
    }

    fn counted(&mut self, counted: infertap_core::Counted) {
        let event = Event {
            at: monotonic_ns(),
            kind: EventKind::Counted(counted),
        };
        self.exporter.metrics().event(&event.kind);
        self.pipeline.handle(event, &mut self.observations);
    }
}

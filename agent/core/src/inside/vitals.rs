//! What engines' schedulers tell that speaks of memory.
//!
//! Owns: the sum over an engine's messages. Refuses: judging it (`pressure`).

use super::Inside;
use crate::{Nanos, observation::EngineLoad};
use std::sync::Arc;

/// Of one engine.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Vitals {
    /// How busy it is, and when that was told.
    pub(crate) load: Option<(EngineLoad, Nanos)>,
    /// Requests that it has put back into the queue.
    pub(crate) preemptions: u64,
}

impl Inside {
    /// Of the engines that have told anything of it.
    pub(crate) fn vitals(&self) -> impl Iterator<Item = (&Arc<str>, Vitals)> {
        let of = |(id, engine): (_, &super::Engine)| {
            let load = engine.load().zip(engine.load_told);
            let told = load.is_some() || engine.preemptions > 0;
            told.then_some((
                id,
                Vitals {
                    load,
                    preemptions: engine.preemptions,
                },
            ))
        };
        self.engines.iter().filter_map(of)
    }

    /// An engine put requests back into the queue.
    pub(crate) fn preempted(&mut self, id: &Arc<str>, count: u64) {
        if let Some(engine) = self.engine(id) {
            engine.preemptions = engine.preemptions.saturating_add(count);
        }
    }
}

//! Calls of functions of watched engines: when to look for them, and what became of it.
//!
//! Owns: the probes' states and the coverage of engines by calls. Refuses: attaching (`probe`).

use super::Tap;
use crate::discover::Part;
use infertap_core::EngineKind;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

impl Tap {
    /// Reads again what processes have mapped whose turn it is: they may have loaded an engine or a tokenizer since.
    pub(super) fn look_for_calls(&mut self) {
        let now = Instant::now();
        let due = self.probes.calls_due(now);
        for pid in &due {
            self.probes.attach_calls(*pid, now);
        }
        if !due.is_empty() {
            self.tell_calls();
        }
    }

    /// Looks for functions in a process that is watched from now on.
    pub(super) fn first_look_for_calls(&mut self, pid: u32) {
        if self.hooks {
            self.probes.attach_calls(pid, Instant::now());
        }
    }

    /// Tells what is probed, and what it covers of each engine. What is not covered is told of those engines that have
    /// the functions when they are not stripped.
    pub(super) fn tell_calls(&mut self) {
        self.tell_probes();
        self.tell_aspects();
    }

    /// Tells which probes have come up, or could not.
    pub(super) fn tell_probes(&mut self) {
        for state in self.probes.take_call_news() {
            self.exporter.metrics().probe_up(state.probe, state.up);
            let detail = state.detail.unwrap_or_default();
            if state.up {
                tracing::info!("probe {} is up: {detail}", state.probe);
            } else {
                tracing::warn!("probe {} is not up: {detail}", state.probe);
            }
        }
    }

    fn tell_aspects(&mut self) {
        if !self.hooks {
            return;
        }
        for (id, parts) in &self.engines {
            let servers = servers(parts);
            if !servers.iter().any(|pid| self.targets.watches(*pid)) {
                continue;
            }
            let whole = self.kinds.get(id) == Some(&EngineKind::LlamaCpp);
            for (aspect, covered) in self.probes.calls_cover(&servers) {
                if !covered && !whole {
                    continue;
                }
                let key = (Arc::clone(id), aspect);
                if self.calls_told.get(&key) == Some(&covered) {
                    continue;
                }
                self.exporter.engine_coverage(id, aspect, covered);
                if !covered {
                    tracing::info!(
                        "{id}: {aspect} can't be seen: its files have no names of these functions"
                    );
                }
                self.calls_told.insert(key, covered);
            }
        }
    }

    /// An engine is gone.
    pub(super) fn forget_calls(&mut self, id: &Arc<str>) {
        self.calls_told.retain(|(engine, _), _| engine != id);
    }
}

fn servers(parts: &HashMap<u32, Part>) -> Vec<u32> {
    let servers = parts.iter().filter(|(_, part)| **part != Part::Worker);
    servers.map(|(pid, _)| *pid).collect()
}

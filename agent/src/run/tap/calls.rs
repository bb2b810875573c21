//! Calls of functions of watched engines: whose are looked for, and what became of it.
//!
//! Owns: the probes' states and the coverage of engines by calls. Refuses: attaching (`probe`), and when (`attach`).

use super::Tap;
use crate::discover::Part;
use crate::probe::{Coverage, ProbeState};
use infertap_core::EngineKind;
use std::collections::HashMap;
use std::sync::Arc;

impl Tap {
    /// Looks for functions in a process that is watched from now on.
    pub(super) fn look_for_calls(&mut self, pid: u32) {
        if self.hooks {
            self.attacher.calls(pid);
        }
    }

    /// Tells that a probe has come up, or could not.
    pub(super) fn tell_probe(&self, state: ProbeState) {
        self.exporter.metrics().probe_up(state.probe, state.up);
        let detail = state.detail.unwrap_or_default();
        if state.up {
            tracing::info!("probe {} is up: {detail}", state.probe);
        } else {
            tracing::warn!("probe {} is not up: {detail}", state.probe);
        }
    }

    /// Tells what of each engine is covered by calls. What is not is told of those engines that have the functions when they
    /// are not stripped.
    pub(super) fn tell_calls(&mut self) {
        if !self.hooks {
            return;
        }
        for (id, parts) in &self.engines {
            let servers = servers(parts);
            let watched: Vec<u32> = servers
                .into_iter()
                .filter(|pid| self.targets.watches(*pid))
                .collect();
            // Nothing is told before all of them were looked at.
            let Some(functions) = self.attached.functions(&watched) else {
                continue;
            };
            let whole = self.kinds.get(id) == Some(&EngineKind::LlamaCpp);
            for (aspect, covered) in Coverage::aspects(&functions) {
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

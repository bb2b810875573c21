//! Asking for pods while the agent runs.
//!
//! Owns: whether that is done, and where what is told goes. Refuses: asking (`pods`).

use super::tap::Command;
use crate::config::Config;
use crate::export::Exporter;
use crate::pods::{PodBatch, PodWatch};
use std::sync::Arc;
use std::sync::mpsc::Sender;

/// Begins to ask, where it is configured. What prevents it is told, and the agent runs without.
pub(super) fn start(config: &Config, exporter: &Exporter, commands: &Sender<Command>) -> Option<PodWatch> {
    let section = &config.kubernetes;
    let rules = config.scenes();
    if !section.enabled {
        if let Some(missing) = config.pods_wanted() {
            tracing::warn!("{missing}; see docs/clients.md");
        }
        return None;
    }
    if let Err(error) = exporter.metrics().kubernetes(Arc::clone(exporter.pods())) {
        tracing::warn!("what is asked of Kubernetes is not in the metrics: {error}");
    }
    let commands = commands.clone();
    // Fails only when the tap thread has ended, which ends the agent.
    let sink = Arc::new(move |batch: PodBatch| drop(commands.send(Command::Pods(batch))));
    let link = section.link(|name| std::env::var(name).ok());
    let started = link.and_then(|link| {
        let watch = PodWatch::start(section, &link, rules.pod_labels(), exporter.pods(), sink)?;
        tracing::info!("asking {} for pods", link.endpoint);
        Ok(watch)
    });
    started
        .inspect_err(|why| tracing::error!("no pod is known: {why}"))
        .ok()
}

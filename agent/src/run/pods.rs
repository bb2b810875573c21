//! Asking for pods while the agent runs.
//!
//! Owns: whether that is done, and where what is told goes. Refuses: asking (`pods`).

use super::tap::Command;
use crate::config::Config;
use crate::export::Exporter;
use crate::pods::{PodBatch, PodWatch};
use std::sync::Arc;
use std::sync::mpsc::Sender;

/// Why a rule that asks for the client's pod can't match; `None` where there is no such rule, or pods are `watched`.
pub(super) fn missing(config: &Config, watched: bool) -> Option<String> {
    if watched {
        return None;
    }
    config.pods_wanted().or_else(|| {
        let rule = config.scenes().first_by_pod()?;
        Some(format!(
            "scene[{rule}] asks for the client's pod and can't match: asking for pods could not be begun when the agent \
             started"
        ))
    })
}

/// Begins to ask, where it is configured. What prevents it is told, and the agent runs without.
pub(super) fn start(config: &Config, exporter: &Exporter, commands: &Sender<Command>) -> Option<PodWatch> {
    let section = &config.kubernetes;
    let rules = config.scenes();
    if !section.enabled {
        if let Some(missing) = missing(config, false) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::SceneConfig;

    #[test]
    fn rules_that_ask_for_pods_that_nobody_asks_for_are_told() {
        let mut config = Config::default();
        assert_eq!(missing(&config, false), None);
        // A rule that came with another reading, while what it needs takes a restart.
        config.scene.push(SceneConfig {
            name: Some("jobs".to_owned()),
            client_namespace: vec!["jobs".to_owned()],
            ..SceneConfig::default()
        });
        let told = missing(&config, false).expect("nobody asks");
        assert!(
            told.contains("scene[0]") && told.contains("kubernetes.enabled"),
            "{told}"
        );
        config.kubernetes.enabled = true;
        let told = missing(&config, false).expect("it could not be begun");
        assert!(
            told.contains("scene[0]") && told.contains("could not be begun"),
            "{told}"
        );
        assert_eq!(missing(&config, true), None);
    }
}

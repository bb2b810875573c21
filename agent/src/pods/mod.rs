//! Pods of the cluster, asked from the Kubernetes API server: for the clients of requests.
//!
//! Owns: the section, watching pods, and its state for the metrics. Refuses: which pod an address is of and what requests
//! make of it (the core's `pods` and `scene`), keeping pods, and asking for anything else.
//!
//! The protocol is spoken here and not by a client library: lists are taken item by item as they come, and of each pod the
//! few fields that are used, so that a cluster of any size costs the agent one pod at a time beyond what it keeps.

mod api;
mod config;
mod events;
mod items;
mod state;
mod status;
mod watch;

pub use config::KubernetesSection;
pub use status::{PodsStatus, Reason};

use crate::ship::LinkConfig;
use api::Api;
use infertap_core::pods::PodChange;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Batches of changes that were given on and not yet taken: who asks faster than they are taken waits.
const BATCHES: usize = 8;

/// Changes, in order. While it lives, it counts as not taken.
#[derive(Debug)]
pub struct PodBatch {
    /// See the core's `pods`.
    pub changes: Vec<PodChange>,
    _room: OwnedSemaphorePermit,
}

/// Who takes changes.
pub type Sink = Arc<dyn Fn(PodBatch) + Send + Sync>;

/// Watches pods until it is dropped.
#[derive(Debug)]
pub struct PodWatch {
    labels: tokio::sync::watch::Sender<Arc<[Arc<str>]>>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl PodWatch {
    /// Begins to ask, in this runtime. Of pods' labels, those named are told.
    ///
    /// # Errors
    /// The endpoint is no URL that can be used.
    pub fn start(
        section: &KubernetesSection,
        link: &LinkConfig,
        labels: &[String],
        status: &Arc<PodsStatus>,
        sink: Sink,
    ) -> Result<PodWatch, String> {
        let (sender, _) = tokio::sync::watch::channel(shared(labels));
        let room = Arc::new(Semaphore::new(BATCHES));
        let mut watches = Vec::new();
        for (source, namespace) in (0..).zip(namespaces(section)) {
            watches.push(watch::Watch {
                api: Api::new(link.clone())?,
                source,
                namespace: namespace.map(str::to_owned),
                selector: section.label_selector.clone(),
                status: Arc::clone(status),
                sink: Arc::clone(&sink),
                room: Arc::clone(&room),
            });
        }
        let tasks = watches.into_iter().map(|watch| {
            let labels = sender.subscribe();
            tokio::spawn(watch.run(labels))
        });
        Ok(PodWatch {
            tasks: tasks.collect(),
            labels: sender,
        })
    }

    /// Other labels are wanted: all pods are asked for again where these are not the ones that are told.
    pub fn want_labels(&self, labels: &[String]) {
        self.labels.send_if_modified(|known| {
            let same = known.len() == labels.len() && known.iter().zip(labels).all(|(a, b)| **a == **b);
            if !same {
                *known = shared(labels);
            }
            !same
        });
    }
}

impl Drop for PodWatch {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

fn shared(labels: &[String]) -> Arc<[Arc<str>]> {
    labels.iter().map(|name| name.as_str().into()).collect()
}

/// What is asked for: each namespace that is configured, or once all of them.
fn namespaces(section: &KubernetesSection) -> Vec<Option<&str>> {
    if section.namespaces.is_empty() {
        return vec![None];
    }
    section
        .namespaces
        .iter()
        .map(|name| Some(name.as_str()))
        .collect()
}

/// Whether pods can be asked for, for `infertap doctor`: asks for one of each namespace that is configured.
///
/// # Errors
/// Why not.
pub async fn try_once(section: &KubernetesSection, link: LinkConfig) -> Result<String, String> {
    let api = Api::new(link)?;
    let names = namespaces(section);
    let selector = section.label_selector.as_str();
    for namespace in &names {
        let mut query = vec![("limit", "1")];
        if !selector.is_empty() {
            query.push(("labelSelector", selector));
        }
        let asked = api.pods(*namespace, &query).await;
        asked.map_err(|failure| format!("{}: {}", api::scope(*namespace, selector), failure.told))?;
    }
    Ok(format!(
        "pods of {} can be asked for",
        match names.as_slice() {
            [only] => api::scope(*only, selector),
            several => format!("{} namespaces", several.len()),
        }
    ))
}

/// What has seen something, for the tests of metrics.
#[cfg(test)]
pub(crate) fn testing_status() -> Arc<PodsStatus> {
    let status = PodsStatus::default();
    status.told();
    status.failed(Reason::Expired);
    Arc::new(status)
}

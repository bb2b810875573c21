//! What the API server tells of a pod, as far as it is kept.
//!
//! Owns: the few fields that are read, all others being dropped as they are parsed; and what a pod belongs to. Refuses:
//! which pod an address is of (the core's `pods`).

use infertap_core::pods::{Pod, PodState, Workload};
use serde::Deserialize;
use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

/// Labels that the controllers of ReplicaSets put onto pods, and what those are. A ReplicaSet's name is that of what made
/// it, a hyphen and this label's value.
const TEMPLATE_HASHES: [(&str, &str); 2] = [
    ("pod-template-hash", "Deployment"),
    // Argo Rollouts.
    ("rollouts-pod-template-hash", "Rollout"),
];
/// Different texts that are shared between pods before it is begun anew.
const MAX_SHARED: usize = 16_384;

/// A pod.
#[derive(Debug, Deserialize)]
pub(super) struct PodDocument {
    metadata: Metadata,
    #[serde(default)]
    spec: Option<Spec>,
    #[serde(default)]
    status: Option<Status>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    #[serde(default)]
    name: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    resource_version: String,
    #[serde(default)]
    creation_timestamp: Option<String>,
    #[serde(default)]
    labels: Option<BTreeMap<String, String>>,
    #[serde(default)]
    owner_references: Option<Vec<Owner>>,
}

#[derive(Debug, Deserialize)]
struct Owner {
    kind: String,
    name: String,
    #[serde(default)]
    controller: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    #[serde(default)]
    host_network: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    #[serde(default)]
    phase: Option<String>,
    #[serde(default, rename = "podIP")]
    pod_ip: Option<String>,
    #[serde(default, rename = "podIPs")]
    pod_ips: Option<Vec<Address>>,
    #[serde(default)]
    start_time: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Address {
    #[serde(default)]
    ip: String,
}

/// Texts that many pods have in common, each kept once.
#[derive(Debug, Default)]
pub(super) struct Shared(HashSet<Arc<str>>);

impl Shared {
    pub(super) fn get(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.0.get(text) {
            return Arc::clone(known);
        }
        if self.0.len() >= MAX_SHARED {
            self.0.clear();
        }
        let new: Arc<str> = text.into();
        self.0.insert(Arc::clone(&new));
        new
    }
}

impl PodDocument {
    /// Namespace and name.
    pub(super) fn names(&self) -> (&str, &str) {
        (&self.metadata.namespace, &self.metadata.name)
    }

    /// The state of the whole cluster that it belongs to; empty where it is not told.
    pub(super) fn version(&self) -> &str {
        &self.metadata.resource_version
    }

    /// What is kept of it; of its labels, those named.
    pub(super) fn state(&self, labels: &[Arc<str>], shared: &mut Shared) -> PodState {
        let status = self.status.as_ref();
        let first = status.and_then(|status| status.pod_ip.as_ref());
        let more = status
            .and_then(|status| status.pod_ips.as_deref())
            .unwrap_or_default();
        let addresses = first.into_iter().chain(more.iter().map(|address| &address.ip));
        let started = status
            .and_then(|status| status.start_time.as_ref())
            .or(self.metadata.creation_timestamp.as_ref());
        let label = |name: &Arc<str>| {
            let value = self.metadata.labels.as_ref()?.get(&**name)?;
            Some((Arc::clone(name), value.as_str().into()))
        };
        PodState {
            pod: Pod {
                namespace: shared.get(&self.metadata.namespace),
                name: self.metadata.name.as_str().into(),
                workload: self.workload(shared),
                labels: labels.iter().filter_map(label).collect(),
            },
            addresses: addresses.filter_map(|ip| ip.parse::<IpAddr>().ok()).collect(),
            started: started
                .and_then(|text| text.parse::<jiff::Timestamp>().ok())
                .map_or(0, jiff::Timestamp::as_second),
            host_network: self.spec.as_ref().and_then(|spec| spec.host_network) == Some(true),
            finished: matches!(
                status.and_then(|status| status.phase.as_deref()),
                Some("Succeeded" | "Failed")
            ),
        }
    }

    fn workload(&self, shared: &mut Shared) -> Option<Workload> {
        let owners = self.metadata.owner_references.as_ref()?;
        let owner = owners.iter().find(|owner| owner.controller == Some(true))?;
        let (mut kind, mut name) = (owner.kind.as_str(), owner.name.as_str());
        if kind == "ReplicaSet" {
            for (label, maker) in TEMPLATE_HASHES {
                let hash = self.metadata.labels.as_ref().and_then(|labels| labels.get(label));
                let made = hash.and_then(|hash| owner.name.strip_suffix(hash.as_str())?.strip_suffix('-'));
                if let Some(made) = made.filter(|made| !made.is_empty()) {
                    (kind, name) = (maker, made);
                    break;
                }
            }
        }
        Some(Workload {
            kind: shared.get(kind),
            name: shared.get(name),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn state(document: Value) -> PodState {
        let document: PodDocument = serde_json::from_value(document).unwrap();
        document.state(&["team".into(), "app".into()], &mut Shared::default())
    }

    fn owned(owner: Value, labels: Value) -> Option<String> {
        let metadata = json!({"name": "p", "namespace": "n", "labels": labels, "ownerReferences": owner});
        let workload = state(json!({"metadata": metadata})).pod.workload?;
        Some(format!("{}/{}", workload.kind, workload.name))
    }

    #[test]
    fn a_pod_is_what_the_server_tells() {
        let pod = state(json!({
            "metadata": {"name": "api-1", "namespace": "shop", "creationTimestamp": "2026-05-28T20:26:40Z",
                "labels": {"team": "search", "other": "x"}, "managedFields": [{"manager": "kubelet"}]},
            "spec": {"containers": [{"name": "c"}]},
            "status": {"phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}, {"ip": "?"}],
                "startTime": "2026-05-28T20:26:41Z"},
        }));
        assert_eq!((&*pod.pod.namespace, &*pod.pod.name), ("shop", "api-1"));
        assert_eq!(pod.pod.labels, [("team".into(), "search".into())]);
        let addresses: Vec<String> = pod.addresses.iter().map(ToString::to_string).collect();
        assert_eq!(addresses, ["10.0.0.1", "10.0.0.1", "fd00::1"]);
        assert_eq!(
            (pod.started, pod.host_network, pod.finished),
            (1_780_000_001, false, false)
        );
        let made = state(
            json!({"metadata": {"name": "a", "namespace": "n", "creationTimestamp": "2026-05-28T20:26:40Z"}}),
        );
        assert_eq!((made.started, made.addresses.len()), (1_780_000_000, 0));
        for (phase, finished) in [
            ("Pending", false),
            ("Running", false),
            ("Unknown", false),
            ("Succeeded", true),
            ("Failed", true),
        ] {
            let pod =
                state(json!({"metadata": {}, "spec": {"hostNetwork": true}, "status": {"phase": phase}}));
            assert_eq!((pod.finished, pod.host_network), (finished, true), "{phase}");
        }
    }

    #[test]
    fn a_pod_belongs_to_what_made_its_controller() {
        let owner = |kind: &str, name: &str| json!([{"kind": "X", "name": "x"}, {"kind": kind, "name": name, "controller": true}]);
        for (owners, labels, expected) in [
            (json!(null), json!(null), None),
            (json!([{"kind": "Job", "name": "j"}]), json!({}), None),
            (
                owner("ReplicaSet", "api-6d4cf56db6"),
                json!({"pod-template-hash": "6d4cf56db6"}),
                Some("Deployment/api"),
            ),
            (
                owner("ReplicaSet", "api-6d4cf56db6"),
                json!({"rollouts-pod-template-hash": "6d4cf56db6"}),
                Some("Rollout/api"),
            ),
            (
                owner("ReplicaSet", "api-6d4cf56db6"),
                json!({"pod-template-hash": "other"}),
                Some("ReplicaSet/api-6d4cf56db6"),
            ),
            (
                owner("ReplicaSet", "-a"),
                json!({"pod-template-hash": "a"}),
                Some("ReplicaSet/-a"),
            ),
            (
                owner("ReplicaSet", "alone"),
                json!(null),
                Some("ReplicaSet/alone"),
            ),
            (
                owner("StatefulSet", "db"),
                json!({"pod-template-hash": "db"}),
                Some("StatefulSet/db"),
            ),
            (
                owner("Job", "nightly-28471234"),
                json!({}),
                Some("Job/nightly-28471234"),
            ),
            (
                owner("LeaderWorkerSet", "llm"),
                json!({}),
                Some("LeaderWorkerSet/llm"),
            ),
        ] {
            assert_eq!(owned(owners.clone(), labels).as_deref(), expected, "{owners}");
        }
    }
}

//! The metrics of asking the Kubernetes API server for pods.
//!
//! Owns: their words. Refuses: values (`pods`'s).

use super::{Definition, Kind};

catalog! {
    /// How asking for pods is doing.
    pub(crate) const KUBERNETES;
    KUBERNETES_PODS: Gauge "infertap_kubernetes_pods" []
        "Pods that are known by their addresses, at most kubernetes.max_pods."
        source "Lists and watches of the API server; pods that have ended and those that share their host's address are none."
        absent "Without kubernetes.enabled.";
    KUBERNETES_REFUSED: Counter "infertap_kubernetes_pods_refused_total" []
        "Times that a pod was told and not taken because kubernetes.max_pods were known: clients in it have no pod."
        source "Lists and watches of the API server."
        absent "Without kubernetes.enabled.";
    KUBERNETES_TOLD: Gauge "infertap_kubernetes_last_told_timestamp_seconds" []
        "When the API server last told all pods, or a change of one, or that there was none (which it does about each minute), Unix time."
        source "Lists and watches of the API server; with several namespaces, the latest of any."
        absent "Without kubernetes.enabled, and before the first list.";
    KUBERNETES_ERRORS: Counter "infertap_kubernetes_errors_total" ["reason"]
        "Lists, watches and pods of them that failed, by reason: credentials, connection, timeout, unauthorized, forbidden, expired, throttled, status, malformed or oversize. expired is part of the protocol: all pods are asked for again."
        source "The API server's answers, or that there was none."
        absent "Without kubernetes.enabled; then all reasons are there, from 0.";
}

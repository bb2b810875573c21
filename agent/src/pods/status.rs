//! How the watching of pods is doing, for the metrics.
//!
//! Owns: its counts. Refuses: deciding anything by them.

use crate::clock::unix_ms;
use infertap_core::pods::PodStats;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Why the API server told nothing, or less than was asked. `reason` label of `infertap_kubernetes_errors_total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// A file with the token or the authorities can't be used.
    Credentials,
    /// It can't be connected to, or the connection broke.
    Connection,
    /// It did not answer in time.
    Timeout,
    /// It does not accept the token: 401.
    Unauthorized,
    /// The service account lacks the right: 403.
    Forbidden,
    /// What was watched from is too old: 410. All pods are asked for again.
    Expired,
    /// It has too much to do: 429.
    Throttled,
    /// Any other status.
    Status,
    /// What it told is not what the protocol has.
    Malformed,
    /// A pod, or the rest of a list, is longer than any may be.
    Oversize,
}

impl Reason {
    /// Every reason, in label order.
    pub const ALL: [Reason; 10] = [
        Reason::Credentials,
        Reason::Connection,
        Reason::Timeout,
        Reason::Unauthorized,
        Reason::Forbidden,
        Reason::Expired,
        Reason::Throttled,
        Reason::Status,
        Reason::Malformed,
        Reason::Oversize,
    ];

    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Reason::Credentials => "credentials",
            Reason::Connection => "connection",
            Reason::Timeout => "timeout",
            Reason::Unauthorized => "unauthorized",
            Reason::Forbidden => "forbidden",
            Reason::Expired => "expired",
            Reason::Throttled => "throttled",
            Reason::Status => "status",
            Reason::Malformed => "malformed",
            Reason::Oversize => "oversize",
        }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct PodsStatus {
    pods: AtomicU64,
    refused: AtomicU64,
    /// Unix time, milliseconds; 0: never.
    told: AtomicU64,
    errors: [AtomicU64; Reason::ALL.len()],
}

impl PodsStatus {
    /// What the core holds.
    pub fn holds(&self, stats: PodStats) {
        self.pods.store(stats.pods as u64, Relaxed);
        self.refused.store(stats.refused, Relaxed);
    }

    pub(super) fn failed(&self, reason: Reason) {
        // `ALL` is in declaration order.
        self.errors[reason as usize].fetch_add(1, Relaxed);
    }

    /// All pods were told, or what has changed since.
    pub(super) fn told(&self) {
        self.told.store(unix_ms(), Relaxed);
    }

    /// Pods that are known.
    pub fn pods(&self) -> u64 {
        self.pods.load(Relaxed)
    }

    /// Pods that found no room.
    pub fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    /// When the server last told something; Unix time, seconds.
    pub fn told_at(&self) -> Option<f64> {
        let at = self.told.load(Relaxed);
        (at > 0).then(|| at as f64 / 1e3)
    }

    /// Errors of this reason.
    pub fn errors(&self, reason: Reason) -> u64 {
        self.errors[reason as usize].load(Relaxed)
    }
}

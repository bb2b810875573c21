//! Usage over a time, by scene, model or client.
//!
//! Owns: which buckets a time is made of, and the sums. Refuses: text and JSON (the agent's).

use super::key::By;
use super::ring::Ring;
use super::top::{self, Heavy, Order};
use super::usage::Usage;
use super::{BUCKET, HOURS, Ledger};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A span of unix time, whole buckets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// Begins, unix seconds.
    pub from: u64,
    /// Ends before, unix seconds.
    pub to: u64,
}

/// What one scene, model or client used.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Which.
    pub name: String,
    /// What it used.
    #[serde(flatten)]
    pub usage: Usage,
    /// Input tokens for each output token.
    pub input_output_ratio: Option<f64>,
}

impl Row {
    fn new(name: &str, usage: Usage) -> Row {
        Row {
            name: name.to_owned(),
            input_output_ratio: usage.input_output_ratio(),
            usage,
        }
    }
}

/// Usage over a time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The time, widened to whole buckets.
    #[serde(flatten)]
    pub window: Window,
    /// When observation began, unix seconds: what was used before is not known. Absent before the first observation.
    pub observed_since: Option<u64>,
    /// What the rows are.
    pub by: By,
    /// Most tokens first.
    pub rows: Vec<Row>,
    /// All rows together.
    pub total: Row,
}

impl Ledger {
    /// Usage of the last `since` seconds, by scene, model or client.
    pub fn report(&self, now: u64, since: u64, by: By) -> Report {
        let ring = if since <= HOURS { &self.hours } else { &self.days };
        let window = Window {
            from: ring.start(now.saturating_sub(since)),
            to: now.saturating_add(1),
        };
        let (rows, total) = sums(ring, window, by);
        let mut rows: Vec<Row> = rows
            .into_iter()
            .map(|(name, usage)| Row::new(name, usage))
            .collect();
        // Names in order where tokens are the same, so that the same usage is told in the same way.
        rows.sort_by(|a, b| {
            b.usage
                .tokens()
                .cmp(&a.usage.tokens())
                .then_with(|| a.name.cmp(&b.name))
        });
        Report {
            window,
            observed_since: self.since,
            by,
            rows,
            total: Row::new("total", total),
        }
    }

    /// The heaviest requests of the last `since` seconds (two days at most) that `admits` accepts, the heaviest first. Of
    /// each bucket of fifteen minutes the [`MAX_HEAVY`](super::MAX_HEAVY) heaviest are known.
    pub fn heaviest(
        &self,
        now: u64,
        since: u64,
        order: Order,
        admits: &dyn Fn(&Heavy) -> bool,
        limit: usize,
    ) -> Vec<Arc<Heavy>> {
        let from = now.saturating_sub(since);
        let window = Window {
            from: from - from % BUCKET,
            to: now.saturating_add(1),
        };
        let recent = |heavy: &Heavy| heavy.ended >= from && admits(heavy);
        self.heaviest_of(window, order, &recent, limit)
    }

    pub(super) fn heaviest_of(
        &self,
        window: Window,
        order: Order,
        admits: &dyn Fn(&Heavy) -> bool,
        limit: usize,
    ) -> Vec<Arc<Heavy>> {
        let buckets = self.hours.buckets(window.from, window.to);
        top::merge(order, buckets.map(|(_, bucket)| &bucket.heaviest), admits, limit)
    }
}

/// What each name used in the buckets that begin within the window, and all together.
pub(super) fn sums(ring: &Ring, window: Window, by: By) -> (BTreeMap<&str, Usage>, Usage) {
    let mut rows: BTreeMap<&str, Usage> = BTreeMap::new();
    let mut total = Usage::default();
    for (key, usage) in ring.between(window.from, window.to) {
        // Currencies past the bound were counted when they came.
        rows.entry(key.get(by)).or_default().add(usage);
        total.add(usage);
    }
    (rows, total)
}

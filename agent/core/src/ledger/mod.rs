//! The usage ledger: who used how much, when.
//!
//! Owns: usage by model, scene and client in buckets of fifteen minutes (two days of them) and of days (three months), the
//! heaviest requests, and what growth comes from. Refuses: clocks (each call is told the unix time), files (what has
//! changed is told to be stored, and taken back at the start), prices, limits of labels in metrics.
//!
//! Every bucket holds a bounded number of keys; what comes past that is added to the key `other`, and counted. What has
//! changed is told as the sums so far: storing the same twice, or again after a crash, counts nothing twice.

mod growth;
mod key;
mod limit;
mod report;
mod ring;
#[cfg(test)]
mod tests;
mod top;
mod usage;

pub use growth::{Because, Change, Contribution, Growth, MoneyChange};
pub use key::{By, Key, OTHER, UNKNOWN};
pub use limit::{ContextLimit, ContextLimits, LimitSource};
pub use report::{Report, Row as ReportRow, Window};
pub use top::{Heavy, MAX_HEAVY, Order};
pub use usage::{MAX_MONEY, Spent, Usage};

use crate::observation::{Finished, TokenDirection};
use crate::{Observation, Status};
use ring::Ring;
use std::sync::Arc;

/// Width of a bucket, seconds.
pub const BUCKET: u64 = 900;
/// What the buckets of that width reach back, seconds.
pub const HOURS: u64 = 48 * 3600;
/// Width of the buckets for longer times, seconds.
pub const DAY: u64 = 86_400;

/// Bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LedgerConfig {
    /// Keys of model, scene and client that one bucket tells apart.
    pub max_keys: usize,
    /// Days that are kept.
    pub days: u64,
}

impl Default for LedgerConfig {
    fn default() -> LedgerConfig {
        LedgerConfig {
            max_keys: 1000,
            days: 90,
        }
    }
}

/// What one key used in one bucket so far: to be stored in place of what was stored for it before.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Width of the bucket: [`BUCKET`] or [`DAY`].
    pub width: u64,
    /// Unix time at which it begins, seconds.
    pub start: u64,
    /// Whose.
    pub key: Key,
    /// How much.
    pub usage: Usage,
}

/// See the module.
#[derive(Debug)]
pub struct Ledger {
    hours: Ring,
    days: Ring,
    /// Context limits of models.
    pub limits: ContextLimits,
    /// When observation began, unix seconds: earlier usage is not known. Absent before that.
    since: Option<u64>,
    overflow: u64,
}

impl Ledger {
    /// One that has seen nothing.
    pub fn new(config: &LedgerConfig, limits: ContextLimits) -> Ledger {
        Ledger {
            hours: Ring::new(BUCKET, HOURS / BUCKET, config.max_keys),
            days: Ring::new(DAY, config.days.max(1), config.max_keys),
            limits,
            since: None,
            overflow: 0,
        }
    }

    /// Takes an observation at a unix time, seconds. Tells of a request that ended whether it came near its model's context
    /// limit, where that is known.
    pub fn apply(&mut self, now: u64, observation: &Observation) -> Option<bool> {
        self.since.get_or_insert(now);
        match observation {
            Observation::Tokens {
                labels,
                client,
                direction,
                count,
                ..
            } => {
                let mut usage = Usage::default();
                match direction {
                    TokenDirection::Input => usage.input_tokens = *count,
                    TokenDirection::Output => usage.output_tokens = *count,
                }
                self.add(now, &Key::new(labels, *client), &usage);
                None
            }
            Observation::Finished(finished) => self.finished(now, finished),
            Observation::Charge(charge) => {
                let usage = Usage {
                    cost: vec![Spent {
                        currency: charge.currency,
                        basis: charge.basis,
                        amount: charge.amount,
                        saved: charge.saved,
                    }],
                    ..Usage::default()
                };
                self.add(now, &Key::new(&charge.labels, charge.client), &usage);
                None
            }
            _ => None,
        }
    }

    fn finished(&mut self, now: u64, finished: &Finished) -> Option<bool> {
        let (labels, record) = (&finished.labels, &finished.record);
        let limit = self.limits.of(&labels.engine, &labels.model);
        let tokens = match (record.input_tokens, record.output_tokens) {
            (None, None) => None,
            (input, output) => Some(input.unwrap_or(0).saturating_add(output.unwrap_or(0))),
        };
        let near = tokens
            .zip(limit)
            .map(|(tokens, limit)| self.limits.is_near(tokens, limit));
        let failed = match record.status {
            Status::Ok | Status::Incomplete => 0,
            Status::ClientError | Status::ServerError | Status::Cancelled | Status::Timeout => 1,
        };
        let usage = Usage {
            requests: 1,
            failed,
            cached_input_tokens: record.cached_input_tokens,
            reasoning_tokens: record.reasoning_tokens,
            near_context_limit: near.map(u64::from),
            ..Usage::default()
        };
        let key = Key::new(labels, record.client);
        self.add(now, &key, &usage);
        // Labels are what sums go by; a record says the same.
        let heavy = Arc::new(Heavy {
            engine: Arc::clone(&labels.engine),
            model: key.model,
            scene: key.scene,
            ..Heavy::of(now, record)
        });
        self.hours.present(now).heaviest.push(&heavy);
        near
    }

    fn add(&mut self, now: u64, key: &Key, usage: &Usage) {
        let hours = self.hours.add(now, key.clone(), usage);
        let days = self.days.add(now, key.clone(), usage);
        self.overflow += u64::from(hours || days);
    }

    /// Observations that were added to the key `other` since the start: there were too many keys, or names too long.
    pub fn overflow(&self) -> u64 {
        self.overflow
    }

    /// What has changed since this was last asked, at most `most` rows.
    pub fn changed(&mut self, most: usize) -> Vec<Row> {
        let mut rows = Vec::new();
        self.hours.changed(most, &mut rows);
        self.days.changed(most, &mut rows);
        rows
    }

    /// These rows could not be stored: [`Ledger::changed`] tells them again, as they are by then.
    pub fn not_stored(&mut self, rows: &[Row]) {
        for row in rows {
            match row.width {
                BUCKET => self.hours.not_stored(row.start, &row.key),
                _ => self.days.not_stored(row.start, &row.key),
            }
        }
    }

    /// Takes back requests that ended before the start, each of them once. Those that are too old, or end later than now, are
    /// left out; tells how many were taken. Of each bucket the heaviest stay, as of those that are observed.
    pub fn restore_heavy(&mut self, now: u64, requests: impl IntoIterator<Item = Heavy>) -> usize {
        let mut taken = 0;
        for heavy in requests {
            if let Some(bucket) = self.hours.past(now, heavy.ended) {
                bucket.heaviest.push(&Arc::new(heavy));
                taken += 1;
            }
        }
        taken
    }

    /// Takes back what was stored, at the start. Rows that are too old, or too many, are left out; tells how many were
    /// taken.
    pub fn restore(&mut self, now: u64, rows: impl IntoIterator<Item = Row>) -> usize {
        let mut taken = 0;
        for row in rows {
            let start = row.start;
            let kept = match row.width {
                BUCKET => self.hours.restore(now, row),
                DAY => self.days.restore(now, row),
                _ => false,
            };
            if kept {
                taken += 1;
                self.since = Some(self.since.map_or(start, |since| since.min(start)));
            }
        }
        taken
    }
}

//! How long requests wait, by how many an engine has already: the data for its capacity knee.
//!
//! Owns: one engine's table, its decay, what is told of it. Refuses: counting what is in flight (`diagnose::peers`) and
//! the rule of the estimate (`knee`).
//!
//! A row is a number of requests in flight at arrival, the new one not counted: with `k` slots, requests that find fewer
//! than `k` start at once. Observations fade with a half-life, so that the table follows an engine whose limits change.

mod knee;
mod spread;
#[cfg(test)]
mod tests;

pub use knee::{Basis, Knee};

use crate::Nanos;
use serde::Serialize;
use spread::Spread;
use std::sync::Arc;

/// Rows: each number up to 16 its own, then four to a doubling.
const EXACT: u64 = 16;
const ROWS: usize = 16 + 4 * 8 + 1;
/// Requests' worth of weight that a row needs to be believed.
const ENOUGH: f64 = 5.0;
/// Half-lives after which the weights are scaled down.
const RESCALE: f64 = 40.0;

/// Half-life of observations, unless configured otherwise.
pub const DEFAULT_HALF_LIFE_NS: Nanos = 15 * 60 * 1_000_000_000;

/// What one request contributes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    /// Requests in flight when it arrived, itself not counted.
    pub(crate) in_flight: u64,
    /// Those of them that ran, where the engine told.
    pub(crate) running: Option<u64>,
    pub(crate) queue_s: Option<f64>,
    pub(crate) ttft_s: Option<f64>,
    /// Time in the engine without the queue, of a request that ended well.
    pub(crate) service_s: Option<f64>,
}

#[derive(Debug, Default)]
struct Row {
    weight: f64,
    queue: Spread,
    ttft: Spread,
    service: Spread,
    /// Weight of those whose running requests were told, and their sum.
    running: (f64, f64),
}

/// The table of one engine.
#[derive(Debug)]
pub(crate) struct Capacity {
    rows: Vec<Option<Box<Row>>>,
    /// A weight of 1 is an observation of this time.
    epoch: Option<Nanos>,
    half_life_ns: Nanos,
    changed: bool,
    told: bool,
}

/// A row as it is told. Times are medians, in seconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CapacityRow {
    /// Fewest requests in flight at arrival.
    pub from: u64,
    /// Most; absent for the last row, which has no bound.
    pub to: Option<u64>,
    /// Requests that the row rests on, older ones counted for less.
    pub requests: f64,
    /// Median queue time; absent where the engine's scheduler is not seen.
    pub queue_s: Option<f64>,
    /// 95th percentile of it.
    pub queue_p95_s: Option<f64>,
    /// Median time to first token.
    pub ttft_s: Option<f64>,
    /// Mean number of running requests at arrival, where the engine tells.
    pub running: Option<f64>,
}

/// What is known of an engine's capacity.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CapacityReport {
    /// Engine instance id.
    #[serde(skip)]
    pub engine: Arc<str>,
    /// The model that it serves, as far as is known.
    #[serde(skip)]
    pub model: Option<Arc<str>>,
    /// Where queueing begins; absent while that was not seen.
    pub knee: Option<Knee>,
    /// By requests in flight at arrival, ascending; only rows that have observations.
    pub by_concurrency: Vec<CapacityRow>,
}

/// The row of so many requests in flight.
fn row_of(in_flight: u64) -> usize {
    if in_flight < EXACT {
        return in_flight as usize;
    }
    let octave = in_flight.ilog2();
    let quarter = (in_flight >> (octave - 2)) & 3;
    let row = EXACT as usize + (octave - EXACT.ilog2()) as usize * 4 + quarter as usize;
    row.min(ROWS - 1)
}

/// The fewest requests of a row.
fn first_of(row: usize) -> u64 {
    let Some(past) = row.checked_sub(EXACT as usize) else {
        return row as u64;
    };
    (4 + past as u64 % 4) << (past / 4 + EXACT.ilog2() as usize - 2)
}

/// The most requests of a row.
fn last_of(row: usize) -> u64 {
    if row + 1 < ROWS {
        first_of(row + 1) - 1
    } else {
        u64::MAX
    }
}

impl Capacity {
    pub(crate) fn new(half_life_ns: Nanos) -> Capacity {
        let mut rows = Vec::new();
        rows.resize_with(ROWS, || None);
        Capacity {
            rows,
            epoch: None,
            half_life_ns: half_life_ns.max(1),
            changed: false,
            told: false,
        }
    }

    /// A request ended at `at`.
    pub(crate) fn add(&mut self, at: Nanos, sample: Sample) {
        if sample.queue_s.or(sample.ttft_s).is_none() {
            return;
        }
        let weight = self.weight(at);
        let Some(slot) = self.rows.get_mut(row_of(sample.in_flight)) else {
            return;
        };
        let row = slot.get_or_insert_default();
        row.weight += weight;
        for (spread, value) in [
            (&mut row.queue, sample.queue_s),
            (&mut row.ttft, sample.ttft_s),
            (&mut row.service, sample.service_s),
        ] {
            if let Some(value) = value {
                spread.add(value, weight);
            }
        }
        if let Some(running) = sample.running {
            row.running.0 += weight;
            row.running.1 += weight * running as f64;
        }
        self.changed = true;
    }

    /// Weight of an observation at `at`, which outweighs older ones.
    fn weight(&mut self, at: Nanos) -> f64 {
        let epoch = *self.epoch.get_or_insert(at);
        // Events may be a little out of order; what is older than the first weighs as much.
        let half_lives = at.saturating_sub(epoch) as f64 / self.half_life_ns as f64;
        if half_lives <= RESCALE {
            return half_lives.exp2();
        }
        let scale = (-half_lives).exp2();
        for slot in &mut self.rows {
            if let Some(row) = slot {
                row.weight *= scale;
                row.running = (row.running.0 * scale, row.running.1 * scale);
                for spread in [&mut row.queue, &mut row.ttft, &mut row.service] {
                    spread.scale(scale);
                }
                if row.weight < 1e-3 {
                    *slot = None;
                }
            }
        }
        self.epoch = Some(at);
        1.0
    }

    /// What to tell now: when there is anything new, and once more when all has faded.
    pub(crate) fn news(&mut self, now: Nanos) -> Option<(Option<Knee>, Vec<CapacityRow>)> {
        if !self.changed && !self.told {
            return None;
        }
        let unit = self.weight(now);
        let table: Vec<(usize, &Row)> = self
            .rows
            .iter()
            .enumerate()
            .filter_map(|(index, row)| Some((index, row.as_deref()?)))
            .filter(|(_, row)| row.weight >= 0.05 * unit)
            .collect();
        let rows = table
            .iter()
            .map(|(index, row)| CapacityRow {
                from: first_of(*index),
                to: (*index + 1 < ROWS).then(|| last_of(*index)),
                requests: row.weight / unit,
                queue_s: row.queue.quantile(0.5),
                queue_p95_s: row.queue.quantile(0.95),
                ttft_s: row.ttft.quantile(0.5),
                running: (row.running.0 > 0.0).then(|| row.running.1 / row.running.0),
            })
            .collect::<Vec<_>>();
        let knee = knee::find(&table, ENOUGH * unit);
        self.changed = false;
        self.told = !rows.is_empty();
        Some((knee, rows))
    }

    /// There is something new to tell.
    pub(crate) fn has_changed(&self) -> bool {
        self.changed
    }

    /// Heap bytes, about.
    pub(crate) fn bytes(&self) -> usize {
        self.rows.iter().flatten().count() * size_of::<Row>() + ROWS * size_of::<usize>()
    }
}

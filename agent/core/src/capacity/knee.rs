//! The concurrency at which queueing begins, estimated from an engine's table.
//!
//! Owns: the rule. Refuses: tables without enough observations: no estimate is better than a guess.
//!
//! The knee is the smallest number of requests in flight from which on every row's median wait
//! - is clearly above that of every row below, twice for queue times, and at least 5 ms, and
//! - has risen by half of what a queue makes it rise: with `n` slots one is free every service time / n, so each further
//!   request in flight waits that much longer.
//!
//! The last part tells waiting for a slot from all that makes a busy engine slower without a queue: newcomers wait until the
//! step at hand is over, and prefills take turns, but neither takes a request's time divided by `n` for each one more.

use super::{Row, first_of, last_of, spread::Spread};
use serde::Serialize;

const LEAST_RISE_S: f64 = 0.005;
/// Part of the expected rise that is asked for. The first to wait does so for half a slot's time, or more.
const PART: f64 = 0.5;
const FIRST: f64 = 0.5;

/// What the estimate was made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// Queue times.
    Queue,
    /// Times to first token, where queue times are not known.
    Ttft,
}

impl Basis {
    /// How many times the worst below the knee the least above it is. Times to first token have the prefill in them.
    const fn ratio(self) -> f64 {
        match self {
            Basis::Queue => 2.0,
            Basis::Ttft => 1.25,
        }
    }
}

/// Where queueing begins.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Knee {
    /// Requests in flight from which on the next one waits: what the engine serves at once.
    pub concurrency: u64,
    /// Most requests in flight for which none waited; the truth is above it and not above `concurrency`.
    pub free_up_to: u64,
    /// What it was made from.
    pub basis: Basis,
    /// Median wait below the knee, seconds.
    pub below_s: f64,
    /// Median wait at the knee, seconds.
    pub at_s: f64,
}

/// The knee of these rows, ascending; `enough`: weight without which a row says nothing.
pub(super) fn find(table: &[(usize, &Row)], enough: f64) -> Option<Knee> {
    let queue = table.iter().any(|(_, row)| row.queue.weight() >= enough);
    let basis = if queue { Basis::Queue } else { Basis::Ttft };
    let waits: Vec<Wait<'_>> = table
        .iter()
        .filter_map(|(index, row)| {
            let spread = match basis {
                Basis::Queue => &row.queue,
                Basis::Ttft => &row.ttft,
            };
            let median = spread.quantile(0.5).filter(|_| spread.weight() >= enough)?;
            Some(Wait {
                index: *index,
                median,
                service: &row.service,
            })
        })
        .collect();
    (1..waits.len()).find_map(|at| {
        let (below, above) = waits.split_at_checked(at)?;
        let (last, first) = (below.last()?, above.first()?);
        let worst_below = below.iter().map(|wait| wait.median).fold(0.0, f64::max);
        let mut service = Spread::default();
        for wait in below {
            service.merge(wait.service);
        }
        let concurrency = first_of(first.index);
        let slot_s = service.quantile(0.5)? / concurrency.max(1) as f64;
        let clear = |wait: &Wait<'_>| {
            let more = first_of(wait.index).saturating_sub(concurrency) as f64;
            let rise = LEAST_RISE_S.max(PART * (more + FIRST) * slot_s);
            wait.median > basis.ratio() * worst_below && wait.median - worst_below >= rise
        };
        above.iter().all(clear).then(|| Knee {
            concurrency,
            free_up_to: last_of(last.index),
            basis,
            below_s: worst_below,
            at_s: first.median,
        })
    })
}

struct Wait<'a> {
    index: usize,
    median: f64,
    service: &'a Spread,
}

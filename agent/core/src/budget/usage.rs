//! What is used of one budget.
//!
//! Owns: periods and hours of usage, which thresholds were told. Refuses: which budget a use is of (`super`).

use super::period::Bounds;
use super::rule::Budget;
use super::{BudgetEvent, Kept};
use std::collections::BTreeMap;

/// Seconds of an hour.
pub(super) const HOUR: i64 = 3600;
/// Hours that are kept for the recent rate, the one that runs included.
const HOURS: usize = 26;
/// Periods that are kept: the one that runs and the one before, for a clock that is set back.
const PERIODS: usize = 2;

/// One period of a budget.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Spent {
    pub(super) used: f64,
    /// Highest threshold that was told; 0 for none.
    told: f64,
    /// When the limit was reached, Unix time.
    pub(super) exhausted: Option<i64>,
    /// The limit to which these two belong.
    limit: f64,
    /// What is kept of it is not what it is.
    changed: bool,
}

/// What is used of one budget.
#[derive(Debug, Clone)]
pub(super) struct Tracked {
    pub(super) budget: Budget,
    pub(super) measure: String,
    /// When it was first measured, Unix time.
    pub(super) since: i64,
    pub(super) bounds: Bounds,
    /// By the first second of the period.
    periods: BTreeMap<i64, Spent>,
    /// First second of each hour, and what was used within it.
    pub(super) hours: BTreeMap<i64, f64>,
}

impl Tracked {
    pub(super) fn new(budget: Budget, now: i64) -> Tracked {
        let bounds = budget.zone.bounds(budget.period, now);
        Tracked {
            measure: budget.measure(),
            budget,
            since: now,
            bounds,
            periods: BTreeMap::new(),
            hours: BTreeMap::new(),
        }
    }

    /// Takes over what was kept of the same measure.
    pub(super) fn restore(&mut self, kept: &Kept) {
        if *kept.budget != *self.budget.name || kept.measure != self.measure {
            return;
        }
        self.since = self.since.min(kept.since);
        self.hours.extend(kept.hours.iter().copied());
        self.periods.insert(
            kept.start,
            Spent {
                used: kept.used,
                told: kept.told,
                exhausted: kept.exhausted,
                limit: kept.limit,
                changed: false,
            },
        );
        self.trim();
    }

    /// Takes over what another one has measured, if it is the same.
    pub(super) fn inherit(&mut self, before: Tracked) {
        if before.budget.name == self.budget.name && before.measure == self.measure {
            *self = Tracked {
                budget: self.budget.clone(),
                ..before
            };
        }
    }

    pub(super) fn spent(&self) -> Option<&Spent> {
        self.periods.get(&self.bounds.start)
    }

    pub(super) fn used(&self) -> f64 {
        self.spent().map_or(0.0, |spent| spent.used)
    }

    /// Goes on to the period that `now` is in.
    pub(super) fn advance(&mut self, now: i64) {
        if !self.bounds.contain(now) {
            self.bounds = self.budget.zone.bounds(self.budget.period, now);
            self.trim();
        }
    }

    pub(super) fn add(&mut self, now: i64, more: f64, events: &mut Vec<BudgetEvent>) {
        self.advance(now);
        let hour = now - now.rem_euclid(HOUR);
        *self.hours.entry(hour).or_insert(0.0) += more;
        if self.hours.len() > HOURS {
            self.hours.pop_first();
        }
        let spent = self.current();
        spent.used += more;
        spent.changed = true;
        self.judge(now, events);
    }

    fn current(&mut self) -> &mut Spent {
        let limit = self.budget.limit;
        self.periods.entry(self.bounds.start).or_insert(Spent {
            used: 0.0,
            told: 0.0,
            exhausted: None,
            limit,
            changed: false,
        })
    }

    fn trim(&mut self) {
        while self.periods.len() > PERIODS {
            self.periods.pop_first();
        }
        while self.hours.len() > HOURS {
            self.hours.pop_first();
        }
    }

    /// Tells the thresholds that are reached and were not told. With another limit than before, those that are not reached
    /// any more can be told again.
    pub(super) fn judge(&mut self, now: i64, events: &mut Vec<BudgetEvent>) {
        let Some(spent) = self.periods.get_mut(&self.bounds.start) else {
            return;
        };
        let budget = &self.budget;
        let ratio = spent.used / budget.limit;
        let before = spent.clone();
        if spent.limit.total_cmp(&budget.limit).is_ne() {
            spent.limit = budget.limit;
            let reached = budget.thresholds.iter().copied().filter(|t| *t <= ratio);
            spent.told = spent.told.min(reached.fold(0.0, f64::max));
            spent.exhausted = spent.exhausted.filter(|_| ratio >= 1.0);
        }
        if ratio >= 1.0 && spent.exhausted.is_none() {
            spent.exhausted = Some(now);
        }
        for threshold in budget.thresholds.iter().copied() {
            if threshold <= ratio && threshold > spent.told {
                spent.told = threshold;
                events.push(BudgetEvent {
                    budget: budget.clone(),
                    threshold,
                    used: spent.used,
                    bounds: self.bounds,
                });
            }
        }
        spent.changed |= *spent != before;
    }

    /// All of it is to be kept again.
    pub(super) fn keep_all(&mut self) {
        for spent in self.periods.values_mut() {
            spent.changed = true;
        }
    }

    /// What has changed since this was last asked: totals, of periods and of the last two hours.
    pub(super) fn take_changed(&mut self, out: &mut Vec<Kept>) {
        for (start, spent) in &mut self.periods {
            if std::mem::take(&mut spent.changed) {
                let hours = self.hours.iter().rev().take(2);
                out.push(Kept {
                    budget: self.budget.name.to_string(),
                    measure: self.measure.clone(),
                    start: *start,
                    since: self.since,
                    used: spent.used,
                    told: spent.told,
                    exhausted: spent.exhausted,
                    limit: spent.limit,
                    hours: hours.map(|(hour, used)| (*hour, *used)).collect(),
                });
            }
        }
    }
}

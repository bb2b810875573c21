//! Budgets: tokens or money that scenes may use in a day, a week or a month.
//!
//! Owns: what counts towards which budget, what is used, which thresholds are to be told. Refuses: the clock (the time
//! comes with each use), keeping totals (they are handed out and taken back), and telling anybody.
//!
//! A use counts in the period in which it is told. Totals of the current period and the one before are in memory, so a
//! clock that is set back a little finds the totals it left.

mod period;
mod report;
mod rule;
#[cfg(test)]
mod tests;
mod usage;

pub use period::{Bounds, Period, Zone};
pub use report::BudgetReport;
pub use rule::{Budget, BudgetText, MAX_BUDGETS, THRESHOLDS, Unit, together};

use crate::money::{Basis, Currency};
use std::collections::HashMap;
use std::sync::Arc;
use usage::Tracked;

/// Pairs of scene and model whose budgets are remembered; past it they are looked up anew.
const MAX_PAIRS: usize = 4096;

/// What is kept of a budget's period: totals, so that keeping one twice counts nothing twice. Times are Unix seconds.
#[derive(Debug, Clone, PartialEq)]
pub struct Kept {
    /// The budget's name.
    pub budget: String,
    /// What it measures: see [`Budget::measure`].
    pub measure: String,
    /// When the period began.
    pub start: i64,
    /// When this measure was first taken, in whatever period.
    pub since: i64,
    /// How much was used, in the budget's unit.
    pub used: f64,
    /// Highest threshold that was told; 0 for none.
    pub told: f64,
    /// When the limit was reached.
    pub exhausted: Option<i64>,
    /// The limit for which these two hold.
    pub limit: f64,
    /// First second of an hour, and what was used within it.
    pub hours: Vec<(i64, f64)>,
}

/// A threshold of a budget was reached.
#[derive(Debug, Clone, PartialEq)]
pub struct BudgetEvent {
    /// The budget.
    pub budget: Budget,
    /// The share of its limit.
    pub threshold: f64,
    /// How much is used.
    pub used: f64,
    /// In this period.
    pub bounds: Bounds,
}

/// Scene and model.
type Traffic = (Arc<str>, Arc<str>);

/// All budgets, and what is used of them.
#[derive(Debug, Default)]
pub struct Budgets {
    all: Vec<Tracked>,
    /// Indices of the budgets that cover it.
    covering: HashMap<Traffic, Arc<[usize]>>,
    /// What was asked for last: streams ask for the same again and again.
    last: Option<(Traffic, Arc<[usize]>)>,
    events: Vec<BudgetEvent>,
}

/// What is used, once.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Use {
    /// So many tokens.
    Tokens(u64),
    /// So much money of this currency, by this kind of price, in units.
    Money(Currency, Basis, f64),
}

impl Budgets {
    /// These budgets take the place of those before; what was used of the same ones stays. `kept` tells what was used of
    /// those that are new here.
    pub fn configure(&mut self, budgets: Vec<Budget>, kept: &[Kept], now: i64) {
        let mut before: HashMap<Arc<str>, Tracked> = std::mem::take(&mut self.all)
            .into_iter()
            .map(|tracked| (Arc::clone(&tracked.budget.name), tracked))
            .collect();
        self.covering.clear();
        self.last = None;
        for budget in budgets {
            let mut tracked = Tracked::new(budget, now);
            for kept in kept {
                tracked.restore(kept);
            }
            if let Some(before) = before.remove(&tracked.budget.name) {
                tracked.inherit(before);
            }
            self.all.push(tracked);
        }
        self.advance(now);
    }

    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Something was used for a scene, of a model, at `now` (Unix seconds).
    pub fn add(&mut self, now: i64, scene: &Arc<str>, model: &Arc<str>, used: Use) {
        for index in self.covering(scene, model).iter().copied() {
            let tracked = &mut self.all[index];
            let more = match (tracked.budget.unit, used) {
                (Unit::Tokens, Use::Tokens(count)) => count as f64,
                (Unit::Money(currency, basis), Use::Money(of, by, amount))
                    if currency == of && basis == by =>
                {
                    amount
                }
                _ => continue,
            };
            if more.is_finite() && more > 0.0 {
                tracked.add(now, more, &mut self.events);
            }
        }
    }

    /// A budget that covers a scene and model is used up at `now` (Unix seconds).
    pub fn used_up(&mut self, now: i64, scene: &Arc<str>, model: &Arc<str>) -> bool {
        let covering = self.covering(scene, model);
        covering.iter().any(|index| {
            let tracked = &mut self.all[*index];
            tracked.advance(now);
            tracked.used() >= tracked.budget.limit
        })
    }

    fn covering(&mut self, scene: &Arc<str>, model: &Arc<str>) -> Arc<[usize]> {
        if let Some(((last_scene, last_model), indices)) = &self.last
            && last_scene == scene
            && last_model == model
        {
            return Arc::clone(indices);
        }
        let pair = (Arc::clone(scene), Arc::clone(model));
        if self.covering.len() >= MAX_PAIRS && !self.covering.contains_key(&pair) {
            self.covering.clear();
        }
        let all = &self.all;
        let indices = self.covering.entry(pair.clone()).or_insert_with(|| {
            let covers = |(_, tracked): &(usize, &Tracked)| tracked.budget.covers(scene, model);
            all.iter()
                .enumerate()
                .filter(covers)
                .map(|(index, _)| index)
                .collect()
        });
        let indices = Arc::clone(indices);
        self.last = Some((pair, Arc::clone(&indices)));
        indices
    }

    /// Goes on to the periods that `now` is in, and looks whether a threshold is reached that was not told.
    pub fn advance(&mut self, now: i64) {
        for tracked in &mut self.all {
            tracked.advance(now);
            tracked.judge(now, &mut self.events);
        }
    }

    /// Thresholds that were reached since this was last asked: each once a period, also over restarts where [`Kept`]
    /// comes back.
    pub fn take_events(&mut self) -> Vec<BudgetEvent> {
        std::mem::take(&mut self.events)
    }

    /// What has changed since this was last asked, to be kept.
    pub fn take_changed(&mut self) -> Vec<Kept> {
        let mut out = Vec::new();
        for tracked in &mut self.all {
            tracked.take_changed(&mut out);
        }
        out
    }

    /// What was handed out to be kept may be lost: all of it is to be kept again.
    pub fn keep_all(&mut self) {
        self.all.iter_mut().for_each(Tracked::keep_all);
    }

    /// How they stand, in the order of their configuration.
    pub fn report(&self, now: i64) -> Vec<BudgetReport> {
        self.all.iter().map(|tracked| tracked.report(now)).collect()
    }
}

//! How a budget stands, and when it will be used up at the rate of now.
//!
//! Owns: the rates and the projection. Refuses: names of metrics.

use super::usage::{HOUR, Tracked};
use serde::{Deserialize, Serialize};

/// Whole hours before the one that runs, whose use makes the recent rate.
const RECENT_HOURS: i64 = 6;
/// Seconds that must have been watched before they make a rate.
const EVIDENCE: i64 = 300;

/// How a budget stands. Times are Unix seconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BudgetReport {
    /// What it is called.
    pub name: String,
    /// Pattern of scenes.
    pub scene: String,
    /// Pattern of served models.
    pub model: String,
    /// `tokens`, or the code of a currency.
    pub unit: String,
    /// What money is counted by: `tokens` or `gpu`; absent for tokens.
    pub basis: Option<String>,
    /// `day`, `week` or `month`.
    pub period: String,
    /// IANA name.
    pub time_zone: String,
    /// When the current period began.
    pub period_start: i64,
    /// When the next one begins.
    pub period_end: i64,
    /// Since when this budget is measured, where that is within the period: what was used before is not known.
    pub measured_since: Option<i64>,
    /// Shares of the limit that are told when they are reached; rising.
    pub thresholds: Vec<f64>,
    /// How much there is.
    pub limit: f64,
    /// How much of it is used.
    pub used: f64,
    /// `used` / `limit`.
    pub ratio: f64,
    /// Use an hour in this period so far; absent for its first five minutes.
    pub period_rate: Option<f64>,
    /// Use an hour in the last six whole hours and the one that runs, whatever period they were in; absent before five
    /// minutes were measured.
    pub recent_rate: Option<f64>,
    /// When the limit was reached, or will be at the higher of both rates; absent where the budget lasts until the period
    /// ends, and where there is no rate.
    pub exhausted_at: Option<i64>,
}

impl Tracked {
    pub(super) fn report(&self, now: i64) -> BudgetReport {
        let budget = &self.budget;
        let used = self.used();
        let period_rate = rate(used, self.bounds.start.max(self.since), now);
        let first = now - now.rem_euclid(HOUR) - RECENT_HOURS * HOUR;
        let recent: f64 = self.hours.range(first..=now).map(|(_, used)| used).sum();
        let recent_rate = rate(recent, first.max(self.since), now);
        let highest = period_rate.into_iter().chain(recent_rate).fold(0.0, f64::max);
        let ahead = (budget.limit - used) / highest * HOUR as f64;
        let projected = (highest > 0.0 && ahead < (self.bounds.end - now) as f64)
            .then_some(now.saturating_add(ahead.max(0.0) as i64));
        BudgetReport {
            name: budget.name.to_string(),
            scene: budget.scene.to_string(),
            model: budget.model.to_string(),
            unit: budget.unit.as_str().to_owned(),
            basis: budget.unit.basis().map(str::to_owned),
            period: budget.period.as_str().to_owned(),
            time_zone: budget.zone.name().to_owned(),
            period_start: self.bounds.start,
            period_end: self.bounds.end,
            measured_since: (self.since > self.bounds.start).then_some(self.since),
            thresholds: budget.thresholds.clone(),
            limit: budget.limit,
            used,
            ratio: used / budget.limit,
            period_rate,
            recent_rate,
            exhausted_at: self.spent().and_then(|spent| spent.exhausted).or(projected),
        }
    }
}

/// So much an hour, where there was enough time.
fn rate(used: f64, since: i64, now: i64) -> Option<f64> {
    let seconds = now.saturating_sub(since);
    (seconds >= EVIDENCE).then(|| used * HOUR as f64 / seconds as f64)
}

//! `[[budget]]`: how much scenes may use.
//!
//! Owns: the section, and the places of its mistakes. Refuses: what a budget means (the core's `budget`).

use crate::config_section;
use infertap_core::budget::{self, Budget, BudgetText, THRESHOLDS};

config_section! {
    /// How much scenes may use in a day, a week or a month. What is used, when it will be used up, and a warning when a
    /// threshold is reached are in the metrics, on /api/v1/budgets and in `infertap budget`; nothing is refused to
    /// anybody. What is used outlives the agent ([store]). Budgets are read again on SIGHUP and when the file changes:
    /// another limit or other thresholds keep what is used; any other change begins anew. See docs/cost.md.
    pub struct BudgetConfig {
        /// What it is called: the label "budget" of its metrics.
        pub name: String = String::new(),
        /// Scenes that count, all of them together; * stands for any characters and ? for one.
        pub scene: String = "*".to_owned(),
        /// Served models that count, as a pattern too.
        pub model: String = "*".to_owned(),
        /// "tokens" (input and output together), or money by the code of its currency, as in "USD".
        pub unit: String = "tokens".to_owned(),
        /// What money is counted by: the price of "tokens", or of "gpu" time.
        pub basis: String = "tokens".to_owned(),
        /// How much there is in a period, in the unit; above 0.
        pub limit: f64 = 0.0,
        /// "day", "week" (from Monday on) or "month".
        pub period: String = "month".to_owned(),
        /// Whose midnight: an IANA name, as in "Europe/Berlin".
        pub time_zone: String = "UTC".to_owned(),
        /// Shares of the limit that are told in the log and counted when they are reached, once a period; above 0 and up to
        /// 10.
        pub thresholds: Vec<f64> = THRESHOLDS.to_vec(),
    }
}

impl BudgetConfig {
    /// What the sample file shows.
    pub const EXAMPLE: &'static str = "name = \"search\"\nscene = \"search*\"\nlimit = 50_000_000\nperiod = \"day\"\ntime_zone = \"Europe/Berlin\"\n";

    fn budget(&self) -> Result<Budget, String> {
        BudgetText {
            name: &self.name,
            scene: &self.scene,
            model: &self.model,
            unit: &self.unit,
            basis: &self.basis,
            limit: self.limit,
            period: &self.period,
            time_zone: &self.time_zone,
            thresholds: &self.thresholds,
        }
        .budget()
    }
}

/// The budgets.
///
/// # Errors
/// Every one that is refused: its key, and why and what would be right.
pub fn budgets(all: &[BudgetConfig]) -> Result<Vec<Budget>, Vec<(String, String)>> {
    let key = |index: usize| format!("budget[{index}]");
    let (mut budgets, mut bad) = (Vec::new(), Vec::new());
    for (index, one) in all.iter().enumerate() {
        match one.budget() {
            Ok(budget) => budgets.push(budget),
            Err(reason) => bad.push((key(index), reason)),
        }
    }
    if !bad.is_empty() {
        return Err(bad);
    }
    match budget::together(&budgets) {
        Ok(()) => Ok(budgets),
        Err((index, reason)) => Err(vec![(key(index), reason)]),
    }
}

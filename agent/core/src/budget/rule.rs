//! One budget: what it measures, and how much of that there may be.
//!
//! Owns: its checks, and the key under which its usage is kept. Refuses: usage.

use super::period::{Period, Zone};
use crate::money::{Basis, Currency};
use crate::scene::glob;
use std::sync::Arc;

/// Thresholds of a budget that names none.
pub const THRESHOLDS: [f64; 2] = [0.8, 1.0];
/// Most thresholds of a budget.
const MAX_THRESHOLDS: usize = 10;
/// Highest threshold, and lowest.
const MAX_THRESHOLD: f64 = 10.0;
/// Longest name or pattern, in bytes.
const MAX_TEXT: usize = 256;
/// Most budgets.
pub const MAX_BUDGETS: usize = 200;

/// What a budget is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Tokens, input and output together.
    Tokens,
    /// Money of this currency, by this kind of price.
    Money(Currency, Basis),
}

impl Unit {
    /// `tokens`, or the currency's code.
    pub fn as_str(&self) -> &str {
        match self {
            Unit::Tokens => "tokens",
            Unit::Money(currency, _) => currency.as_str(),
        }
    }

    /// By which kind of price; tokens have none.
    pub const fn basis(&self) -> Option<&'static str> {
        match self {
            Unit::Tokens => None,
            Unit::Money(_, basis) => Some(basis.as_str()),
        }
    }
}

/// A budget as it is written; absent texts are empty.
#[derive(Debug, Clone, Copy)]
pub struct BudgetText<'a> {
    /// What it is called.
    pub name: &'a str,
    /// Pattern of scenes.
    pub scene: &'a str,
    /// Pattern of served models.
    pub model: &'a str,
    /// `tokens`, or a currency's code.
    pub unit: &'a str,
    /// What money is counted by: `tokens` or `gpu`.
    pub basis: &'a str,
    /// How much, in the unit.
    pub limit: f64,
    /// `day`, `week` or `month`.
    pub period: &'a str,
    /// IANA name.
    pub time_zone: &'a str,
    /// Shares of the limit.
    pub thresholds: &'a [f64],
}

/// A budget.
#[derive(Debug, Clone, PartialEq)]
pub struct Budget {
    /// What it is called: label `budget`.
    pub name: Arc<str>,
    /// Pattern of scenes.
    pub scene: Arc<str>,
    /// Pattern of served models.
    pub model: Arc<str>,
    /// What it is in.
    pub unit: Unit,
    /// How much, in the unit; above 0.
    pub limit: f64,
    /// How long it lasts.
    pub period: Period,
    /// Whose days, weeks and months.
    pub zone: Zone,
    /// Shares of the limit that are told when they are reached; rising.
    pub thresholds: Vec<f64>,
}

impl BudgetText<'_> {
    /// The budget.
    ///
    /// # Errors
    /// Why there is none, and what would be right.
    pub fn budget(&self) -> Result<Budget, String> {
        if self.name.trim().is_empty() {
            return Err("a budget needs a name, as in name = \"search\"".to_owned());
        }
        for (key, text) in [("name", self.name), ("scene", self.scene), ("model", self.model)] {
            if text.len() > MAX_TEXT || text.chars().any(char::is_control) {
                return Err(format!(
                    "{key} is longer than {MAX_TEXT} bytes, or has control characters"
                ));
            }
            if text.is_empty() {
                return Err(format!("{key} is empty: \"*\" stands for all"));
            }
        }
        let Some(basis) = Basis::ALL.into_iter().find(|basis| basis.as_str() == self.basis) else {
            return Err(format!(
                "basis {:?} is neither \"tokens\" nor \"gpu\"",
                self.basis
            ));
        };
        let unit = match (self.unit, self.unit.parse()) {
            ("tokens", _) => Unit::Tokens,
            (_, Ok(currency)) => Unit::Money(currency, basis),
            (other, Err(_)) => {
                return Err(format!(
                    "unit {other:?} is neither \"tokens\" nor the code of a currency, as in \"USD\""
                ));
            }
        };
        if !(self.limit.is_finite() && self.limit > 0.0) {
            return Err(format!(
                "limit {} is no number above 0: how much there is in a period",
                self.limit
            ));
        }
        let Some(period) = Period::ALL.into_iter().find(|p| p.as_str() == self.period) else {
            return Err(format!(
                "period {:?} is none of \"day\", \"week\", \"month\"",
                self.period
            ));
        };
        let mut thresholds = self.thresholds.to_vec();
        if thresholds.len() > MAX_THRESHOLDS {
            return Err(format!("more than {MAX_THRESHOLDS} thresholds"));
        }
        if let Some(wrong) = thresholds.iter().find(|t| !(**t > 0.0 && **t <= MAX_THRESHOLD)) {
            return Err(format!(
                "threshold {wrong} is not above 0 and up to {MAX_THRESHOLD}: shares of the limit, as in 0.8"
            ));
        }
        thresholds.sort_by(f64::total_cmp);
        thresholds.dedup();
        Ok(Budget {
            name: self.name.into(),
            scene: self.scene.into(),
            model: self.model.into(),
            unit,
            limit: self.limit,
            period,
            zone: Zone::named(self.time_zone)?,
            thresholds,
        })
    }
}

impl Budget {
    /// What it measures, as one word: usage is kept under it and the name. Another limit or other thresholds keep the usage;
    /// anything else begins anew.
    pub fn measure(&self) -> String {
        let basis = self
            .unit
            .basis()
            .map_or_else(String::new, |basis| format!(" by {basis}"));
        format!(
            "{}{basis} a {} ({}) of scene {} and model {}",
            self.unit.as_str(),
            self.period.as_str(),
            self.zone.name(),
            self.scene,
            self.model
        )
    }

    /// Whether requests of this scene and model count.
    pub fn covers(&self, scene: &str, model: &str) -> bool {
        glob(&self.scene, scene) && glob(&self.model, model)
    }
}

/// Whether these budgets can be together.
///
/// # Errors
/// The index of the one that can't, and why.
pub fn together(budgets: &[Budget]) -> Result<(), (usize, String)> {
    if budgets.len() > MAX_BUDGETS {
        return Err((MAX_BUDGETS, format!("more than {MAX_BUDGETS} budgets")));
    }
    for (index, budget) in budgets.iter().enumerate() {
        if budgets[..index].iter().any(|other| other.name == budget.name) {
            return Err((
                index,
                format!(
                    "there is another budget named {:?}: names tell them apart",
                    budget.name
                ),
            ));
        }
    }
    Ok(())
}

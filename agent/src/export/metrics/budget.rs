//! How budgets stand, as Prometheus metrics.
//!
//! Owns: their series, which begin and end with the budgets of the configuration. Refuses: label caps, as the operator
//! names budgets, and their number is bounded.

use super::{Metrics, catalog, options};
use infertap_core::budget::{BudgetEvent, BudgetReport};
use prometheus::{GaugeVec, IntCounterVec, Registry};
use std::collections::BTreeSet;
use std::sync::Mutex;

/// The families.
pub(super) struct BudgetMetrics {
    /// Of tokens: limit, used.
    tokens: [GaugeVec; 2],
    /// Of money: limit, used.
    money: [GaugeVec; 2],
    ratio: GaugeVec,
    exhaustion: GaugeVec,
    events: IntCounterVec,
    /// Label values of what was told last.
    told: Mutex<Told>,
}

/// Label values of series.
#[derive(Default, PartialEq)]
struct Told {
    /// Budget, scene, unit.
    budgets: BTreeSet<[String; 3]>,
    /// Budget, threshold.
    thresholds: BTreeSet<[String; 2]>,
}

impl BudgetMetrics {
    pub(super) fn register(registry: &Registry) -> prometheus::Result<BudgetMetrics> {
        let gauge = |definition: &catalog::Definition| {
            let gauge = GaugeVec::new(options(definition), definition.labels)?;
            registry.register(Box::new(gauge.clone()))?;
            prometheus::Result::Ok(gauge)
        };
        Ok(BudgetMetrics {
            tokens: [
                gauge(catalog::TOKEN_BUDGET_LIMIT)?,
                gauge(catalog::TOKEN_BUDGET_USED)?,
            ],
            money: [
                gauge(catalog::COST_BUDGET_LIMIT)?,
                gauge(catalog::COST_BUDGET_USED)?,
            ],
            ratio: gauge(catalog::BUDGET_RATIO)?,
            exhaustion: gauge(catalog::BUDGET_EXHAUSTION)?,
            events: super::counter_vec(registry, catalog::BUDGET_EVENTS)?,
            told: Mutex::default(),
        })
    }

    /// Ends the series of what is no longer there. They were made, so a failure to find one is no news.
    fn end(&self, before: &Told, now: &Told) {
        for [budget, scene, unit] in before.budgets.difference(&now.budgets) {
            for family in self.tokens.iter().chain([&self.ratio, &self.exhaustion]) {
                let _ = family.remove_label_values(&[budget, scene]);
            }
            for family in &self.money {
                let _ = family.remove_label_values(&[budget, scene, unit]);
            }
        }
        for [budget, threshold] in before.thresholds.difference(&now.thresholds) {
            let _ = self.events.remove_label_values(&[budget, threshold]);
        }
    }
}

impl Metrics {
    /// How all budgets stand.
    pub fn budgets(&self, reports: &[BudgetReport]) {
        let families = &self.budgets;
        let mut now = Told::default();
        for report in reports {
            let labels = [report.name.clone(), report.scene.clone(), report.unit.clone()];
            now.budgets.insert(labels);
            for threshold in &report.thresholds {
                now.thresholds
                    .insert([report.name.clone(), threshold.to_string()]);
            }
        }
        let mut told = super::lock(&families.told);
        families.end(&told, &now);
        for report in reports {
            let labels = [&*report.name, &*report.scene];
            let values = [report.limit, report.used];
            if report.unit == "tokens" {
                for (family, value) in families.tokens.iter().zip(values) {
                    family.with_label_values(&labels).set(value);
                }
            } else {
                for (family, value) in families.money.iter().zip(values) {
                    let labels = [labels[0], labels[1], &*report.unit];
                    family.with_label_values(&labels).set(value);
                }
            }
            families.ratio.with_label_values(&labels).set(report.ratio);
            if let Some(at) = report.exhausted_at {
                families.exhaustion.with_label_values(&labels).set(at as f64);
            } else {
                let _ = families.exhaustion.remove_label_values(&labels);
            }
        }
        for [budget, threshold] in &now.thresholds {
            // From 0 on: the first time is then an increase.
            families.events.with_label_values(&[budget, threshold]);
        }
        *told = now;
    }

    /// A threshold of a budget was reached.
    pub fn budget_event(&self, event: &BudgetEvent) {
        let threshold = event.threshold.to_string();
        let labels = [&*event.budget.name, &threshold];
        self.budgets.events.with_label_values(&labels).inc();
    }
}

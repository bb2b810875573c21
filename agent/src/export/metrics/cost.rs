//! Charges as Prometheus counters.
//!
//! Owns: exact sums, of which the counters are the nearest numbers. Refuses: prices and charges (the core's `money`), and
//! label caps (`series`).

use super::{catalog, counter_vec, histogram::lock, options, series::State};
use infertap_core::{
    money::{Amount, Charge, ChargeKind, Currency},
    observation::{Labels, TokenDirection},
};
use prometheus::{Counter, CounterVec, IntCounterVec, Registry};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

/// Model and scene as exported, currency, and what of [`Charge`] tells one series from another.
type Key = (Arc<str>, Arc<str>, Currency, &'static str, &'static str);

/// The families.
pub(super) struct Costs {
    cost: CounterVec,
    saved: CounterVec,
    unpriced: IntCounterVec,
    sums: Mutex<HashMap<Key, (Counter, Amount)>>,
}

/// In the place of a direction: the sum of what was saved.
const SAVED: &str = "saved";

impl Costs {
    pub(super) fn register(registry: &Registry) -> prometheus::Result<Costs> {
        let counter = |definition: &catalog::Definition| {
            let counter = CounterVec::new(options(definition), definition.labels)?;
            registry.register(Box::new(counter.clone()))?;
            prometheus::Result::Ok(counter)
        };
        Ok(Costs {
            cost: counter(catalog::COST)?,
            saved: counter(catalog::COST_SAVED)?,
            unpriced: counter_vec(registry, catalog::UNPRICED_TOKENS)?,
            sums: Mutex::default(),
        })
    }

    /// Money was spent.
    pub(super) fn charge(&self, charge: &Charge, state: &mut State) {
        let model = state.models.admit(&charge.labels.model).value;
        let scene = state.scenes.admit(&charge.labels.scene).value;
        let (currency, basis) = (charge.currency, charge.basis.as_str());
        let mut sums = lock(&self.sums);
        let mut add = |kind, amount, child: &dyn Fn() -> Counter| {
            let key = (Arc::clone(&model), Arc::clone(&scene), currency, kind, basis);
            let (counter, sum) = sums.entry(key).or_insert_with(|| (child(), Amount::ZERO));
            *sum += amount;
            // Nothing else writes to it, so it never has to go back.
            counter.inc_by((sum.units() - counter.get()).max(0.0));
        };
        let direction = charge.kind.as_str();
        add(direction, charge.amount, &|| {
            self.cost
                .with_label_values(&[&*model, &*scene, currency.as_str(), direction, basis])
        });
        if charge.kind == ChargeKind::CachedInput {
            add(SAVED, charge.saved, &|| {
                self.saved
                    .with_label_values(&[&*model, &*scene, currency.as_str()])
            });
        }
    }

    /// Tokens have no price.
    pub(super) fn unpriced(&self, labels: &Labels, direction: TokenDirection, count: u64, state: &mut State) {
        let model = state.models.admit(&labels.model).value;
        let scene = state.scenes.admit(&labels.scene).value;
        self.unpriced
            .with_label_values(&[&*model, &*scene, direction.as_str()])
            .inc_by(count);
    }
}

//! What GPUs cost: their time, by a price an hour.
//!
//! Owns: the price, and whose the money is. Refuses: whose a second was (`gpu`).

use super::{
    amount::{Amount, Currency, Rate},
    charge::{Basis, Charge, ChargeKind},
};
use crate::{
    gpu::{GpuShare, TokenPhase},
    observation::Labels,
};
use std::sync::Arc;

/// Scene of time that is no request's.
pub const UNATTRIBUTED: &str = "unattributed";
/// Model of it, and engine of time that is no engine's.
const UNKNOWN: &str = "unknown";

/// What a GPU costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GpuPrice {
    /// What it is in.
    pub currency: Currency,
    /// An hour.
    per_hour: Rate,
}

impl GpuPrice {
    /// `units` of the currency an hour.
    ///
    /// # Errors
    /// As [`Rate::per_million`].
    pub fn per_hour(currency: Currency, units: f64) -> Result<GpuPrice, String> {
        let per_hour = Rate::per_million(units)?;
        Ok(GpuPrice { currency, per_hour })
    }

    /// What so many seconds cost, less than a picounit too little.
    fn of(self, seconds: f64) -> Amount {
        // What is no number, or below 0, becomes 0. The rate is of millionths, and an hour 3.6 × 10¹² nanoseconds.
        let nanoseconds = (seconds * 1e9).round() as u64;
        Amount::from_pico(self.per_hour.times(nanoseconds).pico() / 3_600_000)
    }

    /// The charge for a share; none for what is told twice.
    pub(super) fn charge(self, share: &GpuShare) -> Option<Charge> {
        let nobodys = |engine: Arc<str>| Labels {
            engine,
            model: UNKNOWN.into(),
            scene: UNATTRIBUTED.into(),
        };
        let (labels, kind, seconds) = match share {
            GpuShare::Request {
                labels,
                phase,
                seconds,
                ..
            } => {
                let kind = match phase {
                    TokenPhase::Prefill => ChargeKind::Input,
                    TokenPhase::Decode => ChargeKind::Output,
                };
                (labels.clone(), kind, *seconds)
            }
            GpuShare::Uncharged { engine, seconds, .. } => {
                (nobodys(Arc::clone(engine)), ChargeKind::Unattributed, *seconds)
            }
            GpuShare::Unattributed { seconds, .. } => {
                (nobodys(UNKNOWN.into()), ChargeKind::Unattributed, *seconds)
            }
            // The sum of the first two; and a record's energy.
            GpuShare::Engine { .. } | GpuShare::Whole { .. } => return None,
        };
        let amount = self.of(seconds);
        (!amount.is_zero()).then_some(Charge {
            request: None,
            client: None,
            labels,
            basis: Basis::Gpu,
            currency: self.currency,
            kind,
            amount,
            tokens: 0,
            saved: Amount::ZERO,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Money, Observation, PriceBook,
        gpu::{GpuState, Unattributed, Uncharged},
    };

    #[test]
    fn time_of_gpus_costs_whoever_it_was_for_and_idle_time_nobody() {
        let usd: Currency = "USD".parse().expect("a currency");
        let mut money = Money::new(PriceBook::default().into());
        let labels = Labels {
            engine: "e".into(),
            model: "m".into(),
            scene: "s".into(),
        };
        let request = |phase, seconds| GpuShare::Request {
            labels: labels.clone(),
            phase,
            seconds,
            joules: 1.0,
        };
        let shares = || {
            [
                GpuShare::Engine {
                    engine: "e".into(),
                    state: GpuState::Decode,
                    seconds: 3_600.0,
                    joules: None,
                },
                request(TokenPhase::Prefill, 900.0),
                request(TokenPhase::Decode, 1_800.0),
                GpuShare::Uncharged {
                    engine: "e".into(),
                    reason: Uncharged::Idle,
                    seconds: 900.0,
                    joules: 0.0,
                },
                GpuShare::Unattributed {
                    uuid: "GPU-1".into(),
                    reason: Unattributed::NoEngine,
                    seconds: 3.6,
                    joules: None,
                },
                request(TokenPhase::Decode, f64::NAN),
                request(TokenPhase::Decode, -1.0),
            ]
            .map(Observation::Gpu)
            .to_vec()
        };
        let mut out = shares();
        money.apply(0, &mut out);
        assert_eq!(out.len(), 7, "without a price nothing is charged");
        money.set_gpu_price(GpuPrice::per_hour(usd, 4.0).ok());
        money.apply(0, &mut out);
        let told: Vec<(&str, &str, &str, String)> = out
            .iter()
            .filter_map(|observation| match observation {
                Observation::Charge(charge) => Some((
                    &*charge.labels.model,
                    &*charge.labels.scene,
                    charge.kind.as_str(),
                    charge.amount.to_string(),
                )),
                _ => None,
            })
            .collect();
        assert_eq!(
            told,
            [
                ("m", "s", "input", "1".to_owned()),
                ("m", "s", "output", "2".to_owned()),
                ("unknown", "unattributed", "unattributed", "1".to_owned()),
                ("unknown", "unattributed", "unattributed", "0.004".to_owned()),
            ]
        );
    }
}

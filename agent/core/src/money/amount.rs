//! Amounts of money, exact, and what they are in.
//!
//! Owns: their arithmetic and how they are written. Refuses: prices (`price`); a conversion between currencies.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use std::{fmt, iter::Sum, str::FromStr};

/// Parts of a currency's unit that an [`Amount`] counts.
const PICO: u128 = 1_000_000_000_000;

/// An amount of money, never negative: whole picounits (10⁻¹²) of its currency, so that sums are exact. The least price
/// that can be given, 10⁻⁶ a million tokens, is one picounit a token. Arithmetic stops at the ends of its range.
///
/// In JSON it is a number of units: exact below 9,000 units, and to 15 digits above.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Amount(u128);

impl Amount {
    /// Nothing.
    pub const ZERO: Amount = Amount(0);

    /// So many picounits.
    pub const fn from_pico(pico: u128) -> Amount {
        Amount(pico)
    }

    /// In picounits.
    pub const fn pico(self) -> u128 {
        self.0
    }

    /// So many units, to the nearest picounit; `None`: negative, or no number that could be money.
    pub fn from_units(units: f64) -> Option<Amount> {
        let pico = units * PICO as f64;
        (pico.is_finite() && (0.0..1e36).contains(&pico)).then(|| Amount(pico.round() as u128))
    }

    /// In units, for export: the nearest number that there is.
    pub fn units(self) -> f64 {
        (self.0 / PICO) as f64 + (self.0 % PICO) as f64 / PICO as f64
    }

    /// It is nothing.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// The sum.
    #[must_use]
    pub const fn plus(self, more: Amount) -> Amount {
        Amount(self.0.saturating_add(more.0))
    }

    /// What is left, nothing where `less` is more.
    #[must_use]
    pub const fn minus(self, less: Amount) -> Amount {
        Amount(self.0.saturating_sub(less.0))
    }
}

impl std::ops::AddAssign for Amount {
    fn add_assign(&mut self, more: Amount) {
        *self = self.plus(more);
    }
}

impl Sum for Amount {
    fn sum<I: Iterator<Item = Amount>>(amounts: I) -> Amount {
        amounts.fold(Amount::ZERO, Amount::plus)
    }
}

/// In units, with the decimals that it has: `0.00123`.
impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let decimals = format!("{:012}", self.0 % PICO);
        match decimals.trim_end_matches('0') {
            "" => f.pad(&(self.0 / PICO).to_string()),
            decimals => f.pad(&format!("{}.{decimals}", self.0 / PICO)),
        }
    }
}

impl Serialize for Amount {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.units())
    }
}

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Amount, D::Error> {
        let units = f64::deserialize(deserializer)?;
        Amount::from_units(units).ok_or_else(|| D::Error::custom(format!("{units} is no amount of money")))
    }
}

/// A currency's code, as in `USD`: three upper-case letters.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Currency([u8; 3]);

impl Currency {
    /// The code.
    pub fn as_str(&self) -> &str {
        // Made of upper-case letters only.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

/// No currency's code.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no currency: write its code, three upper-case letters, as in \"USD\"")]
pub struct BadCurrency(String);

impl FromStr for Currency {
    type Err = BadCurrency;

    fn from_str(text: &str) -> Result<Currency, BadCurrency> {
        match <[u8; 3]>::try_from(text.as_bytes()) {
            Ok(code) if code.iter().all(u8::is_ascii_uppercase) => Ok(Currency(code)),
            _ => Err(BadCurrency(text.chars().take(32).collect())),
        }
    }
}

impl fmt::Debug for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl Serialize for Currency {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Currency {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Currency, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(D::Error::custom)
    }
}

/// What one of something costs: picounits of a currency.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate(u64);

/// Highest price, in units of its currency, a million tokens or an hour.
pub const MAX_PRICE: f64 = 1e9;

impl Rate {
    /// That of a token where a million cost `units`.
    ///
    /// # Errors
    /// It is negative, more than [`MAX_PRICE`], or has more than six decimals.
    pub fn per_million(units: f64) -> Result<Rate, String> {
        if !(0.0..=MAX_PRICE).contains(&units) {
            return Err(format!("{units} is not within 0 to {MAX_PRICE}"));
        }
        let micro = (units * 1e6).round();
        // The number nearest to a price of six decimals gives it back.
        if (micro / 1e6 - units).abs() > units * f64::EPSILON * 2.0 {
            return Err(format!("{units} has more than six decimals"));
        }
        Ok(Rate(micro as u64))
    }

    /// What `count` cost.
    pub fn times(self, count: u64) -> Amount {
        Amount(u128::from(self.0) * u128::from(count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_written_as_they_are() {
        for (pico, text, units) in [
            (0, "0", 0.0),
            (1, "0.000000000001", 1e-12),
            (1_230_000_000, "0.00123", 0.00123),
            (5 * PICO, "5", 5.0),
            (12 * PICO + PICO / 2, "12.5", 12.5),
        ] {
            let amount = Amount::from_pico(pico);
            assert_eq!(amount.to_string(), text);
            assert_eq!(amount.units(), units);
            assert_eq!(Amount::from_units(units), Some(amount));
            let json = serde_json::to_string(&amount).expect("a number");
            assert_eq!(serde_json::from_str::<Amount>(&json).expect(&json), amount);
        }
        for odd in [-0.1, f64::NAN, f64::INFINITY, 1e30] {
            assert_eq!(Amount::from_units(odd), None, "{odd}");
        }
        assert_eq!(
            Amount::from_pico(u128::MAX).plus(Amount::from_pico(1)).pico(),
            u128::MAX
        );
        assert_eq!(Amount::from_pico(1).minus(Amount::from_pico(2)), Amount::ZERO);
    }

    #[test]
    fn currencies_are_codes() {
        let currency: Currency = "EUR".parse().expect("a code");
        assert_eq!(format!("{currency} {currency:?} {currency:>5}"), "EUR EUR   EUR");
        assert_eq!(serde_json::to_string(&currency).expect("text"), "\"EUR\"");
        for bad in ["", "eur", "EURO", "E1R", "€"] {
            assert!(bad.parse::<Currency>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_price_with_six_decimals_is_exact_and_one_with_more_is_refused() {
        for (units, pico) in [(0.0, 0), (0.15, 150_000), (2.5, 2_500_000), (0.000_001, 1)] {
            assert_eq!(
                Rate::per_million(units).expect("a price").times(1),
                Amount::from_pico(pico)
            );
        }
        let all: Vec<f64> = (0..5_000).map(|i| f64::from(i) / 1e6 * 37.0).collect();
        for units in all {
            let written: f64 = format!("{units:.6}").parse().expect("a number");
            assert!(Rate::per_million(written).is_ok(), "{written}");
        }
        for bad in [-1.0, 0.000_000_5, 1.000_000_1, 1e10, f64::NAN] {
            assert!(Rate::per_million(bad).is_err(), "{bad}");
        }
        assert_eq!(
            Rate::per_million(MAX_PRICE)
                .expect("the most")
                .times(u64::MAX)
                .pico(),
            1_000_000_000_000_000 * u128::from(u64::MAX)
        );
    }
}

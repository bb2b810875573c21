//! Distributions: percentiles and how they are printed.
//!
//! Owns: the nearest-rank rule. Refuses: averages.

use std::fmt;

/// Values in ascending order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Distribution(Vec<f64>);

impl Distribution {
    /// Of these values; NaNs are left out.
    pub fn new(values: impl IntoIterator<Item = f64>) -> Distribution {
        let mut values: Vec<f64> = values.into_iter().filter(|value| !value.is_nan()).collect();
        values.sort_by(f64::total_cmp);
        Distribution(values)
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The nearest-rank percentile; NaN without values.
    pub fn percentile(&self, p: f64) -> f64 {
        let rank = (p / 100.0 * self.0.len() as f64).ceil() as usize;
        self.0.get(rank.max(1) - 1).copied().unwrap_or(f64::NAN)
    }

    /// The median; NaN without values.
    pub fn median(&self) -> f64 {
        self.percentile(50.0)
    }

    /// The smallest; NaN without values.
    pub fn min(&self) -> f64 {
        self.0.first().copied().unwrap_or(f64::NAN)
    }

    /// The largest; NaN without values.
    pub fn max(&self) -> f64 {
        self.0.last().copied().unwrap_or(f64::NAN)
    }

    /// Printed in units of `unit` (1e-3 prints milliseconds).
    pub fn in_units(&self, unit: f64) -> impl fmt::Display {
        let shown = |value: f64| format!("{:.3}", value / unit);
        format!(
            "n {:4}  min {}  p50 {}  p90 {}  p95 {}  p99 {}  max {}",
            self.len(),
            shown(self.min()),
            shown(self.percentile(50.0)),
            shown(self.percentile(90.0)),
            shown(self.percentile(95.0)),
            shown(self.percentile(99.0)),
            shown(self.max()),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_rank() {
        let of = Distribution::new((1..=200).rev().map(f64::from));
        let at = |p| of.percentile(p) as u32;
        assert_eq!(
            (at(50.0), at(95.0), at(99.0), at(100.0), at(0.0)),
            (100, 190, 198, 200, 1)
        );
        assert!(Distribution::default().median().is_nan());
        assert_eq!(Distribution::new([f64::NAN, 2.0]).len(), 1);
    }
}

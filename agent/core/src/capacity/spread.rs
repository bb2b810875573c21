//! A distribution of durations in a few hundred bytes, whose observations have weights.
//!
//! Owns: its bins, two to a doubling from 100 µs to half an hour. Refuses: exactness: a quantile is within a fifth.

const BINS: usize = 48;
const SMALLEST_S: f64 = 1e-4;

/// The distribution.
#[derive(Debug, Clone)]
pub(super) struct Spread {
    bins: [f64; BINS],
    weight: f64,
}

impl Default for Spread {
    fn default() -> Spread {
        Spread {
            bins: [0.0; BINS],
            weight: 0.0,
        }
    }
}

impl Spread {
    /// Adds a duration; what is not finite or negative is none.
    pub(super) fn add(&mut self, seconds: f64, weight: f64) {
        if !(seconds.is_finite() && seconds >= 0.0) {
            return;
        }
        let bin = ((seconds / SMALLEST_S).max(1.0).log2() * 2.0) as usize;
        if let Some(bin) = self.bins.get_mut(bin.min(BINS - 1)) {
            *bin += weight;
            self.weight += weight;
        }
    }

    /// Adds another one.
    pub(super) fn merge(&mut self, other: &Spread) {
        for (bin, more) in self.bins.iter_mut().zip(&other.bins) {
            *bin += more;
        }
        self.weight += other.weight;
    }

    pub(super) fn scale(&mut self, by: f64) {
        for bin in &mut self.bins {
            *bin *= by;
        }
        self.weight *= by;
    }

    pub(super) fn weight(&self) -> f64 {
        self.weight
    }

    /// The duration below which a part of the weight lies; `None` without any.
    pub(super) fn quantile(&self, part: f64) -> Option<f64> {
        if self.weight <= 0.0 {
            return None;
        }
        let mut left = self.weight * part;
        let mut last = 0.0;
        for (index, &bin) in self.bins.iter().enumerate() {
            if bin <= 0.0 {
                continue;
            }
            let within = (left / bin).min(1.0);
            last = SMALLEST_S * f64::midpoint(index as f64, within).exp2();
            if left <= bin {
                break;
            }
            left -= bin;
        }
        Some(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn without_weight_there_is_no_quantile() {
        let mut spread = Spread::default();
        for nothing in [f64::NAN, f64::INFINITY, -1.0] {
            spread.add(nothing, 1.0);
        }
        assert_eq!(spread.quantile(0.5), None);
    }

    proptest! {
        #[test]
        fn a_quantile_is_near_the_true_one(
            mut seconds in proptest::collection::vec(2e-4_f64..1000.0, 1..200),
            part in 0.05_f64..0.95,
        ) {
            let mut spread = Spread::default();
            for value in &seconds {
                spread.add(*value, 3.0);
            }
            seconds.sort_by(f64::total_cmp);
            let rank = ((seconds.len() as f64 * part).ceil() as usize).clamp(1, seconds.len());
            let truth = seconds[rank - 1];
            let told = spread.quantile(part).expect("not empty");
            prop_assert!(told / truth < 1.45 && truth / told < 1.45, "{told} for {truth}");
        }
    }
}

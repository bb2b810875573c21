//! How fast one engine prefills: learnt from requests that were alone and so did not wait.
//!
//! Owns: the samples and the fit. Refuses: which requests were alone (`infer`).

use std::collections::VecDeque;

const SAMPLES: usize = 48;
/// Samples that are enough for a rate.
const ENOUGH: usize = 4;
/// Prompts with less to compute show the cost of a request, not of its tokens.
const MIN_TOKENS: u64 = 16;

/// The rate of one engine.
#[derive(Debug, Default)]
pub(super) struct Rate {
    /// Seconds a token.
    samples: VecDeque<f64>,
    fit: Option<(f64, f64)>,
}

impl Rate {
    /// A lone request's prefill of `tokens` (without those from the prefix cache) took `seconds`.
    pub(super) fn learn(&mut self, tokens: u64, seconds: f64) {
        if tokens < MIN_TOKENS || !seconds.is_finite() || seconds <= 0.0 {
            return;
        }
        if self.samples.len() >= SAMPLES {
            self.samples.pop_front();
        }
        self.samples.push_back(seconds / tokens as f64);
        if self.samples.len() < ENOUGH {
            return;
        }
        let median = median(self.samples.iter().copied());
        let spread = 1.48 * self::median(self.samples.iter().map(|s| (s - median).abs()));
        self.fit = Some((median, spread));
    }

    /// Seconds that the prefill of `tokens` takes, and the error of that.
    pub(super) fn predict(&self, tokens: u64) -> Option<(f64, f64)> {
        let (median, spread) = self.fit?;
        Some((median * tokens as f64, spread * tokens as f64))
    }

    /// Heap bytes.
    pub(super) fn bytes(&self) -> usize {
        self.samples.capacity() * size_of::<f64>()
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outliers_do_not_move_the_rate_and_short_prompts_do_not_count() {
        let mut rate = Rate::default();
        for n in 0..20 {
            rate.learn(1000, if n % 5 == 0 { 9.0 } else { 0.5 });
            rate.learn(3, 9.0);
        }
        let (seconds, error) = rate.predict(200).expect("learnt");
        assert!((seconds - 0.1).abs() < 1e-9 && error < 0.01);
    }

    #[test]
    fn few_samples_are_no_rate() {
        let mut rate = Rate::default();
        for _ in 0..3 {
            rate.learn(100, 0.1);
        }
        assert_eq!(rate.predict(100), None);
    }
}

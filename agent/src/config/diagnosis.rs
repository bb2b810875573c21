//! `[diagnosis]`: when something is the cause of a request's slowness, and how long the capacity estimate remembers.
//!
//! Owns: the section and its ranges. Refuses: defaults (the core's) and the diagnosis itself (the core's `diagnose`).

use super::Span;
use crate::config_section;
use infertap_core::{DiagnosisConfig, capacity::DEFAULT_HALF_LIFE_NS};
use std::time::Duration;

config_section! {
    /// Where requests' time goes. Each share is a part of the time from a request's first byte to its response's last,
    /// above 0 and up to 1, from which on something is its cause in llm_bottleneck_total and in the diagnosis of its
    /// record. Of client, queue, prefill and interference the largest that reaches its share is the cause; decode is it
    /// when none of them does.
    pub struct DiagnosisSection {
        /// Share of waiting for the engine's scheduler.
        pub queue: f64 = DiagnosisConfig::default().queue,
        /// Share of reading the prompt.
        pub prefill: f64 = DiagnosisConfig::default().prefill,
        /// Share of generating: where a healthy request spends its time.
        pub decode: f64 = DiagnosisConfig::default().decode,
        /// Share of standing still while the engine read the prompts of others.
        pub interference: f64 = DiagnosisConfig::default().interference,
        /// Share of waiting for a client that does not read.
        pub client: f64 = DiagnosisConfig::default().client,
        /// Time after which a request counts half in the estimate of llm_capacity_concurrency; 1m to 7d. Shorter follows a
        /// changed engine sooner, longer needs less traffic.
        pub capacity_half_life: Span = Span::seconds(DEFAULT_HALF_LIFE_NS / 1_000_000_000),
    }
}

impl DiagnosisSection {
    /// What is out of its range: key, and why and what would be right.
    pub fn invalid(&self) -> Vec<(String, String)> {
        let shares = [
            ("queue", self.queue),
            ("prefill", self.prefill),
            ("decode", self.decode),
            ("interference", self.interference),
            ("client", self.client),
        ];
        let shares = shares
            .into_iter()
            .filter(|(_, share)| !(*share > 0.0 && *share <= 1.0))
            .map(|(name, share)| (name, format!("{share} is no share above 0 and up to 1")));
        let half_life = self.capacity_half_life;
        let fits = (Span::seconds(60)..=Span::seconds(7 * 86_400)).contains(&half_life);
        let half_life = (!fits).then(|| {
            (
                "capacity_half_life",
                format!("{half_life} is not within 1m to 7d"),
            )
        });
        shares
            .chain(half_life)
            .map(|(name, reason)| (format!("diagnosis.{name}"), reason))
            .collect()
    }

    /// The thresholds.
    pub(super) fn thresholds(&self) -> DiagnosisConfig {
        DiagnosisConfig {
            queue: self.queue,
            prefill: self.prefill,
            decode: self.decode,
            interference: self.interference,
            client: self.client,
        }
    }

    /// The half-life, in nanoseconds.
    pub(super) fn half_life_ns(&self) -> u64 {
        let half_life: Duration = self.capacity_half_life.duration();
        u64::try_from(half_life.as_nanos()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_the_cores_and_shares_are_shares() {
        let mut section = DiagnosisSection::default();
        assert_eq!(section.invalid(), []);
        assert_eq!(section.thresholds(), DiagnosisConfig::default());
        assert_eq!(section.half_life_ns(), DEFAULT_HALF_LIFE_NS);
        section.queue = 0.0;
        section.decode = 1.01;
        section.client = f64::NAN;
        section.capacity_half_life = Span::seconds(59);
        let keys: Vec<String> = section.invalid().into_iter().map(|(key, _)| key).collect();
        assert_eq!(
            keys,
            [
                "diagnosis.queue",
                "diagnosis.decode",
                "diagnosis.client",
                "diagnosis.capacity_half_life"
            ]
        );
    }
}

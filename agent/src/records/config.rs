//! `[records]`: which requests keep their record, and for how long.
//!
//! Owns: the section and its ranges. Refuses: the rules (the core's `sampling`).

use crate::config::{Size, Span};
use crate::config_section;
use infertap_core::sampling::SamplingConfig;

config_section! {
    /// Which requests keep their record in the [store], for `infertap requests` and `infertap show`: those that were slow,
    /// failed, were refused, given up or cancelled, came near their model's context limit, ended
    /// with a budget used up or stood still for the prompts of others, and a share of the rest. All requests count in the metrics, whether or not their record is kept. Read
    /// again on SIGHUP and when the file changes. See docs/records.md.
    pub struct RecordsConfig {
        /// Time to the first token from which on a request is slow; 0s: there is no such limit.
        pub slow_ttft: Span = Span::seconds(5),
        /// The same for the time between tokens: the P99 within the request.
        pub slow_itl: Span = Span::millis(500),
        /// The same for the time from the first byte of the request to the last of the response.
        pub slow_e2e: Span = Span::seconds(120),
        /// A request is also slow when one of these times is above the P99 of its model and scene, once that many requests were
        /// seen; 100 to 1000000, or 0: this is never asked.
        pub unusual_after: u64 = 1000,
        /// Share of the requests to which none of this applies that is kept too, to compare with; 0 to 1. It goes by the trace
        /// id: agents with the same share keep the same traces.
        pub head_rate: f64 = 0.01,
        /// Records that each rule may keep in any minute, so that an outage can't flood the disk; up to 10000, and with 0
        /// nothing is kept. infertap_records_total{decision="capped"} counts what this cost.
        pub per_minute: u64 = 60,
        /// How long records are kept; 1h to 365d.
        pub keep: Span = Span::seconds(7 * 86_400),
        /// Size of the store's file from which on the oldest records are dropped; 16MiB to 1024GiB.
        pub max_bytes: Size = Size::bytes(1 << 30),
    }
}

impl RecordsConfig {
    /// What is out of its range: key, and why and what would be right.
    pub fn invalid(&self) -> Vec<(String, String)> {
        let mut out = Vec::new();
        let mut require = |ok: bool, key: &str, reason: String| {
            if !ok {
                out.push((format!("records.{key}"), reason));
            }
        };
        let after = self.unusual_after;
        require(
            after == 0 || (100..=1_000_000).contains(&after),
            "unusual_after",
            format!("{after} is not within 100 to 1000000, and not 0"),
        );
        require(
            (0.0..=1.0).contains(&self.head_rate),
            "head_rate",
            format!("{} is no share from 0 to 1", self.head_rate),
        );
        require(
            self.per_minute <= 10_000,
            "per_minute",
            format!("{} is above 10000", self.per_minute),
        );
        require(
            (Span::seconds(3600)..=Span::seconds(365 * 86_400)).contains(&self.keep),
            "keep",
            format!("{} is not within 1h to 365d", self.keep),
        );
        require(
            (Size::bytes(16 << 20)..=Size::bytes(1 << 40)).contains(&self.max_bytes),
            "max_bytes",
            format!("{} is not within 16MiB to 1024GiB", self.max_bytes),
        );
        out
    }

    /// What the core decides by.
    pub fn sampling(&self) -> SamplingConfig {
        let limit = |span: Span| Some(span.duration().as_secs_f64()).filter(|seconds| *seconds > 0.0);
        SamplingConfig {
            slow_ttft_s: limit(self.slow_ttft),
            slow_itl_s: limit(self.slow_itl),
            slow_e2e_s: limit(self.slow_e2e),
            usual_after: self.unusual_after,
            head_rate: self.head_rate,
            per_minute: usize::try_from(self.per_minute).unwrap_or(usize::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_the_cores_and_ranges_are_held() {
        let mut section = RecordsConfig::default();
        assert_eq!(section.invalid(), []);
        assert_eq!(section.sampling(), SamplingConfig::default());
        section.slow_ttft = Span::millis(0);
        section.unusual_after = 0;
        assert_eq!(section.invalid(), []);
        assert_eq!(section.sampling().slow_ttft_s, None);
        section.unusual_after = 99;
        section.head_rate = f64::NAN;
        section.per_minute = 10_001;
        section.keep = Span::seconds(3599);
        section.max_bytes = Size::bytes(1 << 20);
        let keys: Vec<String> = section.invalid().into_iter().map(|(key, _)| key).collect();
        let expected = ["unusual_after", "head_rate", "per_minute", "keep", "max_bytes"];
        assert_eq!(keys, expected.map(|key| format!("records.{key}")));
    }
}

//! `[pressure]`: when an engine is short of memory, and how often its control groups are read.
//!
//! Owns: the section and its ranges. Refuses: defaults of thresholds (the core's) and the judgement (the core's `pressure`).

use super::Span;
use crate::config_section;
use infertap_core::PressureConfig;
use std::time::Duration;

const SECOND: u64 = 1_000_000_000;

fn span(ns: u64) -> Span {
    Span::seconds(ns / SECOND)
}

fn span_s(seconds: f64) -> Span {
    Span::seconds(seconds as u64)
}

config_section! {
    /// When an engine is short of memory, which llm_memory_pressure tells (see docs/memory-pressure.md). Keys that end in
    /// "some" and "severe" are the thresholds of these states; a state comes at once and goes when nothing has called for
    /// it for the time of "hold".
    pub struct PressureSection {
        /// Read the memory of engines' control groups, and how long their tasks waited for memory.
        pub cgroups: bool = true,
        /// Time between two readings; 500ms to 1m.
        pub interval: Span = Span::seconds(2),
        /// Time over which events are counted and shares of time are taken; 10s to 1h.
        pub window: Span = span(PressureConfig::default().window_ns),
        /// Time that a state stays after it was last called for; 0s to 1h.
        pub hold: Span = span(PressureConfig::default().hold_ns),
        /// Time over which the growth of GPU memory is looked at; 2m to 6h.
        pub trend_window: Span = span(PressureConfig::default().trend_window_ns),
        /// Allocations of GPU memory that failed within the window; 1 or more.
        pub alloc_failures_some: f64 = PressureConfig::default().alloc_failures_some,
        /// Allocations of GPU memory that failed within the window; not fewer than for some.
        pub alloc_failures_severe: f64 = PressureConfig::default().alloc_failures_severe,
        /// Time until a GPU is full, as it grows; 1m to 1d.
        pub time_to_full_some: Span = span_s(PressureConfig::default().time_to_full_some_s),
        /// Time until a GPU is full, as it grows; 1m to 1d and not more than for some.
        pub time_to_full_severe: Span = span_s(PressureConfig::default().time_to_full_severe_s),
        /// Used part of a GPU's memory, above 0 and up to 1. Only of generic servers: the well-known engines fill their GPU on
        /// purpose, and how full it is says nothing.
        pub gpu_usage_some: f64 = PressureConfig::default().gpu_usage_some,
        /// Used part of the key-value cache, above 0 and up to 1.
        pub kv_cache_usage_some: f64 = PressureConfig::default().kv_cache_usage_some,
        /// How long the key-value cache must have been so full; 0s to 1h.
        pub kv_cache_usage_for: Span = span(PressureConfig::default().kv_cache_usage_for_ns),
        /// Requests put back into the queue within the window, because others needed their memory; 1 or more.
        pub preemptions_some: f64 = PressureConfig::default().preemptions_some,
        /// Requests put back into the queue within the window; not fewer than for some.
        pub preemptions_severe: f64 = PressureConfig::default().preemptions_severe,
        /// Times that a control group met its high or hard limit within the window, while tasks waited for memory at least 1 %
        /// of the time; 1 or more.
        pub limit_events_some: f64 = PressureConfig::default().limit_events_some,
        /// Share of time in which at least one task waited for memory, above 0 and up to 1.
        pub stall_some: f64 = PressureConfig::default().stall_some,
        /// Share of time in which all tasks that had work waited for memory, above 0 and up to 1.
        pub stall_severe: f64 = PressureConfig::default().stall_severe,
    }
}

fn ns(span: Span) -> u64 {
    u64::try_from(span.duration().as_nanos()).unwrap_or(u64::MAX)
}

impl PressureSection {
    /// What is out of its range: key, and why and what would be right.
    pub fn invalid(&self) -> Vec<(String, String)> {
        let mut out = Vec::new();
        let (minute, hour, day) = (Span::seconds(60), Span::seconds(3600), Span::seconds(86_400));
        for (name, value, least, most) in [
            ("interval", self.interval, Span::millis(500), minute),
            ("window", self.window, Span::seconds(10), hour),
            ("hold", self.hold, Span::seconds(0), hour),
            (
                "trend_window",
                self.trend_window,
                Span::seconds(120),
                Span::seconds(21_600),
            ),
            ("time_to_full_some", self.time_to_full_some, minute, day),
            ("time_to_full_severe", self.time_to_full_severe, minute, day),
            (
                "kv_cache_usage_for",
                self.kv_cache_usage_for,
                Span::seconds(0),
                hour,
            ),
        ] {
            if !(least..=most).contains(&value) {
                out.push((name, format!("{value} is not within {least} to {most}")));
            }
        }
        for (name, share) in [
            ("gpu_usage_some", self.gpu_usage_some),
            ("kv_cache_usage_some", self.kv_cache_usage_some),
            ("stall_some", self.stall_some),
            ("stall_severe", self.stall_severe),
        ] {
            if !(share > 0.0 && share <= 1.0) {
                out.push((name, format!("{share} is no share above 0 and up to 1")));
            }
        }
        for (name, count) in [
            ("alloc_failures_some", self.alloc_failures_some),
            ("alloc_failures_severe", self.alloc_failures_severe),
            ("preemptions_some", self.preemptions_some),
            ("preemptions_severe", self.preemptions_severe),
            ("limit_events_some", self.limit_events_some),
        ] {
            if !(count >= 1.0 && count.is_finite()) {
                out.push((name, format!("{count} is no number of 1 or more")));
            }
        }
        for (name, worse) in [
            (
                "alloc_failures_severe",
                self.alloc_failures_severe >= self.alloc_failures_some,
            ),
            (
                "preemptions_severe",
                self.preemptions_severe >= self.preemptions_some,
            ),
            (
                "time_to_full_severe",
                self.time_to_full_severe <= self.time_to_full_some,
            ),
        ] {
            if !worse && !out.iter().any(|(known, _)| *known == name) {
                out.push((name, "severe is no worse than some: swap the two".to_owned()));
            }
        }
        let named = |(name, reason)| (format!("pressure.{name}"), reason);
        out.into_iter().map(named).collect()
    }

    /// Time between two readings; `None`: nothing is read.
    pub(crate) fn reading(&self) -> Option<Duration> {
        self.cgroups.then(|| self.interval.duration())
    }

    /// The thresholds.
    pub(super) fn thresholds(&self) -> PressureConfig {
        PressureConfig {
            window_ns: ns(self.window),
            hold_ns: ns(self.hold),
            trend_window_ns: ns(self.trend_window),
            alloc_failures_some: self.alloc_failures_some,
            alloc_failures_severe: self.alloc_failures_severe,
            time_to_full_some_s: self.time_to_full_some.duration().as_secs_f64(),
            time_to_full_severe_s: self.time_to_full_severe.duration().as_secs_f64(),
            gpu_usage_some: self.gpu_usage_some,
            kv_cache_usage_some: self.kv_cache_usage_some,
            kv_cache_usage_for_ns: ns(self.kv_cache_usage_for),
            preemptions_some: self.preemptions_some,
            preemptions_severe: self.preemptions_severe,
            limit_events_some: self.limit_events_some,
            stall_some: self.stall_some,
            stall_severe: self.stall_severe,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_the_cores_and_ranges_are_checked() {
        let mut section = PressureSection::default();
        assert_eq!(section.invalid(), []);
        assert_eq!(section.thresholds(), PressureConfig::default());
        assert_eq!(section.reading(), Some(Duration::from_secs(2)));
        section.cgroups = false;
        assert_eq!(section.reading(), None);
        section.interval = Span::millis(499);
        section.time_to_full_some = Span::seconds(120);
        section.stall_some = 0.0;
        section.kv_cache_usage_some = f64::NAN;
        section.alloc_failures_some = 4.0;
        section.preemptions_some = 0.5;
        let keys: Vec<String> = section.invalid().into_iter().map(|(key, _)| key).collect();
        assert_eq!(
            keys,
            [
                "pressure.interval",
                "pressure.kv_cache_usage_some",
                "pressure.stall_some",
                "pressure.preemptions_some",
                "pressure.alloc_failures_severe",
                "pressure.time_to_full_severe",
            ]
        );
    }
}

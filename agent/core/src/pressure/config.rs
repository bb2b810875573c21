//! When an engine is short of memory.
//!
//! Owns: the numbers' meaning and defaults. Refuses: applying them (`engine`).

use crate::Nanos;

const SECOND: Nanos = 1_000_000_000;

/// Thresholds and times. `some` and `severe` name the state that a threshold leads to.
#[derive(Debug, Clone, PartialEq)]
pub struct PressureConfig {
    /// Time over which events are counted and shares are taken, nanoseconds.
    pub window_ns: Nanos,
    /// How long a reason stays after it was last met, nanoseconds: a state falls no sooner.
    pub hold_ns: Nanos,
    /// Time over which the growth of GPU memory is looked at, nanoseconds.
    pub trend_window_ns: Nanos,
    /// Failed allocations of GPU memory within the window.
    pub alloc_failures_some: f64,
    /// The same.
    pub alloc_failures_severe: f64,
    /// Seconds until a GPU is full.
    pub time_to_full_some_s: f64,
    /// The same.
    pub time_to_full_severe_s: f64,
    /// Used part of a GPU's memory, of engines that do not fill it on purpose.
    pub gpu_usage_some: f64,
    /// Used part of the key-value cache.
    pub kv_cache_usage_some: f64,
    /// How long it must have been so high, nanoseconds.
    pub kv_cache_usage_for_ns: Nanos,
    /// Preemptions within the window.
    pub preemptions_some: f64,
    /// The same.
    pub preemptions_severe: f64,
    /// Times that a control group met its high or hard limit within the window, where that cost time.
    pub limit_events_some: f64,
    /// Share of time in which some task waited for memory.
    pub stall_some: f64,
    /// Share of time in which all tasks that had work waited for memory.
    pub stall_severe: f64,
}

impl Default for PressureConfig {
    fn default() -> Self {
        PressureConfig {
            window_ns: 60 * SECOND,
            hold_ns: 60 * SECOND,
            trend_window_ns: 600 * SECOND,
            alloc_failures_some: 1.0,
            alloc_failures_severe: 3.0,
            time_to_full_some_s: 1800.0,
            time_to_full_severe_s: 300.0,
            gpu_usage_some: 0.97,
            kv_cache_usage_some: 0.95,
            kv_cache_usage_for_ns: 30 * SECOND,
            preemptions_some: 1.0,
            preemptions_severe: 20.0,
            limit_events_some: 1.0,
            stall_some: 0.1,
            stall_severe: 0.1,
        }
    }
}

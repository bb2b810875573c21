//! How memory in use grows: a robust line through the last minutes, and whether it can be believed.
//!
//! Owns: the samples of one GPU and the rule. Refuses: what is left (the caller subtracts).
//!
//! The slope is the median of the slopes between all pairs of samples (Theil–Sen), which a third of outliers does not move:
//! a model that loads, a buffer that comes and goes. It is believed when the samples are mostly ascending (Mann–Kendall), the
//! growth stands out of the scatter around the line, and both halves grow by themselves: a step is no trend.

use crate::Nanos;
use std::collections::VecDeque;

/// Samples that span the window.
const SAMPLES: u64 = 60;
/// Fewest samples and least part of the window to say anything.
const ENOUGH: usize = 20;
const SPAN: f64 = 1.0 / 3.0;
/// How sure it must be that the samples ascend: standard deviations of Mann–Kendall's statistic.
const SURE: f64 = 3.0;
/// How much the growth must stand out of the scatter (standard deviations, by the median absolute one).
const CLEAR: f64 = 4.0;
/// Least slope of either half, as a part of the whole's.
const STEADY: f64 = 1.0 / 3.0;

/// Memory in use over the last minutes.
#[derive(Debug)]
pub(super) struct Trend {
    slot_ns: Nanos,
    /// Time and bytes; the newest of each slot.
    samples: VecDeque<(Nanos, u64)>,
    /// Bytes a second, as of the samples so far.
    growth: Option<f64>,
}

impl Trend {
    pub(super) fn new(window_ns: Nanos) -> Trend {
        Trend {
            slot_ns: (window_ns / SAMPLES).max(1),
            samples: VecDeque::new(),
            growth: None,
        }
    }

    /// So many bytes were in use at `at`; never before the last.
    pub(super) fn add(&mut self, at: Nanos, bytes: u64) {
        match self.samples.back_mut() {
            Some((last, _)) if at < *last => return,
            Some((last, kept)) if at / self.slot_ns == *last / self.slot_ns => {
                (*last, *kept) = (at, bytes);
                return;
            }
            _ => {}
        }
        self.samples.push_back((at, bytes));
        while self.samples.len() > SAMPLES as usize
            || self
                .samples
                .front()
                .is_some_and(|(first, _)| at - first > self.slot_ns.saturating_mul(SAMPLES + 1))
        {
            self.samples.pop_front();
        }
        self.growth = self.find();
    }

    /// Bytes a second by which memory in use grows; `None` when it does not, or not steadily enough to tell.
    pub(super) fn growth(&self) -> Option<f64> {
        self.growth
    }

    fn find(&self) -> Option<f64> {
        let first = self.samples.front()?.0;
        let points: Vec<(f64, f64)> = self
            .samples
            .iter()
            .map(|(at, bytes)| ((at - first) as f64 / 1e9, *bytes as f64))
            .collect();
        let (_, last) = (points.first()?, points.last()?);
        let window = self.slot_ns.saturating_mul(SAMPLES) as f64 / 1e9;
        if points.len() < ENOUGH || last.0 < SPAN * window || !ascends(&points) {
            return None;
        }
        let slope = slope(&points).filter(|slope| *slope > 0.0)?;
        let (early, late) = points.split_at(points.len() / 2);
        let steady = |half: &[(f64, f64)]| self::slope(half).is_some_and(|half| half >= STEADY * slope);
        let clear = slope * last.0 >= CLEAR * scatter(&points, slope);
        (steady(early) && steady(late) && clear).then_some(slope)
    }

    /// Heap bytes.
    pub(super) fn bytes(&self) -> usize {
        self.samples.capacity() * size_of::<(Nanos, u64)>()
    }
}

/// Mann–Kendall: more pairs ascend than chance would have it, ties allowed for.
fn ascends(points: &[(f64, f64)]) -> bool {
    let n = points.len() as f64;
    let mut score = 0.0;
    for (i, (_, before)) in points.iter().enumerate() {
        for (_, after) in points.iter().skip(i + 1) {
            score += f64::from(i8::from(after > before) - i8::from(after < before));
        }
    }
    let mut values: Vec<f64> = points.iter().map(|(_, value)| *value).collect();
    values.sort_by(f64::total_cmp);
    let ties: f64 = values
        .chunk_by(|a, b| a.total_cmp(b).is_eq())
        .map(|tied| {
            let t = tied.len() as f64;
            t * (t - 1.0) * (2.0 * t + 5.0)
        })
        .sum();
    let variance = (n * (n - 1.0) * (2.0 * n + 5.0) - ties) / 18.0;
    variance > 0.0 && (score - 1.0) / variance.sqrt() >= SURE
}

/// Theil–Sen.
fn slope(points: &[(f64, f64)]) -> Option<f64> {
    let mut slopes = Vec::with_capacity(points.len() * points.len() / 2);
    for (i, (x, y)) in points.iter().enumerate() {
        slopes.extend(
            points
                .iter()
                .skip(i + 1)
                .filter(|(later, _)| later > x)
                .map(|(later, value)| (value - y) / (later - x)),
        );
    }
    median(&mut slopes)
}

/// Standard deviation around the line of this slope, by the median absolute deviation.
fn scatter(points: &[(f64, f64)], slope: f64) -> f64 {
    let mut rests: Vec<f64> = points.iter().map(|(x, y)| y - slope * x).collect();
    let Some(middle) = median(&mut rests) else {
        return f64::INFINITY;
    };
    for rest in &mut rests {
        *rest = (*rest - middle).abs();
    }
    median(&mut rests).map_or(f64::INFINITY, |mad| 1.4826 * mad)
}

/// The upper median.
fn median(values: &mut [f64]) -> Option<f64> {
    if values.is_empty() {
        return None;
    }
    let middle = values.len() / 2;
    Some(*values.select_nth_unstable_by(middle, f64::total_cmp).1)
}

#[cfg(test)]
#[path = "trend_tests.rs"]
mod tests;

//! Values over the script's time: at an instant, and summed over a time.
//!
//! Owns: their JSON forms, their exact integrals. Refuses: what they mean and in which unit.

use serde::{Deserialize, Serialize};

/// A value over time. In JSON, one of:
///
/// | JSON | means |
/// |---|---|
/// | `42` | always 42 |
/// | `[[0, 10], [2.5, 30]]` | 10 up to second 2.5, 30 from then on |
/// | `{"ramp": [[0, 10], [4, 30]]}` | rising evenly from 10 to 30 over four seconds, 30 from then on |
/// | `{"rate": …, "start": 7}` | a counter: 7 at second 0, growing by the inner value each second |
/// | `{"idle": 80, "busy": 420}` | 420 while the stand-in CUDA driver's device works, 80 while it does not |
///
/// Before its first point a value is that point's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// The same at all times.
    Constant(f64),
    /// Points `(second, value)` in order; each holds up to the next.
    Steps(Vec<(f64, f64)>),
    /// Points `(second, value)` in order, with straight lines between them.
    Ramp {
        /// The points.
        ramp: Vec<(f64, f64)>,
    },
    /// A counter.
    Counter {
        /// What it grows by each second.
        rate: Box<Value>,
        /// What it is at second 0.
        #[serde(default)]
        start: f64,
    },
    /// It depends on whether the device works.
    Work {
        /// While it does not.
        idle: f64,
        /// While it does.
        busy: f64,
    },
}

impl From<f64> for Value {
    fn from(value: f64) -> Value {
        Value::Constant(value)
    }
}

impl From<u32> for Value {
    fn from(value: u32) -> Value {
        Value::Constant(f64::from(value))
    }
}

impl From<u64> for Value {
    /// Exact up to 2⁵³.
    fn from(value: u64) -> Value {
        Value::Constant(value as f64)
    }
}

impl Value {
    /// [`Value::Steps`] of these points.
    pub fn steps(points: impl IntoIterator<Item = (f64, f64)>) -> Value {
        Value::Steps(points.into_iter().collect())
    }

    /// A counter that begins at 0 and grows by `rate` each second.
    pub fn growing(rate: impl Into<Value>) -> Value {
        Value::Counter {
            rate: Box::new(rate.into()),
            start: 0.0,
        }
    }

    /// The value at second `t`.
    pub fn at(&self, t: f64, work: &Work) -> f64 {
        match self {
            Value::Constant(value) => *value,
            Value::Steps(points) => step_at(points, t),
            Value::Ramp { ramp } => ramp_at(ramp, t),
            Value::Counter { rate, start } => start + rate.integral(0.0, t, work),
            Value::Work { idle, busy } => {
                if work.is_busy(t) {
                    *busy
                } else {
                    *idle
                }
            }
        }
    }

    /// Its integral from second `from` to second `to`; 0 when they are not in this order. That of a counter is the one of
    /// a straight line between the two times.
    pub fn integral(&self, from: f64, to: f64, work: &Work) -> f64 {
        if to <= from {
            return 0.0;
        }
        match self {
            Value::Constant(value) => value * (to - from),
            Value::Steps(points) => between(points, from, to)
                .map(|(begin, end)| step_at(points, begin) * (end - begin))
                .sum(),
            Value::Ramp { ramp } => between(ramp, from, to)
                .map(|(begin, end)| f64::midpoint(ramp_at(ramp, begin), ramp_at(ramp, end)) * (end - begin))
                .sum(),
            Value::Counter { .. } => f64::midpoint(self.at(from, work), self.at(to, work)) * (to - from),
            Value::Work { idle, busy } => {
                let worked = work.seconds(from, to);
                busy * worked + idle * (to - from - worked)
            }
        }
    }

    /// Its mean from second `from` to second `to`; the value at `to` when they are not in this order.
    pub fn mean(&self, from: f64, to: f64, work: &Work) -> f64 {
        if to <= from {
            self.at(to, work)
        } else {
            self.integral(from, to, work) / (to - from)
        }
    }
}

/// The last point at or before `t`, else the first; 0 without any.
fn step_at(points: &[(f64, f64)], t: f64) -> f64 {
    let after = points.partition_point(|(second, _)| *second <= t);
    points
        .get(after.saturating_sub(1))
        .map_or(0.0, |(_, value)| *value)
}

fn ramp_at(points: &[(f64, f64)], t: f64) -> f64 {
    let after = points.partition_point(|(second, _)| *second <= t);
    match (
        after.checked_sub(1).and_then(|at| points.get(at)),
        points.get(after),
    ) {
        (Some((t0, v0)), Some((t1, v1))) => v0 + (v1 - v0) * (t - t0) / (t1 - t0),
        (Some((_, value)), None) | (None, Some((_, value))) => *value,
        (None, None) => 0.0,
    }
}

/// The pieces of `from..to` that the points cut it into.
fn between(points: &[(f64, f64)], from: f64, to: f64) -> impl Iterator<Item = (f64, f64)> {
    let inner = points.iter().map(|(second, _)| *second);
    let mut cuts: Vec<f64> = inner.filter(|second| from < *second && *second < to).collect();
    cuts.insert(0, from);
    cuts.push(to);
    let ends: Vec<f64> = cuts.iter().skip(1).copied().collect();
    cuts.into_iter().zip(ends)
}

/// When a device worked, in the script's seconds.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Work {
    /// Ordered, without overlap.
    intervals: Vec<(f64, f64)>,
}

impl Work {
    /// From intervals in any order; those that overlap become one.
    pub fn new(mut intervals: Vec<(f64, f64)>) -> Work {
        intervals.retain(|(begin, end)| begin < end);
        intervals.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut merged: Vec<(f64, f64)> = Vec::with_capacity(intervals.len());
        for (begin, end) in intervals {
            match merged.last_mut() {
                Some(last) if begin <= last.1 => last.1 = last.1.max(end),
                _ => merged.push((begin, end)),
            }
        }
        Work { intervals: merged }
    }

    /// Whether it worked at second `t`.
    pub fn is_busy(&self, t: f64) -> bool {
        let after = self.intervals.partition_point(|(begin, _)| *begin <= t);
        after
            .checked_sub(1)
            .and_then(|at| self.intervals.get(at))
            .is_some_and(|(_, end)| t < *end)
    }

    /// Seconds of work between two times.
    pub fn seconds(&self, from: f64, to: f64) -> f64 {
        let first = self.intervals.partition_point(|(_, end)| *end <= from);
        let overlapping = self.intervals[first..]
            .iter()
            .take_while(|(begin, _)| *begin < to);
        overlapping
            .map(|(begin, end)| end.min(to) - begin.max(from))
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Value {
        serde_json::from_str(text).unwrap()
    }

    fn near(a: f64, b: f64) {
        assert!((a - b).abs() < 1e-9, "{a} is not {b}");
    }

    #[test]
    fn values_at_a_time_and_over_a_time() {
        let work = Work::new(vec![(3.0, 4.0), (1.0, 2.0), (1.5, 2.5)]);
        for (text, at_2, from_1_to_4) in [
            ("42", 42.0, 126.0),
            ("[[0, 10], [2.5, 30]]", 10.0, 60.0),
            ("[[2, 10], [3, 0]]", 10.0, 20.0),
            (r#"{"ramp": [[0, 10], [4, 30]]}"#, 20.0, 67.5),
            (r#"{"ramp": [[2, 10], [3, 30]]}"#, 10.0, 60.0),
            (r#"{"rate": 5, "start": 1}"#, 11.0, 40.5),
            (r#"{"rate": [[0, 0], [1, 4]]}"#, 4.0, 18.0),
            (r#"{"idle": 1, "busy": 3}"#, 3.0, 8.0),
            ("[]", 0.0, 0.0),
        ] {
            let value = parse(text);
            near(value.at(2.0, &work), at_2);
            near(value.integral(1.0, 4.0, &work), from_1_to_4);
            near(value.mean(1.0, 4.0, &work), from_1_to_4 / 3.0);
            near(value.integral(4.0, 1.0, &work), 0.0);
            assert_eq!(parse(&serde_json::to_string(&value).unwrap()), value, "{text}");
        }
    }

    #[test]
    fn work_is_counted_once() {
        let work = Work::new(vec![(1.0, 2.0), (1.5, 3.0), (5.0, 5.0)]);
        for (t, busy) in [(0.9, false), (1.0, true), (2.9, true), (3.0, false), (5.0, false)] {
            assert_eq!(work.is_busy(t), busy, "{t}");
        }
        near(work.seconds(0.0, 10.0), 2.0);
        near(work.seconds(2.0, 2.5), 0.5);
        near(work.seconds(4.0, 10.0), 0.0);
    }
}

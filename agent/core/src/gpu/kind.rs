//! What kind of step a burst of CUDA calls was, of an engine that does not tell its steps.
//!
//! Owns: what is certain from the requests under way, and what an engine's decode looks like, learnt from that. Refuses:
//! guessing: a burst that could be of either kind is of none.
//!
//! Where every request under way has its first token, a burst generates; where none has, it reads prompts. That teaches
//! how many kernels and graphs a decode step launches and how long it takes, which tells the two apart when requests of
//! both sorts are under way, or such whose tokens nobody sees. A burst that a first token follows has read a prompt.

use super::{requests::Requests, timeline::Cluster};
use crate::{Nanos, observation::StepKind};
use std::collections::VecDeque;

/// Decode steps that were certain, and from how many on they are believed.
const SAMPLES: usize = 64;
const ENOUGH: usize = 4;
/// A decode step takes at most so much longer than the usual one.
const STRETCHED: f64 = 1.6;
/// Before anything is learnt: so few graphs, with so few kernels beside them, are a captured decode step; prompts have
/// lengths for which no graph was captured.
const FEW_GRAPHS: u32 = 4;
const FEW_KERNELS: u32 = 48;
/// Steps that a chunk may be late by.
const LATE_STEPS: usize = 3;

/// What one engine's bursts were like.
#[derive(Debug, Default)]
pub(super) struct Kinds {
    decodes: VecDeque<Sample>,
    /// The latest ones that were judged, newest last: begin, end, and whether they looked like decode.
    latest: VecDeque<(Nanos, bool)>,
}

#[derive(Debug, Clone, Copy)]
struct Sample {
    kernels: u32,
    graphs: u32,
    length: Nanos,
}

/// The requests around a burst.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Seen {
    /// Had no token yet, by what they write.
    reading: usize,
    /// Had one.
    generating: usize,
    /// Show no tokens.
    silent: usize,
    /// The first token of one came before the next burst's end; when that one arrived.
    brought: Option<Nanos>,
    /// One that had tokens got more.
    continued: bool,
}

impl Seen {
    /// Those around `cluster`; what is written from its end to `next_end` came of it.
    pub(super) fn of(cluster: &Cluster, next_end: Nanos, requests: &Requests) -> Seen {
        let after = |at: Nanos| at >= cluster.end && at < next_end;
        let mut seen = Seen::default();
        for request in requests.map.values() {
            let arrived = request.arrived.unwrap_or(0);
            if arrived >= cluster.end || request.finished.is_some_and(|end| end <= cluster.begin) {
                continue;
            }
            match request.first {
                Some(first) if first < cluster.end => {
                    seen.generating += 1;
                    let next = request.marks.partition_point(|mark| mark.0 < cluster.end);
                    seen.continued |= request.marks.get(next).is_some_and(|mark| after(mark.0));
                }
                Some(first) => {
                    seen.reading += 1;
                    if after(first) {
                        seen.brought = seen.brought.max(Some(arrived));
                    }
                }
                None if request.is_silent() => seen.silent += 1,
                None => seen.reading += 1,
            }
        }
        seen
    }
}

impl Kinds {
    /// The kind of a burst; `None`: it can't be known. Bursts come in order.
    pub(super) fn judge(&mut self, cluster: &Cluster, seen: &Seen) -> Option<StepKind> {
        let like = self.looks_like_decode(cluster);
        let reads = || {
            Some(if seen.continued {
                StepKind::Mixed
            } else {
                StepKind::Prefill
            })
        };
        // The chunk of a first token may be written when the next step is over: an earlier burst that did not look like
        // decode was the one that read the prompt.
        let late = seen.brought.is_some_and(|arrived| {
            like == Some(true)
                && self
                    .latest
                    .iter()
                    .rev()
                    .take(LATE_STEPS)
                    .any(|(begin, like)| !like && *begin >= arrived)
        });
        let brought = seen.brought.is_some() && !late;
        let kind = match (seen.reading, seen.generating, seen.silent) {
            (0, 0, 0) => (like == Some(true)).then_some(StepKind::Decode),
            (0, _, 0) => Some(StepKind::Decode),
            (1.., 0, 0) if late => Some(StepKind::Decode),
            (1.., 0, 0) => Some(StepKind::Prefill),
            _ if brought => reads(),
            _ if like == Some(true) => Some(StepKind::Decode),
            // Two whose tokens nobody sees: one may have read while the other generated.
            (_, 0, 2..) | (1.., 0, 1..) => None,
            _ if like == Some(false) => reads(),
            _ => None,
        };
        if (seen.reading, seen.silent) == (0, 0) && seen.generating > 0 {
            if self.decodes.len() >= SAMPLES {
                self.decodes.pop_front();
            }
            self.decodes.push_back(Sample {
                kernels: cluster.kernels,
                graphs: cluster.graphs,
                length: cluster.end - cluster.begin,
            });
        }
        if self.latest.len() >= LATE_STEPS {
            self.latest.pop_front();
        }
        self.latest
            .push_back((cluster.begin, kind == Some(StepKind::Decode)));
        kind
    }

    /// Whether a burst is like a decode step; `None`: what those are like is not known.
    fn looks_like_decode(&self, cluster: &Cluster) -> Option<bool> {
        if self.decodes.len() < ENOUGH {
            let captured = (1..=FEW_GRAPHS).contains(&cluster.graphs) && cluster.kernels <= FEW_KERNELS;
            return captured.then_some(true);
        }
        let middle = |of: fn(&Sample) -> u64| {
            let mut sorted: Vec<u64> = self.decodes.iter().map(of).collect();
            sorted.sort_unstable();
            sorted.get(sorted.len() / 2).copied().unwrap_or(0)
        };
        let near = |value: u32, usual: u64| {
            let value = u64::from(value);
            // Batch sizes change what is launched, a little.
            value * 4 <= usual * 5 + 16 && value * 5 + 16 >= usual * 4
        };
        let length = (cluster.end - cluster.begin) as f64;
        Some(
            near(cluster.kernels, middle(|s| u64::from(s.kernels)))
                && near(cluster.graphs, middle(|s| u64::from(s.graphs)))
                && length <= middle(|s| s.length) as f64 * STRETCHED,
        )
    }

    /// Heap bytes.
    pub(super) fn bytes(&self) -> usize {
        self.decodes.capacity() * size_of::<Sample>() + self.latest.capacity() * 16
    }
}

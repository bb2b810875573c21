//! What one engine was doing at each moment, from the steps that it tells and the bursts of its CUDA calls.
//!
//! Owns: both, until their time is settled, and the segments that they make: back to back, one state each. Refuses: the
//! kind of a burst (`kind`), whose the time of a GPU was (`readings`).
//!
//! A step that the engine tells comes first. A burst beside one belongs to it: calls return before the work is done. Only
//! what no told step is near is a step by itself. Time is settled a while after it has passed, so that all that tells of
//! it has come, in whatever order.

mod sweep;

use super::{
    kind::{Kinds, Seen},
    readings::Amount,
    requests::{Last, Requests},
    share::GpuState,
};
use crate::{
    Nanos,
    gpu::CudaBurst,
    observation::{EngineStep, StepKind},
};
use std::collections::VecDeque;

/// Steps and bursts that wait to be settled, each: a minute of a fast engine.
const MAX_WAITING: usize = 16_384;
/// Steps and segments that wait for readings.
pub(super) const MAX_STEPS: usize = 32_768;
/// Changes of the queue's length that are kept.
const MAX_LOADS: usize = 4096;
/// The first reading of a GPU tells of no longer a time.
const LOOK_BACK: Nanos = 60_000_000_000;
/// What a burst gave is written within this time, if no other burst ends before.
const WRITTEN: Nanos = 1_000_000_000;
/// Told steps are kept so long after they have ended, for bursts that go on.
const KEEP_TOLD: Nanos = 1_000_000_000;
/// A request is queued so long after it came: reading, parsing and tokenizing it come first.
pub(super) const QUEUED_AFTER: Nanos = 20_000_000;

/// One engine's past.
#[derive(Debug, Default)]
pub(super) struct Timeline {
    /// By start.
    told: VecDeque<Told>,
    /// By begin, before and after bursts of several processes were put together.
    bursts: VecDeque<CudaBurst>,
    clusters: VecDeque<Cluster>,
    /// Requests that waited, as the engine told.
    loads: VecDeque<(Nanos, u64)>,
    /// Steps are seen from here on, one way or the other.
    since: Option<Nanos>,
    /// The engine tells its steps.
    telling: bool,
    settled: Nanos,
    last: Last,
    last_end: Nanos,
    next_id: u64,
    pub(super) segments: VecDeque<Segment>,
    /// By end.
    pub(super) steps: VecDeque<Step>,
    pub(super) kinds: Kinds,
    /// What came when its time was settled, or was given up to stay within bounds.
    pub(super) late: u64,
    pub(super) evicted: u64,
}

#[derive(Debug, Clone)]
struct Told {
    id: u64,
    start: Nanos,
    end: Nanos,
    kind: Option<StepKind>,
    prefill_tokens: Option<u64>,
    begun: bool,
}

/// Bursts of all processes of an engine that are one step.
#[derive(Debug, Clone)]
pub(super) struct Cluster {
    id: u64,
    pub(super) begin: Nanos,
    pub(super) end: Nanos,
    pub(super) kernels: u32,
    pub(super) graphs: u32,
    /// Processes and threads in it.
    who: Vec<(u32, u32)>,
    /// Found when its time is settled; `None`: it can't be known.
    kind: Option<StepKind>,
    judged: bool,
    begun: bool,
}

/// Time in one state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) from: Nanos,
    pub(super) to: Nanos,
    pub(super) state: GpuState,
    /// Requests were queued.
    pub(super) queued: bool,
    /// Steps that ran, by id.
    pub(super) steps: Vec<u64>,
}

impl Segment {
    /// Something ran, as far as is known.
    pub(super) fn works(&self) -> bool {
        !self.steps.is_empty()
    }
}

/// A step that ran, until its energy is charged.
#[derive(Debug, Clone)]
pub(super) struct Step {
    pub(super) id: u64,
    pub(super) from: Nanos,
    pub(super) to: Nanos,
    pub(super) kind: Option<StepKind>,
    pub(super) prefill_tokens: Option<u64>,
    /// What of its GPUs' time and energy is known so far.
    pub(super) amount: Amount,
    /// Its energy was told, or some of it.
    pub(super) measured: bool,
    /// Part of its energy was shared with another engine, and is not known.
    pub(super) part: bool,
}

impl Timeline {
    /// The engine told a step.
    pub(super) fn step(&mut self, step: &EngineStep) {
        if step.end <= self.settled {
            self.late += 1;
            return;
        }
        let start = step.start.unwrap_or(step.end).min(step.end);
        self.telling = true;
        self.seen(start, step.end);
        let told = Told {
            id: 0,
            start: start.max(self.settled),
            end: step.end,
            kind: step.kind,
            prefill_tokens: step.prefill_tokens,
            begun: false,
        };
        insert(&mut self.told, told, |told| (told.start, told.end));
        self.evicted += bound(&mut self.told, MAX_WAITING);
    }

    /// A process of the engine waited for work.
    pub(super) fn burst(&mut self, burst: CudaBurst) {
        let burst = CudaBurst {
            begin: burst.begin.min(burst.end),
            ..burst
        };
        if burst.end <= self.settled {
            self.late += 1;
            return;
        }
        self.seen(burst.begin, burst.end);
        insert(&mut self.bursts, burst, |b| (b.begin, b.end, b.tgid, b.tid));
        self.evicted += bound(&mut self.bursts, MAX_WAITING);
    }

    /// So many requests wait, as the engine tells.
    pub(super) fn load(&mut self, at: Nanos, waiting: u64) {
        insert(&mut self.loads, (at, waiting), |load| load.0);
        while self.loads.len() > MAX_LOADS {
            self.loads.pop_front();
        }
    }

    /// The engine's steps can't be read any more.
    pub(super) fn untold(&mut self) {
        self.telling = false;
        if self.clusters.is_empty() && self.bursts.is_empty() {
            self.since = None;
        }
    }

    fn seen(&mut self, from: Nanos, to: Nanos) {
        self.since = Some(self.since.map_or(from, |since| since.min(from)));
        self.last_end = self.last_end.max(to);
    }

    /// Its steps are seen.
    pub(super) fn has_steps(&self) -> bool {
        self.since.is_some()
    }

    /// The end of the latest step that was seen.
    pub(super) fn last_end(&self) -> Nanos {
        self.last_end
    }

    /// Up to where its time is settled.
    pub(super) fn settled(&self) -> Nanos {
        self.settled
    }

    /// A time not after `to` before which all is known that tells the kinds of bursts: it cuts through none, and what the
    /// last one before it gave has been written.
    pub(super) fn between_bursts(&self, to: Nanos) -> Nanos {
        if self.telling {
            return to;
        }
        let spans = || {
            let bursts = self.bursts.iter().map(|burst| (burst.begin, burst.end));
            let open = self.clusters.iter().filter(|cluster| !cluster.judged);
            open.map(|cluster| (cluster.begin, cluster.end)).chain(bursts)
        };
        let cut = spans().filter(|(begin, end)| *begin < to && to < *end);
        let to = cut.map(|(begin, _)| begin).min().unwrap_or(to);
        let Some(last) = spans().filter(|(begin, _)| *begin < to).max() else {
            return to;
        };
        if last.1.saturating_add(WRITTEN) <= to {
            return to;
        }
        let with_it = spans().filter(|(begin, end)| *begin < to && *end > last.0);
        with_it.map(|(begin, _)| begin).min().unwrap_or(to)
    }

    /// Settles its time up to `to`.
    pub(super) fn settle(&mut self, to: Nanos, requests: &Requests) {
        if to <= self.settled {
            return;
        }
        // The first time, what a reading may go back to.
        let from = match self.settled {
            0 => to.saturating_sub(LOOK_BACK),
            settled => settled,
        };
        self.put_together(to);
        self.judge(to, requests);
        self.begin_steps(to);
        self.sweep(from, to, requests);
        self.settled = to;
        // Work may go on after the call that told of it has returned.
        self.told.retain(|told| told.end.saturating_add(KEEP_TOLD) > to);
        self.clusters.retain(|cluster| cluster.end > to);
        while self.loads.get(1).is_some_and(|load| load.0 <= to) {
            self.loads.pop_front();
        }
        while self.segments.len() > MAX_STEPS {
            self.segments.pop_front();
            self.evicted += 1;
        }
    }

    /// Makes clusters of the bursts that began before `to`.
    fn put_together(&mut self, to: Nanos) {
        loop {
            let last = self.clusters.back();
            let due = |burst: &mut CudaBurst| {
                burst.begin < to || last.is_some_and(|last| last.is_followed_by_rest(burst))
            };
            let Some(burst) = self.bursts.pop_front_if(due) else {
                break;
            };
            let who = (burst.tgid, burst.tid);
            let length = burst.end - burst.begin;
            let same = self.clusters.iter_mut().rev().find(|cluster| {
                let overlap = cluster
                    .end
                    .min(burst.end)
                    .saturating_sub(cluster.begin.max(burst.begin));
                overlap > 0 && overlap * 2 >= length.min(cluster.end - cluster.begin)
            });
            if let Some(cluster) = same.filter(|cluster| !cluster.who.contains(&who)) {
                cluster.end = cluster.end.max(burst.end);
                cluster.kernels = cluster.kernels.max(burst.kernels);
                cluster.graphs = cluster.graphs.max(burst.graphs);
                cluster.who.push(who);
                continue;
            }
            if let Some(last) = self.clusters.back_mut()
                && last.is_followed_by_rest(&burst)
            {
                last.end = last.end.max(burst.end);
                last.kernels = last.kernels.saturating_add(burst.kernels);
                if let Some(step) = self.steps.iter_mut().rev().find(|step| step.id == last.id) {
                    step.to = step.to.max(last.end);
                }
                continue;
            }
            self.next_id += 1;
            self.clusters.push_back(Cluster {
                id: self.next_id,
                begin: burst.begin.max(self.settled),
                end: burst.end,
                kernels: burst.kernels,
                graphs: burst.graphs,
                who: vec![who],
                kind: None,
                judged: false,
                begun: false,
            });
        }
    }

    /// Finds the kind of each cluster that is a step by itself.
    fn judge(&mut self, to: Nanos, requests: &Requests) {
        for index in 0..self.clusters.len() {
            let next_end = self.clusters.get(index + 1).map(|next| next.end).or_else(|| {
                // The next one may be under way, and not put together yet.
                self.bursts.front().map(|burst| burst.end)
            });
            let Some(cluster) = self.clusters.get(index) else {
                break;
            };
            if cluster.begin >= to || cluster.judged || self.telling {
                continue;
            }
            let written = cluster.end.saturating_add(WRITTEN);
            let next_end = next_end.map_or(written, |next| next.min(written));
            let seen = Seen::of(cluster, next_end, requests);
            let kind = self.kinds.judge(cluster, &seen);
            if let Some(cluster) = self.clusters.get_mut(index) {
                cluster.kind = kind;
                cluster.judged = true;
            }
        }
    }

    /// Makes steps of what begins before `to`.
    fn begin_steps(&mut self, to: Nanos) {
        let mut begun = Vec::new();
        for told in self.told.iter_mut().filter(|told| !told.begun && told.start < to) {
            told.begun = true;
            self.next_id += 1;
            told.id = self.next_id;
            begun.push(Step {
                id: told.id,
                from: told.start,
                to: told.end,
                kind: told.kind,
                prefill_tokens: told.prefill_tokens,
                amount: Amount::default(),
                measured: false,
                part: false,
            });
        }
        for cluster in &mut self.clusters {
            let beside = self
                .told
                .iter()
                .any(|told| told.end > cluster.begin && told.start < cluster.end);
            if cluster.begun || cluster.begin >= to || beside {
                continue;
            }
            cluster.begun = true;
            begun.push(Step {
                id: cluster.id,
                from: cluster.begin,
                to: cluster.end,
                kind: cluster.kind,
                prefill_tokens: None,
                amount: Amount::default(),
                measured: false,
                part: false,
            });
        }
        for step in begun {
            insert(&mut self.steps, step, |step| (step.to, step.id));
        }
    }

    /// Heap bytes, about.
    pub(super) fn bytes(&self) -> usize {
        self.told.capacity() * size_of::<Told>()
            + self.bursts.capacity() * size_of::<CudaBurst>()
            + self.clusters.capacity() * (size_of::<Cluster>() + 16)
            + self.segments.capacity() * (size_of::<Segment>() + 8)
            + self.steps.capacity() * size_of::<Step>()
            + self.loads.capacity() * 16
    }
}

impl Cluster {
    /// What remains of a step after its main work, as taking a token from what it computed: much shorter, few launches,
    /// at once.
    fn is_followed_by_rest(&self, burst: &CudaBurst) -> bool {
        let length = self.end - self.begin;
        let launches = u64::from(self.kernels) + 64 * u64::from(self.graphs);
        burst.begin >= self.end
            && burst.graphs == 0
            && (burst.end - burst.begin) * 5 < length
            && (burst.begin - self.end) * 5 < length
            && u64::from(burst.kernels) * 4 < launches
    }
}

/// The state in which no step runs.
pub(super) const fn idle(queued: bool) -> GpuState {
    if queued {
        GpuState::IdleWhileQueued
    } else {
        GpuState::Idle
    }
}

/// Puts an item where it belongs; nearly always last.
fn insert<T, K: Ord>(items: &mut VecDeque<T>, item: T, key: impl Fn(&T) -> K) {
    let place = items.partition_point(|known| key(known) <= key(&item));
    items.insert(place, item);
}

/// Drops the oldest past `max`; answers how many.
fn bound<T>(items: &mut VecDeque<T>, max: usize) -> u64 {
    let mut dropped = 0;
    while items.len() > max {
        items.pop_front();
        dropped += 1;
    }
    dropped
}

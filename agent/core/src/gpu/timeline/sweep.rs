//! The states of an engine between two times.
//!
//! Owns: which step is told where several overlap, and whether requests wait where none runs. Refuses: finding the steps
//! (`timeline`).

use super::{Cluster, QUEUED_AFTER, Segment, Timeline, Told, WRITTEN, idle};
use crate::{
    Nanos,
    gpu::{
        requests::{Begun, Requests},
        share::GpuState,
    },
    observation::StepKind,
};

impl Timeline {
    /// Makes the segments between two times.
    pub(super) fn sweep(&mut self, from: Nanos, to: Nanos, requests: &Requests) {
        let mut edges: Vec<Nanos> = vec![from, to];
        edges.extend(self.told.iter().flat_map(|told| [told.start, told.end]));
        edges.extend(self.clusters.iter().flat_map(|c| [c.begin, c.end]));
        edges.extend(self.loads.iter().map(|load| load.0));
        edges.extend(self.since);
        edges.extend(requests.queue_edges(QUEUED_AFTER));
        let steps = self.begun(requests);
        edges.extend(steps.iter().map(|step| step.doubt));
        let mut steps = steps.into_iter().peekable();
        edges.retain(|edge| (from..=to).contains(edge));
        edges.sort_unstable();
        edges.dedup();
        let (mut next_told, mut next_cluster) = (0, 0);
        let mut told: Vec<usize> = Vec::new();
        let mut clusters: Vec<usize> = Vec::new();
        for pair in edges.windows(2) {
            let &[from, to] = pair else { continue };
            while self.told.get(next_told).is_some_and(|item| item.start <= from) {
                told.push(next_told);
                next_told += 1;
            }
            while self
                .clusters
                .get(next_cluster)
                .is_some_and(|item| item.begin <= from)
            {
                clusters.push(next_cluster);
                next_cluster += 1;
            }
            told.retain(|at| self.told.get(*at).is_some_and(|item| item.end > from));
            clusters.retain(|at| self.clusters.get(*at).is_some_and(|item| item.end > from));
            while let Some(step) = steps.next_if(|step| step.begin <= from) {
                self.last.add(&step);
            }
            let segment = self.segment(from, to, (&told, &clusters), requests);
            match self.segments.back_mut() {
                Some(last)
                    if last.to == from
                        && (last.state, last.queued, &last.steps)
                            == (segment.state, segment.queued, &segment.steps) =>
                {
                    last.to = to;
                }
                _ => self.segments.push_back(segment),
            }
        }
    }

    fn segment(
        &self,
        from: Nanos,
        to: Nanos,
        (told, clusters): (&[usize], &[usize]),
        requests: &Requests,
    ) -> Segment {
        let mut segment = Segment {
            from,
            to,
            state: GpuState::Idle,
            queued: false,
            steps: Vec::new(),
        };
        let mut state = None;
        let mut runs = |id: u64, kind: Option<StepKind>| {
            if !segment.steps.contains(&id) {
                segment.steps.push(id);
            }
            let kind = GpuState::of(kind);
            state = Some(match state {
                None => kind,
                Some(other) if other == kind => kind,
                Some(GpuState::Unknown) => GpuState::Unknown,
                _ if kind == GpuState::Unknown => GpuState::Unknown,
                Some(_) => GpuState::Mixed,
            });
        };
        for told in told.iter().filter_map(|at| self.told.get(*at)) {
            runs(told.id, told.kind);
        }
        if told.is_empty() {
            for cluster in clusters.iter().filter_map(|at| self.clusters.get(*at)) {
                match self.beside(cluster, from) {
                    Some(told) => runs(told.id, told.kind),
                    None => runs(cluster.id, cluster.kind),
                }
            }
        }
        if let Some(state) = state {
            segment.state = state;
            return segment;
        }
        segment.queued = self.is_queued(from, requests);
        segment.state = match self.since {
            Some(since) if since <= from => idle(segment.queued),
            _ => GpuState::Unknown,
        };
        segment
    }

    /// The told step that a burst's work at `at` is of: the one that ended last within the burst, else the next one.
    fn beside(&self, cluster: &Cluster, at: Nanos) -> Option<&Told> {
        let within = |told: &&Told| told.end > cluster.begin && told.start < cluster.end && told.begun;
        let before = self.told.iter().filter(within).filter(|told| told.end <= at);
        let before = before.max_by_key(|told| told.end);
        before.or_else(|| self.told.iter().filter(within).find(|told| told.start >= at))
    }

    /// All steps, by their begin.
    fn begun(&self, requests: &Requests) -> Vec<Begun> {
        let told = self.told.iter().map(|told| (told.start, told.end, told.kind));
        // What a told step is beside is no step by itself, and its kind is not known.
        let kind = |cluster: &Cluster| {
            if self.telling {
                Some(StepKind::Decode)
            } else {
                cluster.kind
            }
        };
        let clusters = self.clusters.iter().map(|c| (c.begin, c.end, kind(c)));
        let mut steps: Vec<(Nanos, Nanos, Option<StepKind>)> = told.chain(clusters).collect();
        steps.sort_unstable_by_key(|(begin, end, _)| (*begin, *end));
        let firsts = requests.firsts();
        let begun = steps.iter().enumerate().map(|(index, (begin, end, kind))| {
            let may_read = *kind != Some(StepKind::Decode);
            // Whose prompt it read shows by the first tokens that it gave.
            let next = steps.get(index + 1).map_or(Nanos::MAX, |next| next.1);
            let until = next.min(end.saturating_add(WRITTEN));
            let last = firsts.partition_point(|first| *first < until).checked_sub(1);
            let last = last.and_then(|last| firsts.get(last)).copied();
            Begun {
                begin: *begin,
                may_read,
                gave: last.filter(|first| may_read && first >= end),
                doubt: if may_read {
                    end.saturating_add(QUEUED_AFTER)
                } else {
                    0
                },
            }
        });
        begun.collect()
    }

    /// Whether requests waited at `at`, when no step ran.
    fn is_queued(&self, at: Nanos, requests: &Requests) -> bool {
        let waiting = self.loads.iter().rev().find(|load| load.0 <= at);
        let told = waiting.is_some_and(|load| load.1 > 0) && requests.any_in_flight(at);
        told || requests.any_waits(&self.last, at.saturating_sub(QUEUED_AFTER), at)
    }
}

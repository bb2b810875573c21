//! What the engine did, and how long the GPU was in which state.
//!
//! Owns: steps, the sums over a time. Refuses: reading files (`process`).

use serde::{Deserialize, Serialize};

/// One pass over a batch. Times are CLOCK_MONOTONIC nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// Just before its first launch.
    pub begin_ns: u64,
    /// Its wait was over.
    pub end_ns: u64,
    /// What it did.
    pub kind: StepKind,
    /// Requests whose prompt it read.
    pub prefilling: u32,
    /// Requests of which it decoded a token.
    pub decoding: u32,
    /// Requests that waited, as far as the scheduler knew.
    pub waiting: u32,
    /// Kernels launched.
    pub kernels: u32,
    /// Graphs launched.
    pub graphs: u32,
}

/// What a step did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the names are those of the metrics")]
pub enum StepKind {
    Prefill,
    Decode,
    Mixed,
}

/// Seconds in each state. Together they are the time that was looked at.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[allow(missing_docs, reason = "the names are those of the metrics")]
pub struct GpuSeconds {
    pub prefill: f64,
    pub decode: f64,
    pub mixed: f64,
    pub idle: f64,
    pub idle_while_queued: f64,
}

/// Seconds in each state between two times. `queued` has, of each request, when it came and when it was started.
pub fn gpu_seconds(steps: &[Step], queued: &[(u64, u64)], from_ns: u64, to_ns: u64) -> GpuSeconds {
    let mut seconds = GpuSeconds::default();
    let within = |begin: u64, end: u64| (begin.max(from_ns), end.min(to_ns));
    let mut ordered: Vec<&Step> = steps.iter().collect();
    ordered.sort_by_key(|step| step.begin_ns);
    let mut idle_from = from_ns;
    let mut gaps = Vec::new();
    for step in ordered {
        let (begin, end) = within(step.begin_ns, step.end_ns);
        if begin >= end {
            continue;
        }
        let state = match step.kind {
            StepKind::Prefill => &mut seconds.prefill,
            StepKind::Decode => &mut seconds.decode,
            StepKind::Mixed => &mut seconds.mixed,
        };
        *state += (end - begin) as f64 / 1e9;
        gaps.push((idle_from, begin));
        idle_from = end;
    }
    gaps.push((idle_from, to_ns));
    let waits = union(queued.to_vec());
    for (begin, end) in gaps.into_iter().filter(|(begin, end)| begin < end) {
        let overlap = |wait: &(u64, u64)| wait.1.min(end).saturating_sub(wait.0.max(begin));
        let queued: u64 = waits.iter().map(overlap).sum();
        seconds.idle_while_queued += queued as f64 / 1e9;
        seconds.idle += (end - begin - queued) as f64 / 1e9;
    }
    seconds
}

fn union(mut times: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    times.sort_unstable();
    let mut merged: Vec<(u64, u64)> = Vec::new();
    for (begin, end) in times {
        match merged.last_mut() {
            Some(last) if begin <= last.1 => last.1 = last.1.max(end),
            _ => merged.push((begin, end)),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_second_is_in_one_state() {
        let step = |begin_ns, end_ns, kind| Step {
            begin_ns,
            end_ns,
            kind,
            prefilling: 1,
            decoding: 0,
            waiting: 0,
            kernels: 0,
            graphs: 0,
        };
        const S: u64 = 1_000_000_000;
        let steps = [
            step(S, 2 * S, StepKind::Prefill),
            step(3 * S, 5 * S, StepKind::Decode),
            step(5 * S, 6 * S, StepKind::Mixed),
        ];
        let queued = [(0, S), (S / 2, 2 * S + S / 2), (7 * S, 8 * S)];
        let seconds = gpu_seconds(&steps, &queued, S / 4, 10 * S);
        let expected = GpuSeconds {
            prefill: 1.0,
            decode: 2.0,
            mixed: 1.0,
            idle: 3.5,
            idle_while_queued: 2.25,
        };
        assert_eq!(seconds, expected);
    }
}

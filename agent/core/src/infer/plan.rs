//! When the scheduler started one request, judged at its first token.
//!
//! Owns: the evidence and its order: places that became free, steps that only decoded, earlier prompts. Refuses:
//! learning (`limit`, `rate`) and what a request is (`infer`).

use super::steps::Steps;
use crate::Nanos;

/// What a start costs beside its place in the order: reading, parsing, templates, tokenizing.
const OVERHEAD: Nanos = 5_000_000;
/// Starts that are left open for the prefill rate to choose from.
const MAX_SPANS: usize = 12;

/// What is known of a request when its first token comes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Case {
    /// Its arrival number.
    pub(super) arrival: u64,
    pub(super) t0: Nanos,
    /// When its first token was written.
    pub(super) t2: Nanos,
    /// A place was free for it, or became free by another's end, at this time; absent where no limit is known.
    pub(super) free: Option<Free>,
    /// Index of the step that brought it.
    pub(super) step: usize,
    /// It was alone when it arrived.
    pub(super) alone: bool,
}

/// When there was a place for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Free {
    /// When it came.
    AtOnce,
    /// When another ended.
    Then(Nanos),
}

/// A start and its error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Start {
    pub(super) at: Nanos,
    /// Half the width of where it may be.
    pub(super) error: Nanos,
}

/// A start that is possible, and how much longer than usual the steps from it to the first token were together.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    pub(super) at: Nanos,
    pub(super) extra: Nanos,
}

/// The judgement.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) start: Option<Start>,
    /// When `start` is absent: the starts among which the prefill rate may choose, earliest first.
    pub(super) spans: Vec<Span>,
    /// End of the last step in which no prompt was worked on: it can not have started before.
    pub(super) not_before: Option<Nanos>,
}

/// What one step may hide: how far its writes are apart, and when the scheduler looked.
fn grain(steps: &Steps) -> Nanos {
    OVERHEAD + steps.usual().map_or(0, |usual| usual / 4)
}

/// The start of a request that shows no first token: at once where it was alone, else when a place became free.
pub(super) fn without_first_token(
    t0: Nanos,
    alone: bool,
    free: Option<Free>,
    steps: &Steps,
) -> Option<Start> {
    match free {
        _ if alone => Some(Start {
            at: t0,
            error: OVERHEAD,
        }),
        Some(Free::Then(at)) => Some(Start {
            at,
            error: grain(steps),
        }),
        _ => None,
    }
}

/// Judges a request, when the step that brought its first token is over.
pub(super) fn judge(case: &Case, steps: &Steps) -> Plan {
    let all = steps.all();
    let newest = case.step;
    let first = all.partition_point(|step| step.at < case.t0);
    let window = steps.window();
    let grain = grain(steps);
    let not_before = (first..newest.min(all.len()))
        .rev()
        .find(|index| steps.only_decoded(*index))
        .and_then(|index| all.get(index))
        .map(|step| step.at);
    let mut plan = Plan {
        start: None,
        spans: Vec::new(),
        not_before,
    };
    let next_step = |from: Nanos| {
        let index = all.partition_point(|step| step.at <= from);
        all.get(index).filter(|_| index < newest).map(|step| step.at)
    };
    let from_free = match case.free {
        _ if case.alone => Some(Start {
            at: case.t0,
            error: OVERHEAD,
        }),
        // The step that ended with another's end is over: the next one may hold this request.
        Some(Free::Then(at)) => Some(Start { at, error: grain }),
        // It waits for the step that is under way; where no streams show steps, for an unknown time.
        Some(Free::AtOnce) => steps.usual().map(|usual| match next_step(case.t0) {
            Some(at) => Start { at, error: grain },
            None => Start {
                at: case.t0,
                error: OVERHEAD + usual,
            },
        }),
        None => None,
    };
    match (from_free, not_before) {
        // A step that worked on no prompt came after: one may have been under way; more say that it still waited.
        (Some(start), Some(not_before)) if not_before > start.at.saturating_add(window) => {
            plan.start = Some(Start {
                at: not_before,
                error: grain,
            });
        }
        (Some(start), _) => plan.start = Some(start),
        (None, Some(not_before)) if steps.one_clock() => {
            plan.spans = spans(not_before, newest, steps);
            if let [only] = plan.spans.as_slice() {
                plan.start = Some(Start {
                    at: only.at,
                    error: grain,
                });
                plan.spans.clear();
            }
        }
        (None, _) => {}
    }
    if let Some(start) = &mut plan.start {
        after_earlier_prompts(case, steps, newest, start);
        // Long work varies, and so does what of it lies outside of the steps.
        start.error += case.t2.saturating_sub(start.at) / 100;
    }
    plan
}

/// A step's room for prompts goes to the earlier ones first: while one of those was not through, this one had at most
/// what was left of the step that finished it.
fn after_earlier_prompts(case: &Case, steps: &Steps, newest: usize, start: &mut Start) {
    let all = steps.all();
    let finished = (1..=newest).rev().find(|index| {
        all.get(*index).is_some_and(|step| {
            step.at > start.at && step.first_of.is_some_and(|arrival| arrival < case.arrival)
        })
    });
    let Some(finished) = finished else { return };
    let (Some(before), Some(step)) = (all.get(finished - 1), all.get(finished)) else {
        return;
    };
    if before.at > start.at {
        if finished < newest {
            start.error = start.error.max((step.at - before.at) / 2);
        }
        start.at = before.at;
    }
}

/// Every step end from `from` to the start of the newest step.
fn spans(from: Nanos, newest: usize, steps: &Steps) -> Vec<Span> {
    let all = steps.all();
    let usual = steps.usual().unwrap_or(0);
    let mut spans = Vec::new();
    let mut extra = 0;
    for index in (1..=newest).rev() {
        let (Some(before), Some(step)) = (all.get(index - 1), all.get(index)) else {
            break;
        };
        if before.at < from || spans.len() >= MAX_SPANS {
            break;
        }
        extra += (step.at - before.at).saturating_sub(usual);
        spans.push(Span { at: before.at, extra });
    }
    spans.reverse();
    spans
}

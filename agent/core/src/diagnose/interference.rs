//! How long a request's tokens stood still while the engine read other requests' prompts, and whose.
//!
//! Owns: the rule. Refuses: finding gaps and prefills (`timeline`, `peers`).
//!
//! A gap between two tokens counts with the part of it that is beyond the request's own typical gap and beyond its
//! client's stalls, and no more of that than other prefills overlap with the gap. So gaps that are long because the batch has
//! grown are none: after the newcomer's prefill nothing overlaps with them. A request more than half of whose gaps are
//! disturbed has a typical gap that is disturbed too, and is told less than it suffered.

use super::{Blamed, Stalls};
use crate::{Nanos, identity, trace::derived_id};
use std::sync::Arc;

/// Requests that are blamed at most.
const MAX_BLAMED: usize = 5;
/// Prefills at one time that are told apart; far more than engines run.
const MAX_AT_ONCE: usize = 64;

/// The time in which an engine read one prompt.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Prefill {
    // First, so that they are ordered by it.
    pub(crate) from: Nanos,
    pub(crate) to: Nanos,
    /// Our id, when it is known.
    pub(crate) id: Option<u64>,
    pub(crate) response_id: Option<Arc<str>>,
    /// The trace that its headers name.
    pub(crate) trace: Option<Arc<str>>,
}

/// Time between two tokens of one choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gap {
    pub(crate) from: Nanos,
    pub(crate) to: Nanos,
}

/// What was found.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Interference {
    pub(crate) ns: u64,
    pub(crate) by: Vec<Blamed>,
}

/// The interference of `prefills`, in any order, with ascending `gaps`.
pub(crate) fn interference(gaps: &[Gap], mut prefills: Vec<Prefill>, stalls: &Stalls) -> Interference {
    let Some(typical) = median(gaps) else {
        return Interference::default();
    };
    prefills.retain(|prefill| prefill.from < prefill.to);
    prefills.sort();
    let mut blamed = vec![0_u64; prefills.len()];
    let mut total = 0;
    // Prefills that have begun by the gap at hand and were not over when it began.
    let mut active: Vec<usize> = Vec::new();
    let mut coming = prefills.iter().enumerate().peekable();
    for gap in gaps {
        active.retain(|&index| prefills.get(index).is_some_and(|prefill| prefill.to > gap.from));
        while let Some((index, prefill)) = coming.next_if(|(_, prefill)| prefill.from < gap.to) {
            if prefill.to > gap.from && active.len() < MAX_AT_ONCE {
                active.push(index);
            }
        }
        let length = gap.to.saturating_sub(gap.from);
        let excess = length
            .saturating_sub(typical)
            .saturating_sub(stalls.within(gap.from, gap.to));
        if excess == 0 || active.is_empty() {
            continue;
        }
        // In order of their beginnings, so their union is one pass.
        let (mut covered, mut until, mut sum) = (0, gap.from, 0);
        for &index in &active {
            let overlap = overlap(&prefills, index, *gap);
            sum += overlap.1.saturating_sub(overlap.0);
            covered += overlap.1.saturating_sub(overlap.0.max(until));
            until = until.max(overlap.1);
        }
        let stood_still = excess.min(covered);
        total += stood_still;
        for &index in &active {
            let (from, to) = overlap(&prefills, index, *gap);
            if let Some(of) = blamed.get_mut(index)
                && sum > 0
            {
                *of +=
                    (u128::from(stood_still) * u128::from(to.saturating_sub(from)) / u128::from(sum)) as u64;
            }
        }
    }
    let mut worst: Vec<(u64, &Prefill)> = blamed
        .into_iter()
        .zip(&prefills)
        .filter(|(ns, _)| *ns > 0)
        .collect();
    worst.sort_by_key(|(ns, _)| std::cmp::Reverse(*ns));
    worst.truncate(MAX_BLAMED);
    let by = worst
        .into_iter()
        .map(|(ns, prefill)| Blamed {
            id: prefill.id.map(identity::hex_id),
            response_id: prefill.response_id.as_deref().map(str::to_owned),
            trace_id: prefill.id.map(|id| {
                prefill
                    .trace
                    .as_deref()
                    .map_or_else(|| derived_id(id), str::to_owned)
            }),
            seconds: super::seconds(ns),
        })
        .collect();
    Interference { ns: total, by }
}

fn overlap(prefills: &[Prefill], index: usize, gap: Gap) -> (Nanos, Nanos) {
    prefills.get(index).map_or((gap.from, gap.from), |prefill| {
        (prefill.from.max(gap.from), prefill.to.min(gap.to))
    })
}

/// The lower one of two.
fn median(gaps: &[Gap]) -> Option<u64> {
    let mut lengths: Vec<u64> = gaps.iter().map(|gap| gap.to.saturating_sub(gap.from)).collect();
    let middle = lengths.len().checked_sub(1)? / 2;
    Some(*lengths.select_nth_unstable(middle).1)
}

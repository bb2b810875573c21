//! The control groups of one engine: what happened in them between two readings, and what they hold.
//!
//! Owns: totals since the engine was first read, whatever groups come, go and are made anew. Refuses: judging them.

use super::reading::{CgroupReading, MemoryEvents, MemoryReading, StallTotals};
use super::report::{CgroupMemory, StallScope, Stalls};
use std::{collections::HashMap, sync::Arc};

/// Groups of one engine that are believed; a reading with more is cut.
const MAX_GROUPS: usize = 64;

/// What happened between two readings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Happened {
    pub(super) high: Option<u64>,
    pub(super) max: Option<u64>,
    /// Allocations that failed, or processes killed, whichever are more: the one brings the other about.
    pub(super) oom: u64,
    pub(super) stalled: Option<StallTotals>,
}

/// The groups of one engine.
#[derive(Debug, Default)]
pub(super) struct Cgroups {
    last: HashMap<Arc<str>, CgroupReading>,
    host: Option<StallTotals>,
    events: MemoryEvents,
    stalled: Option<(StallScope, StallTotals)>,
    memory: Option<CgroupMemory>,
}

/// What a counter has grown by; one that is less than before was made anew.
fn grown(before: u64, now: u64) -> u64 {
    if now < before { now } else { now - before }
}

fn grown_by(before: Option<StallTotals>, now: Option<StallTotals>) -> Option<StallTotals> {
    let (before, now) = (before?, now?);
    Some(StallTotals {
        some_us: grown(before.some_us, now.some_us),
        full_us: grown(before.full_us, now.full_us),
    })
}

impl Cgroups {
    /// Takes a reading; what has happened since the one before. Of a group that is read for the first time, that is
    /// nothing: its counters tell of its whole life.
    pub(super) fn read(&mut self, reading: &MemoryReading) -> Happened {
        let groups = reading.cgroups.iter().take(MAX_GROUPS);
        let mut happened = Happened::default();
        let (mut oom, mut killed) = (0_u64, 0_u64);
        for group in groups.clone() {
            let before = self.last.get(&group.path);
            let since = |of: fn(&MemoryEvents) -> Option<u64>| {
                let now = of(&group.events)?;
                Some(
                    before
                        .and_then(|before| of(&before.events))
                        .map_or(0, |before| grown(before, now)),
                )
            };
            let add = |sum: &mut Option<u64>, more: Option<u64>| {
                if let Some(more) = more {
                    *sum = Some(sum.unwrap_or(0).saturating_add(more));
                }
                more.unwrap_or(0)
            };
            let (high, max) = (since(|events| events.high), since(|events| events.max));
            add(&mut happened.high, high);
            add(&mut happened.max, max);
            add(&mut self.events.high, high);
            add(&mut self.events.max, max);
            oom = add(&mut self.events.oom, since(|events| events.oom)).saturating_add(oom);
            if group.own {
                add(&mut self.events.low, since(|events| events.low));
                // A group above tells of others' processes too.
                killed =
                    add(&mut self.events.oom_kill, since(|events| events.oom_kill)).saturating_add(killed);
                // Groups wait side by side, so the one that waited most tells how long the engine did.
                if let Some(stalled) = grown_by(before.and_then(|before| before.stalls), group.stalls) {
                    let most = happened.stalled.get_or_insert_default();
                    most.some_us = most.some_us.max(stalled.some_us);
                    most.full_us = most.full_us.max(stalled.full_us);
                }
            }
        }
        happened.oom = oom.max(killed);
        let own = groups.clone().any(|group| group.own && group.stalls.is_some());
        let scope = if own { StallScope::Cgroup } else { StallScope::Host };
        if !own {
            happened.stalled = grown_by(self.host, reading.host);
        }
        self.host = reading.host;
        if own || reading.host.is_some() {
            let (told, sum) = self.stalled.get_or_insert((scope, StallTotals::default()));
            // Totals of the host and of a group have nothing to do with each other.
            if *told == scope {
                let more = happened.stalled.unwrap_or_default();
                sum.some_us = sum.some_us.saturating_add(more.some_us);
                sum.full_us = sum.full_us.saturating_add(more.full_us);
            } else {
                (*told, *sum) = (scope, StallTotals::default());
            }
        }
        self.memory = self.hold(reading);
        // One that is missing from a reading may be back in the next, with what happened in between.
        if self.last.len() > MAX_GROUPS {
            self.last.clear();
        }
        self.last
            .extend(groups.map(|group| (Arc::clone(&group.path), group.clone())));
        happened
    }

    fn hold(&self, reading: &MemoryReading) -> Option<CgroupMemory> {
        let groups = || reading.cgroups.iter().take(MAX_GROUPS);
        // What a group holds, those below it hold too.
        let outermost = |group: &&CgroupReading| {
            let below = |other: &CgroupReading| {
                let rest = group.path.strip_prefix(&*other.path);
                rest.is_some_and(|rest| rest.starts_with('/'))
            };
            group.own && !groups().any(|other| other.own && below(other))
        };
        let sum = |of: fn(&CgroupReading) -> Option<u64>| {
            let mut told = groups().filter(outermost).filter_map(of).peekable();
            told.peek()?;
            Some(told.fold(0, u64::saturating_add))
        };
        Some(CgroupMemory {
            version: groups().next()?.version,
            usage_bytes: sum(|group| group.current),
            swap_bytes: sum(|group| group.swap),
            limit_bytes: groups().filter_map(|group| group.max).min(),
            headroom_bytes: groups()
                .filter_map(|group| Some(group.max?.saturating_sub(group.current?)))
                .min(),
            events: self.events,
            stalls: self.stalled.map(|(scope, totals)| Stalls {
                scope,
                some_s: totals.some_us as f64 / 1e6,
                full_s: totals.full_us as f64 / 1e6,
            }),
        })
    }

    /// As read last.
    pub(super) fn memory(&self) -> Option<CgroupMemory> {
        self.memory
    }

    /// Heap bytes, about.
    pub(super) fn bytes(&self) -> usize {
        self.last.len() * (size_of::<CgroupReading>() + 160)
    }
}

#[cfg(test)]
#[path = "cgroups_tests.rs"]
mod tests;

//! Records that failed alone, so that others pass them.
//!
//! Owns: how many there are, when each is tried again, and when one is given up: when it failed alone again and again while others
//! were taken, so that it is not the destination which is at fault. Refuses: a record that nothing of this is known of.

use super::super::Fault;
use super::Item;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Records that wait here at most. Those that fail alone when it is full keep the others waiting.
pub(super) const PLACES: usize = 16;
/// A record that failed so often, each time after others had been taken, is given up.
const STRIKES: u32 = 3;
const FIRST: Duration = Duration::from_secs(15);
const LONGEST: Duration = Duration::from_mins(2);

/// What is known of a record that failed alone.
#[derive(Debug, Clone, Copy)]
pub(super) struct Trial {
    times: u32,
    strikes: u32,
    /// Batches that were taken before.
    taken: u64,
    at: Instant,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Aside {
    list: VecDeque<Item>,
}

impl Aside {
    /// Puts a record here that failed alone now, when so many batches had been taken. Gives it back when it is to be given up.
    pub(super) fn put(&mut self, now: Instant, mut item: Item, taken: u64, fault: Fault) -> Option<Item> {
        let before = item.trial.unwrap_or(Trial {
            times: 0,
            strikes: 0,
            taken,
            at: now,
        });
        let strike = fault == Fault::Unclear && before.taken < taken;
        let strikes = before.strikes + u32::from(strike);
        if strikes >= STRIKES {
            return Some(item);
        }
        let wait = FIRST.saturating_mul(1 << before.times.min(8)).min(LONGEST);
        item.trial = Some(Trial {
            times: before.times.saturating_add(1),
            strikes,
            taken,
            at: now + wait,
        });
        self.list.push_back(item);
        None
    }

    /// Takes one whose time has come; with `any`, the first.
    pub(super) fn take(&mut self, now: Instant, any: bool) -> Option<Item> {
        let due = |item: &Item| any || item.trial.is_none_or(|trial| trial.at <= now);
        let position = self.list.iter().position(due)?;
        self.list.remove(position)
    }

    /// Takes all.
    pub(super) fn take_all(&mut self) -> Vec<Item> {
        self.list.drain(..).collect()
    }

    /// When the next one is due.
    pub(super) fn next_at(&self) -> Option<Instant> {
        self.list.iter().filter_map(|item| Some(item.trial?.at)).min()
    }

    /// Drops those, and tells how many there were.
    pub(super) fn drop_if(&mut self, mut drop: impl FnMut(&Item) -> bool) -> usize {
        let had = self.list.len();
        self.list.retain(|item| !drop(item));
        had - self.list.len()
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.list.iter().map(|item| item.bytes).sum()
    }
}

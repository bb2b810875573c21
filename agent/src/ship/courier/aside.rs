//! Records that failed alone, so that others pass them.
//!
//! Owns: how many there are, when each is tried again, and when one is given up: when it failed alone again and again while others
//! were taken, so that it is not the destination which is at fault, and for long or while another needs the place. Refuses: a record that nothing of this is known of.

use super::super::Fault;
use super::Item;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Records that wait here at most. Those that fail alone when it is full go to the end of the queue.
pub(super) const PLACES: usize = 16;
/// A record that failed so often, each time after others had been taken, may be given up.
const STRIKES: u32 = 3;
/// But not before it has waited so long here, unless another needs its place: it may be that half of a destination's servers fail.
const PATIENT: Duration = Duration::from_mins(15);
/// A destination that asks for more waits is asked again after this.
const LONGEST_ASKED: Duration = Duration::from_mins(10);
const FIRST: Duration = Duration::from_secs(15);
const LONGEST: Duration = Duration::from_mins(2);

/// What is known of a record that failed alone.
#[derive(Debug, Clone, Copy)]
pub(super) struct Trial {
    times: u32,
    strikes: u32,
    /// Batches that were taken before.
    taken: u64,
    /// When it first failed alone.
    first: Instant,
    /// When it is tried again.
    at: Instant,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Aside {
    list: VecDeque<Item>,
    /// There was no place for one.
    needed: bool,
}

impl Aside {
    /// Whether there is a place for another; where not, one is made as soon as may be.
    pub(super) fn has_place(&mut self) -> bool {
        self.needed = self.list.len() >= PLACES;
        !self.needed
    }

    /// Puts a record here that failed alone now, when so many batches had been taken; it is not tried again before `after` is over.
    /// Gives it back when it is to be given up.
    pub(super) fn put(
        &mut self,
        now: Instant,
        mut item: Item,
        taken: u64,
        fault: Fault,
        after: Option<Duration>,
    ) -> Option<Item> {
        let before = item.trial.unwrap_or(Trial {
            times: 0,
            strikes: 0,
            taken,
            first: now,
            at: now,
        });
        let strike = fault == Fault::Unclear && before.taken < taken;
        let strikes = before.strikes + u32::from(strike);
        let long = now.saturating_duration_since(before.first) >= PATIENT;
        if strikes >= STRIKES && (long || self.needed) {
            self.needed = false;
            return Some(item);
        }
        let wait = FIRST.saturating_mul(1 << before.times.min(8)).min(LONGEST);
        let wait = wait.max(after.unwrap_or_default().min(LONGEST_ASKED));
        item.trial = Some(Trial {
            times: before.times.saturating_add(1),
            strikes,
            taken,
            first: before.first,
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

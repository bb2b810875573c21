//! Records that wait in a row.
//!
//! Owns: their order, their bytes, and finding those that have waited too long wherever they stand. Refuses: how many may wait.

use super::Item;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How often all are looked at for old ones, where the oldest need not be the first.
const LOOK: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Queue {
    list: VecDeque<Item>,
    bytes: usize,
    /// Some were put behind younger ones.
    mixed: bool,
    looked: Option<Instant>,
}

impl Queue {
    /// One that has come now, or goes on waiting behind all others.
    pub(super) fn push_back(&mut self, item: Item) {
        self.mixed |= self.list.back().is_some_and(|last| last.since > item.since);
        self.bytes += item.bytes;
        self.list.push_back(item);
    }

    /// Puts one back that was taken.
    pub(super) fn push_front(&mut self, item: Item) {
        self.mixed |= self.list.front().is_some_and(|first| first.since < item.since);
        self.bytes += item.bytes;
        self.list.push_front(item);
    }

    /// Takes the first.
    pub(super) fn pop(&mut self) -> Option<Item> {
        let item = self.list.pop_front()?;
        self.bytes -= item.bytes;
        self.mixed &= !self.list.is_empty();
        Some(item)
    }

    /// Takes all.
    pub(super) fn take_all(&mut self) -> Vec<Item> {
        (self.bytes, self.mixed) = (0, false);
        self.list.drain(..).collect()
    }

    /// Drops those that are too old, and tells how many there were. Behind younger ones they are noticed up to a second later: a
    /// long queue is not looked through for every record that comes.
    pub(super) fn drop_old(&mut self, now: Instant, old: impl Fn(&Item) -> bool) -> usize {
        let mut dropped = 0;
        while self.list.front().is_some_and(&old) {
            dropped += usize::from(self.pop().is_some());
        }
        let due = self
            .looked
            .is_none_or(|at| now.saturating_duration_since(at) >= LOOK);
        if self.mixed && due {
            self.looked = Some(now);
            let had = self.list.len();
            self.list.retain(|item| !old(item));
            self.bytes = self.list.iter().map(|item| item.bytes).sum();
            dropped += had - self.list.len();
            let waits = self.list.iter().map(|item| item.since);
            self.mixed = !waits.is_sorted();
        }
        dropped
    }

    pub(super) fn front(&self) -> Option<&Item> {
        self.list.front()
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

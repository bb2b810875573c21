//! What one destination still has to get, and when it is tried next. Pure: time is data.
//!
//! Owns: the bounded queue, batches, delays between attempts, and the count of what became of every record. Refuses:
//! sending (`worker`), and what an answer means (the destination).

mod aside;
mod outcome;
mod queue;

use super::{Fault, Verdict, backoff::Backoff};
use crate::store::tables::record::KeptRecord;
use aside::{Aside, Trial};
pub use outcome::Outcome;
use queue::Queue;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Attempts in vain before smaller batches are tried.
const PATIENCE: u32 = 3;

/// Bounds of a queue and of the batches that are made of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Records in the queue.
    pub queue_records: usize,
    /// Their bytes, as [`KeptRecord::bytes`] estimates them.
    pub queue_bytes: usize,
    /// Records in a batch.
    pub batch_records: usize,
    /// Bytes of its records, estimated as above. One record is always a batch.
    pub batch_bytes: usize,
    /// How long a record waits for others to go with it.
    pub batch_wait: Duration,
    /// A record that has waited so long is dropped; `None`: it may wait for ever.
    pub max_age: Option<Duration>,
}

/// What to do now.
#[derive(Debug, Clone, PartialEq)]
pub enum Next {
    /// Nothing, until there is a record.
    Idle,
    /// Nothing before this time, unless a record comes.
    At(Instant),
    /// Send this. The same number: the same records as the last time.
    Send(u64, Arc<[Arc<KeptRecord>]>),
    /// Everything is done and no more comes.
    End,
}

/// A record that waits, and since when.
#[derive(Debug)]
pub(super) struct Item {
    record: Arc<KeptRecord>,
    bytes: usize,
    since: Instant,
    /// It failed alone before.
    trial: Option<Trial>,
}

/// See the module.
#[derive(Debug)]
pub struct Courier {
    limits: Limits,
    queue: Queue,
    /// The batch that is tried.
    hand: Vec<Item>,
    batch: u64,
    /// Its attempts in vain.
    vain: u32,
    aside: Aside,
    /// The batch before was one from there.
    was_aside: bool,
    /// Batches of which something was taken.
    taken: u64,
    /// No attempt before.
    not_before: Option<Instant>,
    backoff: Backoff,
    /// Records that a batch may have, learnt from batches that were too large.
    most: usize,
    stopping: bool,
    /// What was left was dropped.
    over: bool,
    counts: [u64; Outcome::ALL.len()],
}

impl Courier {
    /// An empty queue. The seed spreads the attempts of many agents.
    pub fn new(limits: Limits, seed: u64) -> Courier {
        Courier {
            limits,
            queue: Queue::default(),
            hand: Vec::new(),
            batch: 0,
            vain: 0,
            aside: Aside::default(),
            was_aside: false,
            taken: 0,
            not_before: None,
            backoff: Backoff::new(seed),
            most: limits.batch_records.max(1),
            stopping: false,
            over: false,
            counts: [0; Outcome::ALL.len()],
        }
    }

    /// Takes a record; the oldest make room for it where there is none.
    pub fn offer(&mut self, now: Instant, record: Arc<KeptRecord>) {
        self.queue.push_back(Item {
            bytes: record.bytes(),
            record,
            since: now,
            trial: None,
        });
        self.make_room();
        if self.stopping {
            self.drop_all();
        }
    }

    /// What was not sent, the oldest first. What comes later is lost.
    pub(super) fn take_back(&mut self) -> Vec<Item> {
        self.stopping = true;
        let mut left = self.aside.take_all();
        left.append(&mut self.hand);
        left.append(&mut self.queue.take_all());
        left
    }

    /// Puts what another courier has left before what is there; since when it waits stays as it is.
    pub(super) fn take_over(&mut self, left: Vec<Item>) {
        if self.over {
            self.count(Outcome::Shutdown, left.len());
            return;
        }
        for mut item in left.into_iter().rev() {
            item.trial = None;
            self.queue.push_front(item);
        }
        self.make_room();
    }

    fn make_room(&mut self) {
        while self.queue.len() > self.limits.queue_records.max(1)
            || (self.queue.bytes() > self.limits.queue_bytes && self.queue.len() > 1)
        {
            if self.queue.pop().is_some() {
                self.count(Outcome::QueueFull, 1);
            }
        }
    }

    /// What to do now.
    pub fn next(&mut self, now: Instant) -> Next {
        self.expire(now);
        if let Some(at) = self.not_before.filter(|at| *at > now)
            && self.waiting().0 > 0
        {
            return Next::At(at);
        }
        if self.hand.is_empty() && !self.take_aside(now) {
            if !self.is_due(now) {
                let oldest = self.queue.front();
                let due = oldest.map(|oldest| oldest.since + self.limits.batch_wait);
                return match due.into_iter().chain(self.aside.next_at()).min() {
                    Some(at) => Next::At(at),
                    None if self.stopping => Next::End,
                    None => Next::Idle,
                };
            }
            self.take();
        }
        Next::Send(
            self.batch,
            self.hand.iter().map(|item| Arc::clone(&item.record)).collect(),
        )
    }

    /// How the attempt that [`Courier::next`] asked for came out. Tells how many records are given up because they failed alone
    /// again and again while others were taken; they count as refused.
    pub fn done(&mut self, now: Instant, verdict: &Verdict) -> usize {
        self.not_before = None;
        let had = self.hand.len();
        match verdict {
            Verdict::Accepted { rejected, .. } => {
                self.count(Outcome::Rejected, (*rejected).min(had));
                self.sent(had.saturating_sub(*rejected));
                self.hand.clear();
                self.delivered();
            }
            Verdict::Partly {
                again,
                rejected,
                after,
                fault,
                ..
            } => {
                let mut kept = vec![false; had];
                for &index in again {
                    if let Some(kept) = kept.get_mut(index) {
                        *kept = true;
                    }
                }
                let mut kept = kept.into_iter();
                self.hand.retain(|_| kept.next().unwrap_or(false));
                let over = had - self.hand.len();
                self.count(Outcome::Rejected, (*rejected).min(over));
                self.sent(over.saturating_sub(*rejected));
                self.batch += 1;
                if self.hand.is_empty() {
                    self.delivered();
                } else if over > 0 {
                    self.backoff.reset();
                    self.vain = 0;
                    self.later(now, *after);
                } else {
                    return self.in_vain(now, *fault, *after);
                }
            }
            Verdict::Retry { after, fault, .. } => {
                return self.in_vain(now, *fault, *after);
            }
            Verdict::Refused { .. } => {
                self.count(Outcome::Refused, had);
                self.hand.clear();
                self.backoff.reset();
            }
            Verdict::TooLarge { .. } if had <= 1 => {
                self.count(Outcome::TooLarge, had);
                self.hand.clear();
                self.delivered();
            }
            Verdict::TooLarge { .. } => self.halve(),
        }
        0
    }

    /// The batch is to be tried again, whosever fault it is.
    fn in_vain(&mut self, now: Instant, fault: Fault, after: Option<Duration>) -> usize {
        let tried = self.hand.first().and_then(|item| item.trial).is_some();
        // One from aside has a delay of its own, for which the queue does not wait; at the end there is no other.
        if !tried || fault == Fault::Destination || self.stopping {
            self.later(now, after);
        }
        if fault == Fault::Destination {
            return 0;
        }
        self.vain += 1;
        let patience = if tried || self.most < self.limits.batch_records {
            1
        } else {
            PATIENCE
        };
        if self.vain < patience {
            return 0;
        }
        if self.hand.len() > 1 {
            self.halve();
            if fault == Fault::Unclear {
                // The smaller batch is another question, and others wait for its answer.
                self.backoff.reset();
            }
            return 0;
        }
        if !tried && self.queue.is_empty() && self.aside.len() == 0 {
            return 0;
        }
        let Some(item) = self.hand.pop() else {
            return 0;
        };
        if !tried && !self.aside.has_place() {
            // Nobody waits for it all the same.
            (self.batch, self.vain) = (self.batch + 1, 0);
            self.queue.push_back(item);
            return 0;
        }
        let lost = self.aside.put(now, item, self.taken, fault, after);
        let lost = usize::from(lost.is_some());
        self.count(Outcome::Refused, lost);
        lost
    }

    /// The second half goes back.
    fn halve(&mut self) {
        self.most = self.hand.len() / 2;
        for item in self.hand.drain(self.most..).rev() {
            self.queue.push_front(item);
        }
        self.batch += 1;
        self.vain = 0;
    }

    /// No more records come: what is there goes out without waiting for company or for the end of a delay.
    pub fn stop(&mut self) {
        self.stopping = true;
        self.not_before = None;
    }

    /// Gives up what was not sent.
    pub fn drop_all(&mut self) {
        (self.stopping, self.over) = (true, true);
        let left = self.hand.len() + self.queue.len() + self.aside.drop_if(|_| true);
        self.count(Outcome::Shutdown, left);
        self.hand.clear();
        self.queue.take_all();
    }

    /// Records that wait, those of the batch that is tried included, and their estimated bytes.
    pub fn waiting(&self) -> (usize, usize) {
        let hand: usize = self.hand.iter().map(|item| item.bytes).sum();
        (
            self.queue.len() + self.hand.len() + self.aside.len(),
            self.queue.bytes() + hand + self.aside.bytes(),
        )
    }

    /// Records by what became of them.
    pub fn counted(&self, outcome: Outcome) -> u64 {
        self.counts[outcome as usize]
    }

    fn count(&mut self, outcome: Outcome, records: usize) {
        self.counts[outcome as usize] += records as u64;
    }

    fn sent(&mut self, records: usize) {
        self.count(Outcome::Sent, records);
        self.taken += u64::from(records > 0);
    }

    fn later(&mut self, now: Instant, after: Option<Duration>) {
        let delay = self.backoff.next(after);
        // Nobody waits for the end of a delay when the agent ends.
        self.not_before = Some(now + delay);
    }

    /// A batch has left: the next may be larger again.
    fn delivered(&mut self) {
        self.backoff.reset();
        self.most = self.most.saturating_mul(2).min(self.limits.batch_records.max(1));
    }

    fn is_due(&self, now: Instant) -> bool {
        let Some(oldest) = self.queue.front() else {
            return false;
        };
        self.stopping
            || self.queue.len() >= self.most
            || self.queue.bytes() >= self.limits.batch_bytes
            || now.saturating_duration_since(oldest.since) >= self.limits.batch_wait
    }

    /// Takes one that failed alone, when its time has come; in turn with the queue.
    fn take_aside(&mut self, now: Instant) -> bool {
        if self.was_aside && self.is_due(now) {
            return false;
        }
        let item = self.aside.take(now, self.stopping);
        self.was_aside = item.is_some();
        if self.was_aside {
            (self.batch, self.vain) = (self.batch + 1, 0);
        }
        self.hand.extend(item);
        self.was_aside
    }

    fn take(&mut self) {
        (self.batch, self.vain, self.was_aside) = (self.batch + 1, 0, false);
        let mut bytes = 0;
        while let Some(first) = self.queue.front() {
            let fits = self.hand.len() < self.most && bytes + first.bytes <= self.limits.batch_bytes;
            if !fits && !self.hand.is_empty() {
                break;
            }
            bytes += first.bytes;
            let item = self.queue.pop();
            self.hand.extend(item);
        }
    }

    /// Drops what has waited too long. The batch in hand changes only between attempts.
    fn expire(&mut self, now: Instant) {
        let Some(max_age) = self.limits.max_age else {
            return;
        };
        let old = |item: &Item| now.saturating_duration_since(item.since) > max_age;
        let had = self.hand.len();
        self.hand.retain(|item| !old(item));
        let mut expired = had - self.hand.len();
        if expired > 0 {
            self.batch += 1;
        }
        expired += self.aside.drop_if(old);
        expired += self.queue.drop_old(now, old);
        self.count(Outcome::Expired, expired);
    }
}

#[cfg(test)]
mod tests;

//! Kept records that wait for what comes after a request's end: its energy, a gateway's part.
//!
//! Owns: how long, and how many wait at most. Refuses: the copy in the store, which is written at once and amended, and
//! the clock: time is given.

use crate::store::tables::record::KeptRecord;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a record waits: steps and readings of GPUs find whose they were within seconds, and a gateway is done with an
/// answer soon after its engine.
pub(super) const SETTLE: Duration = Duration::from_secs(10);
/// Records that wait, and their bytes. What is too much goes out early, as it is, the oldest first.
const MOST: usize = 512;
const MOST_BYTES: usize = 32 << 20;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Settling {
    waiting: VecDeque<Waiting>,
    bytes: usize,
}

#[derive(Debug)]
struct Waiting {
    until: Instant,
    kept: KeptRecord,
    /// What it counts in `bytes`.
    bytes: usize,
}

impl Settling {
    /// Takes a record; gives back those that have no room any more.
    pub(super) fn push(&mut self, now: Instant, kept: KeptRecord) -> Vec<Arc<KeptRecord>> {
        let bytes = kept.bytes();
        self.bytes += bytes;
        self.waiting.push_back(Waiting {
            until: now + SETTLE,
            kept,
            bytes,
        });
        let mut left = self.bytes;
        let mut early = 0;
        for (at, waiting) in self.waiting.iter().enumerate() {
            if self.waiting.len() - at <= MOST && left <= MOST_BYTES {
                break;
            }
            left -= waiting.bytes;
            early = at + 1;
        }
        self.take(early)
    }

    /// The oldest so many.
    fn take(&mut self, count: usize) -> Vec<Arc<KeptRecord>> {
        let taken = self.waiting.drain(..count).map(|waiting| {
            self.bytes -= waiting.bytes;
            Arc::new(waiting.kept)
        });
        taken.collect()
    }

    /// Adds to the record of this id, where it still waits.
    pub(super) fn amend(&mut self, id: &str, amend: impl FnOnce(&mut KeptRecord)) {
        // What comes late comes for those that ended last.
        let mut newest_first = self.waiting.iter_mut().rev();
        if let Some(waiting) = newest_first.find(|waiting| waiting.kept.record.id == id) {
            amend(&mut waiting.kept);
            let bytes = waiting.kept.bytes();
            self.bytes = self.bytes - waiting.bytes + bytes;
            waiting.bytes = bytes;
        }
    }

    /// Those that have waited long enough, in the order in which they ended.
    pub(super) fn due(&mut self, now: Instant) -> Vec<Arc<KeptRecord>> {
        let due = self.waiting.partition_point(|waiting| waiting.until <= now);
        self.take(due)
    }

    /// All of them: nothing more comes.
    pub(super) fn all(&mut self) -> Vec<Arc<KeptRecord>> {
        self.take(self.waiting.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ship::testing::kept;

    fn ids(records: &[Arc<KeptRecord>]) -> Vec<u64> {
        let id = |kept: &Arc<KeptRecord>| u64::from_str_radix(&kept.record.id, 16).expect("an id");
        records.iter().map(id).collect()
    }

    #[test]
    fn a_record_waits_and_is_amended_meanwhile() {
        let start = Instant::now();
        let mut settling = Settling::default();
        for n in 0..3 {
            let at = start + Duration::from_secs(n);
            assert_eq!(settling.push(at, kept(&format!("{n:016x}"))), []);
        }
        settling.amend("0000000000000001", |kept| kept.record.energy_j = Some(2.5));
        settling.amend("none", |_| panic!("there is no such record"));
        let early = SETTLE.saturating_sub(Duration::from_millis(1));
        assert!(settling.due(start + early).is_empty());
        let due = settling.due(start + SETTLE + Duration::from_secs(1));
        assert_eq!(ids(&due), [0, 1]);
        assert_eq!(
            (due[0].record.energy_j, due[1].record.energy_j),
            (None, Some(2.5))
        );
        assert_eq!(ids(&settling.all()), [2]);
        assert!(settling.all().is_empty());
    }

    #[test]
    fn no_more_wait_than_may_and_none_is_lost() {
        let now = Instant::now();
        let mut settling = Settling::default();
        let mut out = Vec::new();
        for n in 0..MOST as u64 + 5 {
            out.extend(settling.push(now, kept(&format!("{n:016x}"))));
        }
        assert_eq!(ids(&out), [0, 1, 2, 3, 4]);
        assert_eq!(settling.all().len(), MOST);
    }

    #[test]
    fn nor_more_bytes_than_may() {
        let now = Instant::now();
        let mut settling = Settling::default();
        // A third of the room each, and what came later.
        let gaps = MOST_BYTES / 3 / size_of::<(f64, u32)>();
        let large = |n: u64| {
            let mut kept = kept(&format!("{n:016x}"));
            kept.token_gaps = vec![(0.0, 0); gaps];
            kept
        };
        let mut out = Vec::new();
        for n in 0..4 {
            out.extend(settling.push(now, large(n)));
        }
        assert_eq!(ids(&out), [0, 1]);
        settling.amend("0000000000000002", |kept| {
            kept.token_gaps = vec![(0.0, 0); 3 * gaps];
        });
        assert_eq!(ids(&settling.push(now, kept("0000000000000004"))), [2]);
        assert_eq!(ids(&settling.all()), [3, 4]);
        assert_eq!(settling.bytes, 0);
    }
}

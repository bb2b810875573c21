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
/// Records that wait. One too many goes out early, as it is.
const MOST: usize = 512;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Settling(VecDeque<(Instant, KeptRecord)>);

impl Settling {
    /// Takes a record; gives back one that has no room any more.
    pub(super) fn push(&mut self, now: Instant, kept: KeptRecord) -> Option<Arc<KeptRecord>> {
        self.0.push_back((now + SETTLE, kept));
        (self.0.len() > MOST)
            .then(|| self.0.pop_front())
            .flatten()
            .map(|(_, kept)| Arc::new(kept))
    }

    /// Adds to the record of this id, where it still waits.
    pub(super) fn amend(&mut self, id: &str, amend: impl FnOnce(&mut KeptRecord)) {
        // What comes late comes for those that ended last.
        let mut newest_first = self.0.iter_mut().rev();
        if let Some((_, kept)) = newest_first.find(|(_, kept)| kept.record.id == id) {
            amend(kept);
        }
    }

    /// Those that have waited long enough, in the order in which they ended.
    pub(super) fn due(&mut self, now: Instant) -> Vec<Arc<KeptRecord>> {
        let waiting = self.0.partition_point(|(until, _)| *until <= now);
        self.0.drain(..waiting).map(|(_, kept)| Arc::new(kept)).collect()
    }

    /// All of them: nothing more comes.
    pub(super) fn all(&mut self) -> Vec<Arc<KeptRecord>> {
        self.0.drain(..).map(|(_, kept)| Arc::new(kept)).collect()
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
            assert_eq!(settling.push(at, kept(&format!("{n:016x}"))), None);
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
}

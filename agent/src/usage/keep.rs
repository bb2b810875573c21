//! Usage outlives the agent: what has changed goes into the store each second, and comes back at the start.
//!
//! The heaviest requests come back as far as their records were kept: those are in the store anyhow.
//!
//! Owns: when to write, and writing again what a failing disk has lost. Refuses: the table (`store::tables::usage`). Rows are
//! sums so far, so neither a crash nor writing twice counts anything twice.

use super::SharedLedger;
use crate::store::Store;
use crate::store::tables::record::{KeptRecord, each_since};
use crate::store::tables::usage::{Changed, Forget, read};
use infertap_core::ledger::{HOURS, Heavy, Row};
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often what has changed is written.
const EACH: Duration = Duration::from_secs(1);
/// How often what is too old is dropped.
const FORGET: Duration = Duration::from_hours(1);
/// Rows of one write, and writes at once.
const ROWS: usize = 1000;
const WRITES: usize = 8;
/// For how long what was written may turn out to be lost.
const DOUBT: Duration = Duration::from_secs(10);
/// Kept records that are looked through at the start, the newest, and for how long: with their content they may be large,
/// and nothing is watched before.
const LOOKED_THROUGH: u32 = 10_000;
const LOOKED_FOR: Duration = Duration::from_secs(2);

/// Keeps a ledger in a store.
#[derive(Debug)]
pub struct Keeper {
    store: Option<Arc<Store>>,
    days: u64,
    /// What was written lately, and when.
    written: VecDeque<(Instant, Vec<Row>)>,
    lost: u64,
    forgot: Option<Instant>,
}

impl Keeper {
    /// Takes back what the store has kept, and keeps from then on. Without a store it does nothing.
    pub fn new(ledger: &SharedLedger, store: Option<Arc<Store>>, days: u64) -> Keeper {
        if let Some(store) = &store {
            let now = ledger.now();
            match store.read(|db| read(db, now, days)) {
                Ok(rows) if rows.is_empty() => {}
                Ok(rows) => {
                    let all = rows.len();
                    let taken = ledger.lock().restore(now, rows);
                    tracing::info!("usage of earlier runs is here again: {taken} of {all} rows");
                }
                Err(error) => tracing::warn!("usage of earlier runs is not known: {error}"),
            }
            heaviest(ledger, store);
        }
        Keeper {
            lost: store.as_ref().map_or(0, |store| store.status().lost()),
            store,
            days,
            written: VecDeque::new(),
            forgot: None,
        }
    }

    /// Never ends.
    pub async fn run(&mut self, ledger: &SharedLedger) {
        let mut ticks = tokio::time::interval(EACH);
        loop {
            ticks.tick().await;
            self.keep(ledger);
        }
    }

    /// Gives what has changed to the store.
    pub fn keep(&mut self, ledger: &SharedLedger) {
        let Some(store) = &self.store else { return };
        let lost = store.status().lost();
        if lost > std::mem::replace(&mut self.lost, lost) {
            let mut ledger = ledger.lock();
            for (_, rows) in self.written.drain(..) {
                ledger.not_stored(&rows);
            }
        }
        while self.written.front().is_some_and(|(at, _)| at.elapsed() >= DOUBT) {
            self.written.pop_front();
        }
        for _ in 0..WRITES {
            let rows = ledger.lock().changed(ROWS);
            if rows.is_empty() {
                break;
            }
            let all = rows.len() < ROWS;
            if !store.submit(Changed(rows.clone())) {
                ledger.lock().not_stored(&rows);
                break;
            }
            self.written.push_back((Instant::now(), rows));
            if all {
                break;
            }
        }
        if self.forgot.is_none_or(|at| at.elapsed() >= FORGET) {
            let (now, days) = (ledger.now(), self.days);
            if store.submit(Forget { now, days }) {
                self.forgot = Some(Instant::now());
            }
        }
    }
}

/// Takes back the heaviest requests of earlier runs.
fn heaviest(ledger: &SharedLedger, store: &Store) {
    let now = ledger.now();
    let since = i64::try_from(now.saturating_sub(HOURS)).unwrap_or(i64::MAX);
    let began = Instant::now();
    let found = store.read(|db| {
        let mut found = Vec::new();
        let mut heavy = |kept: &KeptRecord| {
            let ended = u64::try_from(kept.ended_unix_ms / 1000).unwrap_or(0);
            found.push(Heavy::of(ended, &kept.record));
            if began.elapsed() < LOOKED_FOR {
                return ControlFlow::Continue(());
            }
            tracing::warn!(
                "of requests of earlier runs only the last {} were looked at for the heaviest",
                found.len()
            );
            ControlFlow::Break(())
        };
        each_since(db, since.saturating_mul(1000), LOOKED_THROUGH, &mut heavy)?;
        Ok(found)
    });
    match found {
        Ok(found) => _ = ledger.lock().restore_heavy(now, found),
        Err(error) => tracing::warn!("the heaviest requests of earlier runs are not known: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::metrics::tests::{labels, request};
    use crate::ship::testing::kept;
    use crate::store::Reader;
    use infertap_core::Status;
    use infertap_core::ledger::{By, ContextLimits, DAY, LedgerConfig, Order};

    const NOW: u64 = 1_767_225_600;
    const SOON: Duration = Duration::from_secs(20);

    fn ledger(clock: fn() -> u64) -> SharedLedger {
        SharedLedger::with_clock(&LedgerConfig::default(), ContextLimits::default(), clock)
    }

    fn used(ledger: &SharedLedger, scene: &str, n: usize) {
        for _ in 0..n {
            ledger.apply(&request(&labels("e", "m", scene), Status::Ok), |_, _| {});
        }
    }

    fn told(ledger: &SharedLedger, since: u64) -> Vec<(String, u64, u64)> {
        let report = ledger.lock().report(ledger.now(), since, By::Scene);
        let rows = report.rows.into_iter();
        rows.map(|row| (row.name, row.usage.requests, row.usage.tokens()))
            .collect()
    }

    #[test]
    fn usage_is_here_again_after_a_crash_and_nothing_is_twice() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("store.db");
        let open = || Some(Arc::new(Store::open(&path, Box::new(|_| {})).expect("opens")));
        for round in 1..=5 {
            let store = open();
            let usage = ledger(|| NOW);
            let mut keeper = Keeper::new(&usage, store.clone(), 90);
            used(&usage, "chat", 2);
            keeper.keep(&usage);
            used(&usage, "rag", 1);
            keeper.keep(&usage);
            keeper.keep(&usage);
            assert!(store.expect("a store").flush(SOON));
            // Not kept any more: as if it was killed before the next second.
            used(&usage, "lost", 1);
            drop(keeper);
            let expected = [
                ("chat".to_owned(), 2 * round, 88 * round),
                ("rag".to_owned(), round, 44 * round),
            ];
            let again = ledger(|| NOW);
            drop(Keeper::new(&again, open(), 90));
            for since in [3600, 30 * DAY] {
                assert_eq!(told(&again, since), expected);
            }
            let rows = Reader::open(&path)
                .expect("opens")
                .read(|db| read(db, NOW, 90))
                .expect("reads");
            assert_eq!(rows.len(), 4, "two scenes, in a span of 15 minutes and in a day");
        }
        // A day later nothing of the last two days is left but the days; in a year not even those.
        let later = ledger(|| NOW + 3 * DAY);
        let store = open();
        let mut keeper = Keeper::new(&later, store.clone(), 90);
        assert_eq!(told(&later, 3600), []);
        assert_eq!(told(&later, 30 * DAY).len(), 2);
        keeper.keep(&later);
        assert!(store.as_ref().expect("a store").flush(SOON));
        let days = Reader::open(&path)
            .expect("opens")
            .read(|db| read(db, NOW, 90))
            .expect("reads");
        assert_eq!(days.len(), 2, "{days:?}");
        let much_later = ledger(|| NOW + 365 * DAY);
        Keeper::new(&much_later, store.clone(), 90).keep(&much_later);
        assert!(store.expect("a store").flush(SOON));
        let none = Reader::open(&path)
            .expect("opens")
            .read(|db| read(db, NOW, 90))
            .expect("reads");
        assert_eq!(none, []);
    }

    #[test]
    fn the_heaviest_requests_are_here_again_where_their_records_were_kept() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("store.db");
        let store = Arc::new(Store::open(&path, Box::new(|_| {})).expect("opens"));
        let ended = |id: &str, ago: u64| KeptRecord {
            ended_unix_ms: i64::try_from((NOW - ago) * 1000).expect("a time"),
            ..kept(id)
        };
        for (id, ago) in [("a", 60), ("b", 3600), ("old", 3 * DAY)] {
            assert!(store.submit(ended(id, ago)));
        }
        assert!(store.flush(SOON));
        let again = ledger(|| NOW);
        drop(Keeper::new(&again, Some(store), 90));
        let heaviest = |since| -> Vec<String> {
            let all = again.lock().heaviest(NOW, since, Order::Tokens, &|_| true, 9);
            all.iter().map(|heavy| heavy.id.clone()).collect()
        };
        assert_eq!(heaviest(HOURS), ["a", "b"]);
        assert_eq!(heaviest(900), ["a"]);
        assert_eq!(told(&again, HOURS), [], "records are no usage");
    }

    #[test]
    fn what_has_no_store_is_kept_in_memory_alone() {
        let usage = ledger(|| NOW);
        let mut keeper = Keeper::new(&usage, None, 90);
        used(&usage, "chat", 1);
        keeper.keep(&usage);
        assert_eq!(told(&usage, 3600).len(), 1);
        assert_eq!(usage.lock().changed(9).len(), 2);
    }
}

//! What is used of budgets while the agent runs.
//!
//! Owns: the clock, the lock, the thread that keeps totals and tells thresholds. Refuses: what counts (the core's
//! `budget`), and holding up who observes: the lock is held for sums alone.

use crate::clock::unix_ms;
use crate::export::{Exporter, metrics::lock};
use crate::store::Store;
use crate::store::tables::budget::{self as table, Forget, Totals};
use infertap_core::Observation;
use infertap_core::budget::{Budget, BudgetEvent, BudgetReport, Budgets, Kept, Use};
use infertap_core::observation::Finished;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often totals that changed are given to the store, which commits them within a tenth of a second. A process that is killed
/// loses less than a second of usage.
const KEEP: Duration = Duration::from_millis(250);
/// How often the metrics are told: projections move with time.
const TELL: Duration = Duration::from_secs(1);
/// How often rows of long ago are dropped.
const FORGET: Duration = Duration::from_hours(1);
/// How long a reload waits for what is on its way to the store.
const FLUSH: Duration = Duration::from_secs(1);

/// Unix time in seconds.
pub(crate) fn unix_now() -> i64 {
    i64::try_from(unix_ms() / 1000).unwrap_or(i64::MAX)
}

/// The budgets of a running agent. All methods take `&self` and may be called from any thread.
#[derive(Debug, Default)]
pub struct Keeper {
    /// There are budgets: without, observations are not looked at.
    any: AtomicBool,
    budgets: Mutex<Budgets>,
    store: OnceLock<Weak<Store>>,
}

impl Keeper {
    /// Keeps totals in this store from here on, and finds there what was used before. Once, before the first budgets.
    pub fn keep_in(&self, store: &Arc<Store>) {
        let _ = self.store.set(Arc::downgrade(store));
    }

    /// These budgets are in effect; what was used of the same ones stays.
    pub fn configure(&self, budgets: Vec<Budget>) {
        let kept = self.kept();
        let any = !budgets.is_empty();
        lock(&self.budgets).configure(budgets, &kept, unix_now());
        self.any.store(any, Ordering::Relaxed);
    }

    fn store(&self) -> Option<Arc<Store>> {
        self.store.get()?.upgrade()
    }

    /// What the store has, after what is in memory was given to it.
    fn kept(&self) -> Vec<Kept> {
        let Some(store) = self.store() else {
            return Vec::new();
        };
        self.keep(&store);
        store.flush(FLUSH);
        store.read(table::read).unwrap_or_else(|error| {
            tracing::warn!("what was used of budgets before is not known: {error}");
            Vec::new()
        })
    }

    /// Gives the store what has changed.
    fn keep(&self, store: &Store) {
        let changed = lock(&self.budgets).take_changed();
        if !changed.is_empty() {
            // One that is refused is counted as lost, which brings all totals here again.
            store.submit(Totals(changed));
        }
    }

    /// Counts what observations tell of use. Requests that ended when a budget of theirs was used up are told to `over`.
    pub fn apply(&self, observations: &[Observation], mut over: impl FnMut(&Finished)) {
        if !self.any.load(Ordering::Relaxed) {
            return;
        }
        let mut budgets = None;
        let mut now = 0;
        for observation in observations {
            let (labels, used) = match observation {
                Observation::Tokens { labels, count, .. } => (labels, Some(Use::Tokens(*count))),
                Observation::Charge(charge) => {
                    let amount = charge.amount.units();
                    let used = Use::Money(charge.currency, charge.basis, amount);
                    (&charge.labels, Some(used))
                }
                Observation::Finished(finished) => (&finished.labels, None),
                _ => continue,
            };
            let budgets = budgets.get_or_insert_with(|| {
                now = unix_now();
                lock(&self.budgets)
            });
            if let Some(used) = used {
                budgets.add(now, &labels.scene, &labels.model, used);
            } else if let Observation::Finished(finished) = observation
                && budgets.used_up(now, &labels.scene, &labels.model)
            {
                over(finished);
            }
        }
    }

    /// How they stand.
    pub fn report(&self) -> Vec<BudgetReport> {
        lock(&self.budgets).report(unix_now())
    }

    fn advance(&self) -> Vec<BudgetEvent> {
        let mut budgets = lock(&self.budgets);
        budgets.advance(unix_now());
        budgets.take_events()
    }
}

/// The thread that keeps totals and tells thresholds. Ends, and keeps what is left, when this is dropped.
#[derive(Debug)]
pub struct KeeperThread {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl KeeperThread {
    /// Starts it for the budgets of an exporter.
    ///
    /// # Errors
    /// The system has no thread to give.
    pub fn start(exporter: &Arc<Exporter>) -> std::io::Result<KeeperThread> {
        let (stop, stopped) = channel();
        let exporter = Arc::clone(exporter);
        let thread = std::thread::Builder::new()
            .name("infertap-budget".to_owned())
            .spawn(move || run(&exporter, &stopped))?;
        Ok(KeeperThread {
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for KeeperThread {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(exporter: &Exporter, stopped: &Receiver<()>) {
    let keeper = exporter.budgets();
    let (mut lost, mut told, mut forgot) = (0, None::<Instant>, None::<Instant>);
    let due = |last: Option<Instant>, period| last.is_none_or(|last| last.elapsed() >= period);
    loop {
        let end = stopped.recv_timeout(KEEP) != Err(RecvTimeoutError::Timeout);
        for event in keeper.advance() {
            tell(&event);
            exporter.metrics().budget_event(&event);
        }
        if let Some(store) = keeper.store() {
            let lost_now = store.status().lost();
            if lost_now != std::mem::replace(&mut lost, lost_now) {
                lock(&keeper.budgets).keep_all();
            }
            keeper.keep(&store);
            if due(forgot, FORGET) {
                forgot = Some(Instant::now());
                store.submit(Forget { now: unix_now() });
            }
        }
        if due(told, TELL) {
            told = Some(Instant::now());
            exporter.metrics().budgets(&keeper.report());
        }
        if end {
            return;
        }
    }
}

/// Tells the operator of a threshold.
fn tell(event: &BudgetEvent) {
    let budget = &event.budget;
    tracing::warn!(
        budget = &*budget.name,
        threshold = event.threshold,
        used = event.used,
        limit = budget.limit,
        unit = budget.unit.as_str(),
        "budget {}: {} of {} {} are used, {} % of what there is until {}",
        budget.name,
        super::amount(event.used, budget.unit.as_str()),
        super::amount(budget.limit, budget.unit.as_str()),
        budget.unit.as_str(),
        (event.threshold * 100.0).round(),
        budget.zone.show(event.bounds.end),
    );
}

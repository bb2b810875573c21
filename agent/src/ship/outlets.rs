//! Every destination of a running agent, and what changes of them while it runs.
//!
//! Owns: starting, replacing and ending their workers, and the sums of their counters, which outlive workers. Refuses: what one
//! worker does (`outlet`), and making destinations of a configuration (`section`).

use super::loki::Cappers;
use super::{Destination, Limits, Outcome, Outlet, outlet, section::Section};
use crate::export::MetricsConfig;
use crate::export::metrics::lock;
use crate::store::tables::record::KeptRecord;
use prometheus::IntCounterVec;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::{AbortHandle, JoinHandle};

/// How long a worker that is replaced or removed tries to send what it has.
pub(super) const DRAIN: Duration = Duration::from_secs(4);

/// Every destination of a running agent. Clones are the same.
#[derive(Debug, Default, Clone)]
pub struct Outlets {
    state: Arc<Mutex<State>>,
    failures: Option<IntCounterVec>,
    /// Under which caps labels of Loki are made.
    pub(super) caps: Arc<Mutex<Cappers>>,
    pub(super) host: String,
}

#[derive(Debug, Default)]
struct State {
    slots: Vec<Slot>,
}

/// Everything of one name.
#[derive(Debug)]
struct Slot {
    name: &'static str,
    /// What its worker was made of; `None` where a test made it.
    section: Option<Section>,
    worker: Option<Worker>,
    /// Those that were replaced or removed and still have something to send.
    before: Vec<Worker>,
    /// Ends of workers without a successor.
    ends: Vec<JoinHandle<()>>,
    /// What became of the records of those that are gone.
    gone: [u64; Outcome::ALL.len()],
    delivered: Option<f64>,
}

#[derive(Debug)]
struct Worker {
    outlet: Arc<Outlet>,
    task: Option<JoinHandle<()>>,
    abort: Option<AbortHandle>,
}

/// A destination that can be started.
pub(super) struct Planned {
    name: &'static str,
    limits: Limits,
    deliver: Box<dyn FnOnce(Arc<Outlet>) -> Delivery + Send>,
}

type Delivery = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Planned {
    /// `attempt` is the time that one attempt may take.
    pub(super) fn new<D: Destination>(destination: D, limits: Limits, attempt: Duration) -> Planned {
        Planned {
            name: destination.name(),
            limits,
            deliver: Box::new(move |outlet| Box::pin(outlet::deliver(outlet, destination, attempt))),
        }
    }
}

/// What a destination has done and has to do, whoever its workers were.
#[derive(Debug, Clone, PartialEq)]
pub struct Total {
    /// Its name.
    pub name: &'static str,
    /// Records by what became of them, in the order of [`Outcome::ALL`].
    pub counts: [u64; Outcome::ALL.len()],
    /// Records that wait, and their estimated bytes.
    pub waiting: (usize, usize),
    /// When it last took a batch, Unix time in seconds; `None` before the first.
    pub delivered_at: Option<f64>,
}

impl Outlets {
    /// None yet. Attempts that fail are counted here, by destination.
    pub(super) fn new(failures: IntCounterVec, metrics: &MetricsConfig, host: String) -> Outlets {
        Outlets {
            failures: Some(failures),
            caps: Arc::new(Mutex::new(Cappers::new(metrics))),
            host,
            ..Outlets::default()
        }
    }

    /// One that has taken something and does no more.
    #[cfg(test)]
    pub(super) fn with(outlet: Outlet) -> Outlets {
        outlet.delivered();
        let outlets = Outlets::default();
        let worker = Worker {
            outlet: Arc::new(outlet),
            task: None,
            abort: None,
        };
        let name = worker.outlet.name();
        lock(&outlets.state).slot(name).worker = Some(worker);
        outlets
    }

    /// Adds a destination and starts sending to it. `attempt` is the time that one attempt may take. To be called within a
    /// tokio runtime.
    pub fn add<D: Destination>(&self, destination: D, limits: Limits, attempt: Duration) -> Arc<Outlet> {
        self.put(None, Planned::new(destination, limits, attempt))
    }

    /// Starts sending to this, and has what is sent to under its name now, if anything, send the rest of what it has first. What
    /// that can't send in time goes with the new one.
    pub(super) fn put(&self, section: Option<Section>, planned: Planned) -> Arc<Outlet> {
        let name = planned.name;
        let failures = self.failures.as_ref().map(|all| all.with_label_values(&[name]));
        let outlet = Arc::new(Outlet::new(name, planned.limits, failures));
        let delivery = (planned.deliver)(Arc::clone(&outlet));
        let mut state = lock(&self.state);
        let slot = state.slot(name);
        let old = slot.replaced();
        let (outlets, successor) = (self.clone(), Arc::clone(&outlet));
        let task = tokio::spawn(async move {
            if let Some((old, task)) = old {
                ended(task).await;
                outlets.retire(name, &old, Some(&successor));
            }
            delivery.await;
        });
        slot.section = section;
        slot.worker = Some(Worker {
            outlet: Arc::clone(&outlet),
            abort: Some(task.abort_handle()),
            task: Some(task),
        });
        outlet
    }

    /// Ends what is sent to under this name, once it has sent what it has, or the time for that is over.
    pub(super) fn remove(&self, name: &'static str) {
        let mut state = lock(&self.state);
        let slot = state.slot(name);
        slot.section = None;
        let Some((old, task)) = slot.replaced() else {
            return;
        };
        let outlets = self.clone();
        slot.ends.retain(|end| !end.is_finished());
        slot.ends.push(tokio::spawn(async move {
            ended(task).await;
            outlets.retire(name, &old, None);
        }));
    }

    /// What the worker of this name was made of.
    pub(super) fn section(&self, name: &str) -> Option<Section> {
        let state = lock(&self.state);
        let slot = state.slots.iter().find(|slot| slot.name == name)?;
        slot.section.clone()
    }

    /// This worker, which was replaced or removed, has ended: what it leaves, or one before it that did not end in its time, goes to
    /// its successor.
    fn retire(&self, name: &'static str, ended: &Arc<Outlet>, successor: Option<&Arc<Outlet>>) {
        let mut state = lock(&self.state);
        let slot = state.slot(name);
        let is = |of: &Arc<Outlet>, worker: &Worker| Arc::ptr_eq(&worker.outlet, of);
        let Some(position) = slot.before.iter().position(|worker| is(ended, worker)) else {
            return;
        };
        let mut left = Vec::new();
        for old in slot.before.drain(..=position) {
            if let Some(abort) = old.abort {
                abort.abort();
            }
            left.append(&mut old.outlet.take_back());
            for (sum, outcome) in slot.gone.iter_mut().zip(Outcome::ALL) {
                *sum += old.outlet.counted(outcome);
            }
            slot.delivered = later(slot.delivered, old.outlet.delivered_at());
        }
        if left.is_empty() {
            return;
        }
        if let Some(successor) = successor {
            successor.take_over(left);
        } else {
            slot.gone[Outcome::Shutdown as usize] += left.len() as u64;
            let left = left.len();
            tracing::warn!("{name}: {left} records could not be sent before it was removed, and are lost");
        }
    }

    /// Those that records are given to, in order.
    pub fn list(&self) -> Vec<Arc<Outlet>> {
        let state = lock(&self.state);
        let workers = state.slots.iter().filter_map(|slot| slot.worker.as_ref());
        workers.map(|worker| Arc::clone(&worker.outlet)).collect()
    }

    /// Nobody is given records.
    pub fn is_empty(&self) -> bool {
        lock(&self.state).slots.iter().all(|slot| slot.worker.is_none())
    }

    /// Of each name that there ever was, in order.
    pub fn totals(&self) -> Vec<Total> {
        lock(&self.state).slots.iter().map(Slot::total).collect()
    }

    /// Sends a record to all of them. Never waits.
    pub fn offer(&self, record: &Arc<KeptRecord>) {
        for slot in &lock(&self.state).slots {
            if let Some(worker) = &slot.worker {
                worker.outlet.offer(record);
            }
        }
    }

    /// Sends what is still there, for at most so long. What then is left is lost, counted and logged.
    pub async fn finish(&self, limit: Duration) {
        let mut tasks = Vec::new();
        {
            let mut state = lock(&self.state);
            for slot in &mut state.slots {
                tasks.append(&mut slot.ends);
                // Who comes after one that may never end needs the time.
                let replaced = slot.before.iter().filter(|_| slot.worker.is_some());
                for abort in replaced.filter_map(|worker| worker.abort.as_ref()) {
                    abort.abort();
                }
                for worker in slot.worker.iter_mut().chain(&mut slot.before) {
                    worker.outlet.stop();
                    tasks.extend(worker.task.take());
                }
            }
        }
        let until = tokio::time::Instant::now() + limit;
        for mut task in tasks {
            if tokio::time::timeout_at(until, &mut task).await.is_err() {
                task.abort();
            }
        }
        for slot in &lock(&self.state).slots {
            let mut left = 0;
            for worker in slot.worker.iter().chain(&slot.before) {
                if let Some(abort) = &worker.abort {
                    abort.abort();
                }
                left += worker.outlet.drop_all();
            }
            if left > 0 {
                let name = slot.name;
                tracing::warn!("{name}: {left} records could not be sent before the end, and are lost");
            }
        }
    }
}

/// Waits until a worker that was stopped has ended, and ends it when its time is over.
async fn ended(mut old: JoinHandle<()>) {
    if tokio::time::timeout(DRAIN, &mut old).await.is_err() {
        old.abort();
        let _ = old.await;
    }
}

impl State {
    fn slot(&mut self, name: &'static str) -> &mut Slot {
        let position = self.slots.iter().position(|slot| slot.name == name);
        let position = position.unwrap_or_else(|| {
            self.slots.push(Slot {
                name,
                section: None,
                worker: None,
                before: Vec::new(),
                ends: Vec::new(),
                gone: [0; Outcome::ALL.len()],
                delivered: None,
            });
            self.slots.len() - 1
        });
        &mut self.slots[position]
    }
}

impl Slot {
    /// Stops the worker that is there; its task ends once it has sent what it has.
    fn replaced(&mut self) -> Option<(Arc<Outlet>, JoinHandle<()>)> {
        let mut worker = self.worker.take()?;
        worker.outlet.stop();
        let old = (Arc::clone(&worker.outlet), worker.task.take());
        self.before.push(worker);
        Some((old.0, old.1?))
    }

    fn total(&self) -> Total {
        let (mut counts, mut waiting, mut delivered_at) = (self.gone, (0, 0), self.delivered);
        for worker in self.worker.iter().chain(&self.before) {
            for (sum, outcome) in counts.iter_mut().zip(Outcome::ALL) {
                *sum += worker.outlet.counted(outcome);
            }
            let (records, bytes) = worker.outlet.waiting();
            waiting = (waiting.0 + records, waiting.1 + bytes);
            delivered_at = later(delivered_at, worker.outlet.delivered_at());
        }
        Total {
            name: self.name,
            counts,
            waiting,
            delivered_at,
        }
    }
}

fn later(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.max(b)),
        (a, b) => a.or(b),
    }
}

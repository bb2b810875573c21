//! One destination of a running agent: its queue, and the task that empties it.
//!
//! Owns: waking, the time limit of an attempt, telling once that a destination fails and once that it works again.
//! Refuses: deciding (`courier`).

use super::courier::Item;
use super::{Courier, Destination, Limits, Next, Outcome, Verdict};
use crate::clock::unix_ms;
use crate::export::metrics::lock;
use crate::store::tables::record::KeptRecord;
use prometheus::IntCounter;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// A destination's queue, as whoever fills it and whoever reads its counters see it. All methods take `&self` and may be
/// called from any thread; none waits.
#[derive(Debug)]
pub struct Outlet {
    name: &'static str,
    courier: Mutex<Courier>,
    wake: Notify,
    failures: AtomicU64,
    /// The same in the metrics.
    told: Option<IntCounter>,
    /// Unix time in milliseconds; 0 before the first.
    delivered_ms: AtomicU64,
}

impl Outlet {
    pub(super) fn new(name: &'static str, limits: Limits, told: Option<IntCounter>) -> Outlet {
        let seed = unix_ms() ^ (u64::from(std::process::id()) << 32) ^ name.len() as u64;
        Outlet {
            name,
            courier: Mutex::new(Courier::new(limits, seed)),
            wake: Notify::new(),
            failures: AtomicU64::new(0),
            told,
            delivered_ms: AtomicU64::new(0),
        }
    }

    /// The destination's name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Puts a record into the queue.
    pub fn offer(&self, record: &Arc<KeptRecord>) {
        lock(&self.courier).offer(Instant::now(), Arc::clone(record));
        self.wake.notify_one();
    }

    /// Records that wait, and their estimated bytes.
    pub fn waiting(&self) -> (usize, usize) {
        lock(&self.courier).waiting()
    }

    /// Records by what became of them.
    pub fn counted(&self, outcome: Outcome) -> u64 {
        lock(&self.courier).counted(outcome)
    }

    /// Attempts that failed.
    pub fn failures(&self) -> u64 {
        self.failures.load(Relaxed)
    }

    /// When the destination last took a batch, Unix time in seconds; `None` before the first.
    pub fn delivered_at(&self) -> Option<f64> {
        let ms = self.delivered_ms.load(Relaxed);
        (ms > 0).then_some(ms as f64 / 1000.0)
    }

    /// The destination took a batch now.
    pub(super) fn delivered(&self) {
        self.delivered_ms.store(unix_ms(), Relaxed);
    }

    fn failed(&self) {
        self.failures.fetch_add(1, Relaxed);
        if let Some(told) = &self.told {
            told.inc();
        }
    }

    /// No more records come.
    pub(super) fn stop(&self) {
        lock(&self.courier).stop();
        self.wake.notify_one();
    }

    /// What is still to be sent, which is not to be sent from here any more.
    pub(super) fn take_back(&self) -> Vec<Item> {
        lock(&self.courier).take_back()
    }

    /// Sends what another has left first.
    pub(super) fn take_over(&self, left: Vec<Item>) {
        lock(&self.courier).take_over(left);
        self.wake.notify_one();
    }

    /// Gives up what is left, and tells how much that was.
    pub(super) fn drop_all(&self) -> usize {
        let mut courier = lock(&self.courier);
        let (left, _) = courier.waiting();
        courier.drop_all();
        left
    }
}

/// Empties the queue into a destination, until it is stopped and empty. `limit` is the time of one attempt.
///
/// Encoding and compressing a batch takes long, and metrics are served by the same few threads: it is done beside them. A record
/// on which it panics is lost alone.
pub(super) async fn deliver<D: Destination>(outlet: Arc<Outlet>, destination: D, limit: Duration) {
    let destination = Arc::new(destination);
    let mut prepared: Option<(u64, D::Payload)> = None;
    let mut state = State::new(outlet.name);
    loop {
        let next = lock(&outlet.courier).next(Instant::now());
        match next {
            Next::Idle => outlet.wake.notified().await,
            Next::At(at) => {
                // Over or woken, the courier is asked again.
                let _ = tokio::time::timeout_at(at.into(), outlet.wake.notified()).await;
            }
            Next::Send(batch, records) => {
                let payload = match prepared.take() {
                    Some((of, payload)) if of == batch => Some(payload),
                    _ => encoded(&destination, &records).await,
                };
                let verdict = match &payload {
                    Some(payload) => tokio::time::timeout(limit, destination.send(payload))
                        .await
                        .unwrap_or_else(|_| destination.timed_out(limit)),
                    None => not_encoded(records.len()),
                };
                prepared = payload
                    .filter(|_| matches!(verdict, Verdict::Retry { .. }))
                    .map(|payload| (batch, payload));
                let accepted = matches!(verdict, Verdict::Accepted { .. });
                if accepted {
                    outlet.delivered();
                } else {
                    outlet.failed();
                }
                let lost = lock(&outlet.courier).done(Instant::now(), &verdict);
                state.tell(&verdict, records.len());
                if lost > 0 {
                    state.gave_up(&verdict);
                }
            }
            Next::End => return,
        }
    }
}

/// The batch; `None` where encoding it panicked.
async fn encoded<D: Destination>(
    destination: &Arc<D>,
    records: &Arc<[Arc<KeptRecord>]>,
) -> Option<D::Payload> {
    let (destination, records) = (Arc::clone(destination), Arc::clone(records));
    tokio::task::spawn_blocking(move || destination.encode(&records))
        .await
        .ok()
}

/// What that means: the record that spoils the batch is found by halves.
pub(super) fn not_encoded(records: usize) -> Verdict {
    let reason = "the agent can't encode it, by a mistake of its own".to_owned();
    if records > 1 {
        Verdict::TooLarge { reason }
    } else {
        Verdict::Refused { reason }
    }
}

/// What was last told of a destination.
struct State {
    name: &'static str,
    failing: bool,
    losing: bool,
}

impl State {
    fn new(name: &'static str) -> State {
        State {
            name,
            failing: false,
            losing: false,
        }
    }

    /// A record was tried in vain while others were taken.
    fn gave_up(&mut self, verdict: &Verdict) {
        if !std::mem::replace(&mut self.losing, true) {
            let reason = verdict.reason().unwrap_or("it did not say why");
            tracing::warn!(
                "{}: a record fails again and again while others are taken, and is lost: {reason}",
                self.name
            );
        }
    }

    fn tell(&mut self, verdict: &Verdict, records: usize) {
        let name = self.name;
        let reason = verdict.reason().unwrap_or("it did not say why");
        match verdict {
            Verdict::Accepted { rejected: 0, .. } => {
                if self.failing || self.losing {
                    tracing::info!("{name}: takes records again");
                }
                (self.failing, self.losing) = (false, false);
            }
            Verdict::Accepted { rejected, .. } => {
                self.failing = false;
                if !std::mem::replace(&mut self.losing, true) {
                    tracing::warn!(
                        "{name}: rejects {rejected} of {records} records, which are lost: {reason}"
                    );
                }
            }
            Verdict::Refused { .. } => {
                if !std::mem::replace(&mut self.losing, true) {
                    tracing::warn!("{name}: refuses {records} records, which are lost: {reason}");
                }
            }
            Verdict::TooLarge { .. } if records <= 1 => {
                if !std::mem::replace(&mut self.losing, true) {
                    tracing::warn!("{name}: a record is too large even alone, and lost: {reason}");
                }
            }
            // Smaller ones follow at once.
            Verdict::TooLarge { .. } => {}
            Verdict::Partly { .. } | Verdict::Retry { .. } => {
                if !std::mem::replace(&mut self.failing, true) {
                    tracing::warn!("{name}: can't deliver, records wait in its queue: {reason}");
                }
            }
        }
    }
}

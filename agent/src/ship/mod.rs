//! Sending records out.
//!
//! Owns: for every destination one bounded queue, a task that empties it in batches, attempts and delays, and counters.
//! Refuses: what a record is and which are kept (`records`). A destination that hangs or is down for an hour costs the
//! agent its queue and nothing else: whoever offers a record never waits.
//!
//! A new destination is a file that implements [`HttpDestination`] or [`Destination`], its section in the configuration
//! ([`destination_section!`](crate::destination_section)), and a line where the agent starts them (`run`).

mod answer;
mod backoff;
mod courier;
mod destination;
mod http;
mod link;
mod outlet;
mod tls;

pub use answer::HttpAnswer;
pub use courier::{Courier, Limits, Next, Outcome};
pub use destination::{Destination, Verdict};
pub use http::{Http, HttpDestination, HttpRequest, Prepared};
pub use link::LinkConfig;
pub use outlet::Outlet;

use crate::export::metrics::lock;
use crate::store::tables::record::KeptRecord;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinHandle;

/// Every destination of a running agent.
#[derive(Debug, Default)]
pub struct Outlets {
    list: Vec<Arc<Outlet>>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

impl Outlets {
    /// Adds a destination and starts sending to it. `attempt` is the time that one attempt may take. To be called within a
    /// tokio runtime.
    pub fn add<D: Destination>(&mut self, destination: D, limits: Limits, attempt: Duration) -> Arc<Outlet> {
        let outlet = Arc::new(Outlet::new(destination.name(), limits));
        let task = outlet::deliver(Arc::clone(&outlet), destination, attempt);
        lock(&self.tasks).push(tokio::spawn(task));
        self.list.push(Arc::clone(&outlet));
        outlet
    }

    /// Their queues, in order.
    pub fn list(&self) -> &[Arc<Outlet>] {
        &self.list
    }

    /// Sends a record to all of them. Never waits.
    pub fn offer(&self, record: &Arc<KeptRecord>) {
        for outlet in &self.list {
            outlet.offer(record);
        }
    }

    /// Sends what is still there, for at most so long. What then is left is lost, counted and logged.
    pub async fn finish(&self, limit: Duration) {
        for outlet in &self.list {
            outlet.stop();
        }
        let tasks = std::mem::take(&mut *lock(&self.tasks));
        let until = tokio::time::Instant::now() + limit;
        for mut task in tasks {
            if tokio::time::timeout_at(until, &mut task).await.is_err() {
                task.abort();
            }
        }
        for outlet in &self.list {
            let left = outlet.drop_all();
            if left > 0 {
                let name = outlet.name();
                tracing::warn!("{name}: {left} records could not be sent before the end, and are lost");
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

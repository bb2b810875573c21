//! The ledger of a running agent: fed by the tap thread, read by the HTTP server.
//!
//! Owns: its lock, and the wall clock: usage is of calendar time, which outlives a boot. Refuses: what is counted (the
//! core's).

use crate::export::metrics::lock;
use infertap_core::ledger::{ContextLimits, Ledger, LedgerConfig};
use infertap_core::observation::{Finished, Observation};
use std::sync::{Mutex, MutexGuard};
use std::time::{SystemTime, UNIX_EPOCH};

/// See the module.
#[derive(Debug)]
pub struct SharedLedger {
    ledger: Mutex<Ledger>,
    /// Unix seconds.
    clock: fn() -> u64,
}

impl SharedLedger {
    /// One that has seen nothing.
    pub fn new(config: &LedgerConfig, limits: ContextLimits) -> SharedLedger {
        SharedLedger::with_clock(config, limits, || {
            let since = SystemTime::now().duration_since(UNIX_EPOCH);
            since.map_or(0, |since| since.as_secs())
        })
    }

    /// As [`SharedLedger::new`], with another clock: unix seconds.
    pub fn with_clock(config: &LedgerConfig, limits: ContextLimits, clock: fn() -> u64) -> SharedLedger {
        SharedLedger {
            ledger: Mutex::new(Ledger::new(config, limits)),
            clock,
        }
    }

    /// Takes observations, in order. Requests of which it is known are told to `near`: whether they came near their model's
    /// context limit. Returns how many observations were added to the key `other` so far.
    pub fn apply(&self, observations: &[Observation], mut near: impl FnMut(&Finished, bool)) -> u64 {
        let now = self.now();
        let mut ledger = self.lock();
        for observation in observations {
            if let Some(is_near) = ledger.apply(now, observation)
                && let Observation::Finished(finished) = observation
            {
                near(finished, is_near);
            }
        }
        ledger.overflow()
    }

    /// Unix seconds.
    pub fn now(&self) -> u64 {
        (self.clock)()
    }

    /// The ledger, for as long as nobody else needs it.
    pub fn lock(&self) -> MutexGuard<'_, Ledger> {
        lock(&self.ledger)
    }
}

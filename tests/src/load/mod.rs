//! A load client with its own truth: what was sent, what came back, and when, by CLOCK_MONOTONIC.
//!
//! Owns: connections, plans, the truth records. Refuses: knowing anything about the agent. Each connection has a thread
//! of its own that takes the time right after `recv` returns and parses later.

mod connection;
mod plan;
mod response;
mod truth;

pub use connection::Connection;
pub use plan::{Mix, Plan, mixed};
pub(crate) use plan::{SplitMix, WORDS};
pub use truth::{ClientTruth, Outcome, Timings};

use crate::{clock, scripted::Address};
use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

/// Many connections at once.
#[derive(Debug, Clone)]
pub struct Load {
    /// The server.
    pub address: Address,
    /// Connections, each with one request at a time.
    pub concurrency: usize,
    /// The core that every client thread is pinned to, with real-time priority: for measuring.
    pub core: Option<usize>,
}

impl Load {
    /// Carries out `plans` in their order, each on whichever connection is free, until they end or `stop` is set.
    /// `done` is told each truth as it is known.
    pub fn run(
        &self,
        plans: impl Iterator<Item = Plan> + Send,
        stop: &AtomicBool,
        done: &(dyn Fn(ClientTruth) + Sync),
    ) {
        let plans = Mutex::new(plans);
        thread::scope(|scope| {
            for _ in 0..self.concurrency {
                scope.spawn(|| self.worker(&plans, stop, done));
            }
        });
    }

    /// As [`Load::run`], to the end of `plans`; their truths by index.
    pub fn run_all(&self, plans: Vec<Plan>) -> Vec<ClientTruth> {
        let truths = Mutex::new(Vec::with_capacity(plans.len()));
        self.run(plans.into_iter(), &AtomicBool::new(false), &|truth| {
            truths.lock().unwrap_or_else(PoisonError::into_inner).push(truth);
        });
        let mut truths = truths.into_inner().unwrap_or_else(PoisonError::into_inner);
        truths.sort_by_key(|truth| truth.index);
        truths
    }

    fn worker(
        &self,
        plans: &Mutex<impl Iterator<Item = Plan>>,
        stop: &AtomicBool,
        done: &(dyn Fn(ClientTruth) + Sync),
    ) {
        if let Some(core) = self.core
            && let Err(error) = clock::pin_to_core(core).and_then(|()| clock::before_all_others())
        {
            eprintln!("load: {error}");
        }
        let mut open: Option<Connection> = None;
        while !stop.load(Ordering::Relaxed) {
            let Some(plan) = plans.lock().unwrap_or_else(PoisonError::into_inner).next() else {
                return;
            };
            let (truth, connection) = self.carry_out(&plan, open.take());
            open = connection;
            done(truth);
        }
    }

    /// A server may close an idle connection at any time, also while the next request is on its way. As every HTTP client
    /// does, this one then sends it again on a new connection; the attempt is counted.
    fn carry_out(&self, plan: &Plan, open: Option<Connection>) -> (ClientTruth, Option<Connection>) {
        let mut unanswered = 0;
        if let Some(mut connection) = open.filter(Connection::is_alive) {
            let truth = connection.exchange(plan);
            if !(truth.outcome == Outcome::Broken && truth.status.is_none() && truth.response_bytes == 0) {
                let reusable = truth.reusable;
                return (truth, reusable.then_some(connection));
            }
            unanswered = 1;
        }
        match Connection::open(&self.address) {
            Ok(mut connection) => {
                let truth = ClientTruth {
                    unanswered,
                    ..connection.exchange(plan)
                };
                let reusable = truth.reusable;
                (truth, reusable.then_some(connection))
            }
            Err(error) => {
                let error = format!("can't connect to {}: {error}", self.address);
                (
                    ClientTruth {
                        unanswered,
                        ..ClientTruth::failed(plan, error)
                    },
                    None,
                )
            }
        }
    }
}

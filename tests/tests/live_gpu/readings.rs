//! When the first GPU was read.
//!
//! Owns: the thread that asks the agent for it all the while. Refuses: guessing at readings that it did not see.

use infertap_tests::{http, scripted::Address};
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

/// How long after a reading the next one is taken, by the agents of these tests.
const PERIOD_NS: u64 = 100_000_000;

/// When the GPU was read, as the API tells it all the while. A busy machine reads it later than it should.
pub(super) struct Readings {
    at: Arc<Mutex<Vec<u64>>>,
    over: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Readings {
    pub(super) fn follow(agent: Address) -> Readings {
        let at = Arc::new(Mutex::new(Vec::new()));
        let over = Arc::new(AtomicBool::new(false));
        let (all, end) = (Arc::clone(&at), Arc::clone(&over));
        let follow = move || {
            while !end.load(Ordering::Relaxed) {
                let answer = http::get(&agent, "/api/v1/gpus").and_then(|answer| answer.json());
                if let Some(at) = answer.ok().and_then(|api| api["gpus"][0]["read_at_ns"].as_u64()) {
                    let mut all = all.lock().unwrap();
                    if all.last() != Some(&at) {
                        all.push(at);
                    }
                }
                thread::sleep(Duration::from_millis(10));
            }
        };
        Readings {
            at,
            over,
            thread: Some(thread::spawn(follow)),
        }
    }

    /// The last reading at `time` or before it; `None` when there may have been one that was not seen.
    pub(super) fn last(&self, time: u64) -> Option<u64> {
        let all = self.at.lock().unwrap();
        let next = all.partition_point(|at| *at <= time);
        let (last, next) = (*all.get(next.checked_sub(1)?)?, *all.get(next)?);
        (next - last < PERIOD_NS * 3 / 2).then_some(last)
    }
}

impl Drop for Readings {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

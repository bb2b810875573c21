//! What is wished of the attaching thread: one entry a process, however much was asked of it since.
//!
//! Owns: the order of processes, and of what is asked of each: what is there of a process goes before anything new comes. Asking
//! never waits and is never refused, and the entries are no more than processes are watched, or were and are not let go yet.
//! Refuses: attaching.

use std::collections::{HashMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Number of a question; an answer bears it.
pub(in crate::run) type Ticket = u64;

/// What is wished of one process, in the order in which it is done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Wish {
    /// Let go of its C library and its functions.
    pub(super) detach: bool,
    /// Attach to its C library.
    pub(super) sockets: Option<Ticket>,
    /// Look for functions in it.
    pub(super) calls: bool,
    /// Count its CUDA calls no more.
    pub(super) forget_cuda: Option<Ticket>,
    /// Count its CUDA calls.
    pub(super) cuda: bool,
}

/// The entries, for who asks and who attaches.
#[derive(Debug, Default)]
pub(super) struct Wishes {
    inner: Mutex<Inner>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct Inner {
    wishes: HashMap<u32, Wish>,
    order: VecDeque<u32>,
    /// Whose wish is being fulfilled, and since when.
    busy: Option<Busy>,
    /// Before that.
    spent: Duration,
    stop: bool,
}

/// How the attaching thread is doing.
#[derive(Debug, Clone, Copy)]
pub(in crate::run) struct State {
    /// Processes that something is wished of, and nobody is at it yet.
    pub(in crate::run) waiting: usize,
    /// Time in which it was not idle.
    pub(in crate::run) spent: Duration,
    /// What it is at.
    pub(in crate::run) busy: Option<Busy>,
}

/// What the attaching thread is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::run) struct Busy {
    /// The process; `None` while it looks at all of them.
    pub(in crate::run) pid: Option<u32>,
    /// Since when.
    pub(in crate::run) since: Instant,
}

/// What the attaching thread is to do.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// This wish of this process.
    Wish(u32, Wish),
    /// Nothing is wished: look at all processes.
    Look,
    /// The end.
    Stop,
}

impl Wishes {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask(&self, pid: u32, change: impl FnOnce(&mut Wish)) {
        let mut inner = self.lock();
        let Inner { wishes, order, .. } = &mut *inner;
        let wish = wishes.entry(pid).or_insert_with(|| {
            order.push_back(pid);
            Wish::default()
        });
        change(wish);
        drop(inner);
        self.wake.notify_one();
    }

    /// Attach to its C library; the answer bears this ticket.
    pub(super) fn sockets(&self, pid: u32, ticket: Ticket) {
        self.ask(pid, |wish| wish.sockets = Some(ticket));
    }

    /// Look for functions in it.
    pub(super) fn calls(&self, pid: u32) {
        self.ask(pid, |wish| wish.calls = true);
    }

    /// Let go of its C library and functions. What was wished of them and is not begun is wished no longer.
    pub(super) fn detach(&self, pid: u32) {
        self.ask(pid, |wish| {
            wish.detach = true;
            wish.sockets = None;
            wish.calls = false;
        });
    }

    /// Count its CUDA calls.
    pub(super) fn cuda(&self, pid: u32) {
        self.ask(pid, |wish| wish.cuda = true);
    }

    /// Count its CUDA calls no more; the answer bears this ticket, and answers those before it.
    pub(super) fn forget_cuda(&self, pid: u32, ticket: Ticket) {
        self.ask(pid, |wish| {
            wish.forget_cuda = Some(ticket);
            wish.cuda = false;
        });
    }

    /// Nothing more is done, but for what is under way.
    pub(super) fn stop(&self) {
        self.lock().stop = true;
        self.wake.notify_one();
    }

    /// How it goes.
    pub(super) fn state(&self) -> State {
        let inner = self.lock();
        let now = inner.busy.map_or(Duration::ZERO, |busy| busy.since.elapsed());
        State {
            waiting: inner.wishes.len(),
            spent: inner.spent + now,
            busy: inner.busy,
        }
    }

    /// Waits for the next wish, at most until `look`. What it gives is under way until the next call.
    pub(super) fn next(&self, look: Instant) -> Next {
        let mut inner = self.lock();
        if let Some(busy) = inner.busy.take() {
            inner.spent += busy.since.elapsed();
        }
        loop {
            if inner.stop {
                return Next::Stop;
            }
            let now = Instant::now();
            let left = look.saturating_duration_since(now);
            if left == Duration::ZERO {
                inner.busy = Some(Busy {
                    pid: None,
                    since: now,
                });
                return Next::Look;
            }
            if let Some(pid) = inner.order.pop_front() {
                let wish = inner.wishes.remove(&pid).unwrap_or_default();
                inner.busy = Some(Busy {
                    pid: Some(pid),
                    since: now,
                });
                return Next::Wish(pid, wish);
            }
            inner = self
                .wake
                .wait_timeout(inner, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }
}

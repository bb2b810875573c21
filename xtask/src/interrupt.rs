//! Ctrl-C and `kill`, turned into a flag, so that whoever runs things ends them in order.
//!
//! Owns: the signal handlers of SIGINT and SIGTERM. Refuses: ending the process by itself.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

extern "C" fn note(_signal: i32) {
    INTERRUPTED.store(true, Ordering::Relaxed);
}

/// From now on SIGINT, SIGTERM and SIGHUP only set the flag.
pub(crate) fn catch() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: the handler only stores to an atomic, which is async-signal-safe.
        unsafe { libc::signal(signal, note as *const () as libc::sighandler_t) };
    }
}

/// The flag.
pub(crate) fn flag() -> &'static AtomicBool {
    &INTERRUPTED
}

/// Whether it is set.
pub(crate) fn happened() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

/// Sleeps, but wakes up soon after an interrupt; whether to go on.
pub(crate) fn sleep(time: Duration) -> bool {
    let end = Instant::now() + time;
    while !happened() && Instant::now() < end {
        thread::sleep(Duration::from_millis(20));
    }
    !happened()
}

//! CLOCK_MONOTONIC, the clock that the kernel side stamps every event with.
//!
//! Owns: reading it. Refuses: the wall clock, and deciding what follows from the time.

use infertap_core::Nanos;

/// CLOCK_MONOTONIC now.
pub(crate) fn monotonic_ns() -> Nanos {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: one valid timespec; CLOCK_MONOTONIC always exists, so the call can't fail.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    (now.tv_sec as u64)
        .saturating_mul(1_000_000_000)
        .saturating_add(now.tv_nsec as u64)
}

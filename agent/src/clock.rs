//! CLOCK_MONOTONIC, the clock that the kernel side stamps every event with; and the wall clock, for days.
//!
//! Owns: reading them. Refuses: deciding what follows from the time.

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

/// Milliseconds since 1970 now; 0 on a host whose clock is before that.
pub(crate) fn unix_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// What has to be added to CLOCK_MONOTONIC now to get Unix time, nanoseconds.
pub(crate) fn unix_offset_ns() -> i128 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let unix = since.map_or(0, |since| i128::try_from(since.as_nanos()).unwrap_or(0));
    unix - i128::from(monotonic_ns())
}

//! The clock and the cores: CLOCK_MONOTONIC as the kernel's probes read it, and pinning a thread.
//!
//! Owns: the few system calls around them. Refuses: wall time.

use anyhow::{Result, ensure};
use std::{io, time::Duration};

/// CLOCK_MONOTONIC in nanoseconds: the clock of `bpf_ktime_get_ns` and of every record.
pub fn monotonic_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a valid timespec for the call to fill.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Sleeps until CLOCK_MONOTONIC reads `deadline_ns`; spins for the last stretch, so that a schedule is kept to a few
/// microseconds.
pub fn sleep_until(deadline_ns: u64) {
    const SPIN_NS: u64 = 60_000;
    loop {
        let left = deadline_ns.saturating_sub(monotonic_ns());
        if left == 0 {
            return;
        }
        if left > SPIN_NS {
            std::thread::sleep(Duration::from_nanos(left - SPIN_NS));
        } else {
            std::hint::spin_loop();
        }
    }
}

/// Cores that this process may use.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Pins the calling thread, and the threads and processes that it makes from now on, to one core.
pub fn pin_to_core(core: usize) -> Result<()> {
    pin_thread_to_core(0, core)
}

/// Pins a thread, by its id, to one core; 0 is the calling thread.
pub fn pin_thread_to_core(thread: u32, core: usize) -> Result<()> {
    // SAFETY: cpu_set_t is a plain bit mask for which all zeroes is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    ensure!(
        core < 8 * size_of::<libc::cpu_set_t>(),
        "core {core} is beyond what the kernel's mask holds"
    );
    // SAFETY: `core` is within the set, as checked above.
    unsafe { libc::CPU_SET(core, &mut set) };
    // SAFETY: `set` is a valid mask of the size that is given.
    let result = unsafe { libc::sched_setaffinity(thread as libc::pid_t, size_of_val(&set), &raw const set) };
    ensure!(
        result == 0,
        "can't pin to core {core}: {}",
        io::Error::last_os_error()
    );
    Ok(())
}

/// Gives a thread, by its id, the lowest ordinary priority.
pub fn yield_to_others(thread: u32) -> Result<()> {
    // SAFETY: a system call without pointers; for PRIO_PROCESS the kernel takes the id of a thread.
    let result = unsafe { libc::setpriority(libc::PRIO_PROCESS, thread, 19) };
    ensure!(
        result == 0,
        "can't lower a thread's priority: {}",
        io::Error::last_os_error()
    );
    Ok(())
}

/// Lets the calling thread, and all threads and processes that it starts from now on, go before those of others: bounds are
/// of what is measured, not of what else the machine does. Needs root.
pub fn go_first() -> Result<()> {
    // SAFETY: setpriority has no memory effects.
    let done = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -15) };
    ensure!(done == 0, "can't go first: {}", io::Error::last_os_error());
    Ok(())
}

/// Runs the calling thread before all ordinary ones (`SCHED_FIFO`), so that it takes its times when things happen, however
/// busy the core is. Needs root; only for threads that mostly wait.
pub fn before_all_others() -> Result<()> {
    let parameter = libc::sched_param { sched_priority: 1 };
    // SAFETY: `parameter` is valid; 0 means the calling thread.
    let result = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameter) };
    ensure!(
        result == 0,
        "can't get real-time priority: {}",
        io::Error::last_os_error()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_is_never_undershot() {
        let deadline = monotonic_ns() + 300_000;
        sleep_until(deadline);
        assert!(monotonic_ns() >= deadline);
    }

    #[test]
    fn a_core_that_does_not_exist_is_refused() {
        assert!(pin_to_core(100_000).is_err());
    }
}

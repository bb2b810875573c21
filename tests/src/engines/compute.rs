//! Keeps an engine's computing threads off the core that clients use, and behind the threads that read and write.
//!
//! On a machine of two cores a thread that wakes to read a request may find the computing one on its core and wait for a
//! slice of some milliseconds. That is the engine's time, not the agent's error, and it would hide the latter.
//!
//! Owns: finding the threads that compute, by what they use during a generation, and placing them. Refuses: the engine's
//! other threads (they read requests and write responses, and should run wherever there is room).

use super::processes::processor_ticks;
use crate::clock;
use anyhow::{Result, ensure};
use std::collections::BTreeMap;

/// Share of an engine's processor time during a generation from which a thread counts as computing.
const SHARE: f64 = 0.4;

/// Pins the threads of `root` and its descendants that compute during `generation` to `core`, where they yield to any
/// other; returns how many.
pub fn keep_on_core(root: u32, core: usize, generation: impl FnOnce() -> Result<()>) -> Result<usize> {
    let before = processor_ticks(root);
    generation()?;
    let used: BTreeMap<u32, u64> = processor_ticks(root)
        .into_iter()
        .map(|(thread, time)| (thread, time - before.get(&thread).copied().unwrap_or(0).min(time)))
        .collect();
    let all: u64 = used.values().sum();
    ensure!(all > 0, "process {root} used no processor time for a generation");
    let computing: Vec<u32> = used
        .into_iter()
        .filter(|(_, time)| *time as f64 >= SHARE * all as f64)
        .map(|(thread, _)| thread)
        .collect();
    ensure!(!computing.is_empty(), "no thread of process {root} stands out");
    for thread in &computing {
        clock::pin_thread_to_core(*thread, core)?;
        clock::yield_to_others(*thread)?;
    }
    Ok(computing.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        fs,
        process::{Command, Stdio},
        time::Duration,
    };

    #[test]
    fn the_process_that_computes_is_found_and_its_idle_parent_is_left_alone() {
        // The shell waits for the loop that it started.
        let mut parent = Command::new("sh")
            .args(["-c", "(while :; do :; done) & wait"])
            .stdin(Stdio::null())
            .spawn()
            .expect("a shell");
        let children = format!("/proc/{0}/task/{0}/children", parent.id());
        let child = loop {
            if let Some(child) = fs::read_to_string(&children)
                .expect("its children")
                .split_whitespace()
                .next()
            {
                break child.to_owned();
            }
        };
        let pinned = keep_on_core(parent.id(), 0, || {
            std::thread::sleep(Duration::from_millis(300));
            Ok(())
        });
        let cores = |pid: &str| {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("its status");
            status
                .lines()
                .find_map(|line| line.strip_prefix("Cpus_allowed_list:\t").map(str::to_owned))
        };
        let (of_child, of_parent) = (cores(&child), cores(&parent.id().to_string()));
        // SAFETY: a plain system call; the loop is this test's own and not waited for yet.
        unsafe { libc::kill(child.parse().expect("a process id"), libc::SIGKILL) };
        parent.kill().expect("it runs");
        parent.wait().expect("it ends");
        assert_eq!(pinned.expect("it stands out"), 1);
        assert_eq!(of_child.as_deref(), Some("0"));
        assert_ne!(
            of_parent.as_deref(),
            Some("0"),
            "needs a machine with more than one core"
        );
    }
}

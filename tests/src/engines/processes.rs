//! The processes and threads of an engine, from procfs.
//!
//! Owns: walking from a process to all that it started. Refuses: processes that were given to another parent.

use anyhow::{Context, Result};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

/// All processes below `root`, without it.
pub fn descendants(root: u32) -> BTreeSet<u32> {
    let mut found = BTreeSet::new();
    let mut open = vec![root];
    while let Some(process) = open.pop() {
        for thread in threads(process) {
            let children =
                fs::read_to_string(format!("/proc/{process}/task/{thread}/children")).unwrap_or_default();
            let children = children
                .split_whitespace()
                .filter_map(|pid| pid.parse::<u32>().ok());
            open.extend(children.filter(|pid| found.insert(*pid)));
        }
    }
    found
}

/// Processor time, in clock ticks, of every thread of `root` and its descendants. Threads and processes that have ended
/// are not among them.
pub fn processor_ticks(root: u32) -> BTreeMap<u32, u64> {
    let processes = descendants(root).into_iter().chain([root]);
    let threads = processes.flat_map(|process| threads(process).map(move |thread| (process, thread)));
    threads
        .filter_map(|(process, thread)| Some((thread, ticks(process, thread).ok()?)))
        .collect()
}

/// Threads come and go meanwhile: those that are gone are left out.
fn threads(process: u32) -> impl Iterator<Item = u32> {
    let tasks = fs::read_dir(format!("/proc/{process}/task"))
        .into_iter()
        .flatten()
        .flatten();
    tasks.filter_map(|task| task.file_name().to_str()?.parse().ok())
}

fn ticks(process: u32, thread: u32) -> Result<u64> {
    let stat = fs::read_to_string(format!("/proc/{process}/task/{thread}/stat"))?;
    // The name may hold anything, so fields are counted from its closing parenthesis: state is the first, utime the 12th.
    let (_, fields) = stat.rsplit_once(')').context("a stat line without a name")?;
    let mut fields = fields.split_whitespace().skip(11);
    let mut next = || -> Result<u64> { Ok(fields.next().context("a short stat line")?.parse()?) };
    Ok(next()? + next()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_thread_of_this_process_has_used_time_and_is_found() {
        let me = std::process::id();
        let sum = || processor_ticks(me).values().sum::<u64>();
        let before = sum();
        while sum() == before {
            std::hint::spin_loop();
        }
        assert!(
            processor_ticks(me).contains_key(&me),
            "the first thread is among them"
        );
    }
}

//! The memory files of one control group, of either version.
//!
//! Owns: their names and text. Refuses: where the group is (`mounts`).
//!
//! Version 1 has no high limit, no count of allocations that failed at the limit, and no stall information of its own: on
//! hosts with both versions that comes from the group of version 2 that the process is in.

use crate::discover::host::{read_bounded, text};
use crate::sampler::psi;
use infertap_core::pressure::{CgroupReading, CgroupVersion, MemoryEvents, StallTotals};
use std::path::Path;
use std::sync::Arc;

/// Each is a line or a few.
const LIMIT: u64 = 4096;
/// Version 1 writes no limit as the largest number of whole pages, which is just below this.
const UNLIMITED: u64 = 1 << 62;

/// Reads the group at `folder`; `None` where it tells nothing of memory (or is gone).
pub fn group(folder: &Path, path: &Arc<str>, version: CgroupVersion, own: bool) -> Option<CgroupReading> {
    let number = |name: &str| read(folder, name)?.trim().parse::<u64>().ok();
    let reading = CgroupReading {
        path: Arc::clone(path),
        version,
        own,
        current: None,
        max: None,
        high: None,
        swap: None,
        events: MemoryEvents::default(),
        stalls: None,
    };
    match version {
        CgroupVersion::V2 => {
            let reading = CgroupReading {
                // Absent where the controller is not enabled for the group; stalls are told all the same.
                current: number("memory.current"),
                // `max` is no number: no limit.
                max: number("memory.max"),
                high: number("memory.high"),
                swap: number("memory.swap.current"),
                events: events(folder),
                stalls: stalls(folder),
                ..reading
            };
            (reading.current.is_some() || reading.stalls.is_some()).then_some(reading)
        }
        CgroupVersion::V1 => {
            let current = number("memory.usage_in_bytes")?;
            let with_swap = number("memory.memsw.usage_in_bytes");
            let killed = read(folder, "memory.oom_control").and_then(|text| field(&text, "oom_kill"));
            Some(CgroupReading {
                current: Some(current),
                max: number("memory.limit_in_bytes").filter(|limit| *limit < UNLIMITED),
                // The two are read one after the other.
                swap: with_swap.map(|both| both.saturating_sub(current)),
                events: MemoryEvents {
                    max: number("memory.failcnt"),
                    oom_kill: killed,
                    ..MemoryEvents::default()
                },
                ..reading
            })
        }
    }
}

/// Stalls of the group at `folder`, of version 2.
pub fn stalls(folder: &Path) -> Option<StallTotals> {
    psi::read(&folder.join("memory.pressure"))
}

/// Events of the group's own limits: those of groups below it are read there (Linux 5.2).
fn events(folder: &Path) -> MemoryEvents {
    let text = read(folder, "memory.events.local").unwrap_or_default();
    MemoryEvents {
        low: field(&text, "low"),
        high: field(&text, "high"),
        max: field(&text, "max"),
        oom: field(&text, "oom"),
        oom_kill: field(&text, "oom_kill"),
    }
}

fn read(folder: &Path, name: &str) -> Option<String> {
    let bytes = read_bounded(&folder.join(name), LIMIT).ok()?;
    Some(text(&bytes))
}

/// The number behind a name, one a line.
fn field(text: &str, name: &str) -> Option<u64> {
    let value = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok();
    text.lines().find_map(value)
}

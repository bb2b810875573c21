//! Which BPF programs the kernel holds: to prove that a killed agent leaves none attached.
//!
//! Owns: the `bpf(2)` enumeration and a process's own program descriptors. Refuses: loading anything. An attached
//! program is always a loaded one, so ids that are gone are attached to nothing.

use anyhow::{Result, ensure};
use std::{collections::BTreeSet, fs, io};

const BPF_PROG_GET_NEXT_ID: i64 = 11;

/// Ids of every program in the kernel.
pub fn loaded_programs() -> Result<BTreeSet<u32>> {
    /// The part of `union bpf_attr` that this command reads and writes.
    #[repr(C)]
    struct GetNextId {
        start: u32,
        next: u32,
        open_flags: u32,
    }
    let mut ids = BTreeSet::new();
    let mut attribute = GetNextId {
        start: 0,
        next: 0,
        open_flags: 0,
    };
    loop {
        // SAFETY: `attribute` is valid for reads and writes of the size that is given.
        let result = unsafe {
            libc::syscall(
                libc::SYS_bpf,
                BPF_PROG_GET_NEXT_ID,
                &raw mut attribute,
                size_of::<GetNextId>(),
            )
        };
        if result < 0 {
            let error = io::Error::last_os_error();
            ensure!(
                error.raw_os_error() == Some(libc::ENOENT),
                "can't list BPF programs: {error}"
            );
            return Ok(ids);
        }
        ids.insert(attribute.next);
        attribute.start = attribute.next;
    }
}

/// Ids of the programs that process `pid` holds descriptors of.
pub fn programs_of(pid: u32) -> Result<BTreeSet<u32>> {
    let mut ids = BTreeSet::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fdinfo"))? {
        let Ok(text) = fs::read_to_string(entry?.path()) else {
            // Closed since it was listed.
            continue;
        };
        let of_program = text.lines().filter_map(|line| line.strip_prefix("prog_id:"));
        ids.extend(of_program.filter_map(|id| id.trim().parse::<u32>().ok()));
    }
    Ok(ids)
}

/// How many attachments process `pid` holds: links of BPF programs, or on older kernels the events that they are on.
pub fn attachments_of(pid: u32) -> Result<usize> {
    let mut count = 0;
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))? {
        let Ok(target) = fs::read_link(entry?.path()) else {
            // Closed since it was listed.
            continue;
        };
        let target = target.to_string_lossy();
        count += usize::from(
            target.contains("bpf_link") || target.contains("bpf-link") || target.contains("perf_event"),
        );
    }
    Ok(count)
}

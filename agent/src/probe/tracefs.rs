//! tracefs: where it is, or a private mount of it, and the offsets that event formats tell.
//!
//! A bare host or container often has none mounted. The mount is made in a mount namespace of the calling thread
//! alone, so the host never sees it and it goes away with the thread.

use super::ProbeError;
use std::ffi::CStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

const PLACES: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// A usable tracefs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tracefs {
    /// Its root.
    pub root: PathBuf,
    /// It is mounted for the calling thread only.
    pub private: bool,
}

impl Tracefs {
    /// The tracefs that is mounted, if one is.
    pub fn mounted() -> Option<Tracefs> {
        PLACES
            .iter()
            .map(Path::new)
            .find(|root| root.join("events").is_dir())
            .map(|root| Tracefs {
                root: root.to_owned(),
                private: false,
            })
    }

    /// The mounted tracefs, or one mounted for the calling thread. Call it from a thread of its own: it leaves the
    /// mount namespace that it shared with the others.
    pub fn for_this_thread() -> Result<Tracefs, ProbeError> {
        if let Some(found) = Tracefs::mounted() {
            return Ok(found);
        }
        mount_privately().map_err(|source| ProbeError::Tracefs { source })?;
        Tracefs::mounted()
            .map(|found| Tracefs {
                private: true,
                ..found
            })
            .ok_or_else(|| ProbeError::Tracefs {
                source: io::Error::new(io::ErrorKind::NotFound, "mounted, but it has no events directory"),
            })
    }
}

fn mount_privately() -> io::Result<()> {
    const ROOT: &CStr = c"/";
    const TRACEFS: &CStr = c"tracefs";
    const TARGET: &CStr = c"/sys/kernel/tracing";
    let check = |result: libc::c_int| {
        if result == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    };
    // SAFETY: plain system calls on constant strings. `unshare` gives this thread a mount namespace of its own; the
    // host's later mounts still reach it (slave), none of its own reach the host.
    unsafe {
        check(libc::unshare(libc::CLONE_NEWNS))?;
        check(libc::mount(
            std::ptr::null(),
            ROOT.as_ptr(),
            std::ptr::null(),
            libc::MS_REC | libc::MS_SLAVE,
            std::ptr::null(),
        ))?;
        check(libc::mount(
            TRACEFS.as_ptr(),
            TARGET.as_ptr(),
            TRACEFS.as_ptr(),
            0,
            std::ptr::null(),
        ))
    }
}

/// Offset of `child_pid` in the record of `sched:sched_process_fork`: it moved when the comm fields became dynamic.
pub fn fork_child_offset(tracefs: &Tracefs) -> Result<u32, ProbeError> {
    field_of(tracefs, "sched", "sched_process_fork", "child_pid", 4)
}

/// Offset of a field of `size` bytes in the record of a tracepoint.
///
/// # Errors
/// The kernel has no such tracepoint, or it tells no such field.
pub fn field_of(
    tracefs: &Tracefs,
    category: &str,
    name: &str,
    field: &str,
    size: u32,
) -> Result<u32, ProbeError> {
    let path = tracefs.root.join(format!("events/{category}/{name}/format"));
    let text = fs::read_to_string(&path).map_err(|e| ProbeError::TracefsFormat {
        path: path.clone(),
        reason: e.to_string(),
    })?;
    field_offset(&text, field, size).ok_or(ProbeError::TracefsFormat {
        path,
        reason: format!("has no field {field} of {size} bytes"),
    })
}

/// Offset of a field of `size` bytes in a tracepoint's `format` file.
fn field_offset(format: &str, field: &str, size: u32) -> Option<u32> {
    format.lines().find_map(|line| {
        let mut parts = line.trim().split(';').map(str::trim);
        let declared = parts.next()?.strip_prefix("field:")?;
        // An array's name has its length behind it.
        let name = declared.rsplit([' ', '\t']).next()?.split('[').next()?;
        if name != field {
            return None;
        }
        let offset = parts.next()?.strip_prefix("offset:")?.parse().ok()?;
        let told: u32 = parts.next()?.strip_prefix("size:")?.parse().ok()?;
        (told == size).then_some(offset)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_offset_is_read_from_both_forms_of_the_format() {
        let fixed = "name: sched_process_fork\nformat:\n\tfield:char parent_comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\
            \tfield:pid_t parent_pid;\toffset:24;\tsize:4;\tsigned:1;\n\
            \tfield:char child_comm[16];\toffset:28;\tsize:16;\tsigned:0;\n\
            \tfield:pid_t child_pid;\toffset:44;\tsize:4;\tsigned:1;\n";
        let dynamic = "\tfield:__data_loc char[] parent_comm;\toffset:8;\tsize:4;\tsigned:0;\n\
            \tfield:pid_t child_pid;\toffset:20;\tsize:4;\tsigned:1;\n";
        assert_eq!(field_offset(fixed, "child_pid", 4), Some(44));
        assert_eq!(field_offset(dynamic, "child_pid", 4), Some(20));
        assert_eq!(field_offset(fixed, "child_comm", 16), Some(28), "an array");
    }

    #[test]
    fn a_missing_or_resized_field_is_no_offset() {
        assert_eq!(field_offset("", "child_pid", 4), None);
        assert_eq!(
            field_offset(
                "\tfield:u64 child_pid;\toffset:8;\tsize:8;\tsigned:0;\n",
                "child_pid",
                4
            ),
            None
        );
        assert_eq!(
            field_offset("\tfield:pid_t child_pid;\toffset:x;\tsize:4;\n", "child_pid", 4),
            None
        );
    }
}

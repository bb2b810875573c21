//! Where a process has its C library: the file that is mapped, not a name; and where in it probes cost least.

use super::attach::SOCKET_LIBC;
use super::mapped::{MappedFile, executable_files};
use super::symbols::{Wanted, find};
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

/// Paths, usable from this process, of the C libraries that `pid` has mapped.
pub(super) fn mapped(procfs: &Path, pid: u32) -> io::Result<Vec<PathBuf>> {
    Ok(executable_files(procfs, pid)?
        .into_iter()
        .filter(is_libc)
        .map(|file| file.path)
        .collect())
}

/// Offsets in a C library at which to probe its socket calls, by symbol. What is missing here is left to be looked up by
/// its name, which tells the error as well.
pub(super) fn places(library: &Path) -> HashMap<&'static str, u64> {
    let symbols: Vec<&'static str> = SOCKET_LIBC.iter().map(|spec| spec.symbol).collect();
    let wanted: Vec<Wanted> = symbols.iter().copied().map(Wanted::C).collect();
    let found = find(library, &wanted).unwrap_or_default().found;
    let of = |function: &super::symbols::Function| Some((*symbols.get(function.wanted)?, function.place));
    found.iter().filter_map(of).collect()
}

fn is_libc(file: &MappedFile) -> bool {
    let name = file.file_name();
    name == "libc.so.6"
        || name
            .strip_suffix(".so")
            .is_some_and(|stem| stem.starts_with("libc-2."))
        || name.starts_with("ld-musl-")
        || name.starts_with("libc.musl-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn glibc_and_musl_are_recognised_and_look_alikes_are_not() {
        for (path, expected) in [
            ("/usr/lib/x86_64-linux-gnu/libc.so.6", true),
            ("/lib/libc-2.31.so", true),
            ("/lib/ld-musl-x86_64.so.1", true),
            ("/usr/lib/libcap.so.2", false),
            ("/opt/libc.so.6.backup", false),
        ] {
            let file = MappedFile {
                path: PathBuf::new(),
                name: path.to_owned(),
                device: "fe:00".to_owned(),
                inode: 42,
                deleted: false,
                code: Vec::new(),
            };
            assert_eq!(is_libc(&file), expected, "{path}");
        }
    }

    #[test]
    fn this_process_has_one() {
        let found = mapped(Path::new("/proc"), std::process::id()).expect("own maps");
        assert!(found.iter().all(|path| path.exists()));
        assert!(
            !found.is_empty(),
            "the test binary is linked against the system's C library"
        );
    }
}

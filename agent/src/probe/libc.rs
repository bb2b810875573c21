//! Where a process has its C library: the file that is mapped, not a name.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Paths, usable from this process, of the C libraries that `pid` has mapped. A file that was replaced or deleted while
/// mapped is reached through the mapping itself.
pub(super) fn mapped(procfs: &Path, pid: u32) -> io::Result<Vec<PathBuf>> {
    let dir = procfs.join(pid.to_string());
    let maps = fs::read(dir.join("maps"))?;
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for line in String::from_utf8_lossy(&maps).lines() {
        let Some(mapping) = Mapping::parse(line) else {
            continue;
        };
        if !mapping.is_libc() || !seen.insert((mapping.device.to_owned(), mapping.inode)) {
            continue;
        }
        let by_path = dir.join("root").join(mapping.path.trim_start_matches('/'));
        if mapping.deleted || !by_path.exists() {
            found.push(dir.join("map_files").join(mapping.range));
        } else {
            found.push(by_path);
        }
    }
    Ok(found)
}

struct Mapping<'a> {
    range: &'a str,
    device: &'a str,
    inode: u64,
    path: &'a str,
    deleted: bool,
}

impl<'a> Mapping<'a> {
    /// One line of `/proc/PID/maps`: range, permissions, offset, device, inode, path.
    fn parse(line: &'a str) -> Option<Mapping<'a>> {
        let mut rest = line;
        let mut field = || {
            let trimmed = rest.trim_start_matches(' ');
            let (value, tail) = trimmed.split_once(' ').unwrap_or((trimmed, ""));
            rest = tail;
            (!value.is_empty()).then_some(value)
        };
        let range = field()?;
        let _permissions = field()?;
        let _offset = field()?;
        let device = field()?;
        let inode = field()?.parse().ok()?;
        let path = rest.trim_start_matches(' ');
        let (path, deleted) = match path.strip_suffix(" (deleted)") {
            Some(path) => (path, true),
            None => (path, false),
        };
        path.starts_with('/').then_some(Mapping {
            range,
            device,
            inode,
            path,
            deleted,
        })
    }

    fn is_libc(&self) -> bool {
        let name = self.path.rsplit('/').next().unwrap_or_default();
        name == "libc.so.6"
            || name
                .strip_suffix(".so")
                .is_some_and(|stem| stem.starts_with("libc-2."))
            || name.starts_with("ld-musl-")
            || name.starts_with("libc.musl-")
    }
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
            let line = format!("7f00-7f01 r-xp 00000000 fe:00 42                     {path}");
            let mapping = Mapping::parse(&line).expect("a file mapping");
            assert_eq!(mapping.is_libc(), expected, "{path}");
        }
    }

    #[test]
    fn deleted_files_and_spaces_in_paths_are_understood() {
        let mapping =
            Mapping::parse("7f00-7f01 r-xp 0 fe:00 42 /a b/libc.so.6 (deleted)").expect("a file mapping");
        assert!(mapping.deleted);
        assert_eq!(
            (mapping.path, mapping.range, mapping.inode),
            ("/a b/libc.so.6", "7f00-7f01", 42)
        );
        assert!(Mapping::parse("7ffd-7ffe rw-p 0 00:00 0 [stack]").is_none());
        assert!(Mapping::parse("garbage").is_none());
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

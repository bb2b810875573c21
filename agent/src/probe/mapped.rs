//! The files whose code a process runs: what it has mapped, and not what bears a name.
//!
//! Owns: `/proc/PID/maps`, and a path to each file that works from here: through the process's root, or through the mapping
//! itself for what was replaced or deleted since. Refuses: what the files hold.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Distinct files of one process. A Python server with everything loaded has some five hundred.
const MAX_FILES: usize = 4096;
/// Bytes read of one process's mappings: the kernel allows 65,530 of them by default.
const MAX_MAPS: u64 = 64 << 20;

/// A file with code, mapped by a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MappedFile {
    /// Usable from this process.
    pub path: PathBuf,
    /// As the process itself knows it: within its own root.
    pub name: String,
    /// Device number as the kernel prints it, `fe:00`. On overlay and btrfs it is not what `stat` says.
    pub device: String,
    /// Inode number on that device. Together they tell files of one name apart.
    pub inode: u64,
    /// It was deleted, or another file has its name by now.
    pub deleted: bool,
    /// Addresses at which its code is mapped, ascending.
    pub code: Vec<Range<u64>>,
}

impl MappedFile {
    /// The last part of its name.
    pub fn file_name(&self) -> &str {
        self.name.rsplit('/').next().unwrap_or_default()
    }
}

/// The distinct files with executable mappings of a process, in the order of their addresses.
///
/// # Errors
/// The process is gone or not ours to look at, or it has mapped more files than any engine does.
pub fn executable_files(procfs: &Path, pid: u32) -> io::Result<Vec<MappedFile>> {
    let dir = procfs.join(pid.to_string());
    let maps = BufReader::new(File::open(dir.join("maps"))?.take(MAX_MAPS));
    let mut seen: BTreeMap<(String, u64), usize> = BTreeMap::new();
    let mut found: Vec<MappedFile> = Vec::new();
    for line in maps.split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        let Some(mapping) = Mapping::parse(&line) else {
            continue;
        };
        if !mapping.executable {
            continue;
        }
        let place = seen
            .entry((mapping.device.to_owned(), mapping.inode))
            .or_insert(found.len());
        if let Some(known) = found.get_mut(*place) {
            known.code.extend(mapping.addresses());
            continue;
        }
        if found.len() == MAX_FILES {
            return Err(io::Error::other(format!(
                "more than {MAX_FILES} files with code are mapped"
            )));
        }
        let by_path = dir.join("root").join(mapping.path.trim_start_matches('/'));
        // A line feed in a name is printed as an escape that cannot be told from the characters themselves.
        let path = if mapping.deleted || mapping.path.contains("\\012") || !by_path.exists() {
            dir.join("map_files").join(mapping.range)
        } else {
            by_path
        };
        found.push(MappedFile {
            path,
            name: mapping.path.to_owned(),
            device: mapping.device.to_owned(),
            inode: mapping.inode,
            deleted: mapping.deleted,
            code: mapping.addresses().into_iter().collect(),
        });
    }
    Ok(found)
}

struct Mapping<'a> {
    range: &'a str,
    executable: bool,
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
        let executable = field()?.as_bytes().get(2) == Some(&b'x');
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
            executable,
            device,
            inode,
            path,
            deleted,
        })
    }

    fn addresses(&self) -> Option<Range<u64>> {
        let (begin, end) = self.range.split_once('-')?;
        let address = |text| u64::from_str_radix(text, 16).ok();
        Some(address(begin)?..address(end)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn deleted_files_and_spaces_in_paths_are_understood() {
        let mapping =
            Mapping::parse("7f00-7f01 r-xp 0 fe:00 42 /a b/libc.so.6 (deleted)").expect("a file mapping");
        assert!(mapping.deleted && mapping.executable);
        assert_eq!(
            (mapping.path, mapping.range, mapping.inode),
            ("/a b/libc.so.6", "7f00-7f01", 42)
        );
        assert!(Mapping::parse("7ffd-7ffe rw-p 0 00:00 0 [stack]").is_none());
        assert!(Mapping::parse("garbage").is_none());
        assert!(
            !Mapping::parse("7f00-7f01 r--p 0 fe:00 42 /a")
                .expect("a file mapping")
                .executable
        );
    }

    #[test]
    fn a_file_is_listed_once_and_only_for_its_code() {
        let dir = tempfile::tempdir().expect("a folder");
        let process = dir.path().join("7");
        fs::create_dir_all(process.join("root/lib")).expect("made");
        fs::write(process.join("root/lib/there.so"), "").expect("written");
        fs::write(
            process.join("maps"),
            "10-20 r--p 0 fe:00 1                  /lib/there.so\n\
             20-30 r-xp 0 fe:00 1                  /lib/there.so\n\
             30-40 r-xp 0 fe:00 1                  /lib/there.so\n\
             40-50 r-xp 0 fe:00 2                  /lib/there.so (deleted)\n\
             50-60 r-xp 0 fe:00 3                  /lib/elsewhere.so\n\
             60-70 r--p 0 fe:00 4                  /lib/data\n\
             70-80 r-xp 0 00:00 0                  [vdso]\n\
             80-90 r-xp 0 fe:00 5                  /lib/line\\012feed\n",
        )
        .expect("written");
        let files = executable_files(dir.path(), 7).expect("readable");
        let paths: Vec<&Path> = files
            .iter()
            .map(|file| file.path.strip_prefix(&process).expect("below the process"))
            .collect();
        assert_eq!(
            paths,
            [
                "root/lib/there.so",
                "map_files/40-50",
                "map_files/50-60",
                "map_files/80-90"
            ]
            .map(Path::new)
        );
        let first = files.first().expect("a file");
        assert_eq!(first.file_name(), "there.so");
        assert_eq!(
            first.code,
            [0x20..0x30, 0x30..0x40],
            "where its code is, and nothing else of it"
        );
    }

    #[test]
    fn this_process_runs_its_own_program() {
        let program = fs::read_link("/proc/self/exe").expect("a program");
        let files = executable_files(Path::new("/proc"), std::process::id()).expect("own maps");
        assert!(files.iter().any(|file| Path::new(&file.name) == program));
        assert!(files.iter().all(|file| file.path.exists()));
    }
}

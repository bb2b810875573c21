//! Bounded reading of procfs under an injectable root: a temporary directory is a host in tests.
//!
//! Owns: paths, limits, and parsing of the per-process files that discovery needs. Refuses: caching and judgement. A
//! process may vanish at any read, and everything in these files but their shape is chosen by the process: names may
//! hold any byte, command lines may be megabytes. So parsing is over bytes, reads have limits, and nothing here panics
//! (which is why the `procfs` crate is not used: it reads whole files and refuses what is not UTF-8).

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Longest command line that is looked at. Engines tell what they are in far less; the kernel allows megabytes.
const CMDLINE_LIMIT: u64 = 64 * 1024;
/// Longest environment that is looked at.
const ENVIRON_LIMIT: u64 = 256 * 1024;
/// Longest `maps` that is looked at: about 200,000 mappings.
const MAPS_LIMIT: u64 = 32 * 1024 * 1024;
/// `stat`, `status`, `cgroup` and `comm` are a page or so.
const SMALL_LIMIT: u64 = 16 * 1024;
/// Longest line taken from a table; the rest of a longer one is skipped.
const LINE_LIMIT: u64 = 8 * 1024;

/// A procfs, usually `/proc`.
#[derive(Debug, Clone)]
pub struct Host {
    root: PathBuf,
}

impl Default for Host {
    fn default() -> Host {
        Host::new("/proc")
    }
}

/// What `/proc/PID/stat` tells that discovery uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stat {
    /// The 15 bytes of name that the kernel keeps, as text.
    pub comm: String,
    /// One of the letters of proc(5): `Z` and `X` are dead.
    pub state: u8,
    /// Parent, 0 for the first process and kernel threads' root.
    pub ppid: u32,
    /// Clock ticks after boot when the process started: with the pid, its identity.
    pub starttime: u64,
    /// Flags of the process; bit 21 marks kernel threads.
    pub flags: u64,
}

/// What `/proc/PID/maps` tells that discovery uses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mapped {
    /// Files mapped executable: the program and its libraries.
    pub libraries: Vec<String>,
    /// Model weights, where they are mapped rather than read (GGUF).
    pub models: Vec<String>,
}

impl Stat {
    /// `PF_KTHREAD` (include/linux/sched.h).
    const KERNEL_THREAD: u64 = 0x0020_0000;

    /// A kernel thread has no program.
    pub fn is_kernel_thread(&self) -> bool {
        self.flags & Stat::KERNEL_THREAD != 0
    }

    /// Ended, but not yet waited for.
    pub fn is_dead(&self) -> bool {
        matches!(self.state, b'Z' | b'X' | b'x')
    }

    /// Parses proc(5)'s line. The name may hold spaces, parentheses and newlines, so it ends at the *last* parenthesis.
    pub fn parse(line: &[u8]) -> Option<Stat> {
        let open = memchr::memchr(b'(', line)?;
        let close = memchr::memrchr(b')', line)?;
        let comm = line.get(open + 1..close)?;
        let rest = std::str::from_utf8(line.get(close + 1..)?).ok()?;
        let mut fields = rest.split_ascii_whitespace();
        let state = *fields.next()?.as_bytes().first()?;
        let ppid = fields.next()?.parse::<i64>().ok()?;
        // After ppid: pgrp session tty tpgid, then flags; 12 more lie between flags and starttime.
        let flags = fields.nth(4)?.parse().ok()?;
        let starttime = fields.nth(12)?.parse().ok()?;
        Some(Stat {
            comm: text(comm),
            state,
            ppid: u32::try_from(ppid).unwrap_or(0),
            starttime,
            flags,
        })
    }
}

impl Host {
    /// A procfs at `root`.
    pub fn new(root: impl Into<PathBuf>) -> Host {
        Host { root: root.into() }
    }

    /// Where it is.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// `/proc/PID/name`.
    pub fn path(&self, pid: u32, name: &str) -> PathBuf {
        self.root.join(pid.to_string()).join(name)
    }

    /// All process ids, ascending.
    ///
    /// # Errors
    /// The root can't be listed.
    pub fn pids(&self) -> io::Result<Vec<u32>> {
        let mut pids = numbers_in(&self.root)?;
        pids.sort_unstable();
        Ok(pids)
    }

    /// `/proc/PID/stat`.
    ///
    /// # Errors
    /// The process is gone, or the file has another shape than proc(5) says.
    pub fn stat(&self, pid: u32) -> io::Result<Stat> {
        let bytes = read_bounded(&self.path(pid, "stat"), SMALL_LIMIT)?;
        Stat::parse(&bytes).ok_or_else(|| malformed("stat"))
    }

    /// The arguments, without the padding that `setproctitle` leaves; at most 64 KiB of them. Empty for a kernel thread.
    ///
    /// # Errors
    /// The process is gone.
    pub fn cmdline(&self, pid: u32) -> io::Result<Vec<String>> {
        let bytes = read_bounded(&self.path(pid, "cmdline"), CMDLINE_LIMIT)?;
        let end = bytes
            .iter()
            .rposition(|b| !matches!(b, 0 | b' '))
            .map_or(0, |i| i + 1);
        if end == 0 {
            return Ok(Vec::new());
        }
        Ok(bytes[..end].split(|b| *b == 0).map(text).collect())
    }

    /// The executable, as the kernel names it; `None` for kernel threads and where it is not ours to know.
    pub fn exe(&self, pid: u32) -> Option<String> {
        fs::read_link(self.path(pid, "exe"))
            .ok()
            .map(|path| text(path.as_os_str().as_bytes()))
    }

    /// The value of one environment variable as it was when the program started.
    pub fn env(&self, pid: u32, name: &str) -> Option<String> {
        let bytes = read_bounded(&self.path(pid, "environ"), ENVIRON_LIMIT).ok()?;
        bytes.split(|b| *b == 0).find_map(|pair| {
            let value = pair.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
            Some(text(value))
        })
    }

    /// Inode of a namespace, such as `net` or `pid`: the kernel's identity for it.
    ///
    /// # Errors
    /// The process is gone, or it may not be looked at (`CAP_SYS_PTRACE`).
    pub fn namespace(&self, pid: u32, name: &str) -> io::Result<u64> {
        let link = fs::read_link(self.path(pid, "ns").join(name))?;
        inode_of(link.as_os_str().as_bytes(), name.as_bytes()).ok_or_else(|| malformed("ns"))
    }

    /// `/proc/PID/cgroup`, as text.
    ///
    /// # Errors
    /// The process is gone.
    pub fn cgroup(&self, pid: u32) -> io::Result<String> {
        read_bounded(&self.path(pid, "cgroup"), SMALL_LIMIT).map(|bytes| text(&bytes))
    }

    /// The distinct files that are mapped and matter here, in order of appearance. A file that was replaced on disk while
    /// mapped keeps its name, without the kernel's ` (deleted)`.
    ///
    /// # Errors
    /// The process is gone, or it may not be looked at (`CAP_SYS_PTRACE`).
    pub fn mapped(&self, pid: u32) -> io::Result<Mapped> {
        let mut mapped = Mapped::default();
        let mut seen = std::collections::HashSet::new();
        for_each_line(&self.path(pid, "maps"), MAPS_LIMIT, |line| {
            // address perms offset dev inode pathname; the path is everything after the fifth field.
            let mut rest = line;
            let mut perms: &[u8] = b"";
            for field in 0..5 {
                let end = memchr::memchr(b' ', rest).unwrap_or(rest.len());
                if field == 1 {
                    perms = &rest[..end];
                }
                rest = rest[end..].trim_ascii_start();
            }
            let path = rest.strip_suffix(b" (deleted)").unwrap_or(rest);
            let list = if perms.contains(&b'x') {
                &mut mapped.libraries
            } else if path.ends_with(b".gguf") {
                &mut mapped.models
            } else {
                return true;
            };
            if path.first() == Some(&b'/') && seen.insert(path.to_vec()) {
                list.push(text(path));
            }
            true
        })?;
        Ok(mapped)
    }

    /// Open descriptors and what each is, as the kernel names it (`socket:[123]`, `anon_inode:[io_uring]`, a path).
    /// Descriptors that close meanwhile are left out.
    ///
    /// # Errors
    /// The process is gone, or it may not be looked at (`CAP_SYS_PTRACE`).
    pub fn fds(&self, pid: u32) -> io::Result<Vec<(u32, OsString)>> {
        let dir = self.path(pid, "fd");
        Ok(numbers_in(&dir)?
            .into_iter()
            .filter_map(|fd| {
                let link = fs::read_link(dir.join(fd.to_string())).ok()?;
                Some((fd, link.into_os_string()))
            })
            .collect())
    }

    /// Seconds since boot, from `/proc/uptime`.
    pub fn uptime(&self) -> Option<f64> {
        let bytes = read_bounded(&self.root.join("uptime"), SMALL_LIMIT).ok()?;
        text(&bytes).split_ascii_whitespace().next()?.parse().ok()
    }
}

/// Bytes as text; what is not UTF-8 is replaced, since names are for matching and showing.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The number in `socket:[123]` for the prefix `socket`.
pub fn inode_of(link: &[u8], prefix: &[u8]) -> Option<u64> {
    let digits = link
        .strip_prefix(prefix)?
        .strip_prefix(b":[")?
        .strip_suffix(b"]")?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Reads at most `limit` bytes of a file.
pub fn read_bounded(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    // Room for what most of these files hold: otherwise the vector grows through half a dozen reads.
    let mut bytes = Vec::with_capacity(limit.min(4096) as usize);
    File::open(path)?.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Gives each line (without its newline) of at most `limit` bytes of a file to `each`, until it returns `false`. Lines
/// longer than 8 KiB are cut.
pub fn for_each_line(path: &Path, limit: u64, mut each: impl FnMut(&[u8]) -> bool) -> io::Result<()> {
    let mut reader = BufReader::with_capacity(64 * 1024, File::open(path)?.take(limit));
    let mut line = Vec::new();
    loop {
        line.clear();
        if (&mut reader).take(LINE_LIMIT).read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        let whole = line.last() == Some(&b'\n');
        if whole {
            line.pop();
        }
        if !each(&line) {
            return Ok(());
        }
        if !whole && line.len() as u64 == LINE_LIMIT {
            reader.skip_until(b'\n')?;
        }
    }
}

fn numbers_in(dir: &Path) -> io::Result<Vec<u32>> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(dir)? {
        // A process that ends while its directory is listed is an error of the next entry, and no reason to give up.
        let Ok(entry) = entry else { break };
        let name = entry.file_name().into_vec();
        if let Some(number) = std::str::from_utf8(&name).ok().and_then(|name| name.parse().ok()) {
            numbers.push(number);
        }
    }
    Ok(numbers)
}

fn malformed(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{what} has an unknown shape"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_name_may_hold_anything() {
        let tail = "S 17 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 98765 1 2";
        for (name, comm) in [
            ("bash", "bash"),
            ("a) S 1 (b", "a) S 1 (b"),
            ("new\nline", "new\nline"),
            ("", ""),
        ] {
            let stat = Stat::parse(format!("42 ({name}) {tail}").as_bytes()).expect("valid");
            assert_eq!(
                (stat.comm.as_str(), stat.state, stat.ppid, stat.starttime),
                (comm, b'S', 17, 98765)
            );
            assert!(!stat.is_kernel_thread() && !stat.is_dead());
        }
        assert_eq!(
            Stat::parse(b"42 (\xff\xfe) Z 1 1 1 0 -1 2129984 0 0 0 0 0 0 0 0 0 0 0 0 5 0")
                .map(|s| (s.is_dead(), s.is_kernel_thread())),
            Some((true, true))
        );
    }

    #[test]
    fn a_title_keeps_no_padding() {
        let dir = tempfile::tempdir().expect("tempdir");
        fs::create_dir(dir.path().join("7")).expect("mkdir");
        let host = Host::new(dir.path());
        let write = |bytes: &[u8]| fs::write(dir.path().join("7/cmdline"), bytes).expect("write");
        write(b"VLLM::EngineCore      \0\0\0");
        assert_eq!(host.cmdline(7).expect("read"), ["VLLM::EngineCore"]);
        write(b"python\0-c\0\0x\0");
        assert_eq!(host.cmdline(7).expect("read"), ["python", "-c", "", "x"]);
        write(b"");
        assert!(host.cmdline(7).expect("read").is_empty());
        write(&vec![b'a'; 10_000_000]);
        assert_eq!(host.cmdline(7).expect("read")[0].len() as u64, CMDLINE_LIMIT);
        assert!(host.cmdline(8).is_err());
    }

    #[test]
    fn only_files_mapped_executable_are_libraries() {
        let dir = tempfile::tempdir().expect("tempdir");
        fs::create_dir(dir.path().join("7")).expect("mkdir");
        fs::write(
            dir.path().join("7/maps"),
            "7f0-7f1 r--p 00000000 fe:00 12 /usr/lib/libllama.so\n\
             7f1-7f2 r-xp 00001000 fe:00 12                     /usr/lib/libllama.so\n\
             7f2-7f3 r-xp 00002000 fe:00 12                     /usr/lib/libllama.so\n\
             7f3-7f4 r-xp 00000000 fe:00 13 /opt/with space/lib.so (deleted)\n\
             7f4-7f5 r-xp 00000000 00:00 0  [vdso]\n\
             7f4-7f5 r--s 00000000 fe:00 14 /models/m.gguf\n\
             7f5-7f6 rw-p 00000000 00:00 0\n\
             junk\n",
        )
        .expect("write");
        assert_eq!(
            Host::new(dir.path()).mapped(7).expect("read"),
            Mapped {
                libraries: vec![
                    "/usr/lib/libllama.so".to_owned(),
                    "/opt/with space/lib.so".to_owned()
                ],
                models: vec!["/models/m.gguf".to_owned()],
            }
        );
    }

    #[test]
    fn long_lines_are_cut_and_the_next_line_is_whole() {
        let dir = tempfile::tempdir().expect("tempdir");
        let path = dir.path().join("table");
        fs::write(
            &path,
            format!(
                "{}\nsecond\n{}\nlast",
                "x".repeat(20_000),
                "y".repeat(LINE_LIMIT as usize)
            ),
        )
        .expect("write");
        let mut lines = Vec::new();
        for_each_line(&path, u64::MAX, |line| {
            lines.push(text(line));
            true
        })
        .expect("read");
        let lengths: Vec<usize> = lines.iter().map(String::len).collect();
        assert_eq!(lengths, [8192, 6, 8192, 4]);
        assert_eq!(lines[1], "second");
    }

    proptest! {
        #[test]
        fn stat_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = Stat::parse(&bytes);
        }
    }
}

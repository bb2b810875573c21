//! A host made of files: a procfs in a temporary directory, for tests.
//!
//! Owns: writing the files as the kernel does. Refuses: being complete; it has what discovery reads.

use super::config::DiscoverConfig;
use super::scan::{Scanner, ScannerConfig};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// Clock ticks a second of the machine that the tests run on.
fn hz() -> u64 {
    super::process::tick_hz() as u64
}

/// See the module.
pub(super) struct FakeHost {
    dir: tempfile::TempDir,
    /// Inode and port of listeners, by network namespace.
    listeners: RefCell<BTreeMap<u64, Vec<(u64, u16)>>>,
}

/// A process of a [`FakeHost`].
pub(super) struct FakeProcess<'h> {
    host: &'h FakeHost,
    pid: u32,
    netns: u64,
}

impl FakeHost {
    /// A host that has been up for so many seconds.
    pub(super) fn new(uptime: u64) -> FakeHost {
        let host = FakeHost {
            dir: tempfile::tempdir().expect("tempdir"),
            listeners: RefCell::default(),
        };
        host.set_uptime(uptime);
        host
    }

    pub(super) fn set_uptime(&self, seconds: u64) {
        fs::write(self.root().join("uptime"), format!("{seconds}.00 1.00\n")).expect("write");
    }

    pub(super) fn root(&self) -> &Path {
        self.dir.path()
    }

    pub(super) fn scanner(&self, discover: DiscoverConfig) -> Scanner {
        Scanner::new(ScannerConfig {
            root: self.root().to_owned(),
            discover,
            exclude: None,
        })
    }

    /// A process that started so many seconds after boot. Its program is the first argument; one that is called again
    /// with the same id is the same process after an exec.
    pub(super) fn process(&self, pid: u32, ppid: u32, started: u64, argv: &[&str]) -> FakeProcess<'_> {
        let process = FakeProcess {
            host: self,
            pid,
            netns: 4_026_531_840,
        };
        fs::create_dir_all(process.path("fd")).expect("mkdir");
        fs::create_dir_all(process.path("ns")).expect("mkdir");
        fs::create_dir_all(process.path("net")).expect("mkdir");
        let program = argv.first().copied().unwrap_or("none");
        let name = program.rsplit('/').next().unwrap_or(program);
        fs::write(process.path("starttime"), (started * hz()).to_string()).expect("write");
        fs::write(process.path("ppid"), ppid.to_string()).expect("write");
        process
            .comm(&name[..name.len().min(15)])
            .exe(program)
            .cmdline(argv.join("\0").as_bytes())
            .netns(4_026_531_840)
            .file("cgroup", "0::/\n")
            .file("maps", "")
            .link("ns/pid", "pid:[4026531836]")
    }

    pub(super) fn end(&self, pid: u32) {
        fs::remove_dir_all(self.root().join(pid.to_string())).expect("remove");
    }

    fn write_tables(&self, netns: u64) {
        let mut table = String::from(
            "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n",
        );
        for (row, (inode, port)) in self
            .listeners
            .borrow()
            .get(&netns)
            .into_iter()
            .flatten()
            .enumerate()
        {
            writeln!(
                table,
                "{row:4}: 00000000:{port:04X} 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 {inode} 1 0 100 0 0 10 0"
            )
            .expect("String");
        }
        let dir = self.root().join(format!("netns-{netns}"));
        fs::create_dir_all(&dir).expect("mkdir");
        fs::write(dir.join("tcp"), table).expect("write");
    }
}

impl FakeProcess<'_> {
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.host.root().join(self.pid.to_string()).join(name)
    }

    pub(super) fn file(self, name: &str, text: impl AsRef<[u8]>) -> Self {
        fs::write(self.path(name), text).expect("write");
        self
    }

    pub(super) fn link(self, name: &str, target: &str) -> Self {
        let _ = fs::remove_file(self.path(name));
        symlink(target, self.path(name)).expect("link");
        self
    }

    pub(super) fn comm(self, comm: &str) -> Self {
        let read = |name: &str| fs::read_to_string(self.path(name)).expect("read");
        let (pid, ppid, start) = (self.pid, read("ppid"), read("starttime"));
        let stat = format!("{pid} ({comm}) S {ppid} 1 1 0 -1 4194560 1 1 1 1 1 1 1 1 20 0 1 0 {start} 1 1\n");
        self.file("stat", stat)
    }

    pub(super) fn exe(self, path: &str) -> Self {
        self.link("exe", path)
    }

    pub(super) fn cmdline(self, bytes: &[u8]) -> Self {
        self.file("cmdline", bytes)
    }

    /// A title, as `setproctitle` makes it.
    pub(super) fn title(self, title: &str) -> Self {
        let comm = title[..title.len().min(15)].to_owned();
        self.cmdline(format!("{title}      \0\0").as_bytes()).comm(&comm)
    }

    pub(super) fn netns(mut self, inode: u64) -> Self {
        self.netns = inode;
        self.host.write_tables(inode);
        let table = self.host.root().join(format!("netns-{inode}/tcp"));
        self.link("ns/net", &format!("net:[{inode}]"))
            .link("net/tcp", &table.to_string_lossy())
    }

    pub(super) fn maps(self, paths: &[&str]) -> Self {
        let mut lines = String::new();
        for path in paths {
            writeln!(lines, "7f00-7f01 r-xp 00000000 fe:00 1 {path}").expect("String");
        }
        self.file("maps", lines)
    }

    /// Holds a listening socket; another process may hold the same one.
    pub(super) fn listen(self, fd: u32, inode: u64, port: u16) -> Self {
        {
            let mut all = self.host.listeners.borrow_mut();
            let listeners = all.entry(self.netns).or_default();
            if !listeners.contains(&(inode, port)) {
                listeners.push((inode, port));
            }
        }
        self.host.write_tables(self.netns);
        self.link(&format!("fd/{fd}"), &format!("socket:[{inode}]"))
    }

    /// A directory as the process sees it.
    pub(super) fn directory(self, path: &str) -> Self {
        fs::create_dir_all(self.path("root").join(path.trim_start_matches('/'))).expect("mkdir");
        self
    }
}

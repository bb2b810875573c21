//! What is kept of a process between two looks, and when it is looked at again.
//!
//! Owns: the schedule and the laziness of evidence. Refuses: judging it (`rules`).

use super::config::RuleConfig;
use super::host::{Host, Stat};
use super::listeners::{Listeners, socket_inodes};
use super::rules::Evidence;
use std::io;

/// Seconds between two looks at a process, by its age in seconds: what a process is mostly shows at once, but a server
/// may load its model for minutes before it listens.
const SCHEDULE: [(f64, f64); 3] = [(60.0, 0.0), (600.0, 5.0), (f64::INFINITY, 60.0)];

/// Seconds between two lookups of the same sockets.
const JOIN_INTERVAL: f64 = 5.0;

/// One look at the process table.
#[derive(Debug, Clone, Copy)]
pub(super) struct Look<'a> {
    pub(super) host: &'a Host,
    /// Seconds since boot.
    pub(super) now: f64,
    pub(super) tick_hz: f64,
}

impl Look<'_> {
    /// Seconds since `start` (clock ticks after boot).
    pub(super) fn age(&self, start: u64) -> f64 {
        self.now - start as f64 / self.tick_hz
    }

    /// When a process that started at `start` is due again.
    fn due(&self, start: u64) -> f64 {
        let age = self.age(start);
        let interval = SCHEDULE
            .iter()
            .find(|(limit, _)| age < *limit)
            .map_or(0.0, |(_, interval)| *interval);
        self.now + interval
    }
}

/// Clock ticks a second, as `stat` counts them.
pub(super) fn tick_hz() -> f64 {
    // SAFETY: sysconf reads a constant of the system.
    let hz = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    if hz > 0 { hz as f64 } else { 100.0 }
}

/// What is known of a process.
#[derive(Debug, Clone)]
pub(super) struct Examined {
    pub(super) start: u64,
    comm: String,
    pub(super) exe: Option<String>,
    /// The rule that matched. It stays while the process runs the same program.
    pub(super) rule: Option<RuleConfig>,
    /// Inode and port of the TCP sockets that it listened on when last looked at.
    pub(super) listening: Vec<(u64, u16)>,
    /// Its descriptors may not be looked at.
    pub(super) denied: bool,
    netns: Option<u64>,
    netns_known: bool,
    due: f64,
    listening_due: f64,
    /// Inodes of its sockets when last looked at, how often these same ones were looked up, and when they are again.
    sockets: Vec<u64>,
    joined: u32,
    join_due: f64,
}

impl Examined {
    /// Nothing is known yet.
    pub(super) fn new(stat: &Stat) -> Examined {
        Examined {
            start: stat.starttime,
            comm: stat.comm.clone(),
            exe: None,
            rule: None,
            listening: Vec::new(),
            denied: false,
            netns: None,
            netns_known: false,
            due: f64::NEG_INFINITY,
            listening_due: f64::NEG_INFINITY,
            sockets: Vec::new(),
            joined: 0,
            join_due: f64::NEG_INFINITY,
        }
    }

    /// Its network namespace, asked once: moving to another one is nothing that servers do.
    pub(super) fn netns(&mut self, host: &Host, pid: u32) -> Option<u64> {
        if !self.netns_known {
            self.netns = host.namespace(pid, "net").ok();
            self.netns_known = true;
        }
        self.netns
    }

    /// Looks again, if it is time or the name changed.
    pub(super) fn refresh(
        &mut self,
        look: &Look<'_>,
        pid: u32,
        stat: &Stat,
        listeners: &mut Listeners,
        judge: impl FnOnce(&mut dyn Evidence) -> Option<RuleConfig>,
    ) {
        if stat.comm == self.comm && self.due > look.now {
            return;
        }
        self.comm.clone_from(&stat.comm);
        self.due = look.due(self.start);
        let exe = look.host.exe(pid);
        let same_program = exe == self.exe;
        self.exe = exe;
        let mut evidence = LazyEvidence {
            look,
            pid,
            listeners,
            known: self,
            argv: None,
            libraries: None,
        };
        let rule = judge(&mut evidence);
        if rule.is_some() || !same_program {
            self.rule = rule;
        }
    }

    /// The TCP sockets that it listens on, looked up when due or when `now` asks for it.
    pub(super) fn listening(
        &mut self,
        look: &Look<'_>,
        pid: u32,
        listeners: &mut Listeners,
        now: bool,
    ) -> &[(u64, u16)] {
        if now || self.listening_due <= look.now {
            // Ten seconds at most: ports of an engine do change, if seldom.
            self.listening_due = look.due(self.start).min(look.now + 10.0);
            match socket_inodes(look.host, pid) {
                Ok(sockets) => {
                    self.denied = false;
                    self.join(look, pid, sockets, listeners);
                }
                Err(error) => self.denied = error.kind() == io::ErrorKind::PermissionDenied,
            }
        }
        &self.listening
    }

    /// Joins its sockets with the table of its namespace. The kernel walks its whole hash table for that, so the table is
    /// read when the sockets are others than before, once more soon after (a socket is made, then listened on), and
    /// seldom otherwise.
    fn join(&mut self, look: &Look<'_>, pid: u32, sockets: Vec<u64>, listeners: &mut Listeners) {
        let changed = sockets != self.sockets;
        if !changed && self.joined >= 2 && look.now < self.join_due {
            return;
        }
        self.joined = if changed { 1 } else { self.joined.saturating_add(1) };
        self.join_due = look.now + JOIN_INTERVAL;
        self.listening = if sockets.is_empty() {
            Vec::new()
        } else {
            let namespace = self.netns(look.host, pid);
            listeners.among(look.host, pid, namespace, &sockets)
        };
        self.sockets = sockets;
    }

    /// Looks its listening sockets up at once.
    pub(super) fn look_up_listening(&mut self, look: &Look<'_>, pid: u32, listeners: &mut Listeners) {
        if let Ok(sockets) = socket_inodes(look.host, pid) {
            self.joined = 0;
            self.join(look, pid, sockets, listeners);
        }
    }
}

struct LazyEvidence<'a, 'l> {
    look: &'a Look<'l>,
    pid: u32,
    listeners: &'a mut Listeners,
    known: &'a mut Examined,
    argv: Option<Vec<String>>,
    libraries: Option<Vec<String>>,
}

impl Evidence for LazyEvidence<'_, '_> {
    fn comm(&self) -> &str {
        &self.known.comm
    }

    fn exe(&mut self) -> Option<&str> {
        self.known.exe.as_deref()
    }

    fn argv(&mut self) -> &[String] {
        self.argv
            .get_or_insert_with(|| self.look.host.cmdline(self.pid).unwrap_or_default())
    }

    fn listening(&mut self) -> bool {
        !self
            .known
            .listening(self.look, self.pid, self.listeners, false)
            .is_empty()
    }

    fn libraries(&mut self) -> &[String] {
        self.libraries.get_or_insert_with(|| {
            self.look
                .host
                .mapped(self.pid)
                .map(|m| m.libraries)
                .unwrap_or_default()
        })
    }
}

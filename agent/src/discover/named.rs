//! Processes that the operator named: by process id, by port, by name.
//!
//! Owns: finding them, and saying when they are not there. Refuses: rules.

use super::found::ScanProblem;
use super::host::Stat;
use super::listeners::Listeners;
use super::process::Look;
use super::rules::comm_matches;
use super::scan::Scanner;
use std::collections::{BTreeMap, BTreeSet};

/// Seconds between two searches for the holders of named ports, when nothing calls for one earlier.
const PORTS_INTERVAL: f64 = 5.0;
/// While a port is missing, a process younger than this (seconds) calls for a search.
const NEW: f64 = 10.0;

/// What the last search for named ports found.
#[derive(Debug, Default)]
pub(super) struct NamedPorts {
    due: f64,
    /// Start time and reason, by process.
    owners: BTreeMap<u32, (u64, String)>,
    problems: Vec<ScanProblem>,
}

impl Scanner {
    /// Processes that the operator named, and by which flag.
    pub(super) fn explicit(
        &mut self,
        look: &Look<'_>,
        stats: &BTreeMap<u32, Stat>,
        listeners: &mut Listeners,
        problems: &mut Vec<ScanProblem>,
    ) -> BTreeMap<u32, String> {
        let mut named = BTreeMap::new();
        for &pid in &self.config.pids {
            if stats.contains_key(&pid) {
                named.insert(pid, format!("pid {pid}"));
            } else {
                problems.push(ScanProblem(format!(
                    "pid {pid}: there is no such process (any more)"
                )));
            }
        }
        for pattern in &self.config.comms {
            let mut any = false;
            for (&pid, _) in stats.iter().filter(|(_, stat)| comm_matches(pattern, &stat.comm)) {
                any = true;
                named.entry(pid).or_insert_with(|| format!("comm {pattern}"));
            }
            if !any {
                problems.push(ScanProblem(format!("comm {pattern}: no process has this name")));
            }
        }
        if !self.config.ports.is_empty() {
            if !self.ports_are_settled(look, stats) {
                self.named_ports = self.find_ports(look, stats, listeners);
            }
            for (&pid, (_, why)) in &self.named_ports.owners {
                named.entry(pid).or_insert_with(|| why.clone());
            }
            problems.extend(self.named_ports.problems.iter().cloned());
        }
        named
    }

    /// Whether what the last search for ports found still holds: socket tables are dear.
    fn ports_are_settled(&self, look: &Look<'_>, stats: &BTreeMap<u32, Stat>) -> bool {
        let known = &self.named_ports;
        let alive = |(pid, (start, _)): (&u32, &(u64, String))| {
            stats.get(pid).is_some_and(|stat| stat.starttime == *start)
        };
        let nobody_new = || !stats.values().any(|stat| look.age(stat.starttime) < NEW);
        look.now < known.due && known.owners.iter().all(alive) && (known.problems.is_empty() || nobody_new())
    }

    fn find_ports(
        &mut self,
        look: &Look<'_>,
        stats: &BTreeMap<u32, Stat>,
        listeners: &mut Listeners,
    ) -> NamedPorts {
        let mut ports = NamedPorts {
            due: look.now + PORTS_INTERVAL,
            ..NamedPorts::default()
        };
        // Sockets with one of these ports, in any network namespace.
        let mut wanted: BTreeMap<u64, u16> = BTreeMap::new();
        for (&pid, known) in &mut self.known {
            for (inode, port) in listeners.of(look.host, pid, known.netns(look.host, pid)) {
                if self.config.ports.contains(port) {
                    wanted.insert(*inode, *port);
                }
            }
        }
        let mut found = BTreeSet::new();
        // Only a socket that no known holder has makes the search go through all processes.
        for all in [false, true] {
            let missing: BTreeMap<u64, u16> = wanted
                .iter()
                .filter(|(i, _)| !found.contains(*i))
                .map(|(i, p)| (*i, *p))
                .collect();
            if missing.is_empty() {
                break;
            }
            for (&pid, known) in &mut self.known {
                if !all && known.listening.is_empty() {
                    continue;
                }
                if all {
                    known.look_up_listening(look, pid, listeners);
                }
                // docker-proxy holds the host's end of a published port; the server is in the container.
                if stats.get(&pid).is_none_or(|stat| stat.comm == "docker-proxy") {
                    continue;
                }
                for (inode, port) in &known.listening {
                    if missing.contains_key(inode) {
                        found.insert(*inode);
                        ports
                            .owners
                            .entry(pid)
                            .or_insert_with(|| (known.start, format!("port {port}")));
                    }
                }
            }
        }
        for &port in &self.config.ports {
            let sockets: Vec<u64> = wanted
                .iter()
                .filter(|(_, p)| **p == port)
                .map(|(inode, _)| *inode)
                .collect();
            if sockets.is_empty() {
                ports
                    .problems
                    .push(ScanProblem(format!("port {port}: nobody listens on it")));
            } else if !sockets.iter().any(|inode| found.contains(inode)) {
                ports.problems.push(ScanProblem(format!(
                    "port {port}: somebody listens on it, but the process can't be seen; run as root, in the host's PID namespace"
                )));
            }
        }
        ports
    }
}

//! Engines from groups of processes: ports, ids, and details that are kept between looks.
//!
//! Owns: which of an engine's ports is the one, and the stability of ids. Refuses: grouping and reading of details.

use super::detail::{Detail, detail};
use super::found::{FoundEngine, Part, Scan};
use super::group::Group;
use super::host::Stat;
use super::listeners::Listeners;
use super::model;
use super::process::Look;
use super::scan::Scanner;
use infertap_core::{EngineInfo, EngineKind};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Details that are not complete are looked up every time while the engine is younger than this (seconds); others as
/// often as this.
const YOUNG: f64 = 60.0;

/// What is kept of an engine while its root lives.
#[derive(Debug, Clone)]
pub(super) struct KnownEngine {
    id: Arc<str>,
    /// The id's first part: kind and port.
    base: String,
    /// It does not listen yet.
    waiting: bool,
    detail: Detail,
    detail_due: f64,
}

impl Scanner {
    pub(super) fn make_engines(
        &mut self,
        look: &Look<'_>,
        stats: &BTreeMap<u32, Stat>,
        groups: Vec<Group>,
        listeners: &mut Listeners,
        scan: &mut Scan,
    ) {
        let roots: BTreeMap<u32, u32> = groups
            .iter()
            .flat_map(|g| g.processes.iter().map(|p| (p.pid, g.root)))
            .collect();
        let groups: Vec<((u32, u64), Group)> = groups
            .into_iter()
            .filter_map(|group| Some(((group.root, stats.get(&group.root)?.starttime), group)))
            .collect();
        // What is gone frees its id before a successor asks for it.
        let keys: BTreeSet<(u32, u64)> = groups.iter().map(|(key, _)| *key).collect();
        self.engines.retain(|key, _| keys.contains(key));
        let mut candidates = Vec::new();
        for (key, mut group) in groups {
            let mut notes = Vec::new();
            let ports = self.ports(look, key, &mut group, listeners, &mut notes);
            let parent_of_other = stats.iter().any(|(pid, stat)| {
                roots.get(&stat.ppid) == Some(&group.root)
                    && roots.get(pid).is_some_and(|root| *root != group.root)
            });
            // A named wrapper around an engine gives way: the engine itself is found.
            if !(group.explicit_only && ports.is_empty() && parent_of_other) {
                candidates.push((key, group, ports, notes));
            }
        }
        // Of two engines with the same port, the one that listens has the plain id, and then the older.
        candidates.sort_by_key(|((root, start), _, ports, _)| (ports.is_empty(), *start, *root));
        for (key, group, ports, notes) in candidates {
            let engine = self.make_engine(look, key, group, &ports, notes);
            scan.engines.push(engine);
        }
        scan.engines.sort_by(|a, b| a.info.id.cmp(&b.info.id));
    }

    /// The ports that the engine's servers listen on; descendants that share their sockets become servers.
    fn ports(
        &mut self,
        look: &Look<'_>,
        key: (u32, u64),
        group: &mut Group,
        listeners: &mut Listeners,
        notes: &mut Vec<String>,
    ) -> BTreeMap<u16, u32> {
        // A server that does not listen yet is waited for.
        let waiting = self.engines.get(&key).is_none_or(|known| known.waiting);
        let mut sockets: BTreeMap<u32, Vec<(u64, u16)>> = BTreeMap::new();
        for process in group
            .processes
            .iter()
            .filter(|process| process.part != Part::Worker)
        {
            let Some(known) = self.known.get_mut(&process.pid) else {
                continue;
            };
            let listening = known.listening(look, process.pid, listeners, waiting);
            sockets.insert(process.pid, listening.to_vec());
            if known.denied && process.part == Part::Server {
                notes.push(format!(
                    "the sockets of {} can't be looked at (permission denied): run as root",
                    process.pid
                ));
            }
        }
        let held_by = |part: Part, group: &Group| -> BTreeSet<u64> {
            let of_part = group.processes.iter().filter(|process| process.part == part);
            of_part
                .filter_map(|p| sockets.get(&p.pid))
                .flatten()
                .map(|(inode, _)| *inode)
                .collect()
        };
        let mut front = held_by(Part::Server, group);
        if front.is_empty() {
            // A launcher whose child serves.
            front = held_by(Part::Helper, group);
        }
        let mut ports: BTreeMap<u16, u32> = BTreeMap::new();
        for process in &mut group.processes {
            for (inode, port) in sockets.get(&process.pid).into_iter().flatten() {
                if front.contains(inode) {
                    if process.part == Part::Helper {
                        process.part = Part::Server;
                        process.why.push_str(", listens");
                    }
                    ports.entry(*port).or_insert(process.pid);
                }
            }
        }
        ports
    }

    fn make_engine(
        &mut self,
        look: &Look<'_>,
        key: (u32, u64),
        group: Group,
        ports: &BTreeMap<u16, u32>,
        mut notes: Vec<String>,
    ) -> FoundEngine {
        let (root, started) = key;
        let servers = group
            .processes
            .iter()
            .filter(|process| process.part == Part::Server);
        let expected = servers
            .map(|process| look.host.cmdline(process.pid).unwrap_or_default())
            .find_map(|argv| model::told_port(group.kind, &argv))
            .or(model::well_known_port(group.kind));
        let main = expected.filter(|port| ports.contains_key(port)).or_else(|| {
            let roots = ports.iter().find(|(_, pid)| **pid == root).map(|(port, _)| *port);
            roots.or_else(|| ports.keys().next().copied())
        });
        // Of gateways there are many kinds, each with a rule of its own.
        let rule = self.known.get(&root).and_then(|known| known.rule.as_ref());
        let name = match rule.filter(|_| group.kind == EngineKind::Gateway) {
            Some(rule) => rule.name.clone(),
            None => group.kind.as_str().replace('_', "-"),
        };
        let base = match main.or(expected) {
            Some(port) => format!("{name}-{port}"),
            None => format!("{name}-pid{root}"),
        };
        let id = self.id(key, &base);
        let kept = self
            .engines
            .remove(&key)
            .filter(|known| known.detail_due > look.now);
        let (detail, detail_due) = if let Some(known) = kept {
            (known.detail, known.detail_due)
        } else {
            let of = |part| {
                group
                    .processes
                    .iter()
                    .filter(move |p| p.part == part)
                    .map(|p| p.pid)
            };
            let mut order = vec![root];
            order.extend(
                of(Part::Server)
                    .chain(of(Part::Worker))
                    .filter(|pid| *pid != root),
            );
            let rule = self.known.get(&root).and_then(|known| known.rule.as_ref());
            let detail = detail(
                look.host,
                group.kind,
                &order,
                rule.and_then(|rule| rule.model.as_deref()),
            );
            let settled = detail.is_complete(group.kind) || look.age(started) >= YOUNG;
            let interval = if settled { YOUNG } else { 0.0 };
            (detail, look.now + interval)
        };
        let known = KnownEngine {
            id: Arc::clone(&id),
            base,
            waiting: ports.is_empty(),
            detail: detail.clone(),
            detail_due,
        };
        self.engines.insert(key, known);
        notes.extend(detail.notes.iter().cloned());
        if ports.is_empty() {
            notes.push("it listens on no TCP port (yet)".to_owned());
        }
        FoundEngine {
            info: Arc::new(EngineInfo {
                id,
                kind: group.kind,
                model: detail.model.map(Arc::from),
                version: detail.version,
                pid: main.and_then(|port| ports.get(&port).copied()).unwrap_or(root),
                pids: group.processes.iter().map(|process| process.pid).collect(),
                ports: ports.keys().copied().collect(),
                container: detail.container,
                pod_uid: detail.pod_uid,
            }),
            root,
            started,
            processes: group.processes,
            notes,
        }
    }

    /// The engine's id: kept while it lives, `base` when that is free, else `base-2` and so on.
    fn id(&self, key: (u32, u64), base: &str) -> Arc<str> {
        if let Some(known) = self.engines.get(&key).filter(|known| known.base == base) {
            return Arc::clone(&known.id);
        }
        let taken = |id: &str| {
            self.engines
                .iter()
                .any(|(other, known)| *other != key && &*known.id == id)
        };
        let numbered = (2u32..).map(|number| format!("{base}-{number}"));
        std::iter::once(base.to_owned())
            .chain(numbered)
            .find(|id| !taken(id))
            .map_or_else(|| Arc::from(base), Arc::from)
    }
}

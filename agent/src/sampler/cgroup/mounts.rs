//! Where the control group hierarchies are mounted, as far as the agent can reach them.
//!
//! Owns: reading `mountinfo`, and finding the agent's own group in the tree. Refuses: mounting.
//!
//! The mounts of process 1 come first, reached through `/proc/1/root`: in a container that shares the host's process ids they
//! are the host's, which show all groups, while its own show its own group alone. On a host the two are the same. That needs
//! `CAP_SYS_PTRACE`; without it, or without the host's process ids, the agent's own mounts have to do.

use super::place::{GroupPath, groups_of};
use crate::discover::host::{for_each_line, read_bounded, text};
use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};

/// Longest `mountinfo` that is read; hosts with thousands of containers have some megabytes.
const MOUNTS_LIMIT: u64 = 16 * 1024 * 1024;
/// Folders of a hierarchy that are looked at to find the agent's own group, and how deep.
const MAX_FOLDERS: usize = 20_000;
const MAX_DEPTH: usize = 16;
/// Longest list of a group's processes that is read.
const PROCS_LIMIT: u64 = 256 * 1024;

/// One hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hierarchy {
    /// Folder at which it is mounted, as the agent reaches it.
    pub folder: PathBuf,
    /// The group that this folder is, relative to the root of the agent's namespace.
    root: GroupPath,
    /// The root of the agent's namespace, relative to the folder; empty where the folder is no higher, or it was not found.
    namespace: Vec<String>,
}

/// Those that matter for memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hierarchies {
    /// Version 2.
    pub unified: Option<Hierarchy>,
    /// The memory controller of version 1.
    pub memory: Option<Hierarchy>,
}

impl Hierarchies {
    /// Looks for them with the procfs at `proc`; the agent's process is `own_pid` there.
    pub fn find(proc: &Path, own_pid: u32) -> Hierarchies {
        let mut found = Hierarchies::default();
        for (mountinfo, root) in [
            (proc.join("1/mountinfo"), Some(proc.join("1/root"))),
            (proc.join("self/mountinfo"), None),
        ] {
            // What is mounted later lies over what was there before.
            let mut mounts = Vec::new();
            let _ = for_each_line(&mountinfo, MOUNTS_LIMIT, |line| {
                mounts.extend(Mount::parse(line));
                true
            });
            for version2 in [true, false] {
                let slot = if version2 {
                    &mut found.unified
                } else {
                    &mut found.memory
                };
                if slot.is_none() {
                    let of_version = mounts.iter().filter(|mount| mount.version2 == version2);
                    *slot = best(of_version, root.as_deref());
                }
            }
        }
        let own = groups_of(&proc.join("self"));
        let lines = [
            (&mut found.unified, own.unified.as_ref()),
            (&mut found.memory, own.memory.as_ref()),
        ];
        for (hierarchy, own) in lines {
            if let Some(hierarchy) = hierarchy {
                hierarchy.find_namespace(own, own_pid);
            }
        }
        found
    }
}

/// The mount that shows most of a hierarchy.
fn best<'a>(mounts: impl Iterator<Item = &'a Mount>, root: Option<&Path>) -> Option<Hierarchy> {
    let reached = mounts.filter_map(|mount| {
        let folder = match root {
            Some(root) => root.join(mount.point.strip_prefix('/')?),
            None => PathBuf::from(&mount.point),
        };
        fs::metadata(&folder).ok()?.is_dir().then(|| Hierarchy {
            folder,
            root: mount.root.clone(),
            namespace: Vec::new(),
        })
    });
    // The highest; of equals the first, which is where everybody looks.
    reached.min_by_key(|hierarchy| {
        let root = &hierarchy.root;
        (std::cmp::Reverse(root.up), root.names.len())
    })
}

impl Hierarchy {
    /// Finds the namespace's root where the mount shows what is above it: `own` is the agent's group as it sees it.
    fn find_namespace(&mut self, own: Option<&GroupPath>, own_pid: u32) {
        let Some(own) = own.filter(|own| own.up == 0 && self.root.up > 0 && self.root.names.is_empty())
        else {
            return;
        };
        if let Some(group) = find_process(&self.folder, own_pid)
            && let Some(namespace) = group.strip_suffix(&own.names[..])
            && namespace.len() == self.root.up
        {
            self.namespace = namespace.to_vec();
        }
    }

    /// Names of the groups from the mounted one down to `path`; `None` where the mount does not show it.
    pub fn names(&self, path: &GroupPath) -> Option<Vec<String>> {
        if path.up > self.root.up {
            return None;
        }
        // Both go up from the root of the namespace; between them lie names of groups that it is in.
        let between = self.root.up - path.up;
        let above = self.namespace.get(..between)?;
        let names = above.iter().chain(&path.names).cloned().collect::<Vec<_>>();
        names.strip_prefix(&self.root.names[..]).map(<[String]>::to_vec)
    }

    /// The folder of a group by its names.
    pub fn folder_of(&self, names: &[String]) -> PathBuf {
        let mut folder = self.folder.clone();
        folder.extend(names);
        folder
    }
}

/// Names of the group that a process is in, looked for breadth first.
fn find_process(folder: &Path, pid: u32) -> Option<Vec<String>> {
    let mut folders = VecDeque::from([Vec::<String>::new()]);
    let mut seen = 1;
    while let Some(names) = folders.pop_front() {
        let mut here = folder.to_path_buf();
        here.extend(&names);
        let procs = read_bounded(&here.join("cgroup.procs"), PROCS_LIMIT).unwrap_or_default();
        if text(&procs).lines().any(|line| line.parse() == Ok(pid)) {
            return Some(names);
        }
        if names.len() >= MAX_DEPTH {
            continue;
        }
        for entry in fs::read_dir(&here).into_iter().flatten().flatten() {
            let is_group = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if is_group && seen < MAX_FOLDERS {
                seen += 1;
                let name = entry.file_name().to_string_lossy().into_owned();
                folders.push_back([&names[..], &[name]].concat());
            }
        }
    }
    None
}

/// A mount of a hierarchy that matters.
#[derive(Debug, PartialEq, Eq)]
struct Mount {
    version2: bool,
    root: GroupPath,
    point: String,
}

impl Mount {
    /// A line of proc_pid_mountinfo(5): `36 35 98:0 /root /point rw shared:1 - type source options`.
    fn parse(line: &[u8]) -> Option<Mount> {
        let line = std::str::from_utf8(line).ok()?;
        let (head, tail) = line.split_once(" - ")?;
        let mut tail = tail.split(' ');
        let version2 = match tail.next()? {
            "cgroup2" => true,
            "cgroup" => false,
            _ => return None,
        };
        if !version2 && !tail.nth(1)?.split(',').any(|option| option == "memory") {
            return None;
        }
        let mut head = head.split(' ').skip(3);
        Some(Mount {
            version2,
            root: GroupPath::parse(&unescaped(head.next()?))?,
            point: unescaped(head.next()?),
        })
    }
}

/// Space, tab, newline and backslash stand there as three octal digits behind a backslash.
fn unescaped(field: &str) -> String {
    let mut out = String::with_capacity(field.len());
    let mut parts = field.split('\\');
    out.extend(parts.next());
    for part in parts {
        let octal = part
            .get(..3)
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        if let Some(byte) = octal.filter(u8::is_ascii) {
            out.push(char::from(byte));
            out.push_str(part.get(3..).unwrap_or_default());
        } else {
            out.push('\\');
            out.push_str(part);
        }
    }
    out
}

#[cfg(test)]
#[path = "mounts_tests.rs"]
mod tests;

//! The control groups of a process, as the agent's namespace shows them.
//!
//! Owns: the text of `/proc/PID/cgroup`. Refuses: finding folders (`mounts`).
//!
//! The kernel shows paths relative to the root of the reader's own namespace: a group that is not below it begins with as
//! many `..` as lead up to what both are in.

use crate::discover::host::{read_bounded, text};
use std::path::Path;

/// A page or so; with version 1 a dozen lines.
const LIMIT: u64 = 16 * 1024;

/// A group, seen from the root of a namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct GroupPath {
    /// How many groups up.
    pub up: usize,
    /// Then down through these.
    pub names: Vec<String>,
}

impl GroupPath {
    /// `/a/b`, or `/../../c`. `None` for what the kernel does not write.
    pub fn parse(path: &str) -> Option<GroupPath> {
        // A group that was removed while it had processes.
        let path = path.strip_suffix(" (deleted)").unwrap_or(path);
        let mut out = GroupPath::default();
        for name in path.strip_prefix('/')?.split('/').filter(|name| !name.is_empty()) {
            match name {
                ".." if out.names.is_empty() => out.up += 1,
                "." | ".." => return None,
                _ => out.names.push(name.to_owned()),
            }
        }
        Some(out)
    }
}

/// The groups of a process that matter for memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Groups {
    /// In the hierarchy of version 2.
    pub unified: Option<GroupPath>,
    /// In that of version 1's memory controller.
    pub memory: Option<GroupPath>,
}

/// Those of the process with this folder in procfs; none when it is gone.
pub fn groups_of(process: &Path) -> Groups {
    let bytes = read_bounded(&process.join("cgroup"), LIMIT).unwrap_or_default();
    parse(&text(&bytes))
}

/// `id:controllers:path` lines; version 2 is `0::path`.
fn parse(cgroup: &str) -> Groups {
    let mut groups = Groups::default();
    for line in cgroup.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(id), Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next()) else {
            continue;
        };
        if id == "0" && controllers.is_empty() {
            groups.unified = GroupPath::parse(path);
        } else if controllers.split(',').any(|controller| controller == "memory") {
            groups.memory = GroupPath::parse(path);
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn path(up: usize, names: &[&str]) -> GroupPath {
        GroupPath {
            up,
            names: names.iter().map(|name| (*name).to_owned()).collect(),
        }
    }

    #[test]
    fn paths_are_what_the_kernel_writes() {
        for (text, expected) in [
            ("/", Some(path(0, &[]))),
            (
                "/system.slice/vllm.service",
                Some(path(0, &["system.slice", "vllm.service"])),
            ),
            ("/../../pod1/c2", Some(path(2, &["pod1", "c2"]))),
            ("/..", Some(path(1, &[]))),
            ("/a/b (deleted)", Some(path(0, &["a", "b"]))),
            ("/a/../../etc", None),
            ("/./a", None),
            ("a", None),
            ("", None),
        ] {
            assert_eq!(GroupPath::parse(text), expected, "{text:?}");
        }
    }

    #[test]
    fn both_versions_may_be_there_at_once() {
        let hybrid = "9:name=systemd:/s\n5:cpu,cpuacct:/c\n4:memory:/docker/ab\n0::/unified\n";
        let groups = parse(hybrid);
        assert_eq!(groups.memory, Some(path(0, &["docker", "ab"])));
        assert_eq!(groups.unified, Some(path(0, &["unified"])));
        assert_eq!(parse("0::/x:y\n").unified, Some(path(0, &["x:y"])));
        assert_eq!(parse("7:memory\nnonsense\n\n"), Groups::default());
        assert_eq!(groups_of(Path::new("/nonexistent")), Groups::default());
    }

    proptest! {
        #[test]
        fn nothing_panics(text in "[0-9:/a.\\n]{0,200}") {
            let _ = parse(&text);
        }
    }
}

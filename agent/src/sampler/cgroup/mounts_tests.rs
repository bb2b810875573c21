//! Hosts and containers made of files: where hierarchies are, and which folder a path leads to.

use super::*;
use std::fs;

/// A procfs with process 1, the agent (5) and its own mounts.
fn proc(mounts_of_1: &str, own_mounts: &str, own_cgroup: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("tempdir");
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("mkdir");
        fs::write(path, text).expect("write");
    };
    if !mounts_of_1.is_empty() {
        write("1/mountinfo", mounts_of_1);
    }
    write("self/mountinfo", own_mounts);
    write("self/cgroup", own_cgroup);
    dir
}

fn folder(root: &Path, name: &str, procs: &str) {
    let path = root.join(name);
    fs::create_dir_all(&path).expect("mkdir");
    fs::write(path.join("cgroup.procs"), procs).expect("write");
}

fn names(hierarchy: &Hierarchy, path: &str) -> Option<String> {
    let path = GroupPath::parse(path).expect("a path");
    hierarchy.names(&path).map(|names| names.join("/"))
}

#[test]
fn a_host_has_its_hierarchies_where_process_1_sees_them() {
    let hybrid = "\
31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
33 31 0:30 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 master:2 - cgroup cgroup rw,memory
36 31 0:37 / /run/with\\040space rw - cgroup2 cgroup2 rw
41 31 0:38 /system.slice /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
nonsense
";
    let dir = proc(hybrid, "", "4:memory:/\n0::/\n");
    let root = dir.path().join("1/root");
    folder(&root, "sys/fs/cgroup/memory/docker/ab", "7\n");
    folder(&root, "run/with space/engine", "");
    folder(&root, "sys/fs/cgroup/unified", "");
    let found = Hierarchies::find(dir.path(), 5);
    let unified = found.unified.expect("version 2 is mounted");
    assert_eq!(
        unified.folder,
        root.join("run/with space"),
        "the one that shows all"
    );
    assert_eq!(names(&unified, "/engine").as_deref(), Some("engine"));
    assert_eq!(names(&unified, "/../x"), None, "above what is mounted");
    let memory = found.memory.expect("version 1 has memory");
    assert_eq!(memory.folder, root.join("sys/fs/cgroup/memory"));
    assert_eq!(
        memory.folder_of(&["docker".into(), "ab".into()]),
        memory.folder.join("docker/ab")
    );
}

#[test]
fn in_a_container_paths_are_joined_with_the_groups_that_it_is_in() {
    let own = "50 40 0:26 / /sys/fs/cgroup ro - cgroup2 cgroup rw\n";
    let host = "30 20 0:26 /../../../.. /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
    let dir = proc(host, own, "0::/\n");
    let cgroup = dir.path().join("1/root/sys/fs/cgroup");
    folder(&cgroup, "", "1\n");
    folder(&cgroup, "kubepods.slice/burstable/podB/engine", "55\n");
    folder(&cgroup, "kubepods.slice/burstable/podA/agent", "4\n5\n");
    let unified = Hierarchies::find(dir.path(), 5).unified.expect("mounted");
    assert_eq!(unified.folder, cgroup);
    for (path, expected) in [
        ("/../../podB/engine", Some("kubepods.slice/burstable/podB/engine")),
        ("/../sidecar", Some("kubepods.slice/burstable/podA/sidecar")),
        ("/../../../../system.slice/x", Some("system.slice/x")),
        ("/sub", Some("kubepods.slice/burstable/podA/agent/sub")),
        ("/../../../..", Some("")),
        ("/../../../../../x", None),
    ] {
        assert_eq!(names(&unified, path).as_deref(), expected, "{path}");
    }
    // Not found in the tree: what does not pass through its own groups is still reached.
    let unified = Hierarchies::find(dir.path(), 99).unified.expect("mounted");
    assert_eq!(names(&unified, "/../../podB/engine"), None);
    assert_eq!(
        names(&unified, "/../../../../system.slice/x").as_deref(),
        Some("system.slice/x")
    );
}

#[test]
fn without_process_1_the_agents_own_mounts_have_to_do() {
    let cgroup = tempfile::tempdir().expect("tempdir");
    let own = format!(
        "50 40 0:26 /agent {} ro - cgroup2 cgroup rw\n",
        cgroup.path().display()
    );
    let dir = proc("", &own, "0::/agent\n");
    let found = Hierarchies::find(dir.path(), 5);
    let unified = found.unified.expect("mounted");
    assert_eq!(names(&unified, "/agent/engine").as_deref(), Some("engine"));
    assert_eq!(
        names(&unified, "/other"),
        None,
        "another part of the tree is mounted"
    );
    assert_eq!(found.memory, None);
    // Process 1 is there, but its root may not be entered.
    let dir = proc(
        "30 20 0:26 / /sys/fs/cgroup rw - cgroup2 c rw\n",
        &own,
        "0::/agent\n",
    );
    let unified = Hierarchies::find(dir.path(), 5).unified.expect("mounted");
    assert_eq!(unified.folder, cgroup.path());
    assert_eq!(
        Hierarchies::find(Path::new("/nonexistent"), 5),
        Hierarchies::default()
    );
}

#[test]
fn lines_are_unescaped_and_half_ones_refused() {
    assert_eq!(unescaped("/a\\040b\\134c\\9"), "/a b\\c\\9");
    assert_eq!(unescaped("\\777x\\04"), "\\777x\\04");
    for line in [
        "",
        " - ",
        "1 2 3 - cgroup2",
        "1 2 3 / /x rw - cgroup c rw,cpu",
        "1 2 3 x /x - cgroup2 c",
    ] {
        assert_eq!(Mount::parse(line.as_bytes()), None, "{line}");
    }
    assert_eq!(Mount::parse(b"\xff - cgroup2"), None);
}

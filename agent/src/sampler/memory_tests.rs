//! Engines in control groups made of files, of both versions and of neither.

use super::*;
use infertap_core::pressure::{MemoryEvents, StallTotals};
use std::fs;
use std::path::Path;

struct FakeHost {
    dir: tempfile::TempDir,
}

const V2: &str = "30 20 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
const HYBRID: &str =
    "35 31 0:32 / /cg/memory rw - cgroup cgroup rw,memory\n41 31 0:38 / /cg/unified rw - cgroup2 c rw\n";

impl FakeHost {
    fn new(mounts: &str) -> FakeHost {
        let host = FakeHost {
            dir: tempfile::tempdir().expect("tempdir"),
        };
        host.write("1/mountinfo", mounts);
        host.write("self/cgroup", "0::/\n");
        for line in mounts.lines() {
            let point = line.split(' ').nth(4).expect("a mount point");
            fs::create_dir_all(host.dir.path().join(format!("1/root{point}"))).expect("mkdir");
        }
        host.write(
            "pressure/memory",
            "some avg10=0.00 avg60=0.00 avg300=0.00 total=9\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=4\n",
        );
        host
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.dir.path().join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("mkdir");
        fs::write(path, text).expect("write");
    }

    fn group(&self, folder: &str, files: &[(&str, &str)]) {
        for (name, text) in files {
            self.write(&format!("1/root/{folder}/{name}"), text);
        }
    }

    fn sampler(&self) -> MemorySampler {
        MemorySampler::new(self.dir.path(), 5)
    }
}

#[test]
fn a_group_of_version_2_and_those_above_that_limit_it_are_read() {
    let host = FakeHost::new(V2);
    host.write("70/cgroup", "0::/pods/pod1/engine\n");
    host.write("71/cgroup", "0::/pods/pod1/engine\n");
    host.group(
        "sys/fs/cgroup/pods/pod1/engine",
        &[
            ("memory.current", "1000\n"),
            ("memory.max", "max\n"),
            ("memory.high", "900\n"),
            ("memory.swap.current", "5\n"),
            (
                "memory.events.local",
                "low 1\nhigh 2\nmax 3\noom 4\noom_kill 5\noom_group_kill 6\n",
            ),
            (
                "memory.pressure",
                "some avg10=0 total=100\nfull avg10=0 total=50\n",
            ),
        ],
    );
    host.group(
        "sys/fs/cgroup/pods/pod1",
        &[
            ("memory.current", "1500\n"),
            ("memory.max", "2000\n"),
            ("memory.high", "max\n"),
            ("memory.events.local", "max 7\n"),
        ],
    );
    host.group(
        "sys/fs/cgroup/pods",
        &[
            ("memory.current", "9000\n"),
            ("memory.max", "max\n"),
            ("memory.high", "max\n"),
        ],
    );
    let mut sampler = host.sampler();
    let engine: Arc<str> = "e".into();
    let reading = sampler.read(&engine, &[70, 71, 72]);
    let pod = CgroupReading {
        path: "/pods/pod1".into(),
        version: CgroupVersion::V2,
        own: false,
        current: Some(1500),
        max: Some(2000),
        high: None,
        swap: None,
        events: MemoryEvents {
            max: Some(7),
            ..MemoryEvents::default()
        },
        stalls: None,
    };
    let own = CgroupReading {
        path: "/pods/pod1/engine".into(),
        own: true,
        current: Some(1000),
        max: None,
        high: Some(900),
        swap: Some(5),
        events: MemoryEvents {
            low: Some(1),
            high: Some(2),
            max: Some(3),
            oom: Some(4),
            oom_kill: Some(5),
        },
        stalls: Some(StallTotals {
            some_us: 100,
            full_us: 50,
        }),
        ..pod.clone()
    };
    let expected = MemoryReading {
        engine: Arc::clone(&engine),
        cgroups: vec![pod, own],
        host: None,
    };
    assert_eq!(reading, expected);
    // Its processes are gone, and what their group tells is read for the last time.
    assert_eq!(sampler.read(&engine, &[99]), expected);
    // Nor is a group forgotten that some of them have left.
    host.write("70/cgroup", "0::/other\n");
    host.group("sys/fs/cgroup/other", &[("memory.current", "3\n")]);
    assert_eq!(sampler.read(&engine, &[70]).cgroups.len(), 3);
    assert_eq!(sampler.read(&engine, &[70]).cgroups.len(), 1);
    host.write("70/cgroup", "0::/pods/pod1/engine\n");
    assert_eq!(sampler.read(&engine, &[70]).cgroups.len(), 3);
    assert_eq!(sampler.last(&engine), Some(expected));
    assert_eq!(sampler.last(&engine), None);
}

#[test]
fn with_both_versions_memory_is_of_the_one_and_stalls_are_of_the_other() {
    let host = FakeHost::new(HYBRID);
    host.write("70/cgroup", "4:memory:/docker/ab\n0::/docker-ab\n");
    host.group(
        "cg/memory/docker/ab",
        &[
            ("memory.usage_in_bytes", "4096\n"),
            ("memory.limit_in_bytes", "9223372036854771712\n"),
            ("memory.memsw.usage_in_bytes", "5000\n"),
            ("memory.failcnt", "12\n"),
            (
                "memory.oom_control",
                "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
            ),
        ],
    );
    host.group(
        "cg/memory/docker",
        &[
            ("memory.usage_in_bytes", "8192\n"),
            ("memory.limit_in_bytes", "16384\n"),
        ],
    );
    let mut sampler = host.sampler();
    let reading = sampler.read(&"e".into(), &[70]);
    assert_eq!(
        reading.host,
        Some(StallTotals {
            some_us: 9,
            full_us: 4
        }),
        "its group tells nothing"
    );
    let told = |group: &CgroupReading| {
        (
            group.path.to_string(),
            group.own,
            group.current,
            group.max,
            group.swap,
        )
    };
    let groups: Vec<_> = reading.cgroups.iter().map(told).collect();
    assert_eq!(
        groups,
        [
            ("/docker".to_owned(), false, Some(8192), Some(16384), None),
            ("/docker/ab".to_owned(), true, Some(4096), None, Some(904)),
        ]
    );
    let events = reading.cgroups[1].events;
    assert_eq!(
        (events.max, events.oom_kill, events.high),
        (Some(12), Some(2), None)
    );

    host.group(
        "cg/unified/docker-ab",
        &[("memory.pressure", "some avg10=0 total=7\nfull avg10=0 total=3\n")],
    );
    let reading = sampler.read(&"e".into(), &[70]);
    assert_eq!(reading.host, None);
    assert_eq!(
        reading.cgroups[1].stalls,
        Some(StallTotals {
            some_us: 7,
            full_us: 3
        })
    );
    // In no group of version 1, it has its stalls all the same.
    host.write("70/cgroup", "4:memory:/\n0::/docker-ab\n");
    let reading = sampler.read(&"other".into(), &[70]);
    assert_eq!(reading.cgroups.len(), 1);
    assert_eq!((reading.cgroups[0].current, reading.cgroups[0].own), (None, true));
}

#[test]
fn what_is_in_no_group_or_hostile_is_read_as_nothing() {
    let host = FakeHost::new(V2);
    let mut sampler = host.sampler();
    host.write("70/cgroup", "0::/\n");
    host.write("71/cgroup", "0::/../../etc\n");
    host.write("72/cgroup", "0::/a/../../../etc\n");
    host.write("73/cgroup", &"0::/x\n".repeat(100_000));
    host.group(
        "sys/fs/cgroup/x",
        &[("memory.current", "lots\n"), ("memory.max", "-1\n")],
    );
    for pid in 70..75 {
        let reading = sampler.read(&"e".into(), &[pid]);
        assert_eq!(
            (reading.cgroups.len(), reading.host.is_some()),
            (0, true),
            "{pid}"
        );
    }
    assert!(sampler.found().is_ok_and(|found| found.contains("version 2 at ")));
    let nowhere = MemorySampler::new(Path::new("/nonexistent"), 5);
    assert!(nowhere.found().is_err_and(|missing| missing.contains("hostPID")));
    // Deeper and wider than anybody has it.
    let deep = "/d".repeat(100);
    host.write("80/cgroup", &format!("0::{deep}\n"));
    host.group(&format!("sys/fs/cgroup{deep}"), &[("memory.current", "1\n")]);
    for pid in 1000..1100 {
        host.write(&format!("{pid}/cgroup"), &format!("0::/wide{pid}\n"));
        host.group(&format!("sys/fs/cgroup/wide{pid}"), &[("memory.current", "1\n")]);
    }
    assert_eq!(sampler.read(&"deep".into(), &[80]).cgroups.len(), 1);
    let pids: Vec<u32> = (1000..1100).collect();
    assert_eq!(sampler.read(&"wide".into(), &pids).cgroups.len(), 16);
}

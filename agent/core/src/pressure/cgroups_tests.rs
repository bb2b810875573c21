//! Readings of groups that come, go, are nested and are made anew.

use super::*;
use crate::pressure::CgroupVersion;

pub(crate) fn group(path: &str, own: bool) -> CgroupReading {
    CgroupReading {
        path: path.into(),
        version: CgroupVersion::V2,
        own,
        current: Some(100),
        max: None,
        high: None,
        swap: Some(0),
        events: MemoryEvents {
            low: Some(0),
            high: Some(0),
            max: Some(0),
            oom: Some(0),
            oom_kill: Some(0),
        },
        stalls: Some(StallTotals::default()),
    }
}

fn reading(cgroups: &[CgroupReading]) -> MemoryReading {
    MemoryReading {
        engine: "e".into(),
        cgroups: cgroups.to_vec(),
        host: None,
    }
}

#[test]
fn only_what_happens_after_the_first_reading_counts() {
    let mut cgroups = Cgroups::default();
    let mut own = group("/pod/engine", true);
    own.events.max = Some(1000);
    own.events.oom_kill = Some(3);
    own.stalls = Some(StallTotals {
        some_us: 9_000_000,
        full_us: 5_000_000,
    });
    let first = cgroups.read(&reading(&[own.clone()]));
    assert_eq!(
        first,
        Happened {
            high: Some(0),
            max: Some(0),
            oom: 0,
            stalled: None
        },
        "a life before the agent"
    );
    own.events.max = Some(1007);
    own.events.oom_kill = Some(4);
    own.stalls = Some(StallTotals {
        some_us: 9_500_000,
        full_us: 5_100_000,
    });
    let second = cgroups.read(&reading(&[own.clone()]));
    let stalled = StallTotals {
        some_us: 500_000,
        full_us: 100_000,
    };
    assert_eq!(
        second,
        Happened {
            high: Some(0),
            max: Some(7),
            oom: 1,
            stalled: Some(stalled)
        }
    );
    // Its processes may be gone before what killed them is read.
    assert_eq!(cgroups.read(&reading(&[])), Happened::default());
    // Restarted under the same name: its counters begin anew.
    own.events.max = Some(2);
    own.events.oom_kill = Some(0);
    own.stalls = Some(StallTotals {
        some_us: 10,
        full_us: 0,
    });
    let third = cgroups.read(&reading(&[own]));
    assert_eq!((third.max, third.oom), (Some(2), 0));
    let memory = cgroups.memory().expect("a group was read");
    assert_eq!((memory.events.max, memory.events.oom_kill), (Some(9), Some(1)));
    let stalls = memory.stalls.expect("told");
    assert_eq!((stalls.scope, stalls.some_s), (StallScope::Cgroup, 0.50001));
}

#[test]
fn groups_above_give_their_limits_and_not_what_is_others() {
    let mut cgroups = Cgroups::default();
    let mut pod = group("/pod", false);
    pod.max = Some(1000);
    pod.current = Some(950);
    let mut own = group("/pod/engine", true);
    own.max = Some(2000);
    own.current = Some(700);
    let mut worker = group("/pod/engine/worker", true);
    worker.current = Some(300);
    let aside = group("/pod/engine2", true);
    let groups = [pod.clone(), own, worker, aside];
    cgroups.read(&reading(&groups));
    pod.events.max = Some(4);
    pod.events.oom_kill = Some(5);
    let happened = cgroups.read(&reading(&[
        pod,
        groups[1].clone(),
        groups[2].clone(),
        groups[3].clone(),
    ]));
    assert_eq!(
        (happened.max, happened.oom),
        (Some(4), 0),
        "whom the pod lost is not known to be the engine's"
    );
    let memory = cgroups.memory().expect("groups were read");
    assert_eq!(memory.usage_bytes, Some(800), "nested groups count once");
    assert_eq!(
        (memory.limit_bytes, memory.headroom_bytes),
        (Some(1000), Some(50))
    );
}

#[test]
fn where_groups_do_not_tell_the_host_does() {
    let mut cgroups = Cgroups::default();
    let mut own = group("/engine", true);
    own.version = CgroupVersion::V1;
    own.stalls = None;
    own.events = MemoryEvents {
        max: Some(0),
        ..MemoryEvents::default()
    };
    let mut both = reading(&[own]);
    both.host = Some(StallTotals {
        some_us: 5,
        full_us: 0,
    });
    let first = cgroups.read(&both);
    assert_eq!((first.high, first.max, first.stalled), (None, Some(0), None));
    both.host = Some(StallTotals {
        some_us: 2_000_005,
        full_us: 1_000_000,
    });
    let stalled = StallTotals {
        some_us: 2_000_000,
        full_us: 1_000_000,
    };
    assert_eq!(cgroups.read(&both).stalled, Some(stalled));
    let memory = cgroups.memory().expect("a group was read");
    assert_eq!(memory.events.high, None, "version 1 tells of no throttling");
    assert_eq!(
        memory.stalls,
        Some(Stalls {
            scope: StallScope::Host,
            some_s: 2.0,
            full_s: 1.0
        })
    );
}

#[test]
fn a_reading_of_nothing_is_nothing() {
    let mut cgroups = Cgroups::default();
    assert_eq!(cgroups.read(&reading(&[])), Happened::default());
    assert_eq!(cgroups.memory(), None);
    let many: Vec<_> = (0..1000).map(|i| group(&format!("/g{i}"), true)).collect();
    cgroups.read(&reading(&many));
    assert_eq!(cgroups.last.len(), MAX_GROUPS);
}

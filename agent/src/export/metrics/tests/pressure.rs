//! Series of an engine's memory: what is told, what is absent, what ends with the engine and what stays.

use super::*;
use infertap_core::pressure::{
    CgroupMemory, CgroupVersion, GpuMemory, MemoryEvents, PressureReport, PressureState, Reason, ReasonKind,
    StallScope, Stalls,
};

fn report(engine: &str) -> PressureReport {
    PressureReport {
        engine: engine.into(),
        state: PressureState::None,
        reasons: Vec::new(),
        gpu: None,
        alloc_failures: None,
        cgroup: None,
    }
}

fn cgroup(kills: u64) -> CgroupMemory {
    CgroupMemory {
        version: CgroupVersion::V2,
        usage_bytes: Some(900),
        swap_bytes: Some(7),
        limit_bytes: Some(1000),
        headroom_bytes: Some(100),
        events: MemoryEvents {
            low: Some(0),
            high: Some(3),
            max: Some(5),
            oom: Some(1),
            oom_kill: Some(kills),
        },
        stalls: Some(Stalls {
            scope: StallScope::Cgroup,
            some_s: 1.5,
            full_s: 0.25,
        }),
    }
}

/// An engine of which everything is known, and most of it is bad.
pub(crate) fn short_of_memory(engine: &str) -> Observation {
    Observation::Pressure(Box::new(PressureReport {
        state: PressureState::Severe,
        reasons: vec![Reason {
            kind: ReasonKind::GpuTimeToFull,
            state: PressureState::Severe,
            value: 120.0,
            threshold: 300.0,
            for_s: 30.0,
        }],
        gpu: Some(GpuMemory {
            gpu: "GPU-a".into(),
            used_bytes: 70,
            total_bytes: 80,
            headroom_bytes: 10,
            time_to_full_s: Some(120.0),
        }),
        alloc_failures: None,
        cgroup: Some(cgroup(1)),
        ..report(engine)
    }))
}

fn all(metrics: &Metrics) -> Vec<String> {
    let families = [
        "llm_memory_pressure",
        "llm_memory_pressure_reason",
        "llm_gpu_memory_headroom_bytes",
        "llm_gpu_memory_time_to_full_seconds",
        "llm_engine_cgroup_memory_bytes",
        "llm_engine_cgroup_memory_limit_bytes",
        "llm_engine_cgroup_memory_headroom_bytes",
        "llm_engine_cgroup_swap_bytes",
        "llm_engine_cgroup_memory_events_total",
        "llm_engine_oom_kills_total",
        "llm_engine_memory_pressure_seconds_total",
    ];
    families
        .iter()
        .flat_map(|family| samples(metrics, family))
        .collect()
}

#[test]
fn everything_known_is_told_and_ends_with_its_engine_but_for_whom_the_kernel_killed() {
    let metrics = metrics();
    metrics.engine_up(&engine("e", 7));
    metrics.apply(&short_of_memory("e"));
    expect![[r#"
        llm_memory_pressure{engine="e",state="none"} 0
        llm_memory_pressure{engine="e",state="severe"} 1
        llm_memory_pressure{engine="e",state="some"} 0
        llm_memory_pressure_reason{engine="e",reason="gpu_time_to_full"} 2
        llm_gpu_memory_headroom_bytes{engine="e"} 10
        llm_gpu_memory_time_to_full_seconds{engine="e"} 120
        llm_engine_cgroup_memory_bytes{engine="e"} 900
        llm_engine_cgroup_memory_limit_bytes{engine="e"} 1000
        llm_engine_cgroup_memory_headroom_bytes{engine="e"} 100
        llm_engine_cgroup_swap_bytes{engine="e"} 7
        llm_engine_cgroup_memory_events_total{engine="e",event="high"} 3
        llm_engine_cgroup_memory_events_total{engine="e",event="low"} 0
        llm_engine_cgroup_memory_events_total{engine="e",event="max"} 5
        llm_engine_cgroup_memory_events_total{engine="e",event="oom"} 1
        llm_engine_oom_kills_total{engine="e"} 1
        llm_engine_memory_pressure_seconds_total{engine="e",kind="full",scope="cgroup"} 0.25
        llm_engine_memory_pressure_seconds_total{engine="e",kind="some",scope="cgroup"} 1.5
    "#]]
    .assert_eq(&(all(&metrics).join("\n") + "\n"));
    metrics.engine_down("e");
    assert_eq!(all(&metrics), [r#"llm_engine_oom_kills_total{engine="e"} 1"#]);
    // It is up again, and its totals begin anew.
    metrics.engine_up(&engine("e", 8));
    metrics.apply(&short_of_memory("e"));
    assert_eq!(
        samples(&metrics, "llm_engine_oom_kills_total"),
        [r#"llm_engine_oom_kills_total{engine="e"} 2"#]
    );
}

#[test]
fn what_is_not_known_is_absent_and_totals_only_grow() {
    let metrics = metrics();
    metrics.apply(&Observation::Pressure(Box::new(report("e"))));
    assert_eq!(
        all(&metrics),
        [
            r#"llm_memory_pressure{engine="e",state="none"} 1"#,
            r#"llm_memory_pressure{engine="e",state="severe"} 0"#,
            r#"llm_memory_pressure{engine="e",state="some"} 0"#,
        ]
    );
    metrics.apply(&short_of_memory("e"));
    metrics.apply(&short_of_memory("e"));
    metrics.apply(&Observation::Pressure(Box::new(PressureReport {
        cgroup: Some(CgroupMemory {
            limit_bytes: None,
            headroom_bytes: None,
            swap_bytes: None,
            ..cgroup(1)
        }),
        ..report("e")
    })));
    expect![[r#"
        llm_memory_pressure{engine="e",state="none"} 1
        llm_memory_pressure{engine="e",state="severe"} 0
        llm_memory_pressure{engine="e",state="some"} 0
        llm_memory_pressure_reason{engine="e",reason="gpu_time_to_full"} 0
        llm_engine_cgroup_memory_bytes{engine="e"} 900
        llm_engine_cgroup_memory_events_total{engine="e",event="high"} 3
        llm_engine_cgroup_memory_events_total{engine="e",event="low"} 0
        llm_engine_cgroup_memory_events_total{engine="e",event="max"} 5
        llm_engine_cgroup_memory_events_total{engine="e",event="oom"} 1
        llm_engine_oom_kills_total{engine="e"} 1
        llm_engine_memory_pressure_seconds_total{engine="e",kind="full",scope="cgroup"} 0.25
        llm_engine_memory_pressure_seconds_total{engine="e",kind="some",scope="cgroup"} 1.5
    "#]]
    .assert_eq(&(all(&metrics).join("\n") + "\n"));
}

#[test]
fn the_kills_of_engines_that_are_gone_are_bounded() {
    let metrics = metrics();
    for number in 0..100 {
        let name = format!("e{number}");
        metrics.engine_up(&engine(&name, 7));
        metrics.apply(&Observation::Pressure(Box::new(PressureReport {
            cgroup: Some(cgroup(u64::from(number != 50))),
            ..report(&name)
        })));
        metrics.engine_down(&name);
    }
    let kept = samples(&metrics, "llm_engine_oom_kills_total");
    assert_eq!(kept.len(), 64);
    assert!(
        kept.iter()
            .all(|line| !line.contains(r#""e50""#) && !line.contains(r#""e5""#))
    );
}

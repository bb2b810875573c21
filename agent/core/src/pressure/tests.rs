//! Engines that run short of memory, one way at a time; what looks like it and is not; what is bounded.

mod gpu;

use super::*;
use crate::{EngineKind, gpu::GpuProcess, observation::EngineLoad};
use proptest::prelude::*;

const SECOND: Nanos = 1_000_000_000;
const GIB: u64 = 1 << 30;

/// A host: what judges, and what it needs to know.
struct Bench {
    pressure: Pressure,
    engines: Engines,
    inside: Inside,
    config: PressureConfig,
    now: Nanos,
    told: Vec<PressureReport>,
}

impl Bench {
    fn new(kind: EngineKind) -> Bench {
        let mut engines = Engines::default();
        engines.up(Arc::new(EngineInfo {
            id: "e".into(),
            kind,
            model: None,
            version: None,
            pid: 10,
            pids: vec![10, 11],
            ports: vec![8000],
            container: None,
            pod_uid: None,
        }));
        Bench {
            pressure: Pressure::default(),
            engines,
            inside: Inside::default(),
            config: PressureConfig::default(),
            now: 1000 * SECOND,
            told: Vec::new(),
        }
    }

    fn take(&mut self, out: Vec<Observation>) {
        self.told
            .extend(out.into_iter().map(|observation| match observation {
                Observation::Pressure(report) => *report,
                other => panic!("{other:?}"),
            }));
    }

    /// Seconds pass; before each, `act`.
    fn pass(&mut self, seconds: u64, mut act: impl FnMut(&mut Bench, u64)) {
        for second in 0..seconds {
            act(self, second);
            self.now += SECOND;
            let mut out = Vec::new();
            let Bench {
                pressure,
                engines,
                inside,
                config,
                now,
                ..
            } = self;
            pressure.advance(*now, inside, engines, config, &mut out);
            self.take(out);
        }
    }

    fn gpu(&mut self, uuid: &str, used: u64, total: u64, tgids: Option<&[u32]>) {
        let processes = tgids.map(|tgids| {
            let process = |tgid: &u32| GpuProcess {
                tgid: *tgid,
                memory: None,
                sm: None,
            };
            tgids.iter().map(process).collect()
        });
        let reading = GpuReading {
            uuid: uuid.into(),
            parent: uuid.strip_prefix("MIG-").map(Into::into),
            since: Some(self.now - SECOND),
            energy_j: None,
            busy: Vec::new(),
            memory_used: Some(used),
            memory_total: Some(total),
            processes,
        };
        let room = self.pressure.gpu(self.now, &reading, &self.engines, &self.config);
        assert!(room);
    }

    fn fail(&mut self, code: u32) {
        let failure = AllocFailure {
            tgid: 11,
            tid: 12,
            bytes: 2 * GIB,
            code,
        };
        self.pressure
            .alloc_failed(self.now, &failure, &self.engines, &self.config);
    }

    fn read(&mut self, change: impl FnOnce(&mut CgroupReading)) {
        let mut group = CgroupReading {
            path: "/engine".into(),
            version: CgroupVersion::V2,
            own: true,
            current: Some(GIB),
            max: Some(2 * GIB),
            high: None,
            swap: None,
            events: MemoryEvents {
                low: Some(0),
                high: Some(0),
                max: Some(0),
                oom: Some(0),
                oom_kill: Some(0),
            },
            stalls: Some(StallTotals::default()),
        };
        change(&mut group);
        let reading = MemoryReading {
            engine: "e".into(),
            cgroups: vec![group],
            host: None,
        };
        let mut out = Vec::new();
        self.pressure
            .read(self.now, &reading, &self.engines, &self.config, &mut out);
        self.take(out);
    }

    fn last(&self) -> &PressureReport {
        self.told.last().expect("something was told")
    }

    /// State, and the names of its reasons with their states.
    fn state(&self) -> (&'static str, Vec<(&'static str, &'static str)>) {
        let report = self.last();
        let reason = |reason: &Reason| (reason.kind.as_str(), reason.state.as_str());
        (report.state.as_str(), report.reasons.iter().map(reason).collect())
    }
}

#[test]
fn a_key_value_cache_is_short_when_it_stays_full() {
    let load = |usage| EngineLoad {
        running: 4,
        waiting: 2,
        kv_cache_usage: Some(usage),
    };
    let config = PressureConfig::default();
    let gpus = Gpus::default();
    let mut engine = Engine::new(EngineKind::Vllm, &config);
    let mut now = 1000 * SECOND;
    let mut states = |engine: &mut Engine, seconds: u64, usage: Option<f64>| {
        for _ in 0..seconds {
            now += SECOND;
            engine.load(now, usage.map(|usage| (load(usage), now)), 0, &config);
            engine.judge(now, &gpus, &config);
        }
        let report = engine.report(&"e".into(), now, &gpus);
        (
            report.state.as_str(),
            report.reasons.first().map(|reason| reason.value),
        )
    };
    assert_eq!(states(&mut engine, 30, Some(0.99)), ("none", None), "a peak");
    assert_eq!(states(&mut engine, 10, Some(0.5)), ("none", None));
    assert_eq!(
        states(&mut engine, 31, Some(0.97)),
        ("some", Some(0.97)),
        "for long"
    );
    assert_eq!(states(&mut engine, 30, Some(0.5)), ("some", Some(0.97)), "held");
    assert_eq!(states(&mut engine, 40, Some(0.5)), ("none", None));
    assert_eq!(states(&mut engine, 40, Some(1.0)), ("some", Some(1.0)));
    // The engine tells no more: what it told is not known any more.
    assert_eq!(states(&mut engine, 200, None), ("none", None));
}

#[test]
fn preemptions_count_within_the_window() {
    let mut bench = Bench::new(EngineKind::Vllm);
    let id: Arc<str> = "e".into();
    bench.pass(60, |bench, second| {
        if second == 50 {
            bench.inside.preempted(&id, 1);
        }
    });
    assert_eq!(bench.state(), ("some", vec![("preemptions", "some")]));
    bench.pass(30, |bench, _| bench.inside.preempted(&id, 1));
    assert_eq!(bench.state(), ("severe", vec![("preemptions", "severe")]));
    assert!(bench.last().reasons[0].value >= 20.0);
    bench.pass(200, |_, _| {});
    assert_eq!(bench.state(), ("none", vec![]));
}

#[test]
fn meeting_a_limit_counts_when_tasks_waited_for_it() {
    for (waits, expected) in [
        (Some(1), ("none", vec![])),
        (
            Some(50_000),
            ("some", vec![("cgroup_high", "some"), ("cgroup_max", "some")]),
        ),
        (
            None,
            ("some", vec![("cgroup_high", "some"), ("cgroup_max", "some")]),
        ),
    ] {
        let mut bench = Bench::new(EngineKind::Vllm);
        // Reading weights through the page cache, against the limit all the time.
        bench.pass(120, |bench, second| {
            bench.read(|group| {
                group.events.max = Some(100 * second);
                group.events.high = Some(second);
                group.stalls = waits.map(|us| StallTotals {
                    some_us: us * second,
                    full_us: 0,
                });
            });
        });
        assert_eq!(bench.state(), expected, "{waits:?} µs of each second");
        let cgroup = bench.last().cgroup.expect("it was read");
        assert_eq!(
            (cgroup.limit_bytes, cgroup.headroom_bytes),
            (Some(2 * GIB), Some(GIB))
        );
    }
}

#[test]
fn standing_still_for_memory_is_pressure() {
    let mut bench = Bench::new(EngineKind::LlamaCpp);
    let stalled = |some_us, full_us| Some(StallTotals { some_us, full_us });
    bench.pass(60, |bench, second| {
        bench.read(|group| group.stalls = stalled(200_000 * second, 20_000 * second));
    });
    assert_eq!(bench.state(), ("some", vec![("stall_some", "some")]));
    assert!((bench.last().reasons[0].value - 0.2).abs() < 0.02);
    bench.pass(60, |bench, second| {
        bench.read(|group| {
            group.stalls = stalled(12_000_000 + 700_000 * second, 1_200_000 + 400_000 * second);
        });
    });
    let expected = vec![("stall_full", "severe"), ("stall_some", "some")];
    assert_eq!(bench.state(), ("severe", expected));
    let stalls = bench
        .last()
        .cgroup
        .and_then(|cgroup| cgroup.stalls)
        .expect("told");
    assert_eq!(stalls.scope, StallScope::Cgroup);
    assert!((50.0..54.0).contains(&stalls.some_s), "{stalls:?}");
}

#[test]
fn an_out_of_memory_kill_is_told_at_once() {
    let mut bench = Bench::new(EngineKind::Vllm);
    bench.read(|_| {});
    let before = bench.told.len();
    bench.read(|group| {
        group.events.oom = Some(1);
        group.events.oom_kill = Some(1);
    });
    assert_eq!(
        bench.told.len(),
        before + 1,
        "the engine may be gone the next moment"
    );
    assert_eq!(bench.state(), ("severe", vec![("oom", "severe")]));
    let cgroup = bench.last().cgroup.expect("it was read");
    assert_eq!(cgroup.events.oom_kill, Some(1));
    bench.pass(299, |_, _| {});
    assert_eq!(bench.last().state, PressureState::Severe, "for minutes");
    bench.pass(120, |_, _| {});
    assert_eq!(bench.last().state, PressureState::None);
}

#[test]
fn it_is_told_when_it_changes_and_every_few_seconds_and_ends_with_its_engine() {
    let mut bench = Bench::new(EngineKind::Vllm);
    bench.pass(100, |bench, _| bench.read(|_| {}));
    assert!((20..=25).contains(&bench.told.len()), "{}", bench.told.len());
    bench.told.clear();
    bench.engines.down("e");
    bench.pressure.down("e");
    bench.pass(10, |bench, _| {
        bench.read(|_| {});
        bench.fail(2);
        bench.gpu("GPU-a", 1, 2, Some(&[10]));
    });
    assert_eq!(bench.told, [], "of whom nobody knows nothing is told");
}

proptest! {
    #[test]
    fn whatever_comes_the_reasons_tell_the_state_and_memory_is_bounded(
        steps in proptest::collection::vec((0_u64..8, 0_u8..6, any::<u64>(), any::<u64>()), 0..300),
    ) {
        let mut bench = Bench::new(EngineKind::Generic);
        for (wait, what, a, b) in steps {
            match what {
                0 => bench.gpu("GPU-a", a, b, Some(&[10])),
                1 => bench.gpu(&format!("GPU-{}", a % 200), a % GIB, GIB, Some(&[10, 11])),
                2 => bench.fail((a % 4) as u32),
                3 => bench.read(|group| {
                    group.events.max = Some(a);
                    group.events.oom = (b % 3 > 0).then_some(b);
                    group.stalls = Some(StallTotals { some_us: b, full_us: a });
                    group.current = Some(a);
                    group.max = Some(b);
                }),
                4 => bench.inside.preempted(&"e".into(), a % 40),
                _ => {}
            }
            bench.pass(wait, |_, _| {});
        }
        prop_assert!(bench.pressure.bytes() < 4 << 20);
        for report in &bench.told {
            let worst = report.reasons.iter().map(|reason| reason.state).max().unwrap_or_default();
            prop_assert_eq!(report.state, worst);
            for reason in &report.reasons {
                prop_assert!(reason.value.is_finite() && reason.for_s >= 0.0);
            }
        }
    }
}

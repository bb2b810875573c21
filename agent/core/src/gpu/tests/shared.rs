//! GPUs of several engines, in instances, and without steps.

use super::{Sums, close};
use crate::{
    Nanos,
    gpu::{
        BusySample, GpuProcess, GpuReading, GpuState, Join, Unattributed,
        simulator::{ENGINE, GPU, MS, S, engine_of, reading, shares},
    },
    observation::{EngineStep, StepKind},
};
use std::sync::Arc;

/// Some reading of a GPU that two engines use; `steps`: of the first and the second, in milliseconds.
fn shared(sm: [Option<f64>; 2], steps: [(Nanos, Nanos); 2]) -> Sums {
    let mut join = Join::default();
    let mut out = Vec::new();
    let process = |(tgid, sm)| GpuProcess {
        tgid,
        memory: None,
        sm,
    };
    let processes: Vec<GpuProcess> = [(11, sm[0]), (21, sm[1])].map(process).to_vec();
    let at_work = |since| {
        Arc::new(GpuReading {
            since,
            processes: Some(processes.clone()),
            ..reading(0, Some(100.0), Vec::new(), &[])
        })
    };
    join.read(S, &at_work(None), engine_of);
    for (engine, (from, to)) in [ENGINE, "f"].into_iter().zip(steps) {
        for (from, to) in [(900, 901), (from, to)] {
            let step = EngineStep {
                engine: engine.into(),
                model: None,
                start: Some(from * MS),
                end: to * MS,
                kind: Some(StepKind::Decode),
                prefill_tokens: None,
                decode_tokens: None,
                requests: None,
                source: crate::Source::Engine,
            };
            join.observed(to * MS, &[crate::Observation::Step(Box::new(step))]);
        }
    }
    join.read(2 * S, &at_work(Some(S)), engine_of);
    for tick in 26..200 {
        join.advance(tick * 100 * MS, &mut out);
    }
    Sums::of(&shares(out))
}

#[test]
fn a_shared_gpu_is_whose_step_ran_and_overlap_is_divided_only_as_the_driver_tells() {
    let steps = [(1200, 1500), (1400, 1800)];
    let decode = |sums: &Sums, engine: &str| {
        let sum = sums.states.get(&(engine.to_owned(), GpuState::Decode));
        sum.copied().unwrap_or_default().0
    };
    let sums = shared([None; 2], steps);
    close("only e", decode(&sums, ENGINE), 0.2, 1e-9);
    close("only f", decode(&sums, "f"), 0.3, 1e-9);
    close("both", sums.unattributed[&Unattributed::Shared].0, 0.1, 1e-9);
    close("all", sums.seconds(), 1.0, 1e-9);
    close("energy", sums.joules(), 100.0, 1e-9);
    let sums = shared([Some(0.6), Some(0.2)], steps);
    close("e", decode(&sums, ENGINE), 0.275, 1e-9);
    close("f", decode(&sums, "f"), 0.325, 1e-9);
    assert!(sums.unattributed.is_empty());
    close("all", sums.seconds(), 1.0, 1e-9);
}

#[test]
fn the_energy_of_a_gpu_in_instances_is_the_whole_ones_and_its_time_the_instances() {
    let mut join = Join::default();
    let mut out = Vec::new();
    for at in [S, 2 * S] {
        let since = (at > S).then_some(S);
        let whole = GpuReading {
            since,
            ..reading(0, Some(50.0), Vec::new(), &[])
        };
        join.read(at, &Arc::new(whole), engine_of);
        for (uuid, tgid) in [("MIG-a", 11), ("MIG-b", 21)] {
            let instance = GpuReading {
                uuid: uuid.into(),
                parent: Some(GPU.into()),
                since,
                ..reading(0, None, Vec::new(), &[tgid])
            };
            join.read(at, &Arc::new(instance), engine_of);
        }
    }
    for tick in 0..100 {
        join.advance(2 * S + tick * 100 * MS, &mut out);
    }
    let sums = Sums::of(&shares(out));
    close("seconds", sums.seconds(), 2.0, 1e-9);
    close("energy", sums.joules(), 50.0, 1e-9);
    close(
        "nothing tells how much each did",
        sums.unattributed[&Unattributed::Shared].1,
        50.0,
        1e-9,
    );
}

#[test]
fn without_steps_only_an_idle_gpu_is_known() {
    let mut join = Join::default();
    let mut out = Vec::new();
    let busy = |ratios: [f64; 4]| {
        let samples = ratios.into_iter().zip(1..);
        samples
            .map(|(ratio, part)| BusySample {
                end: S + part * 250 * MS,
                ratio,
            })
            .collect()
    };
    let samples = reading(S, None, busy([0.0, 0.0, 0.7, 0.0]), &[11]);
    join.read(2 * S, &Arc::new(samples), engine_of);
    join.advance(5 * S, &mut out);
    let sums = Sums::of(&shares(out));
    close("idle", sums.state(GpuState::Idle).0, 0.75, 1e-9);
    close("unknown", sums.state(GpuState::Unknown).0, 0.25, 1e-9);
    assert!(sums.phases == [0.0; 2] && sums.whole.is_empty());
}

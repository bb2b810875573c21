//! GPUs, CUDA calls and a conversation through the whole core: whose the time and the energy were.

mod support;

use infertap_abi::Role;
use infertap_core::{
    Event, EventKind, Observation, Pipeline, Source,
    gpu::{BusySample, CudaBurst, GpuProcess, GpuReading, GpuShare, GpuState, TokenPhase},
};
use std::{collections::BTreeMap, sync::Arc};
use support::*;

const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;

fn give(pipeline: &mut Pipeline, at: u64, kind: EventKind<'_>, out: &mut Vec<Observation>) {
    pipeline.handle(Event { at, kind }, out);
}

/// Milliseconds after one second, as for rows.
fn burst(from: u64, to: u64, kernels: u32, graphs: u32) -> EventKind<'static> {
    let (begin, end) = (S + from * MS, S + to * MS);
    EventKind::CudaBurst(CudaBurst {
        tgid: TGID,
        tid: 9,
        begin,
        last_launch: begin,
        wait: begin + MS,
        end,
        kernels,
        graphs,
    })
}

fn reading(since: Option<u64>, joules: f64, busy: Vec<BusySample>) -> EventKind<'static> {
    EventKind::Gpu(Arc::new(GpuReading {
        uuid: "GPU-1".into(),
        parent: None,
        since,
        energy_j: Some(joules),
        busy,
        memory_used: None,
        memory_total: None,
        processes: Some(vec![GpuProcess {
            tgid: TGID,
            memory: None,
            sm: None,
        }]),
    }))
}

/// A prompt from 110 to 610 ms, ten tokens of 20 ms each, and two seconds of readings of 100 J each.
fn played() -> Vec<Observation> {
    let mut pipeline = pipeline(Some("m"));
    let socket = socket(1, Role::Accepted, false);
    let mut wire = Wire::new(socket);
    let mut out = Vec::new();
    give(&mut pipeline, S, reading(None, 0.0, Vec::new()), &mut out);
    give(&mut pipeline, S, EventKind::Open(socket), &mut out);
    out.extend(play_on(&mut pipeline, &mut wire, &[(100, In(ask()))]));
    give(&mut pipeline, S + 610 * MS, burst(110, 610, 400, 0), &mut out);
    out.extend(play_on(
        &mut pipeline,
        &mut wire,
        &[(611, Out(stream_head())), (611, Out(word()))],
    ));
    for step in 0..10 {
        let from = 612 + step * 21;
        give(
            &mut pipeline,
            S + (from + 20) * MS,
            burst(from, from + 20, 9, 1),
            &mut out,
        );
        out.extend(play_on(&mut pipeline, &mut wire, &[(from + 21, Out(word()))]));
    }
    let end = [
        (823, Out(stop())),
        (823, Out(usage(100, 11))),
        (824, Out(done())),
        (824, Out(last_chunk())),
    ];
    out.extend(play_on(&mut pipeline, &mut wire, &end));
    for second in 1..3 {
        let at = (second + 1) * S;
        let busy = if second == 1 {
            Vec::new()
        } else {
            vec![BusySample { end: at, ratio: 0.0 }]
        };
        give(&mut pipeline, at, reading(Some(at - S), 100.0, busy), &mut out);
    }
    for tick in 30..200 {
        pipeline.advance(tick * 100 * MS, &mut out);
    }
    check_pairing(&out);
    out
}

#[test]
fn a_conversation_has_the_gpu_of_its_steps() {
    let out = played();
    let record = records(&out)[0];
    assert_eq!(record.sources.t1, Some(Source::Estimate));
    assert_eq!(record.t1_ns, Some(S + 110 * MS), "the first launch");
    let mut seconds: BTreeMap<GpuState, f64> = BTreeMap::new();
    let (mut of_states, mut charged, mut uncharged, mut whole) = (0.0, [0.0; 2], 0.0, None);
    for share in out.iter().filter_map(|o| match o {
        Observation::Gpu(share) => Some(share),
        _ => None,
    }) {
        match share {
            GpuShare::Engine {
                state,
                seconds: more,
                joules,
                ..
            } => {
                *seconds.entry(*state).or_default() += more;
                of_states += joules.unwrap_or(0.0);
            }
            GpuShare::Request {
                labels,
                phase,
                joules,
                ..
            } => {
                assert_eq!(&*labels.model, "m");
                charged[*phase as usize] += joules;
            }
            GpuShare::Uncharged { joules, .. } => uncharged += joules,
            GpuShare::Whole { id, joules } => whole = Some((id.clone(), *joules)),
            GpuShare::Unattributed { .. } => panic!("{share:?}"),
        }
    }
    let near = |name: &str, told: f64, truth: f64| {
        assert!(
            (told - truth).abs() < 1e-6,
            "{name}: {told} told, {truth} in truth"
        );
    };
    near("prefill", seconds[&GpuState::Prefill], 0.5);
    near("decode", seconds[&GpuState::Decode], 0.2);
    near("all", seconds.values().sum(), 2.0);
    near("energy", of_states, 200.0);
    near("prompt", charged[TokenPhase::Prefill as usize], 50.0);
    near("generated", charged[TokenPhase::Decode as usize], 20.0);
    near("not a request's", uncharged, 130.0);
    let (id, joules) = whole.expect("known");
    assert_eq!(id, record.id);
    near("record", joules, 70.0);
}

#[test]
fn the_same_events_give_the_same_observations() {
    assert_eq!(format!("{:?}", played()), format!("{:?}", played()));
}

//! What holds for the join whatever comes, in whatever order.

use super::{Sums, close};
use crate::{
    gpu::{
        BusySample, CudaBurst, Join,
        simulator::{self, ENGINE, Job, MS, Machine, S, Told, engine_of, feed, reading, run, shares},
    },
    observation::{EngineStep, StepKind},
};
use proptest::prelude::*;
use std::sync::Arc;

/// Some second of requests that come and go at random.
fn busy_jobs(seed: u64) -> Vec<Job> {
    let mut at = 200 * MS;
    let mut next = seed;
    let mut random = move |below: u64| {
        next = next
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (next >> 33) % below
    };
    (0..12)
        .map(|_| {
            at += random(500) * MS;
            Job {
                at,
                prompt: 1 + random(300),
                output: 1 + random(40),
                streams: random(4) > 0,
            }
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// What comes late by up to a second, in whatever order, comes to the same.
    #[test]
    fn the_order_of_events_does_not_matter(
        seed in any::<u64>(),
        tells in any::<bool>(),
        delays in proptest::collection::vec(0..1_000 * MS, 50),
    ) {
        let machine = Machine { tells, end: 12 * S, budget: 200, ..Machine::default() };
        let run = run(&machine, &busy_jobs(seed));
        let straight = Sums::of(&feed(&run.told, |_| 0));
        // What one connection shows comes in order; all else comes as it likes.
        let source = |index: usize| match &run.told[index].1 {
            Told::Arrived(id, _) | Told::Chunk(id) | Told::Finished(id, _) => *id as usize,
            _ => index,
        };
        let shuffled = Sums::of(&feed(&run.told, |index| delays[source(index) % delays.len()]));
        close("seconds", straight.seconds(), 12.0, 1e-9);
        close("joules", straight.joules(), run.joules, 1e-9);
        close("charged", straight.charged(), straight.of_engines(), 1e-6);
        for (key, sum) in &straight.states {
            let other = shuffled.states.get(key).copied().unwrap_or_default();
            close(&format!("{key:?}"), other.0, sum.0, 1e-6);
            close(&format!("{key:?}"), other.1, sum.1, 1e-6);
        }
        prop_assert_eq!(straight.states.len(), shuffled.states.len());
        close("prefill", shuffled.phases[0], straight.phases[0], 1e-6);
        close("decode", shuffled.phases[1], straight.phases[1], 1e-6);
    }

    /// Whatever comes: no panic, bounded memory, and all seconds and joules of what is settled are somewhere.
    #[test]
    fn any_events_add_up(
        events in proptest::collection::vec((0u8..7, 0u64..40_000, 0u64..3000, 0u64..6, 0u32..500), 0..300),
    ) {
        let mut join = Join::default();
        let mut out = Vec::new();
        let (mut seconds, mut joules) = (0.0, 0.0);
        let mut now = 0;
        let mut read_until = 0;
        for (what, at, length, id, count) in events {
            let (from, at) = (at.saturating_sub(length) * MS, at * MS);
            let told = match what {
                0 => Told::Arrived(id, count % 2 > 0),
                1 => Told::Chunk(id),
                2 => Told::Finished(id, simulator::finished(id, from, at, u64::from(count))),
                3 => Told::Burst(CudaBurst {
                    tgid: 11, tid: count % 2, begin: from, last_launch: at, wait: at, end: at,
                    kernels: count, graphs: count % 3,
                }),
                4 => Told::Step(Box::new(EngineStep {
                    engine: ENGINE.into(), model: None, start: (count % 5 > 0).then_some(from), end: at,
                    kind: StepKind::ALL.get(count as usize % 4).copied(),
                    prefill_tokens: (count % 7 == 0).then_some(u64::from(count)),
                    decode_tokens: None, requests: None, source: crate::Source::Engine,
                })),
                5 => {
                    let (since, at) = (read_until, read_until + (1 + length) * MS);
                    read_until = at;
                    seconds += (at - since) as f64 / 1e9;
                    joules += f64::from(count);
                    let busy = vec![BusySample { end: (since + at) / 2, ratio: f64::from(count % 2) }];
                    let tgids: &[u32] = if count % 3 == 0 { &[11, 21, 99] } else { &[11] };
                    join.read(at, &Arc::new(reading(since, Some(f64::from(count)), busy, tgids)), engine_of);
                    continue;
                }
                _ => {
                    now = at.max(now);
                    join.advance(now, &mut out);
                    continue;
                }
            };
            simulator::give(&mut join, &(at, told));
        }
        join.down(ENGINE, now);
        join.down("f", now);
        for _ in 0..4 {
            now = now.max(read_until) + 100 * S;
            join.advance(now, &mut out);
        }
        let sums = Sums::of(&shares(out));
        close("seconds", sums.seconds(), seconds, 1e-9);
        close("joules", sums.joules(), joules, 1e-9);
        close("charged", sums.charged(), sums.of_engines(), 1e-6);
        close("charged seconds", sums.charged_seconds, sums.seconds_of_engines(), 1e-6);
        prop_assert!(join.bytes() < 1 << 20);
    }
}

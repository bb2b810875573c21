//! Inference scored on simulated engines, also such as break its assumptions; and what holds for any input.

use super::simulator::{Job, MS, Machine, Order, Random, Run, Seen, jobs, run};
use super::*;
use proptest::prelude::*;

const ENGINE: &str = "e";

/// What was inferred of each job: T1, and whether it lies within the bounds of truth and of its stated error.
#[derive(Debug, Default)]
struct Score {
    jobs: usize,
    told: usize,
    /// Errors of T1 of those whose queue, or prefill, was told: nanoseconds, and the phase.
    queue: Vec<(Nanos, Nanos)>,
    prefill: Vec<(Nanos, Nanos)>,
    within_stated: usize,
    /// The stated errors of those that were told, together.
    stated: Nanos,
}

impl Score {
    fn part_good(phases: &[(Nanos, Nanos)]) -> f64 {
        let good = phases
            .iter()
            .filter(|(error, phase)| *error <= WORTH_NS.max(phase / 5))
            .count();
        good as f64 / phases.len().max(1) as f64
    }

    fn median(phases: &[(Nanos, Nanos)]) -> (Nanos, Nanos) {
        let mut sorted = phases.to_vec();
        sorted.sort_unstable();
        sorted.get(sorted.len() / 2).copied().unwrap_or_default()
    }
}

/// Feeds what the sockets showed from `from` on, and compares.
fn score(jobs: &[Job], run: &Run, from: Nanos) -> Score {
    score_with(jobs, run, from, &[])
}

/// As [`score`], with bursts of CUDA calls.
fn score_with(jobs: &[Job], run: &Run, from: Nanos, bursts: &[(Nanos, Nanos)]) -> Score {
    let mut infer = Infer::default();
    let mut bursts = bursts.iter().peekable();
    let engine: Arc<str> = ENGINE.into();
    let mut score = Score::default();
    for (at, job, seen) in run.seen.iter().filter(|(at, ..)| *at >= from) {
        while let Some((begin, _)) = bursts.next_if(|(_, end)| end <= at) {
            infer.burst(&engine, begin + MS);
        }
        let id = *job as u64;
        let facts = &jobs[*job];
        match seen {
            Seen::Arrived => infer.arrived(&engine, id, *at),
            Seen::Chunk => infer.chunk(&engine, id, 0, *at),
            Seen::Ended => {
                let prompt = Prompt {
                    tokens: Some(facts.prompt),
                    cached: Some(facts.cached),
                };
                let estimate = infer.ended(ENGINE, id, *at, prompt);
                let (t1, t2) = run.truth[*job];
                score.jobs += 1;
                let Some(estimate) = estimate else { continue };
                let error = estimate.t1.abs_diff(t1);
                let queue = estimate.holds_for(estimate.t1.saturating_sub(facts.t0));
                let prefill = facts.streamed && estimate.holds_for(t2.saturating_sub(estimate.t1));
                score.told += usize::from(queue || prefill);
                score.stated += if queue || prefill { estimate.error } else { 0 };
                score.within_stated += usize::from((queue || prefill) && error <= estimate.error);
                if queue {
                    score.queue.push((error, t1 - facts.t0));
                }
                if prefill {
                    score.prefill.push((error, t2 - t1));
                }
            }
        }
    }
    score
}

fn simulate(machine: &Machine, pause: Nanos, documents: u64, seed: u64) -> Score {
    let mut random = Random(seed);
    let jobs = jobs(200, pause, documents, &mut random);
    let run = run(machine, &jobs, &mut random);
    score(&jobs, &run, 0)
}

/// Engines that keep to the assumptions: most requests are told, and nearly all of them right.
#[test]
fn queue_and_prefill_are_found_on_engines_of_many_kinds() {
    let base = Machine::default;
    let cases: [(&str, Machine, Nanos, u64, f64); 8] = [
        ("idle most of the time", base(), 4_000 * MS, 0, 0.9),
        ("places now and then taken", base(), 700 * MS, 0, 0.7),
        ("more requests than places", base(), 350 * MS, 0, 0.7),
        ("a third not streamed", base(), 350 * MS, 33, 0.5),
        (
            "chunked prefill",
            Machine {
                budget: 256,
                places: 8,
                ..base()
            },
            400 * MS,
            0,
            0.4,
        ),
        (
            "speculative decoding",
            Machine {
                tokens_a_step: 4,
                ..base()
            },
            300 * MS,
            0,
            0.6,
        ),
        (
            "a busy batch with places to spare",
            Machine {
                places: 64,
                budget: 512,
                ..base()
            },
            300 * MS,
            0,
            0.4,
        ),
        (
            "steps that vary",
            Machine { noise: 40, ..base() },
            400 * MS,
            10,
            0.5,
        ),
    ];
    let mut failures = Vec::new();
    for (name, machine, pause, documents, told) in cases {
        for seed in 1..=2 {
            let score = simulate(&machine, pause, documents, seed);
            let (queue, prefill) = (Score::part_good(&score.queue), Score::part_good(&score.prefill));
            let stated = score.within_stated as f64 / score.told.max(1) as f64;
            let part = score.told as f64 / score.jobs as f64;
            let line = format!(
                "{name}: told {part:.2}, good queue {queue:.3} prefill {prefill:.3}, within the stated error {stated:.2}, median errors {:?} {:?}",
                Score::median(&score.queue),
                Score::median(&score.prefill)
            );
            if part < told || queue < 0.95 || prefill < 0.9 || stated < 0.85 {
                failures.push(line);
            } else {
                println!("{line}");
            }
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

/// Engines that break the assumptions: what is told is mostly right all the same.
#[test]
fn on_engines_that_break_the_assumptions_what_is_told_is_mostly_right() {
    let base = Machine::default;
    let cases: [(&str, Machine, Nanos); 3] = [
        (
            "memory decides, not places",
            Machine {
                places: 64,
                memory: 6_000,
                ..base()
            },
            350 * MS,
        ),
        (
            "the last to come is the first to start",
            Machine {
                order: Order::LastCome,
                ..base()
            },
            400 * MS,
        ),
        (
            "one place and no order to see",
            Machine {
                places: 1,
                order: Order::LastCome,
                ..base()
            },
            900 * MS,
        ),
    ];
    let mut failures = Vec::new();
    for (name, machine, pause) in cases {
        for seed in 1..=2 {
            let score = simulate(&machine, pause, 20, seed);
            let (queue, prefill) = (Score::part_good(&score.queue), Score::part_good(&score.prefill));
            let line = format!(
                "{name}: told {}/{}, good queue {queue:.3} prefill {prefill:.3}",
                score.told, score.jobs
            );
            if queue < 0.85 || prefill < 0.8 {
                failures.push(line);
            } else {
                println!("{line}");
            }
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

/// Where CUDA calls show when steps begin, what is told is nearer, says so, and is more.
#[test]
fn cuda_bursts_make_starts_sharper() {
    for pause in [4_000, 350] {
        let mut random = Random(3);
        let jobs = jobs(200, pause * MS, 10, &mut random);
        let run = run(&Machine::default(), &jobs, &mut random);
        let [without, with] = [&[][..], &run.steps].map(|bursts| score_with(&jobs, &run, 0, bursts));
        let mean = |score: &Score| score.stated / score.told.max(1) as u64;
        println!(
            "{pause}: {} {} of {}, stated {} {}, held {} {}",
            without.told,
            with.told,
            with.jobs,
            mean(&without),
            mean(&with),
            without.within_stated,
            with.within_stated
        );
        assert!(with.told >= without.told);
        assert!(mean(&with) * 2 < mean(&without));
        assert!(with.within_stated as f64 >= 0.85 * with.told as f64);
        assert!(Score::part_good(&with.queue) >= Score::part_good(&without.queue));
        assert!(Score::median(&with.queue).0 <= 2 * MS);
    }
}

#[test]
fn an_agent_that_comes_late_does_not_take_hidden_requests_for_an_idle_engine() {
    let mut random = Random(7);
    let jobs = jobs(120, 250 * MS, 50, &mut random);
    let run = run(&Machine::default(), &jobs, &mut random);
    let from = jobs[60].t0;
    let score = score(&jobs, &run, from);
    assert!(score.told > 0, "{score:?}");
    assert!(Score::part_good(&score.queue) > 0.95, "{score:?}");
}

/// What the sockets of two engines behind one front end show: every other job goes to the other engine.
fn run_two(all: &[Job], random: &mut Random) -> Run {
    let mut both = Run {
        seen: Vec::new(),
        truth: vec![(0, 0); all.len()],
        steps: Vec::new(),
    };
    for parity in 0..2 {
        let half: Vec<Job> = all.iter().skip(parity).step_by(2).cloned().collect();
        let run = run(&Machine::default(), &half, random);
        let joint = |job: usize| 2 * job + parity;
        both.seen
            .extend(run.seen.into_iter().map(|(at, job, seen)| (at, joint(job), seen)));
        for (job, truth) in run.truth.into_iter().enumerate() {
            both.truth[joint(job)] = truth;
        }
    }
    both.seen.sort_unstable();
    both
}

/// Two schedulers behind one front end: their steps interleave, and no clock is made of that. The more often both are at
/// work, the less is told; what is told is mostly of requests that were alone.
#[test]
fn two_schedulers_behind_one_front_end_are_not_taken_for_one() {
    let mut failures = Vec::new();
    // Milliseconds between arrivals, and the part that may be told.
    for (pause, told) in [(100, 0.05), (200, 0.1), (350, 0.2), (700, 0.5), (1500, 1.0)] {
        for seed in 1..=3 {
            let mut random = Random(seed);
            let all = jobs(240, pause * MS, 0, &mut random);
            let both = run_two(&all, &mut random);
            let score = score(&all, &both, 0);
            let bad = |phases: &[(Nanos, Nanos)]| (1.0 - Score::part_good(phases)) * phases.len() as f64;
            let wrong = bad(&score.queue).max(bad(&score.prefill));
            let line = format!(
                "{pause} ms, seed {seed}: told {} of {}, wrong {wrong:.0}, within the stated error {}",
                score.told, score.jobs, score.within_stated
            );
            let jobs = score.jobs as f64;
            if score.told as f64 > told * jobs || wrong > 0.03 * jobs {
                failures.push(line);
            } else {
                println!("{line}");
            }
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

#[test]
fn a_lone_request_waited_for_nothing() {
    let engine: Arc<str> = ENGINE.into();
    let mut infer = Infer::default();
    infer.arrived(&engine, 1, 1_000 * MS);
    infer.chunk(&engine, 1, 0, 1_500 * MS);
    let estimate = infer
        .ended(ENGINE, 1, 1_600 * MS, Prompt::default())
        .expect("told");
    assert_eq!((estimate.t1, estimate.error), (1_000 * MS, 10 * MS));
    assert!(estimate.holds_for(0) && estimate.holds_for(500 * MS));
    infer.down(ENGINE);
    assert_eq!(infer.ended(ENGINE, 1, 1_700 * MS, Prompt::default()), None);
}

#[test]
fn a_phase_is_told_only_when_its_error_is_small_for_it() {
    let estimate = Estimate {
        t1: 0,
        error: 50 * MS,
    };
    assert!(estimate.holds_for(250 * MS) && !estimate.holds_for(240 * MS));
    let estimate = Estimate {
        t1: 0,
        error: 20 * MS,
    };
    assert!(estimate.holds_for(0));
}

proptest! {
    /// Whatever comes, in whatever order: no panic, T1 between T0 and T2, bounded memory.
    #[test]
    fn any_events_give_ordered_times(
        events in proptest::collection::vec((0u64..12, 0u8..3, 0u64..5_000_000_000, 0u32..2), 0..400),
    ) {
        let engine: Arc<str> = ENGINE.into();
        let mut infer = Infer::default();
        let mut times: HashMap<u64, (Option<Nanos>, Option<Nanos>)> = HashMap::new();
        for (id, kind, at, choice) in events {
            let known = times.entry(id).or_default();
            match kind {
                0 => {
                    infer.arrived(&engine, id, at);
                    *known = (Some(at), None);
                }
                1 => {
                    infer.chunk(&engine, id, choice, at);
                    known.1 = known.1.or(Some(at));
                }
                _ => {
                    let prompt = Prompt { tokens: Some(at % 999), cached: Some(at % 1000) };
                    let estimate = infer.ended(ENGINE, id, at, prompt);
                    let (t0, t2) = times.remove(&id).unwrap_or_default();
                    if let Some(estimate) = estimate {
                        let t0 = t0.expect("told only with an arrival");
                        prop_assert!(estimate.t1 >= t0);
                        prop_assert!(t2.is_none_or(|t2| estimate.t1 <= t2));
                    }
                }
            }
        }
        prop_assert!(infer.bytes() < 1 << 20);
    }
}

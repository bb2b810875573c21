//! The join scored on a simulated engine, and what holds for anything that comes.

mod properties;
mod shared;

use super::simulator::{
    ENGINE, Job, MS, Machine, Run, S, SAMPLE, Told, engine_of, feed, reading, run, shares,
};
use super::*;
use std::collections::BTreeMap;

/// What was told, added up.
#[derive(Debug, Default)]
struct Sums {
    states: BTreeMap<(String, GpuState), (f64, f64)>,
    unattributed: BTreeMap<Unattributed, (f64, f64)>,
    phases: [f64; 2],
    uncharged: BTreeMap<Uncharged, f64>,
    whole: BTreeMap<String, f64>,
    /// Seconds of requests, and those that are none's.
    charged_seconds: f64,
}

impl Sums {
    fn of(shares: &[GpuShare]) -> Sums {
        let mut sums = Sums::default();
        for share in shares {
            match share {
                GpuShare::Engine {
                    engine,
                    state,
                    seconds,
                    joules,
                } => {
                    let sum = sums.states.entry((engine.to_string(), *state)).or_default();
                    sum.0 += seconds;
                    sum.1 += joules.unwrap_or(0.0);
                    assert!(*seconds >= 0.0 && joules.is_none_or(|j| j >= -1e-9), "{share:?}");
                }
                GpuShare::Unattributed {
                    reason,
                    seconds,
                    joules,
                    ..
                } => {
                    let sum = sums.unattributed.entry(*reason).or_default();
                    sum.0 += seconds;
                    sum.1 += joules.unwrap_or(0.0);
                }
                GpuShare::Request {
                    phase,
                    seconds,
                    joules,
                    ..
                } => {
                    assert!(*joules >= -1e-9 && *seconds >= -1e-9, "{share:?}");
                    sums.charged_seconds += seconds;
                    sums.phases[*phase as usize] += joules;
                }
                GpuShare::Uncharged {
                    reason,
                    seconds,
                    joules,
                    ..
                } => {
                    sums.charged_seconds += seconds;
                    *sums.uncharged.entry(*reason).or_default() += joules;
                }
                GpuShare::Whole { id, joules } => {
                    assert!(sums.whole.insert(id.clone(), *joules).is_none(), "told once");
                }
            }
        }
        sums
    }

    fn state(&self, state: GpuState) -> (f64, f64) {
        self.states
            .get(&(ENGINE.to_owned(), state))
            .copied()
            .unwrap_or_default()
    }

    fn seconds(&self) -> f64 {
        let all = self.states.values().chain(self.unattributed.values());
        all.map(|sum| sum.0).sum()
    }

    fn joules(&self) -> f64 {
        let all = self.states.values().chain(self.unattributed.values());
        all.map(|sum| sum.1).sum()
    }

    /// Energy of engines, by whose it was.
    fn charged(&self) -> f64 {
        self.phases.iter().sum::<f64>() + self.uncharged.values().sum::<f64>()
    }

    fn seconds_of_engines(&self) -> f64 {
        self.states.values().map(|sum| sum.0).sum()
    }

    fn of_engines(&self) -> f64 {
        self.states.values().map(|sum| sum.1).sum()
    }
}

fn job(at: Nanos, prompt: u64, output: u64) -> Job {
    Job {
        at,
        prompt,
        output,
        streams: true,
    }
}

/// Long phases of every kind: an idle start, a prompt, generation, a second prompt beside it, idle again.
fn phases() -> Vec<Job> {
    vec![
        job(3 * S, 1900, 150),
        job(12 * S, 2000, 300),
        job(16 * S, 1500, 100),
        job(16 * S + MS, 1800, 100),
    ]
}

fn close(name: &str, told: f64, truth: f64, part: f64) {
    assert!(
        (told - truth).abs() <= truth.abs() * part + 1e-6,
        "{name}: {told:.4} told, {truth:.4} in truth"
    );
}

fn hold(name: &str, run: &Run, sums: &Sums, part: f64) {
    println!("{name}: {sums:?}\n{:?}", run.states);
    close(name, sums.joules(), run.joules, 1e-9);
    close(name, sums.charged(), sums.of_engines(), 1e-9);
    close(name, sums.charged_seconds, sums.seconds_of_engines(), 1e-9);
    let all: f64 = run.states.values().map(|state| state.0).sum();
    close(name, sums.seconds(), all, 1e-9);
    for state in GpuState::ALL {
        let truth = run.states.get(&state).copied().unwrap_or_default();
        let told = sums.state(state);
        // Before the first step that is ever seen: the driver's sample that spans a reading's end and that step's begin.
        let told = if truth.0 == 0.0 && told.0 < SAMPLE as f64 / 1e9 {
            truth
        } else {
            told
        };
        close(&format!("{name}: seconds {state:?}"), told.0, truth.0, part);
        close(&format!("{name}: joules {state:?}"), told.1, truth.1, part);
    }
}

#[test]
fn known_phases_are_told_within_two_percent() {
    let base = Machine::default;
    let cases = [
        ("told", base()),
        (
            "graphs",
            Machine {
                tells: false,
                ..base()
            },
        ),
        (
            "kernels one by one",
            Machine {
                tells: false,
                eager: true,
                ..base()
            },
        ),
        (
            "prompts in parts",
            Machine {
                tells: false,
                budget: 512,
                ..base()
            },
        ),
        (
            "chunks that come late",
            Machine {
                tells: false,
                late: 8 * MS,
                ..base()
            },
        ),
    ];
    for (name, machine) in cases {
        let run = run(&machine, &phases());
        let sums = Sums::of(&feed(&run.told, |_| 0));
        hold(name, &run, &sums, 0.02);
        assert_eq!(sums.state(GpuState::IdleWhileQueued), (0.0, 0.0), "{name}");
        for phase in TokenPhase::ALL {
            let truth: f64 = run.requests.values().map(|joules| joules[phase as usize]).sum();
            close(
                &format!("{name}: {phase:?}"),
                sums.phases[phase as usize],
                truth,
                0.02,
            );
        }
        for (id, joules) in &run.requests {
            let told = sums.whole.get(&id.to_string()).copied().expect("whole");
            close(&format!("{name}: request {id}"), told, joules.iter().sum(), 0.03);
        }
    }
}

#[test]
fn time_in_which_requests_wait_for_the_processor_is_told() {
    // With one slot, requests wait behind others first, and for the scheduler then.
    for (tells, slots) in [(true, 4), (false, 4), (true, 1), (false, 1)] {
        let machine = Machine {
            tells,
            slots,
            stall: 2 * S,
            end: 40 * S,
            ..Machine::default()
        };
        let run = run(&machine, &phases());
        assert!(run.states[&GpuState::IdleWhileQueued].0 > 5.0);
        let sums = Sums::of(&feed(&run.told, |_| 0));
        hold(&format!("stall, {slots} slots"), &run, &sums, 0.02);
    }
}

#[test]
fn a_response_that_shows_no_tokens_is_charged_with_its_steps() {
    for tells in [true, false] {
        let machine = Machine {
            tells,
            ..Machine::default()
        };
        let jobs: Vec<Job> = phases()
            .into_iter()
            .take(2)
            // The first shows what a decode step is like.
            .map(|job| Job {
                streams: job.at < 10 * S,
                ..job
            })
            .collect();
        let run = run(&machine, &jobs);
        let sums = Sums::of(&feed(&run.told, |_| 0));
        hold("document", &run, &sums, if tells { 0.02 } else { 0.06 });
        for (id, joules) in &run.requests {
            let told = sums.whole.get(&id.to_string()).copied().expect("whole");
            close("document", told, joules.iter().sum(), 0.03);
        }
    }
}

#[test]
fn work_that_the_driver_saw_and_nobody_told_is_not_called_idle() {
    let mut run = run(&Machine::default(), &phases());
    // From the twelfth second on the engine's steps are not told any more.
    run.told
        .retain(|(at, told)| *at < 11 * S || matches!(told, Told::Read(_)));
    let sums = Sums::of(&feed(&run.told, |_| 0));
    let busy: f64 = [GpuState::Prefill, GpuState::Decode, GpuState::Mixed]
        .iter()
        .map(|state| run.states.get(state).map_or(0.0, |sum| sum.0))
        .sum();
    let told = sums.state(GpuState::Prefill).0 + sums.state(GpuState::Decode).0;
    let unknown = sums.state(GpuState::Unknown).0;
    assert!(unknown > 0.3 * (busy - told) && unknown < busy - told, "{sums:?}");
}

#[test]
fn what_comes_when_its_time_is_settled_is_counted() {
    let mut join = Join::default();
    let mut out = Vec::new();
    join.read(S, &Arc::new(reading(0, Some(1.0), Vec::new(), &[11])), engine_of);
    for tick in 0..100 {
        join.advance(S + tick * 100 * MS, &mut out);
    }
    let burst = CudaBurst {
        tgid: 11,
        tid: 11,
        begin: 2 * S,
        last_launch: 2 * S,
        wait: 2 * S,
        end: 2 * S + MS,
        kernels: 1,
        graphs: 0,
    };
    join.burst(&ENGINE.into(), burst);
    join.read(S, &Arc::new(reading(0, Some(1.0), Vec::new(), &[11])), engine_of);
    for tick in 100..110 {
        join.advance(S + tick * 100 * MS, &mut out);
    }
    assert_eq!(join.take_lost(), (2, 0));
    close("once", Sums::of(&shares(out)).joules(), 1.0, 1e-9);
}

#[test]
fn an_engine_that_goes_leaves_nothing_behind_and_may_come_again() {
    let run = run(&Machine::default(), &phases()[..1]);
    let mut join = Join::default();
    let mut out = Vec::new();
    let mut now = 0;
    for told in &run.told {
        while now + 100 * MS <= told.0 {
            now += 100 * MS;
            join.advance(now, &mut out);
        }
        if told.0 < 5 * S {
            simulator::give(&mut join, told);
        } else if let Told::Read(reading) = &told.1 {
            // Its processes are gone.
            join.read(told.0, reading, |_| None);
        }
        if told.0 == 5 * S {
            join.down(ENGINE, told.0);
        }
    }
    for _ in 0..1000 {
        now += 100 * MS;
        join.advance(now, &mut out);
    }
    let sums = Sums::of(&shares(out));
    close("energy", sums.joules(), run.joules, 1e-9);
    close("charged", sums.charged(), sums.of_engines(), 1e-9);
    assert!(join.bytes() < 4096, "{}", join.bytes());
}

#[test]
fn without_a_gpu_nothing_is_followed() {
    let run = run(&Machine::default(), &phases());
    let mut join = Join::default();
    let mut out = Vec::new();
    for told in run.told.iter().filter(|told| !matches!(told.1, Told::Read(_))) {
        simulator::give(&mut join, told);
        join.advance(told.0, &mut out);
    }
    assert!(out.is_empty() && join.bytes() == 0);
}

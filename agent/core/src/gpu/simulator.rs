//! A deterministic engine on a GPU, to score the join against what it really did.
//!
//! Owns: steps with their kinds and tokens, what is told of them, and the readings of the GPU. Refuses: judging.

use super::{BusySample, CudaBurst, GpuProcess, GpuReading, GpuState, Join, TokenPhase, timeline::idle};
use crate::{
    Nanos, Observation, Source,
    observation::{EngineStep, Finished, Labels, StepKind},
};
use serde_json::json;
use std::{collections::BTreeMap, sync::Arc};

pub(super) const MS: Nanos = 1_000_000;
pub(super) const S: Nanos = 1_000_000_000;
pub(super) const ENGINE: &str = "e";
pub(super) const GPU: &str = "GPU-1";
/// Watts when idle, and when a step of each kind runs.
const IDLE: f64 = 60.0;
/// The driver's own sampling, which is not in step with readings.
pub(super) const SAMPLE: Nanos = 23 * MS;
const WATTS: [(StepKind, f64); 3] = [
    (StepKind::Prefill, 400.0),
    (StepKind::Decode, 250.0),
    (StepKind::Mixed, 350.0),
];

#[derive(Debug, Clone)]
pub(super) struct Job {
    pub(super) at: Nanos,
    pub(super) prompt: u64,
    pub(super) output: u64,
    pub(super) streams: bool,
}

/// An engine and what it shows.
#[derive(Debug, Clone)]
pub(super) struct Machine {
    /// It tells its steps; else its CUDA calls show them.
    pub(super) tells: bool,
    /// It launches kernels one by one when it decodes too.
    pub(super) eager: bool,
    /// Requests that run at once; others wait.
    pub(super) slots: usize,
    /// Processor time before a step with a new request.
    pub(super) stall: Nanos,
    /// Processor time between steps.
    pub(super) gap: Nanos,
    /// Prompt tokens that a step may hold.
    pub(super) budget: u64,
    pub(super) step: Nanos,
    pub(super) per_prompt_token: Nanos,
    /// A chunk is written so long after its step.
    pub(super) late: Nanos,
    /// Time between readings.
    pub(super) period: Nanos,
    pub(super) end: Nanos,
}

impl Default for Machine {
    fn default() -> Machine {
        Machine {
            tells: true,
            eager: false,
            slots: usize::MAX,
            stall: 0,
            gap: MS / 2,
            budget: 2048,
            step: 20 * MS,
            per_prompt_token: MS,
            late: MS / 5,
            period: 100 * MS,
            end: 30 * S,
        }
    }
}

#[derive(Debug, Clone)]
pub(super) enum Told {
    /// Which request, and whether it asked for a stream.
    Arrived(u64, bool),
    Chunk(u64),
    Finished(u64, Box<Finished>),
    Step(Box<EngineStep>),
    Burst(CudaBurst),
    Read(Arc<GpuReading>),
}

#[derive(Debug, Default)]
pub(super) struct Run {
    pub(super) told: Vec<(Nanos, Told)>,
    /// Seconds and joules by state.
    pub(super) states: BTreeMap<GpuState, (f64, f64)>,
    pub(super) joules: f64,
    /// Joules by request.
    pub(super) requests: BTreeMap<u64, [f64; 2]>,
    pieces: Vec<(Nanos, Nanos, GpuState, f64)>,
}

#[derive(Debug)]
struct Running {
    id: u64,
    left: u64,
    made: u64,
}

pub(super) fn labels(model: &str) -> Labels {
    Labels {
        engine: ENGINE.into(),
        model: model.into(),
        scene: "default".into(),
    }
}

pub(super) fn finished(id: u64, t0: Nanos, t4: Nanos, prompt: u64) -> Box<Finished> {
    let record = json!({
        "id": format!("{id}"), "trace_id": "", "engine": ENGINE, "model": "m", "scene": "default",
        "protocol": "openai_chat", "streamed": true, "status": "ok", "t0_ns": t0, "t4_ns": t4,
        "input_tokens": prompt, "chunks": 1, "request_bytes": 1, "response_bytes": 1,
        "sources": {}, "incomplete": [],
    });
    Box::new(Finished {
        id,
        labels: labels("m"),
        record: serde_json::from_value(record).expect("a record"),
        gaps: Vec::new(),
        gaps_from: None,
        in_flight_at_arrival: None,
        content: None,
        token_sources: [
            (crate::observation::TokenDirection::Input, None),
            (crate::observation::TokenDirection::Output, None),
        ],
    })
}

pub(super) fn reading(since: Nanos, joules: Option<f64>, busy: Vec<BusySample>, tgids: &[u32]) -> GpuReading {
    let process = |tgid: &u32| GpuProcess {
        tgid: *tgid,
        memory: None,
        sm: None,
    };
    GpuReading {
        uuid: GPU.into(),
        parent: None,
        since: Some(since),
        energy_j: joules,
        busy,
        memory_used: None,
        memory_total: None,
        processes: Some(tgids.iter().map(process).collect()),
    }
}

/// Runs jobs, which are in the order of their arrival.
pub(super) fn run(machine: &Machine, jobs: &[Job]) -> Run {
    let mut run = Run::default();
    let mut coming = jobs.iter().enumerate().peekable();
    let mut waiting: Vec<usize> = Vec::new();
    let mut running: Vec<Running> = Vec::new();
    let mut now = 0;
    loop {
        while let Some((index, job)) = coming.next_if(|(_, job)| job.at <= now) {
            run.told.push((job.at, Told::Arrived(index as u64, job.streams)));
            waiting.push(index);
        }
        if running.is_empty() && waiting.is_empty() {
            let next = coming.peek().map_or(machine.end, |(_, job)| job.at);
            run.piece(now, next, GpuState::Idle, IDLE);
            now = next;
            if coming.peek().is_none() {
                break;
            }
            continue;
        }
        let free = machine.slots.saturating_sub(running.len());
        let starts: Vec<usize> = waiting.drain(..free.min(waiting.len())).collect();
        let stall = if starts.is_empty() { 0 } else { machine.stall };
        run.piece(now, now + stall, GpuState::IdleWhileQueued, IDLE);
        let gap = idle(!waiting.is_empty());
        run.piece(now + stall, now + stall + machine.gap, gap, IDLE);
        now += stall + machine.gap;
        running.extend(starts.into_iter().map(|index| Running {
            id: index as u64,
            left: jobs[index].prompt,
            made: 0,
        }));
        let mut budget = machine.budget;
        let mut tokens: Vec<(u64, TokenPhase, u64)> = Vec::new();
        for job in &mut running {
            let part = job.left.min(budget);
            budget -= part;
            if job.left == 0 {
                tokens.push((job.id, TokenPhase::Decode, 1));
            } else if part > 0 {
                job.left -= part;
                tokens.push((job.id, TokenPhase::Prefill, part));
            }
        }
        let of = |phase| tokens.iter().filter(move |token| token.1 == phase);
        let prompt: u64 = of(TokenPhase::Prefill).map(|token| token.2).sum();
        let generating = of(TokenPhase::Decode).count() as u64;
        let kind = StepKind::of(of(TokenPhase::Prefill).count() as u64, generating).expect("work");
        let (from, to) = (now, now + machine.step + prompt * machine.per_prompt_token);
        now = to;
        let watts = WATTS.iter().find(|(of, _)| *of == kind).map_or(0.0, |of| of.1);
        run.piece(from, to, GpuState::of(Some(kind)), watts);
        let joules = watts * (to - from) as f64 / 1e9;
        for (id, phase, count) in &tokens {
            let all = (prompt + generating) as f64;
            run.requests.entry(*id).or_default()[*phase as usize] += joules * *count as f64 / all;
        }
        run.step(machine, kind, (from, to), prompt, generating);
        for job in running.iter_mut().filter(|job| job.left == 0) {
            if !tokens.iter().any(|token| token.0 == job.id) {
                continue;
            }
            job.made += 1;
            let at = to + machine.late;
            let facts = &jobs[job.id as usize];
            if facts.streams {
                run.told.push((at, Told::Chunk(job.id)));
            }
            if job.made == facts.output {
                let end = finished(job.id, facts.at, at + MS / 10, facts.prompt);
                run.told.push((at + MS / 10, Told::Finished(job.id, end)));
            }
        }
        running.retain(|job| job.made < jobs[job.id as usize].output);
    }
    run.read(machine);
    run.told.sort_by_key(|(at, _)| *at);
    run
}

impl Run {
    fn piece(&mut self, from: Nanos, to: Nanos, state: GpuState, watts: f64) {
        let seconds = (to - from) as f64 / 1e9;
        let amount = self.states.entry(state).or_default();
        amount.0 += seconds;
        amount.1 += seconds * watts;
        self.joules += seconds * watts;
        self.pieces.push((from, to, state, watts));
    }

    fn step(
        &mut self,
        machine: &Machine,
        kind: StepKind,
        (from, to): (Nanos, Nanos),
        prompt: u64,
        generating: u64,
    ) {
        if machine.tells {
            let step = EngineStep {
                engine: ENGINE.into(),
                model: None,
                start: Some(from),
                end: to,
                kind: Some(kind),
                prefill_tokens: Some(prompt),
                decode_tokens: Some(generating),
                requests: None,
                source: Source::Engine,
            };
            self.told.push((to, Told::Step(Box::new(step))));
            return;
        }
        let (kernels, graphs) = match kind {
            StepKind::Decode if !machine.eager => (12, 1),
            _ => (400, 0),
        };
        // Two processes, each with a GPU's part of the model.
        for tgid in [11, 12] {
            let burst = CudaBurst {
                tgid,
                tid: tgid,
                begin: from + u64::from(tgid - 11) * MS / 20,
                last_launch: from + (to - from) / 2,
                wait: from + (to - from) / 2,
                end: to,
                kernels,
                graphs,
            };
            self.told.push((to, Told::Burst(burst)));
        }
    }

    fn read(&mut self, machine: &Machine) {
        let mut from = 0;
        while from < machine.end {
            let to = (from + machine.period).min(machine.end);
            let within = |from: Nanos, to: Nanos, of: &dyn Fn(GpuState, f64) -> f64| {
                let pieces = self.pieces.iter().filter(|piece| piece.1 > from && piece.0 < to);
                pieces
                    .map(|(a, b, state, watts)| {
                        (*b.min(&to) - *a.max(&from)) as f64 / 1e9 * of(*state, *watts)
                    })
                    .sum::<f64>()
            };
            let joules = within(from, to, &|_, watts| watts);
            let sample = |number: Nanos| {
                let (a, b) = ((number - 1) * SAMPLE, number * SAMPLE);
                // Between kernels there are pauses.
                let busy = within(a, b, &|state, _| if state.is_idle() { 0.0 } else { 0.9 });
                BusySample {
                    end: b,
                    ratio: busy / ((b - a) as f64 / 1e9),
                }
            };
            let samples = from / SAMPLE + 1..=to / SAMPLE;
            let reading = reading(from, Some(joules), samples.map(sample).collect(), &[11, 12]);
            self.told.push((to, Told::Read(Arc::new(reading))));
            from = to;
        }
    }
}

/// Gives what was told to a join, each at its time plus a delay, and the time every 100 ms.
pub(super) fn feed(told: &[(Nanos, Told)], delay: impl Fn(usize) -> Nanos) -> Vec<super::GpuShare> {
    let mut join = Join::default();
    // Nothing is followed before a GPU has been read.
    join.read(
        0,
        &Arc::new(GpuReading {
            since: None,
            ..reading(0, None, Vec::new(), &[11, 12])
        }),
        engine_of,
    );
    let mut order: Vec<(Nanos, usize)> = (0..told.len()).map(|i| (told[i].0 + delay(i), i)).collect();
    order.sort_unstable();
    let mut out = Vec::new();
    let mut now = 0;
    for (due, index) in order {
        while now + 100 * MS <= due {
            now += 100 * MS;
            join.advance(now, &mut out);
        }
        give(&mut join, &told[index]);
    }
    for _ in 0..1500 {
        now += 100 * MS;
        join.advance(now, &mut out);
    }
    assert_eq!(join.take_lost(), (0, 0));
    shares(out)
}

pub(super) fn engine_of(tgid: u32) -> Option<Arc<str>> {
    match tgid {
        11 | 12 => Some(ENGINE.into()),
        21 => Some("f".into()),
        _ => None,
    }
}

pub(super) fn give(join: &mut Join, (at, told): &(Nanos, Told)) {
    let engine: Arc<str> = ENGINE.into();
    match told {
        Told::Arrived(id, streams) => {
            join.arrived(&engine, *id, *at);
            join.named(*id, &labels("m"), Some(*streams));
        }
        Told::Chunk(id) => join.chunk(&engine, *id, *at, 1),
        Told::Finished(id, finished) => join.finished(*id, *at, finished),
        Told::Step(step) => join.observed(*at, &[Observation::Step(step.clone())]),
        Told::Burst(burst) => join.burst(&engine, *burst),
        Told::Read(reading) => join.read(*at, reading, engine_of),
    }
}

pub(super) fn shares(out: Vec<Observation>) -> Vec<super::GpuShare> {
    let share = |observation| match observation {
        Observation::Gpu(share) => share,
        other => panic!("{other:?}"),
    };
    out.into_iter().map(share).collect()
}

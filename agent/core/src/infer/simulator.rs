//! A deterministic engine with continuous batching, to score inference against what it really did.
//!
//! Owns: schedulers of several kinds, their steps, and the writes that a socket would show. Refuses: judging.

use crate::Nanos;
use std::collections::VecDeque;

pub(super) const MS: Nanos = 1_000_000;

/// A small generator with a fixed seed: tests are the same everywhere.
#[derive(Debug, Clone)]
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        // splitmix64
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }

    /// Exponential, by inversion.
    pub(super) fn pause(&mut self, mean: Nanos) -> Nanos {
        let uniform = ((self.next() >> 11) as f64 + 1.0) / (1u64 << 53) as f64;
        (-uniform.ln() * mean as f64) as Nanos
    }
}

#[derive(Debug, Clone)]
pub(super) struct Job {
    pub(super) t0: Nanos,
    pub(super) prompt: u64,
    pub(super) cached: u64,
    pub(super) output: u64,
    pub(super) streamed: bool,
    /// The client leaves after so many tokens.
    pub(super) cancel_after: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    FirstCome,
    LastCome,
}

#[derive(Debug, Clone)]
pub(super) struct Machine {
    pub(super) places: u64,
    /// Tokens of key-value cache; a request needs its prompt and output. `u64::MAX`: never the limit.
    pub(super) memory: u64,
    /// Prompt tokens one step may hold.
    pub(super) budget: u64,
    pub(super) step: Nanos,
    pub(super) per_prompt_token: Nanos,
    /// Tokens a stream gets in one step, at most (speculative decoding), and in how many chunks.
    pub(super) tokens_a_step: u64,
    pub(super) order: Order,
    /// Steps vary by this percentage.
    pub(super) noise: u64,
}

impl Default for Machine {
    fn default() -> Machine {
        Machine {
            places: 4,
            memory: u64::MAX,
            budget: 2048,
            step: 20 * MS,
            per_prompt_token: MS / 4,
            tokens_a_step: 1,
            order: Order::FirstCome,
            noise: 10,
        }
    }
}

/// What happens on sockets, by job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Seen {
    Arrived,
    Chunk,
    Ended,
}

#[derive(Debug, Default)]
pub(super) struct Run {
    pub(super) seen: Vec<(Nanos, usize, Seen)>,
    /// Start and first token of each job.
    pub(super) truth: Vec<(Nanos, Nanos)>,
    /// Begin and end of each step.
    pub(super) steps: Vec<(Nanos, Nanos)>,
}

#[derive(Debug)]
struct Running {
    job: usize,
    left: u64,
    made: u64,
}

/// Runs jobs, which are in the order of their arrival.
pub(super) fn run(machine: &Machine, jobs: &[Job], random: &mut Random) -> Run {
    let mut run = Run {
        seen: jobs
            .iter()
            .enumerate()
            .map(|(i, job)| (job.t0, i, Seen::Arrived))
            .collect(),
        truth: vec![(0, 0); jobs.len()],
        steps: Vec::new(),
    };
    let mut coming: VecDeque<usize> = (0..jobs.len()).collect();
    let mut waiting: VecDeque<usize> = VecDeque::new();
    let mut running: Vec<Running> = Vec::new();
    let mut now = 0;
    loop {
        // Half a millisecond to read, parse and tokenize.
        while let Some(next) = coming.front().filter(|job| jobs[**job].t0 + MS / 2 <= now) {
            waiting.push_back(*next);
            coming.pop_front();
        }
        let need = |job: usize| jobs[job].prompt + jobs[job].output;
        let mut used: u64 = running.iter().map(|r| need(r.job)).sum();
        let mut budget = machine.budget;
        let mut work = 0;
        let mut held: Vec<bool> = Vec::new();
        for r in &mut running {
            let part = r.left.min(budget);
            held.push(r.left == 0 || part > 0);
            r.left -= part;
            budget -= part;
            work += part;
        }
        while (running.len() as u64) < machine.places && budget > 0 {
            let next = match machine.order {
                Order::FirstCome => waiting.front(),
                Order::LastCome => waiting.back(),
            };
            let Some(job) = next
                .copied()
                .filter(|job| used + need(*job) <= machine.memory || running.is_empty())
            else {
                break;
            };
            match machine.order {
                Order::FirstCome => waiting.pop_front(),
                Order::LastCome => waiting.pop_back(),
            };
            used += need(job);
            run.truth[job].0 = now;
            let left = jobs[job].prompt - jobs[job].cached;
            let part = left.min(budget);
            budget -= part;
            work += part;
            held.push(true);
            running.push(Running {
                job,
                left: left - part,
                made: 0,
            });
        }
        if running.is_empty() {
            let Some(next) = coming.front() else { break };
            now = jobs[*next].t0 + MS / 2;
            continue;
        }
        let length = machine.step + work * machine.per_prompt_token;
        let noise = length * machine.noise / 100;
        let begin = now;
        now += length - noise / 2 + random.below(noise + 1);
        run.steps.push((begin, now));
        let mut write = now;
        let mut kept = Vec::new();
        for (mut r, held) in running.into_iter().zip(held) {
            let job = &jobs[r.job];
            if r.left > 0 || !held {
                kept.push(r);
                continue;
            }
            if r.made == 0 {
                run.truth[r.job].1 = now;
            }
            let tokens = 1 + random.below(machine.tokens_a_step);
            for _ in 0..tokens.min(job.output - r.made) {
                r.made += 1;
                write += MS / 20;
                if job.streamed {
                    run.seen.push((write, r.job, Seen::Chunk));
                }
            }
            if r.made >= job.cancel_after.unwrap_or(job.output).min(job.output) {
                run.seen.push((write + MS / 20, r.job, Seen::Ended));
            } else {
                kept.push(r);
            }
        }
        running = kept;
    }
    run.seen.sort_unstable();
    run
}

/// Jobs that arrive at random, `pause` apart in the mean.
pub(super) fn jobs(count: usize, pause: Nanos, documents: u64, random: &mut Random) -> Vec<Job> {
    let mut t0 = MS;
    (0..count)
        .map(|_| {
            t0 += random.pause(pause);
            let prompt = if random.below(2) == 0 {
                20 + random.below(100)
            } else {
                200 + random.below(1800)
            };
            Job {
                t0,
                prompt,
                cached: if random.below(4) == 0 { prompt / 2 } else { 0 },
                output: 8 + random.below(60),
                streamed: random.below(100) >= documents,
                cancel_after: (random.below(20) == 0).then_some(5),
            }
        })
        .collect()
}

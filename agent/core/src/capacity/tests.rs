//! The estimate against simulated engines whose number of slots is known.

use super::*;
use proptest::prelude::*;

const SECOND: f64 = 1e9;

/// Numbers that look random and are the same in every run (splitmix64).
struct Random(u64);

impl Random {
    /// In 0 to 1, 1 excluded.
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.uniform()).ln()
    }
}

/// An engine with slots and one queue, as M/G/k, which takes newcomers at the end of a step.
struct Simulation {
    slots: usize,
    /// Mean service time; half of it is fixed, half exponential.
    service_s: f64,
    /// Length of a step with one request; it grows with the batch.
    step_s: f64,
    /// Prefill, which is part of the service.
    prefill_s: f64,
    /// Whether queue times are told.
    told: bool,
}

impl Simulation {
    /// Load goes up and down between nothing and one and a half of what the engine can do. The capacity's table after it.
    fn run(&self, requests: usize, seed: u64, capacity: &mut Capacity, start_s: f64) -> f64 {
        let mut random = Random(seed);
        let mut arrival = start_s;
        let mut free_at = vec![start_s; self.slots];
        let mut ends: Vec<f64> = Vec::new();
        let mut finished: Vec<(f64, Sample)> = Vec::new();
        for index in 0..requests {
            let load = 0.05 + 1.45 * (index as f64 / requests as f64 * 12.0).sin().abs();
            arrival += random.exponential(self.service_s / self.slots as f64 / load);
            ends.retain(|end| *end > arrival);
            let in_flight = ends.len();
            let service = self.service_s * (0.5 + random.exponential(0.5));
            let slot = (0..self.slots)
                .min_by(|a, b| free_at[*a].total_cmp(&free_at[*b]))
                .expect("a slot");
            let batch = in_flight.min(self.slots);
            let step = if batch == 0 {
                0.0
            } else {
                random.uniform() * self.step_s * (1.0 + batch as f64 / 32.0)
            };
            let begin = free_at[slot].max(arrival + step) + 2e-4;
            let end = begin + service;
            free_at[slot] = end;
            ends.push(end);
            let queue = begin - arrival;
            let sample = Sample {
                in_flight: in_flight as u64,
                running: self.told.then_some(batch as u64),
                queue_s: self.told.then_some(queue),
                ttft_s: Some(queue + self.prefill_s * (0.5 + random.uniform()) * (1.0 + batch as f64 / 16.0)),
                service_s: Some(end - arrival - if self.told { queue } else { 0.0 }),
            };
            finished.push((end, sample));
        }
        finished.sort_by(|a, b| a.0.total_cmp(&b.0));
        for (end, sample) in &finished {
            capacity.add((end * SECOND) as Nanos, *sample);
        }
        finished.last().map_or(start_s, |(end, _)| *end)
    }

    fn of(slots: usize) -> Simulation {
        Simulation {
            slots,
            service_s: 4.0,
            step_s: 0.03,
            prefill_s: 0.1,
            told: true,
        }
    }
}

fn knee_of(simulation: &Simulation, seed: u64) -> Option<Knee> {
    let mut capacity = Capacity::new(DEFAULT_HALF_LIFE_NS);
    let end = simulation.run(3000, seed, &mut capacity, 100.0);
    capacity.news((end * SECOND) as Nanos).expect("observed").0
}

/// The estimate's row is that of the slots, or next to it.
fn near(knee: Option<Knee>, slots: usize) -> bool {
    knee.is_some_and(|knee| row_of(knee.concurrency).abs_diff(row_of(slots as u64)) <= 1)
}

#[test]
fn the_knee_is_the_number_of_slots() {
    for slots in [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128, 256] {
        for seed in 1..=3 {
            let knee = knee_of(&Simulation::of(slots), seed);
            assert!(near(knee, slots), "{slots} slots, seed {seed}: {knee:?}");
            assert_eq!(knee.map(|knee| knee.basis), Some(Basis::Queue));
        }
    }
}

#[test]
fn without_queue_times_first_tokens_tell() {
    for slots in [1, 2, 4, 8, 16, 32] {
        let simulation = Simulation {
            told: false,
            ..Simulation::of(slots)
        };
        let knee = knee_of(&simulation, 7);
        assert!(near(knee, slots), "{slots} slots: {knee:?}");
        assert_eq!(knee.map(|knee| knee.basis), Some(Basis::Ttft));
    }
}

#[test]
fn an_engine_that_never_made_anyone_wait_has_none() {
    for told in [true, false] {
        for step_s in [0.03, 0.3] {
            let mut capacity = Capacity::new(DEFAULT_HALF_LIFE_NS);
            let mut random = Random(3);
            for index in 0..2000_u64 {
                // Up to 40 at once, each of which waits for a step and nothing else.
                let queue = random.uniform() * step_s + 2e-4;
                let sample = Sample {
                    in_flight: index * 7 % 40,
                    running: None,
                    queue_s: told.then_some(queue),
                    ttft_s: Some(queue + 0.1 + 0.1 * random.uniform()),
                    service_s: Some(20.0),
                };
                capacity.add(index * 500_000_000, sample);
            }
            let (knee, rows) = capacity.news(1_000_000_000_000).expect("observed");
            assert_eq!(knee, None, "told {told}, step {step_s}");
            assert_eq!(rows.iter().map(|row| row.from).max(), Some(32));
        }
    }
}

#[test]
fn prefills_that_take_turns_are_no_queue() {
    // Medians that a llama.cpp server with four slots had on a busy machine, prompts as long as answers: one other
    // request more than doubles the first token's time, and a second does not.
    let ttft = [0.71, 1.77, 1.84, 2.07, 1.84, 2.32, 1.95, 7.36];
    let mut capacity = Capacity::new(DEFAULT_HALF_LIFE_NS);
    for (in_flight, ttft) in (0..).zip(ttft) {
        for _ in 0..10 {
            let sample = Sample {
                in_flight,
                running: None,
                queue_s: None,
                ttft_s: Some(ttft),
                service_s: Some(ttft + 1.0),
            };
            capacity.add(1, sample);
        }
    }
    let knee = capacity.news(1).expect("observed").0;
    assert!(knee.is_none_or(|knee| knee.concurrency > 4), "{knee:?}");
}

#[test]
fn few_observations_are_none() {
    let mut capacity = Capacity::new(DEFAULT_HALF_LIFE_NS);
    assert_eq!(capacity.news(5), None, "nothing to tell");
    for in_flight in 0..8 {
        for _ in 0..3 {
            let sample = Sample {
                in_flight,
                running: None,
                queue_s: Some(if in_flight < 4 { 0.001 } else { 2.0 }),
                ttft_s: None,
                service_s: Some(4.0),
            };
            capacity.add(1, sample);
        }
    }
    let (knee, rows) = capacity.news(1).expect("observed");
    assert_eq!((knee, rows.len()), (None, 8));
}

#[test]
fn the_table_follows_an_engine_whose_slots_change() {
    let half_life_s = 600.0;
    let mut capacity = Capacity::new((half_life_s * SECOND) as Nanos);
    let end = Simulation::of(4).run(4000, 1, &mut capacity, 0.0);
    assert!(near(
        capacity.news((end * SECOND) as Nanos).expect("observed").0,
        4
    ));
    let end = Simulation::of(12).run(12_000, 2, &mut capacity, end);
    let knee = capacity.news((end * SECOND) as Nanos).expect("observed").0;
    assert!(near(knee, 12), "{knee:?}");
    // And with nothing more, it fades.
    let later = ((end + 30.0 * half_life_s) * SECOND) as Nanos;
    assert_eq!(
        capacity.news(later),
        Some((None, Vec::new())),
        "told once that all is gone"
    );
    assert_eq!(capacity.news(later), None);
}

#[test]
fn rows_are_exact_at_first_and_four_to_a_doubling_then() {
    let rows: Vec<u64> = (0..ROWS).map(first_of).collect();
    assert!(rows.is_sorted_by(|a, b| a < b), "{rows:?}");
    assert_eq!(&rows[14..22], [14, 15, 16, 20, 24, 28, 32, 40]);
    for (row, first) in rows.iter().enumerate() {
        assert_eq!(row_of(*first), row);
        assert_eq!(row_of(last_of(row)), row);
    }
}

proptest! {
    /// Any samples at any times: no panic, and what is told is finite.
    #[test]
    fn any_samples_are_survived(
        samples in proptest::collection::vec(
            (any::<u64>(), any::<u64>(), proptest::option::of(any::<f64>()), proptest::option::of(any::<f64>())), 0..60),
        half_life in any::<u64>(),
    ) {
        let mut capacity = Capacity::new(half_life);
        for (at, in_flight, queue_s, ttft_s) in samples {
            capacity.add(at, Sample { in_flight, running: Some(in_flight), queue_s, ttft_s, service_s: ttft_s });
            if let Some((_, rows)) = capacity.news(at) {
                prop_assert!(rows.len() <= ROWS);
                for row in rows {
                    prop_assert!(row.requests.is_finite());
                    prop_assert!([row.queue_s, row.queue_p95_s, row.ttft_s].into_iter().flatten().all(f64::is_finite));
                }
            }
        }
    }
}

//! CUDA calls: what the agent counted against what the program made, and against what torch's profiler counted.
//!
//! Owns: the numbers of calls, waiting until the agent has read its counters, the bounds. Refuses: making the calls.

use super::program::{Known, Program};
use crate::{
    accuracy::report::{Section, Verdict},
    agent::Agent,
    exposition::Exposition,
};
use anyhow::Result;
use std::{
    thread,
    time::{Duration, Instant},
};

/// Kernels, graphs, copies, allocations and failures that the program is asked for.
const KERNELS: u64 = 100_000;
const GRAPHS: u64 = 20_000;
const COPIES: u64 = 32;
const ALLOCATIONS: u64 = 4;
const FAILURES: u64 = 2;
/// Counters are read each second or so; the program does nothing meanwhile.
const SETTLED: Duration = Duration::from_millis(2500);
const PATIENCE: Duration = Duration::from_secs(10);

/// What the agent has counted.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Counts {
    kernels: f64,
    graphs: f64,
    host_to_device: f64,
    failures: f64,
    allocated: f64,
}

impl Counts {
    fn of(metrics: &Exposition, engine: &str) -> Counts {
        let of = |name| metrics.sum(name, &[("engine", engine)]);
        Counts {
            kernels: of("cuda_kernel_launches_total"),
            graphs: of("cuda_graph_launches_total"),
            host_to_device: metrics.sum(
                "cuda_memcpy_bytes_total",
                &[("engine", engine), ("direction", "host_to_device")],
            ),
            failures: of("cuda_alloc_failures_total"),
            allocated: of("cuda_allocated_bytes"),
        }
    }

    /// When they stay as they are.
    fn settled(agent: &Agent, engine: &str) -> Result<Counts> {
        let (start, mut since) = (Instant::now(), Instant::now());
        let mut counts = Counts::of(&agent.metrics()?, engine);
        while since.elapsed() < SETTLED && start.elapsed() < PATIENCE {
            thread::sleep(Duration::from_millis(100));
            let now = Counts::of(&agent.metrics()?, engine);
            if now != counts {
                (counts, since) = (now, Instant::now());
            }
        }
        Ok(counts)
    }
}

/// Makes the calls and compares. What frees memory is a further call that allocates none.
pub(super) fn sections(program: &Program, agent: &Agent, engine: &str) -> Result<Vec<Section>> {
    let before = Counts::settled(agent, engine)?;
    let query = format!(
        "kernels={KERNELS}&graphs={GRAPHS}&copies={COPIES}&allocations={ALLOCATIONS}&failures={FAILURES}"
    );
    let made = program.known(&query)?;
    let with = Counts::settled(agent, engine)?;
    program.known("kernels=0")?;
    let freed = Counts::settled(agent, engine)?;
    let profiled = program.profiled()?;
    let after = Counts::settled(agent, engine)?;
    let mut sections = exact(&made, &before, &with, &freed);
    let seen = after.kernels - freed.kernels;
    sections.push(near(
        &format!("kernels of {} prompts, by the profiler", profiled.prompts),
        profiled.kernels as f64,
        seen,
    ));
    Ok(sections)
}

fn exact(made: &Known, before: &Counts, with: &Counts, freed: &Counts) -> Vec<Section> {
    [
        ("kernel launches", made.kernels, with.kernels - before.kernels),
        ("graph launches", made.graphs, with.graphs - before.graphs),
        (
            "bytes copied to the GPU",
            made.host_to_device_bytes,
            with.host_to_device - before.host_to_device,
        ),
        (
            "bytes allocated",
            made.allocated_bytes,
            with.allocated - before.allocated,
        ),
        (
            "bytes freed",
            made.allocated_bytes,
            with.allocated - freed.allocated,
        ),
    ]
    .map(|(what, made, seen)| judged(what, made as f64, seen, (made as f64 - seen).abs() < 0.5))
    .into_iter()
    // An allocator that fails may try again after it has given back what it keeps: a failure is one call or several.
    .chain([judged(
        "failed allocations, at least",
        made.failures as f64,
        with.failures - before.failures,
        with.failures - before.failures >= made.failures as f64,
    )])
    .collect()
}

/// The profiler itself may launch, and leaves out what it could not keep: 1 %.
fn near(what: &str, made: f64, seen: f64) -> Section {
    judged(what, made, seen, made > 0.0 && (seen - made).abs() <= 0.01 * made)
}

fn judged(what: &str, made: f64, seen: f64, kept: bool) -> Section {
    let verdict = Verdict::of(kept);
    let words = format!("{what}: {made:.0} made, {seen:.0} seen");
    Section {
        text: format!("{verdict} {words}\n"),
        verdicts: vec![(words, verdict)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_launch_too_many_or_too_few_breaks_the_bound() {
        let made = Known {
            kernels: 10,
            graphs: 5,
            host_to_device_bytes: 1 << 20,
            allocated_bytes: 4 << 20,
            failures: 2,
            kernel_ns: 0.0,
            graph_ns: 0.0,
        };
        let counts = |kernels: f64, failures: f64, allocated: f64| Counts {
            kernels,
            graphs: 6.0,
            host_to_device: 1_048_577.0,
            failures,
            allocated,
        };
        let before = Counts {
            graphs: 1.0,
            host_to_device: 1.0,
            ..counts(100.0, 0.0, 7.0)
        };
        let broken = |kernels, failures, allocated| {
            let sections = exact(&made, &before, &counts(kernels, failures, allocated), &before);
            let failed = |section: &&Section| section.verdicts[0].1 == Verdict::Fail;
            sections.iter().filter(failed).count()
        };
        let all = f64::from(4 << 20) + 7.0;
        assert_eq!(broken(110.0, 2.0, all), 0);
        assert_eq!(broken(110.0, 4.0, all), 0, "a retried allocation fails twice");
        assert_eq!(broken(111.0, 2.0, all), 1);
        assert_eq!(broken(109.0, 1.0, all), 2);
        assert_eq!(broken(110.0, 2.0, 7.0), 2, "neither allocated nor freed");
        assert_eq!(near("x", 1000.0, 1010.0).verdicts[0].1, Verdict::Pass);
        assert_eq!(near("x", 1000.0, 1011.0).verdicts[0].1, Verdict::Fail);
        assert_eq!(near("x", 0.0, 0.0).verdicts[0].1, Verdict::Fail);
    }
}

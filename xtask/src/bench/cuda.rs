//! What the probes cost a CUDA call: a program that makes calls in a loop on the stand-in driver, with the agent and without.
//!
//! Owns: the calls, by which API, and what must be attached. Refuses: a device: the stand-in's work is a few dozen
//! nanoseconds, so that what a round differs by is the probes'. Its exported functions begin as the real driver's do.

use super::loops::{Comparison, Program, Programs, Rounds, Subject, table};
use crate::build;
use anyhow::{Result, ensure};
use infertap_tests::{
    agent::Agent,
    bpf_census,
    exposition::Exposition,
    gpu::{CUDA_VARIABLE, Cuda, Drivers, RuntimeCalls},
};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

/// Nanoseconds that probes add to a CUDA call.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Rounds; each measures once without the agent and once with it
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// Launches of each kind in a measurement; of other calls a tenth
    #[arg(long, default_value_t = 1_000_000)]
    launches: u64,
    /// Measure the runtime's calls once the driver was seen to show them and the runtime's probes are gone, which takes ten
    /// seconds a round; nothing else
    #[arg(long)]
    settled: bool,
    /// An agent that is built already
    #[arg(long, value_name = "FILE")]
    agent: Option<PathBuf>,
}

const DRIVER: &str = "driver";
const RUNTIME: &str = "runtime";
const BEHIND: &str = "runtime by cuGetProcAddress";

/// Measured calls, by name, and their probes.
const CALLS: [(&str, &str); 9] = [
    ("driver launch", "driver"),
    ("driver graph", "driver"),
    ("driver host_to_device_async", "driver"),
    ("driver alloc_async", "driver, entry and return"),
    ("driver free_async", "driver"),
    ("driver stream_synchronize", "driver, entry and return"),
    ("runtime by cuGetProcAddress launch", "runtime"),
    (
        "runtime launch",
        "runtime and driver: the first seconds of a process",
    ),
    (
        "runtime graph",
        "runtime and driver: the first seconds of a process",
    ),
];

/// What is measured when the runtime's probes are gone.
const SETTLED: [(&str, &str); 2] = [
    ("runtime launch", "driver: from then on"),
    ("runtime graph", "driver: from then on"),
];

/// Entry of the measurement.
pub(super) fn measure(args: &Args) -> Result<()> {
    ensure!(
        args.rounds > 0 && args.launches >= 1000,
        "too few calls, no numbers"
    );
    let binary = build::binary("infertap-tests", "cuda-program", &["--release"])?;
    let agent = match &args.agent {
        Some(agent) => agent.clone(),
        None => build::agent()?,
    };
    let logs = build::target_folder()?.join("bench");
    let drivers = Drivers::install_built_with(&binary, &logs.join("cuda"))?;
    let (launches, others) = (args.launches, args.launches / 10);
    let start = |name: &'static str, runtime, orders: &[(&str, u64)]| -> Result<(&'static str, Program)> {
        let command = command(&binary, &drivers, runtime, name != DRIVER, orders);
        let log = logs.join(format!("cuda-{}.log", name.replace(' ', "-")));
        Ok((name, Program::start("the CUDA program", command, &log)?))
    };
    let by_runtime = [("launch", launches), ("graph", launches)];
    let compare = |subject: &mut dyn Subject| -> Result<Rounds> {
        Comparison {
            agent: &agent,
            logs: &logs,
            rounds: args.rounds,
            attached: &attached,
            seen: &|metrics| metrics.sum("cuda_kernel_launches_total", &[]),
        }
        .run(subject)
    };
    let (rounds, calls) = if args.settled {
        let program = start(RUNTIME, RuntimeCalls::Exported, &by_runtime)?;
        (compare(&mut Settled(Programs(vec![program])))?, &SETTLED[..])
    } else {
        let by_driver = [
            ("launch", launches),
            ("graph", launches),
            ("host_to_device_async", others),
            ("alloc_async", others.min(MOST_HELD)),
            ("free_async", others.min(MOST_HELD)),
            ("stream_synchronize", others),
        ];
        let mut fresh = Programs(vec![
            start(DRIVER, RuntimeCalls::Exported, &by_driver)?,
            start(BEHIND, RuntimeCalls::ProcAddress, &[("launch", launches)])?,
            start(RUNTIME, RuntimeCalls::Exported, &by_runtime)?,
        ]);
        (compare(&mut fresh)?, &CALLS[..])
    };
    println!(
        "\n## CUDA calls, with probes and without, {} interleaved rounds of {launches} launches of each kind",
        args.rounds
    );
    for line in table(&rounds, calls)? {
        println!("{line}");
    }
    Ok(())
}

/// The agent follows 65,536 allocations.
const MOST_HELD: u64 = 50_000;

fn command(
    binary: &Path,
    drivers: &Drivers,
    runtime: RuntimeCalls,
    by_runtime: bool,
    orders: &[(&str, u64)],
) -> Command {
    let settings = Cuda {
        runtime,
        ..Cuda::default()
    };
    let mut command = Command::new(binary);
    command
        .arg("--timed")
        .arg("--drivers")
        .arg(drivers.folder())
        .args(["--by", if by_runtime { "runtime" } else { "driver" }])
        .env("LD_LIBRARY_PATH", drivers.folder())
        .env(CUDA_VARIABLE, settings.to_environment());
    for (kind, count) in orders {
        command.arg("--make").arg(format!("{kind}={count}"));
    }
    command
}

/// The agent counts the calls of every program that it watches.
fn attached(metrics: &Exposition) -> Result<(), String> {
    let engines = || metrics.select("infertap_engine_coverage", &[("aspect", "cuda")]);
    let missing = engines().filter(|sample| sample.value < 0.5).count();
    if metrics.sum("infertap_probe_up", &[("probe", "cuda")]) < 0.5
        || engines().next().is_none()
        || missing > 0
    {
        return Err(format!("the CUDA calls of {missing} programs are not counted"));
    }
    Ok(())
}

/// A program whose calls of the runtime are seen at the driver, long enough for the agent to know.
struct Settled(Programs);

impl Subject for Settled {
    fn ready(&mut self) -> Result<Vec<u32>> {
        self.0.ready()
    }

    fn settle(&mut self, agent: &Agent) -> Result<()> {
        let before = bpf_census::attachments_of(agent.pid())?;
        self.0.measure()?;
        let start = Instant::now();
        while bpf_census::attachments_of(agent.pid())? >= before {
            ensure!(
                start.elapsed() < Duration::from_secs(30),
                "the agent keeps its {before} attachments; its log ends with:\n{}",
                agent.log_tail()
            );
            std::thread::sleep(Duration::from_millis(50));
        }
        // Those on the other functions go at the same time, give or take a reading of the sums.
        std::thread::sleep(Duration::from_secs(2));
        Ok(())
    }

    fn measure(&mut self) -> Result<BTreeMap<String, f64>> {
        self.0.measure()
    }
}

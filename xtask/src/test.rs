//! `cargo xtask test`: every layer of the tests that this machine can run, and a failure where it should and can't.
//!
//! Owns: the order of the layers, what each needs, the summary. Refuses: skipping in silence: a layer that was not asked
//! for is named as such.

use crate::{build, fuzz, privilege, sh, times::Times};
use anyhow::{Context, Result, bail};
use infertap_tests::engines::{self, Kind};
use std::{
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

/// Run the tests.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The engine of the live tests: llama or vllm (which is 6 GB to set up)
    #[arg(long, default_value = "llama")]
    engine: Kind,
    /// Only these layers
    #[arg(long, value_enum)]
    layer: Vec<Layer>,
    /// Seconds for each fuzz target
    #[arg(long, default_value_t = 10)]
    fuzz_seconds: u64,
    /// Only live tests whose names contain this
    #[arg(long)]
    filter: Option<String>,
}

/// Layers, as DESIGN numbers them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Layer {
    /// 1, 2, 4 and 5: tables, properties, golden replays, contracts; needs nothing
    Host,
    /// 3: fuzz targets, each for a while; needs a C++ compiler
    Fuzz,
    /// 6: live, on real sockets and a real engine; needs root
    Live,
    /// 7: another kernel in a virtual machine; needs QEMU
    Kernel,
}

const ALL: [Layer; 4] = [Layer::Host, Layer::Fuzz, Layer::Live, Layer::Kernel];

/// Slowest builds and tests that the summary names.
const SLOWEST: usize = 15;

/// Entry of the command.
pub(crate) fn run(args: &Args) -> Result<()> {
    let chosen = |layer: &Layer| args.layer.is_empty() || args.layer.contains(layer);
    let mut times = Times::default();
    let mut results: Vec<(Layer, Duration, Result<()>)> = Vec::new();
    // Made while the first layer's tests run, which wait for other things than processors.
    let mut fuzz_targets = None;
    for layer in ALL.into_iter().filter(chosen) {
        eprintln!("\n== layer {layer:?} ==");
        let start = Instant::now();
        let result = match layer {
            Layer::Host => host(chosen(&Layer::Fuzz).then_some(&mut fuzz_targets), &mut times),
            Layer::Fuzz => fuzz(fuzz_targets.take(), args, &mut times),
            Layer::Live => live(args, &mut times),
            Layer::Kernel => kernel(&mut times),
        };
        if let Err(error) = &result {
            eprintln!("layer {layer:?}: {error:#}");
        }
        results.push((layer, start.elapsed(), result));
    }
    println!("\nwhat took longest:");
    times.print_slowest(SLOWEST);
    println!();
    for layer in ALL {
        match results.iter().find(|(of, _, _)| *of == layer) {
            None => println!("layer {layer:?}: not asked for"),
            Some((_, time, Ok(()))) => println!("layer {layer:?}: ok in {:.0} s", time.as_secs_f64()),
            Some((_, time, Err(error))) => {
                println!(
                    "layer {layer:?}: FAILED after {:.0} s: {error:#}",
                    time.as_secs_f64()
                );
            }
        }
    }
    let failed = results.iter().filter(|(_, _, result)| result.is_err()).count();
    if failed > 0 {
        bail!("{failed} of {} layers failed", results.len());
    }
    Ok(())
}

type FuzzTargets = Result<Vec<fuzz::Target>>;

/// The tests of layers 1, 2, 4 and 5; and meanwhile the fuzz targets are built, where they are asked for.
fn host(fuzz_targets: Option<&mut Option<FuzzTargets>>, times: &mut Times) -> Result<()> {
    let tests = || {
        let mut command = sh::cargo();
        command.args(["test", "--workspace", "--no-fail-fast"]);
        command
    };
    times.of("building the host tests", || sh::run(tests().arg("--no-run")))?;
    thread::scope(|scope| {
        let building = fuzz_targets.map(|targets| (targets, scope.spawn(fuzz::build)));
        let result = times.of("the host tests", || sh::run(&mut tests()));
        if let Some((targets, building)) = building {
            let built = times.of("waiting for the fuzz targets' build", || building.join());
            *targets = Some(built.unwrap_or_else(|_| bail!("the build of the fuzz targets panicked")));
        }
        result
    })
}

fn fuzz(targets: Option<FuzzTargets>, args: &Args, times: &mut Times) -> Result<()> {
    let targets = match targets {
        Some(targets) => targets?,
        None => times.of("building the fuzz targets", fuzz::build)?,
    };
    fuzz::fuzz(&targets, args.fuzz_seconds, &[])
}

/// Runs every live test executable as root, one test at a time: they share the machine's cores and its kernel.
fn live(args: &Args, times: &mut Times) -> Result<()> {
    let through = privilege::words("the live tests")?;
    let target = build::target_folder()?;
    let engines = engines::folder(&target)?;
    times.of("installing the engine", || {
        engines::install(args.engine, &engines)
    })?;
    let (agent, tests) = times.of("building the agent and the live tests", || {
        let tests = [
            "--package",
            "infertap-tests",
            "--features",
            "live",
            "--test",
            "live_*",
        ];
        anyhow::Ok((build::tested_agent()?, build::tests(&tests)?))
    })?;
    let engine = format!("{:?}", args.engine).to_lowercase();
    let mut failed = Vec::new();
    for (name, executable) in tests {
        let mut words = through.clone();
        // Tolerances are of the agent, not of whatever else this machine is doing.
        words.extend(["nice", "-n", "-15"].map(str::to_owned));
        words.push(executable.display().to_string());
        let mut command = Command::new(&words[0]);
        command
            .args(&words[1..])
            .args(["--test-threads=1", "--nocapture"])
            .args(&args.filter);
        let pairs: [(&str, &Path); 2] = [("INFERTAP_BIN", &agent), ("INFERTAP_TEST_TARGET", &target)];
        command
            .current_dir(sh::root().join("tests"))
            .env("INFERTAP_TEST_ENGINE", &engine)
            .envs(pairs);
        if let Err(error) = times.run_tests(&name, &mut command) {
            failed.push(format!("{name}: {error:#}"));
        }
    }
    if failed.is_empty() {
        Ok(())
    } else {
        bail!("{}", failed.join("; "))
    }
}

fn kernel(times: &mut Times) -> Result<()> {
    let target = build::target_folder()?;
    let (agent, server, tests) = times.of("building for the other kernel", || {
        let tests = [
            "--package",
            "infertap-tests",
            "--features",
            "live",
            "--test",
            "kernel",
        ];
        anyhow::Ok((
            build::tested_agent()?,
            build::binary("infertap-tests", "scripted-server", &["--features", "live"])?,
            build::tests(&tests)?,
        ))
    })?;
    let (_, executable) = tests.first().context("cargo built no kernel test")?;
    let pairs = [
        ("INFERTAP_BIN", &agent),
        ("INFERTAP_SCRIPTED_SERVER", &server),
        ("INFERTAP_TEST_TARGET", &target),
    ];
    sh::run(
        Command::new(executable)
            .arg("--nocapture")
            .current_dir(sh::root().join("tests"))
            .envs(pairs),
    )
}

//! `cargo xtask test`: every layer of the tests that this machine can run, and a failure where it should and can't.
//!
//! Owns: the order of the layers, what each needs, the summary. Refuses: skipping in silence: a layer that was not asked
//! for is named as such.

use crate::{build, fuzz, privilege, sh, times::Times};
use anyhow::{Context, Result, bail, ensure};
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
    let target = build::target_folder()?;
    let mut fetched = Fetched::begin(args.engine, &target, chosen);
    for layer in ALL.into_iter().filter(chosen) {
        eprintln!("\n== layer {layer:?} ==");
        let start = Instant::now();
        let result = match layer {
            Layer::Host => host(chosen(&Layer::Fuzz).then_some(&mut fuzz_targets), &mut times),
            Layer::Fuzz => fuzz(fuzz_targets.take(), args, &mut times),
            Layer::Live => live(args, &target, fetched.engine.take(), &mut times),
            Layer::Kernel => kernel(&target, fetched.kernel.take(), &mut times),
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

/// What later layers need from the network, fetched while the first ones keep the processors busy.
#[derive(Default)]
struct Fetched {
    engine: Option<Fetching>,
    kernel: Option<Fetching>,
}

type Fetching = thread::JoinHandle<Result<()>>;

impl Fetched {
    fn begin(engine: Kind, target: &Path, chosen: impl Fn(&Layer) -> bool) -> Fetched {
        let mut fetched = Fetched::default();
        if chosen(&Layer::Live) {
            let target = target.to_owned();
            let install = move || engines::install(engine, &engines::folder(&target)?);
            fetched.engine = Some(thread::spawn(install));
        }
        if chosen(&Layer::Kernel) {
            let folder = infertap_tests::kernel::folder(target);
            fetched.kernel = Some(thread::spawn(move || {
                infertap_tests::kernel::image(&folder).map(drop)
            }));
        }
        fetched
    }
}

/// Waits for what is fetched.
fn wait(fetching: Option<Fetching>) -> Result<()> {
    fetching.map_or(Ok(()), |thread| {
        thread
            .join()
            .unwrap_or_else(|_| bail!("the thread that fetches it panicked"))
    })
}

type FuzzTargets = Result<Vec<fuzz::Target>>;

/// The tests of layers 1, 2, 4 and 5; and meanwhile the fuzz targets are built, where they are asked for.
fn host(fuzz_targets: Option<&mut Option<FuzzTargets>>, times: &mut Times) -> Result<()> {
    let tests = times.of("building the tests", build::all_tests)?;
    ensure!(!tests.is_empty(), "cargo built no tests");
    thread::scope(|scope| {
        let building = fuzz_targets.map(|targets| (targets, scope.spawn(fuzz::build)));
        let mut failed = Vec::new();
        for test in &tests {
            let mut command = Command::new(&test.executable);
            // As `cargo test` does: snapshots are found by it.
            command
                .current_dir(&test.folder)
                .env("CARGO_MANIFEST_DIR", &test.folder);
            let folder = test.folder.strip_prefix(sh::root()).unwrap_or(&test.folder);
            let name = format!("{} of {}", test.name, folder.display());
            if let Err(error) = times.of(&name, || sh::run(&mut command)) {
                failed.push(format!("{name}: {error:#}"));
            }
        }
        let mut documentation = sh::cargo();
        documentation.arg("test").args(build::TESTED).arg("--doc");
        if let Err(error) = times.of("the documentation's tests", || sh::run(&mut documentation)) {
            failed.push(format!("documentation: {error:#}"));
        }
        if let Some((targets, building)) = building {
            let built = times.of("waiting for the fuzz targets' build", || building.join());
            *targets = Some(built.unwrap_or_else(|_| bail!("the build of the fuzz targets panicked")));
        }
        ensure!(failed.is_empty(), "{}", failed.join("; "));
        Ok(())
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
fn live(args: &Args, target: &Path, engine: Option<Fetching>, times: &mut Times) -> Result<()> {
    let through = privilege::words("the live tests")?;
    let build::Live { agent, tests, .. } =
        times.of("building the agent and the live tests", || build::live("live_*"))?;
    times.of("waiting for the engine", || wait(engine))?;
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
        let pairs: [(&str, &Path); 2] = [("INFERTAP_BIN", &agent), ("INFERTAP_TEST_TARGET", target)];
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

fn kernel(target: &Path, image: Option<Fetching>, times: &mut Times) -> Result<()> {
    let build::Live { agent, server, tests } =
        times.of("building for the other kernel", || build::live("kernel"))?;
    times.of("waiting for the other kernel", || wait(image))?;
    let (_, executable) = tests.first().context("cargo built no kernel test")?;
    let pairs: [(&str, &Path); 3] = [
        ("INFERTAP_BIN", &agent),
        ("INFERTAP_SCRIPTED_SERVER", &server),
        ("INFERTAP_TEST_TARGET", target),
    ];
    sh::run(
        Command::new(executable)
            .arg("--nocapture")
            .current_dir(sh::root().join("tests"))
            .envs(pairs),
    )
}

//! `cargo xtask gpu-check`: what the agent says of a real GPU, its driver's calls and an engine on it, against what others
//! say of the same: `nvidia-smi`, the engine's own account, torch's profiler.
//!
//! Owns: the order of the checks. Refuses: a bound that is not written down in `docs/gpu.md`. With the stand-in driver the
//! same comparisons run without a GPU: the script takes the place of `nvidia-smi`.

mod calls;
mod overhead;
mod phases;
mod program;
mod smi;
mod watch;

use crate::{
    accuracy::report::Report,
    clock,
    gpu::{Gpu, Gpus, Process, Script},
};
use anyhow::{Context, Result};
use program::Program;
use smi::Look;
use std::{fs, path::PathBuf, thread, time::Duration};
use watch::Watch;

/// What to run with.
#[derive(Debug)]
pub struct Options {
    /// The agent's executable; it and its caller are root.
    pub agent: PathBuf,
    /// The Python that has torch; with the stand-in driver any.
    pub python: PathBuf,
    /// Folder for logs.
    pub logs: PathBuf,
    /// On the stand-in driver.
    pub stand_in: bool,
}

/// What the two sides of NVML's values are asked for.
enum Driver {
    Real,
    StandIn(Gpus),
}

impl Driver {
    fn start(options: &Options) -> Result<Driver> {
        if !options.stand_in {
            // Without a GPU the check ends here and says so.
            smi::ask()?;
            return Ok(Driver::Real);
        }
        let script = Script {
            gpus: vec![Gpu::datacenter(0)],
            ..Script::default()
        };
        Ok(Driver::StandIn(Gpus::start(&options.logs, script)?))
    }

    /// Tells that this process is on the GPU, where nobody else would.
    fn used_by(&mut self, pid: u32) -> Result<()> {
        if let Driver::StandIn(gpus) = self {
            for gpu in &mut gpus.script.gpus {
                gpu.processes = Some(vec![Process {
                    pid,
                    ..Process::default()
                }]);
            }
            gpus.write()?;
        }
        Ok(())
    }

    fn environment(&self) -> Vec<(&'static str, PathBuf)> {
        match self {
            Driver::Real => Vec::new(),
            Driver::StandIn(gpus) => gpus.environment().to_vec(),
        }
    }

    /// Of the agent's configuration.
    fn sets(&self) -> Vec<String> {
        match self {
            Driver::Real => vec!["gpu.nvml=on".to_owned()],
            Driver::StandIn(gpus) => vec![
                "gpu.nvml=on".to_owned(),
                format!("gpu.nvml_library={}", gpus.nvml().display()),
            ],
        }
    }

    fn ask(&self) -> Result<Vec<smi::Gpu>> {
        match self {
            Driver::Real => smi::ask(),
            Driver::StandIn(gpus) => Ok(scripted(gpus)),
        }
    }

    fn look(&self, when: &'static str, watch: &Watch) -> Result<Look> {
        Ok(Look {
            when,
            before: self.ask()?,
            agent: watch.agent.metrics()?,
            after: self.ask()?,
        })
    }
}

/// What the stand-in's script says now, as `nvidia-smi` would.
fn scripted(gpus: &Gpus) -> Vec<smi::Gpu> {
    let (second, work) = (gpus.second(), crate::gpu::Work::default());
    let known = |gpu: &Gpu| {
        let mib = |bytes: f64| bytes / f64::from(1 << 20);
        let memory = gpu.memory.as_ref();
        let used = memory.map(|memory| memory.used.at(second, &work));
        smi::Gpu::known(&gpu.uuid, |name| match name {
            "memory.total" => memory.map(|memory| mib(memory.total as f64)),
            "memory.used" => used.map(mib),
            "memory.free" => Some(mib(memory?.total as f64 - memory?.reserved as f64 - used?)),
            "power.limit" => Some(gpu.power_limits.as_ref()?.enforced.at(second, &work) / 1e3),
            "power.draw" => Some(gpu.power_mw.as_ref()?.at(second, &work) / 1e3),
            "temperature.gpu" => Some(gpu.temperature_c.as_ref()?.at(second, &work)),
            "clocks.sm" => Some(gpu.clocks_mhz.sm.as_ref()?.at(second, &work)),
            "clocks.mem" => Some(gpu.clocks_mhz.memory.as_ref()?.at(second, &work)),
            "utilization.gpu" => Some(gpu.utilization.as_ref()?.gpu.at(second, &work)),
            _ => None,
        })
    };
    gpus.script.gpus.iter().map(known).collect()
}

/// Carries it out and prints every comparison; the bounds that were broken.
pub fn run(options: &Options) -> Result<Vec<String>> {
    fs::create_dir_all(&options.logs).with_context(|| format!("can't make {}", options.logs.display()))?;
    clock::go_first()?;
    let mut driver = Driver::start(options)?;
    let environment = driver.environment();
    let device = if options.stand_in { "driver" } else { "torch" };
    let program = Program::start(
        &options.python,
        device,
        &environment,
        &options.logs.join("gpu-engine.log"),
    )?;
    driver.used_by(program.pid())?;
    let sets = driver.sets();
    let start = || Watch::start(options, &program, &sets, &environment);
    println!("engine on {}", program.description()?);

    let mut report = Report::default();
    let watch = start()?;
    println!("the agent sees {}", watch.gpus()?);
    Report::heading("Values of the GPU against nvidia-smi");
    report.add_all(smi::sections(&looks(&driver, &program, &watch)?));
    Report::heading("CUDA calls against the calls that were made");
    report.add_all(calls::sections(&program, &watch.agent, &watch.engine)?);
    Report::heading("Requests against the engine's own account");
    report.add_all(phases::sections(&program, &watch.agent, &watch.engine)?);
    watch.stop();
    Report::heading("What the agent costs the engine");
    overhead::measure(&program, start)?;
    Ok(report.finish())
}

/// While nothing runs, and while tokens are made.
fn looks(driver: &Driver, program: &Program, watch: &Watch) -> Result<Vec<Look>> {
    // The last reading is a second old at most, and so must be what went on in it.
    const PAUSE: Duration = Duration::from_millis(1500);
    let mut looks = Vec::new();
    thread::sleep(PAUSE);
    for _ in 0..2 {
        thread::sleep(PAUSE);
        looks.push(driver.look("idle", watch)?);
    }
    let stop = std::sync::atomic::AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let plans = (0..).map(|index| program::plan(index, "busy", 40, 200));
            program.load(program::SLOTS).run(plans, &stop, &|_| ());
        });
        let mut seen = || -> Result<()> {
            thread::sleep(PAUSE);
            for _ in 0..4 {
                thread::sleep(PAUSE);
                looks.push(driver.look("busy", watch)?);
            }
            Ok(())
        };
        let result = seen();
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        result
    })?;
    Ok(looks)
}

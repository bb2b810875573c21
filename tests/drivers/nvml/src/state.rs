//! What the library knows from one call to the next: the script, when NVML was initialised, handles.
//!
//! Owns: reading the script again when it changes, the checks that come before every answer. Refuses: answers.

use infertap_driver_script::{Code, Errors, Gpu, How, Instance, SCRIPT_VARIABLE, Script, Work, read_work};
use std::{
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

/// A device handle: the position of a GPU in the script, and of its instance there. Never null.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Device(usize);

impl Device {
    const BASE: usize = 0x0a00_0000;

    pub(crate) fn new(gpu: usize, instance: Option<usize>) -> Device {
        Device(Device::BASE + (gpu << 8) + instance.map_or(0, |at| at + 1))
    }

    /// As C callers hold it.
    pub(crate) fn number(self) -> usize {
        self.0
    }

    /// Position of the GPU.
    pub(crate) fn gpu(self) -> Option<usize> {
        Some(self.0.checked_sub(Device::BASE)? >> 8)
    }

    /// Position of the instance.
    pub(crate) fn instance(self) -> Option<usize> {
        (self.0 & 0xff).checked_sub(1)
    }
}

/// A reading of the script's file.
struct Read {
    script: Arc<Script>,
    /// Changes with the file.
    version: (Option<SystemTime>, u64),
}

#[derive(Default)]
struct State {
    read: Option<Read>,
    /// What was told of a script that can't be read, so that it is told once.
    complaint: String,
    /// Calls of `nvmlInit` less those of `nvmlShutdown`.
    initialised: u32,
    /// CLOCK_MONOTONIC nanoseconds of the last first initialisation.
    initialised_ns: u64,
    /// Second 0 of scripts that name none.
    first_read_ns: u64,
    /// CLOCK_REALTIME less CLOCK_MONOTONIC, nanoseconds, as first measured: the same sample has the same stamp always.
    wall_offset_ns: Option<i64>,
}

static STATE: Mutex<State> = Mutex::new(State {
    read: None,
    complaint: String::new(),
    initialised: 0,
    initialised_ns: 0,
    first_read_ns: 0,
    wall_offset_ns: None,
});

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a valid timespec for the call to fill.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// CLOCK_MONOTONIC, nanoseconds.
pub(crate) fn monotonic_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

impl State {
    /// The script as it stands in the file now. One that can't be read is told on standard error, and the last good one
    /// stays.
    fn script(&mut self) -> Result<Arc<Script>, Code> {
        let path = PathBuf::from(std::env::var_os(SCRIPT_VARIABLE).ok_or(Code::DriverNotLoaded)?);
        let file = std::fs::metadata(&path).ok();
        let version = (
            file.as_ref().and_then(|file| file.modified().ok()),
            file.map_or(0, |file| {
                std::os::unix::fs::MetadataExt::ino(&file) ^ file.len().rotate_left(32)
            }),
        );
        if self.read.as_ref().is_none_or(|read| read.version != version) {
            match Script::read(&path) {
                Ok(mut script) => {
                    if script.start_ns == 0 {
                        if self.first_read_ns == 0 {
                            self.first_read_ns = monotonic_ns();
                        }
                        script.start_ns = self.first_read_ns;
                    }
                    self.read = Some(Read {
                        script: Arc::new(script),
                        version,
                    });
                }
                Err(error) => {
                    let complaint = format!("stand-in NVML: can't read {}: {error}", path.display());
                    if complaint != self.complaint {
                        eprintln!("{complaint}");
                        self.complaint = complaint;
                    }
                }
            }
        }
        let read = self.read.as_ref().ok_or(Code::DriverNotLoaded)?;
        Ok(Arc::clone(&read.script))
    }
}

/// What one call sees.
pub(crate) struct View {
    /// The script.
    pub(crate) script: Arc<Script>,
    /// Its second at which the call is answered.
    pub(crate) now: f64,
    name: &'static str,
    initialised: f64,
    wall_offset_ns: i64,
}

/// Does what every function does first, then `body`; NVML's return code.
pub(crate) fn call(name: &'static str, body: impl FnOnce(&View) -> Result<(), Code>) -> u32 {
    match View::new(name).and_then(|view| body(&view)) {
        Ok(()) => 0,
        Err(code) => code as u32,
    }
}

impl View {
    fn new(name: &'static str) -> Result<View, Code> {
        let mut state = state();
        let initialising = name.starts_with("nvmlInit");
        if state.initialised == 0 && !initialising {
            return Err(Code::Uninitialized);
        }
        let script = state.script()?;
        let wall_offset_ns = *state.wall_offset_ns.get_or_insert_with(|| {
            let before = monotonic_ns();
            clock_ns(libc::CLOCK_REALTIME) as i64 - u64::midpoint(before, monotonic_ns()) as i64
        });
        let now = script.second(monotonic_ns());
        if script.absent.iter().any(|absent| absent == name) {
            return Err(Code::FunctionNotFound);
        }
        let view = View {
            now,
            name,
            initialised: script.second(state.initialised_ns),
            script,
            wall_offset_ns,
        };
        view.check(&view.script.errors)?;
        if initialising {
            if state.initialised == 0 {
                state.initialised_ns = monotonic_ns();
            }
            state.initialised += 1;
        } else if name == "nvmlShutdown" {
            state.initialised -= 1;
        }
        Ok(view)
    }

    /// The same call, at the time that it is now.
    pub(crate) fn again(&self) -> Result<View, Code> {
        let script = state().script()?;
        Ok(View {
            now: script.second(monotonic_ns()),
            script,
            ..*self
        })
    }

    fn check(&self, errors: &Errors) -> Result<(), Code> {
        match errors.get(self.name).and_then(|failure| failure.at(self.now)) {
            Some(code) => Err(code),
            None => Ok(()),
        }
    }

    /// How the GPU at this position is away, if it is.
    pub(crate) fn away(&self, gpu: &Gpu) -> Option<How> {
        gpu.away_at(self.now, self.initialised)
    }

    /// Positions of the GPUs that are counted, in the order of their indices.
    pub(crate) fn counted(&self) -> Vec<usize> {
        let gpus = self.script.gpus.iter().enumerate();
        gpus.filter(|(_, gpu)| self.away(gpu) != Some(How::Removed))
            .map(|(at, _)| at)
            .collect()
    }

    /// The GPU of a handle, whole or of an instance, if it can be reached, whatever the script says of the function.
    pub(crate) fn reach(&self, device: Device) -> Result<&Gpu, Code> {
        let gpu = device.gpu().and_then(|at| self.script.gpus.get(at));
        let gpu = gpu.ok_or(Code::InvalidArgument)?;
        match self.away(gpu) {
            Some(_) => Err(Code::GpuIsLost),
            None => Ok(gpu),
        }
    }

    /// The whole GPU of a handle, where the script lets the function succeed on it.
    pub(crate) fn gpu(&self, device: Device) -> Result<&Gpu, Code> {
        match self.target(device)? {
            (gpu, None) => Ok(gpu),
            (_, Some(_)) => Err(Code::NotSupported),
        }
    }

    /// The GPU of a handle, and its instance if it is the handle of one.
    pub(crate) fn target(&self, device: Device) -> Result<(&Gpu, Option<&Instance>), Code> {
        let gpu = self.reach(device)?;
        let Some(at) = device.instance() else {
            self.check(&gpu.errors)?;
            return Ok((gpu, None));
        };
        let mig = gpu.mig.as_ref().filter(|mig| mig.enabled).ok_or(Code::NotFound)?;
        let instance = mig.instances.get(at).and_then(Option::as_ref);
        let instance = instance.ok_or(Code::NotFound)?;
        self.check(&instance.errors)?;
        Ok((gpu, Some(instance)))
    }

    /// When the device of `gpu` worked.
    pub(crate) fn work(&self, gpu: &Gpu) -> Work {
        let work = gpu
            .work
            .as_ref()
            .map(|path| read_work(path, self.script.start_ns));
        match work {
            None => Work::default(),
            Some(Ok(work)) => work,
            Some(Err(error)) => {
                eprintln!("stand-in NVML: can't read when a device worked: {error}");
                Work::default()
            }
        }
    }

    /// Microseconds of Unix time at `second`, as NVML stamps samples.
    pub(crate) fn stamp(&self, second: f64) -> u64 {
        let monotonic = self.script.start_ns as i64 + (second * 1e9) as i64;
        ((monotonic + self.wall_offset_ns) / 1000).max(0) as u64
    }

    /// Stamp at which the `k`-th sample was taken.
    pub(crate) fn sample_stamp(&self, k: i64) -> u64 {
        self.stamp(k as f64 * self.period())
    }

    /// Seconds from one sample to the next.
    pub(crate) fn period(&self) -> f64 {
        self.script.samples.period_ms.max(0.001) / 1000.0
    }
}

/// A value that may be absent: what is absent is not supported.
pub(crate) fn supported<T>(value: Option<T>) -> Result<T, Code> {
    value.ok_or(Code::NotSupported)
}

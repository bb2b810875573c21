//! What the library knows from one call to the next, and what every call does first.
//!
//! Owns: settings, the devices, failures that are asked for, how calls came in. Refuses: answers.

use crate::device::Device;
use infertap_driver_script::{Cuda, WORK_VARIABLE};
use std::{
    cell::Cell,
    collections::HashMap,
    path::PathBuf,
    sync::{
        LazyLock, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

/// `CUresult`s that this driver knows by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Error {
    InvalidValue,
    OutOfMemory,
    InvalidDevice,
    InvalidContext,
    InvalidHandle,
    NotFound,
    NotReady,
    /// As the settings say.
    Scripted(u32),
}

impl Error {
    fn number(self) -> u32 {
        match self {
            Error::InvalidValue => 1,
            Error::OutOfMemory => 2,
            Error::InvalidDevice => 101,
            Error::InvalidContext => 201,
            Error::InvalidHandle => 400,
            Error::NotFound => 500,
            Error::NotReady => 600,
            Error::Scripted(code) => code,
        }
    }
}

/// By which of its functions a call came in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entry {
    /// The exported symbol.
    Exported,
    /// The exported symbol for per-thread default streams.
    PerThread,
    /// What `cuGetProcAddress` gives out.
    Internal,
}

/// Calls by the way they came in.
static ENTERED: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];

/// All that is kept.
pub(crate) struct State {
    pub(crate) settings: Cuda,
    pub(crate) devices: Vec<Device>,
    /// Nanoseconds that each kernel takes; a function's handle is its place here and one.
    pub(crate) kernels: Vec<u64>,
    /// Nanoseconds that the nodes of graphs and of instantiated graphs take.
    pub(crate) graphs: HashMap<usize, u64>,
    /// When events that were recorded are reached, CLOCK_MONOTONIC nanoseconds; `None` until they are recorded.
    pub(crate) events: HashMap<usize, Option<u64>>,
    /// Nanoseconds captured so far, by stream.
    pub(crate) captures: HashMap<Stream, u64>,
    /// Calls of functions that are to fail at some of them.
    calls: HashMap<&'static str, u64>,
    next: usize,
}

static STATE: LazyLock<Mutex<State>> = LazyLock::new(|| {
    let settings = Cuda::from_environment().unwrap_or_else(|error| {
        eprintln!("stand-in CUDA: {error}");
        std::process::abort();
    });
    let folder = std::env::var_os(WORK_VARIABLE).map(PathBuf::from);
    let device = |number| {
        let path = folder
            .as_ref()
            .map(|folder| folder.join(format!("device-{number}")));
        Device::new(number, settings.memory, path)
    };
    Mutex::new(State {
        devices: (0..settings.devices).map(device).collect(),
        settings,
        kernels: Vec::new(),
        graphs: HashMap::new(),
        events: HashMap::new(),
        captures: HashMap::new(),
        calls: HashMap::new(),
        next: 0,
    })
});

/// The state, for one call at a time.
pub(crate) fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A stream as callers hold it: 0 is the default stream, 1 and 2 are the legacy and the per-thread one by name.
pub(crate) type StreamHandle = usize;

/// A stream: its device, and its number there; each thread has a default stream of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Stream {
    pub(crate) device: usize,
    pub(crate) number: u64,
}

/// Where numbers of per-thread default streams begin.
const PER_THREAD: u64 = 1 << 32;

thread_local! {
    static DEVICE: Cell<usize> = const { Cell::new(0) };
    static THREAD: u64 = {
        static THREADS: AtomicU64 = AtomicU64::new(PER_THREAD);
        THREADS.fetch_add(1, Ordering::Relaxed)
    };
}

/// The calling thread's device.
pub(crate) fn current_device() -> usize {
    DEVICE.get()
}

/// Makes it another.
pub(crate) fn set_current_device(device: usize) {
    DEVICE.set(device);
}

impl State {
    /// A handle that was not given out before. It is never followed, only compared.
    pub(crate) fn new_handle(&mut self) -> usize {
        self.next += 1;
        0x5700_0000_0000 + self.next * 0x100
    }

    /// The stream of a handle.
    pub(crate) fn stream(&self, entry: Entry, handle: StreamHandle) -> Result<Stream, Error> {
        let default = match handle {
            2 => Some(THREAD.with(|thread| *thread)),
            0 if entry == Entry::PerThread => Some(THREAD.with(|thread| *thread)),
            0 | 1 => Some(0),
            _ => None,
        };
        if let Some(number) = default {
            return Ok(Stream {
                device: current_device(),
                number,
            });
        }
        let number = handle as u64;
        let device = self
            .devices
            .iter()
            .position(|device| device.has_stream(number))
            .ok_or(Error::InvalidHandle)?;
        Ok(Stream { device, number })
    }

    /// A device.
    pub(crate) fn device(&mut self, device: usize) -> Result<&mut Device, Error> {
        self.devices.get_mut(device).ok_or(Error::InvalidDevice)
    }

    /// Puts work on a stream, or into what it captures.
    pub(crate) fn put(&mut self, stream: Stream, nanoseconds: u64) -> Result<(), Error> {
        if let Some(captured) = self.captures.get_mut(&stream) {
            *captured += nanoseconds;
            return Ok(());
        }
        self.device(stream.device)?.put(stream.number, nanoseconds);
        Ok(())
    }
}

/// Does what every function does first, then `body`; the `CUresult`.
pub(crate) fn call(name: &'static str, entry: Entry, body: impl FnOnce(Entry) -> Result<(), Error>) -> u32 {
    ENTERED[entry as usize].fetch_add(1, Ordering::Relaxed);
    let scripted = {
        let mut state = state();
        if state.settings.failures.contains_key(name) {
            let number = state.calls.entry(name).or_insert(0);
            *number += 1;
            let number = *number;
            state.settings.failure(name, number)
        } else {
            None
        }
    };
    let result = match scripted {
        Some(code) => Err(Error::Scripted(code)),
        None => body(entry),
    };
    match result {
        Ok(()) => 0,
        Err(error) => error.number(),
    }
}

/// Calls that came in by exported symbols, by those for per-thread default streams, and by pointers of `cuGetProcAddress`:
/// no function of CUDA's, but how tests make sure which way a runtime goes.
#[unsafe(no_mangle)]
extern "C" fn infertapStandInEntered(way: u32) -> u64 {
    ENTERED
        .get(way as usize)
        .map_or(0, |count| count.load(Ordering::Relaxed))
}

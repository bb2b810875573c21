//! An engine that computes on the stand-in GPU: it queues requests, prefills and decodes them in batches, and writes down
//! each step.
//!
//! Owns: the scheduler's thread, the CUDA calls of a step. Refuses: answering requests (`reply`), which only waits for the
//! tokens that come from here.

mod truth;

pub use truth::{GpuSeconds, Step, StepKind, gpu_seconds};

use crate::{
    clock::monotonic_ns,
    gpu::api::{Api, Dim3},
};
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::{
    collections::{HashMap, VecDeque},
    path::Path,
    ptr,
    sync::mpsc::{Receiver, Sender, channel},
    thread,
    time::Duration,
};

/// What a request needs of the GPU. Its tokens are its script's chunks: the first ends its prefill.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GpuWork {
    /// Bursts of its prefill: launches, and a wait for them.
    pub prefill_bursts: u32,
    /// Kernels launched in each.
    pub prefill_launches: u32,
    /// Microseconds that each burst takes.
    pub prefill_us: u64,
    /// Microseconds that a decode step takes which it is in; a step takes as long as the slowest of its requests.
    pub decode_us: u64,
    /// Allocations of 4 KiB before its prefill, each given back at once; those that fail harm nothing.
    pub allocations: u32,
    /// Microseconds for which the scheduler thinks before it starts this request, beside [`Settings::think_us`].
    pub think_us: u64,
}

impl Default for GpuWork {
    fn default() -> GpuWork {
        GpuWork {
            prefill_bursts: 1,
            prefill_launches: 8,
            prefill_us: 10_000,
            decode_us: 2_000,
            allocations: 0,
            think_us: 0,
        }
    }
}

/// How the scheduler works.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Requests that run at once; others wait.
    pub max_running: usize,
    /// A slow scheduler: microseconds for which it thinks before it starts a request, while the GPU has nothing to do.
    pub think_us: u64,
    /// A prefill is computed in one step with the decoding of those that run, instead of by itself.
    pub mixed: bool,
    /// By the runtime's API instead of the driver's.
    pub by_runtime: bool,
}

/// Where steps are written.
pub type StepSink = Box<dyn FnMut(&Step) + Send>;

/// The engine, as connections have it.
#[derive(Debug, Clone)]
pub struct Engine {
    submit: Sender<Job>,
}

struct Job {
    work: GpuWork,
    tokens: u32,
    tell: Sender<Told>,
}

enum Told {
    Started(u64),
    Token(u64),
}

/// A request in the engine. Dropping it cancels the request at the next step.
#[derive(Debug)]
pub struct Ticket {
    told: Receiver<Told>,
    /// When it came to the engine, CLOCK_MONOTONIC nanoseconds.
    pub queued_ns: u64,
    /// When the scheduler started it.
    pub t1_ns: Option<u64>,
    /// When its first token existed.
    pub t2_ns: Option<u64>,
    /// When its newest token existed.
    pub t3_ns: Option<u64>,
}

impl Ticket {
    /// Waits for the next token; whether there is one.
    pub fn token(&mut self) -> bool {
        loop {
            match self.told.recv() {
                Ok(Told::Started(at)) => self.t1_ns = Some(at),
                Ok(Told::Token(at)) => {
                    self.t2_ns.get_or_insert(at);
                    self.t3_ns = Some(at);
                    return true;
                }
                Err(_) => return false,
            }
        }
    }
}

impl Engine {
    /// Loads the libraries of `drivers` and starts the scheduler, which lives as long as the process.
    pub fn start(drivers: &Path, settings: Settings, sink: StepSink) -> Result<Engine> {
        let api = Api::load(drivers, false)?;
        let gpu = Gpu {
            stream: api.stream()?,
            api,
            by_runtime: settings.by_runtime,
            kernels: HashMap::new(),
            graphs: HashMap::new(),
        };
        let (submit, jobs) = channel();
        let scheduler = Scheduler {
            gpu,
            settings,
            sink,
            waiting: VecDeque::new(),
            running: Vec::new(),
        };
        thread::Builder::new()
            .name("engine-core".to_owned())
            .spawn(move || scheduler.run(&jobs))
            .context("can't start the engine's thread")?;
        Ok(Engine { submit })
    }

    /// Queues a request of so many tokens.
    pub fn submit(&self, work: &GpuWork, tokens: u32) -> Ticket {
        let (tell, told) = channel();
        let queued_ns = monotonic_ns();
        let job = Job {
            work: work.clone(),
            tokens,
            tell,
        };
        // Without an engine the ticket tells that there are no tokens.
        let _ = self.submit.send(job);
        Ticket {
            told,
            queued_ns,
            t1_ns: None,
            t2_ns: None,
            t3_ns: None,
        }
    }
}

struct Scheduler {
    gpu: Gpu,
    settings: Settings,
    sink: StepSink,
    waiting: VecDeque<Job>,
    running: Vec<Job>,
}

impl Scheduler {
    fn run(mut self, jobs: &Receiver<Job>) {
        loop {
            if self.waiting.is_empty() && self.running.is_empty() {
                // The server is gone when nobody can send any more.
                let Ok(job) = jobs.recv() else { return };
                self.waiting.push_back(job);
            }
            self.waiting.extend(jobs.try_iter());
            if let Err(error) = self.step() {
                eprintln!("engine: {error:#}");
                std::process::exit(1);
            }
        }
    }

    /// Starts the next request and prefills it, or decodes a token of each that runs.
    fn step(&mut self) -> Result<()> {
        if self.running.len() < self.settings.max_running
            && let Some(next) = self.waiting.front()
        {
            let think_us = self.settings.think_us + next.work.think_us;
            if think_us > 0 {
                thread::sleep(Duration::from_micros(think_us));
            }
            if let Some(job) = self.waiting.pop_front() {
                self.prefill(job)?;
            }
        } else {
            let begin_ns = monotonic_ns();
            self.gpu.decode(self.decode_us())?;
            self.gpu.wait()?;
            let end_ns = monotonic_ns();
            self.note(begin_ns, end_ns, (0, self.running.len()), (0, 1));
            self.give_tokens(end_ns);
        }
        Ok(())
    }

    fn prefill(&mut self, mut job: Job) -> Result<()> {
        if job.tell.send(Told::Started(monotonic_ns())).is_err() {
            return Ok(());
        }
        for _ in 0..job.work.allocations {
            self.gpu.allocate();
        }
        for _ in 0..job.work.prefill_bursts.max(1) {
            let along = if self.settings.mixed {
                self.running.len()
            } else {
                0
            };
            let begin_ns = monotonic_ns();
            self.gpu
                .prefill(job.work.prefill_launches.max(1), job.work.prefill_us)?;
            if along > 0 {
                self.gpu.decode(self.decode_us())?;
            }
            self.gpu.wait()?;
            let end_ns = monotonic_ns();
            let graphs = u32::from(along > 0);
            self.note(
                begin_ns,
                end_ns,
                (1, along),
                (job.work.prefill_launches.max(1), graphs),
            );
            if along > 0 {
                self.give_tokens(end_ns);
            }
        }
        if give(&mut job, monotonic_ns()) {
            self.running.push(job);
        }
        Ok(())
    }

    fn decode_us(&self) -> u64 {
        self.running
            .iter()
            .map(|job| job.work.decode_us)
            .max()
            .unwrap_or(0)
    }

    fn give_tokens(&mut self, at: u64) {
        self.running.retain_mut(|job| give(job, at));
    }

    fn note(
        &mut self,
        begin_ns: u64,
        end_ns: u64,
        (prefilling, decoding): (u32, usize),
        (kernels, graphs): (u32, u32),
    ) {
        let kind = match (prefilling, decoding) {
            (0, _) => StepKind::Decode,
            (_, 0) => StepKind::Prefill,
            _ => StepKind::Mixed,
        };
        (self.sink)(&Step {
            begin_ns,
            end_ns,
            kind,
            prefilling,
            decoding: decoding as u32,
            waiting: self.waiting.len() as u32,
            kernels,
            graphs,
        });
    }
}

/// Gives a request its next token; whether it needs more.
fn give(job: &mut Job, at: u64) -> bool {
    job.tokens = job.tokens.saturating_sub(1);
    job.tell.send(Told::Token(at)).is_ok() && job.tokens > 0
}

/// The device, and what has been made on it.
struct Gpu {
    api: Api,
    stream: usize,
    by_runtime: bool,
    /// By microseconds: the driver's handle, or the host function.
    kernels: HashMap<u64, usize>,
    graphs: HashMap<u64, usize>,
}

impl Gpu {
    /// Launches kernels that take `microseconds` together.
    fn prefill(&mut self, launches: u32, microseconds: u64) -> Result<()> {
        let each = microseconds / u64::from(launches);
        let last = microseconds - each * u64::from(launches - 1);
        for number in 1..=launches {
            self.launch(if number == launches { last } else { each })?;
        }
        Ok(())
    }

    fn launch(&mut self, microseconds: u64) -> Result<()> {
        let null = ptr::null_mut();
        let count = self.kernels.len();
        let kernel = match self.kernels.get(&microseconds) {
            Some(kernel) => *kernel,
            None if self.by_runtime => {
                let host = 0x10_0000 + count;
                self.api.register(host, microseconds)?;
                host
            }
            None => self.api.kernel(microseconds)?,
        };
        self.kernels.insert(microseconds, kernel);
        let one = Dim3(1, 1, 1);
        let code = if self.by_runtime {
            (self.api.runtime.cudaLaunchKernel)(kernel, one, one, null, 0, self.stream)
        } else {
            (self.api.driver.cuLaunchKernel)(kernel, 1, 1, 1, 1, 1, 1, 0, self.stream, null, null)
        };
        anyhow::ensure!(code == 0, "a launch returned {code}");
        Ok(())
    }

    /// Allocates memory for a moment, if there is any.
    fn allocate(&self) {
        let mut pointer = 0;
        if self.by_runtime {
            if (self.api.runtime.cudaMalloc)(&raw mut pointer, 4096) == 0 {
                (self.api.runtime.cudaFree)(pointer);
            }
        } else if (self.api.driver.cuMemAlloc_v2)(&raw mut pointer, 4096) == 0 {
            (self.api.driver.cuMemFree_v2)(pointer);
        }
    }

    /// Launches a graph that takes `microseconds`.
    fn decode(&mut self, microseconds: u64) -> Result<()> {
        let graph = match self.graphs.get(&microseconds) {
            Some(graph) => *graph,
            None => self.api.graph(1, microseconds)?,
        };
        self.graphs.insert(microseconds, graph);
        let code = if self.by_runtime {
            (self.api.runtime.cudaGraphLaunch)(graph, self.stream)
        } else {
            (self.api.driver.cuGraphLaunch)(graph, self.stream)
        };
        anyhow::ensure!(code == 0, "a graph launch returned {code}");
        Ok(())
    }

    fn wait(&self) -> Result<()> {
        let code = if self.by_runtime {
            (self.api.runtime.cudaStreamSynchronize)(self.stream)
        } else {
            (self.api.driver.cuStreamSynchronize)(self.stream)
        };
        anyhow::ensure!(code == 0, "waiting returned {code}");
        Ok(())
    }
}

/// A sink that writes one JSON line a step and flushes it.
pub fn step_lines(mut out: impl std::io::Write + Send + 'static) -> StepSink {
    Box::new(move |step| {
        let mut line = serde_json::to_vec(step).unwrap_or_default();
        line.push(b'\n');
        if let Err(error) = out.write_all(&line).and_then(|()| out.flush()) {
            eprintln!("engine: can't write a step: {error}");
        }
    })
}

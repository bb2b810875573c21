//! The tap thread: takes records from the ring, gives them to the core, and what the core observes to the exporter.
//!
//! Owns: the order of these steps, and the kernel side's questions and housekeeping. Refuses: everything that waits, but
//! for the ring.

mod attached;
mod calls;
mod counts;
mod cuda;
mod gpu;
mod pods;
mod watched;

pub(super) use gpu::GpuOutput;

use super::attach::Attacher;
use super::watch::Hint;
use crate::clock::{monotonic_ns, unix_ms};
use crate::config::Config;
use crate::count::Counter;
use crate::discover::{Change, Part};
use crate::export::{Exporter, metrics::AgentLoss};
use crate::probe::{CudaSums, Ring, Targets};
use crate::recording::Recorder;
use infertap_abi::{DropReason, RecordHeader, record_flag};
use infertap_core::event::Socket;
use infertap_core::gpu::CudaMapping;
use infertap_core::pressure::MemoryReading;
use infertap_core::{EngineKind, Event, EventKind, Money, Nanos, Observation, Pipeline};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError};
use std::time::{Duration, Instant};

/// Records taken before the other duties have their turn.
const BATCH: usize = 4096;
/// Wait for records: while they come, and while they don't. Wake-ups are batched in the kernel, so this bounds how
/// late a record is read, and nothing else: it carries its own time.
const BUSY_WAIT: Duration = Duration::from_millis(10);
const IDLE_WAIT: Duration = Duration::from_millis(50);
/// How often the core is told the time, and how often the kernel's counters are read.
const TICK: Duration = Duration::from_millis(100);
const COUNTERS: Duration = Duration::from_secs(1);

/// What the tap thread is told.
#[derive(Debug)]
pub(super) enum Command {
    /// Engines came, changed or went; the first time, all that are there.
    Changes(Vec<Change>),
    /// The configuration was read again: what of it may change takes effect.
    Configure(Box<Config>),
    /// GPUs were read.
    Gpu(Box<crate::sampler::nvml::GpuUpdate>),
    /// An engine's context limit was looked for.
    ContextLimit(Arc<str>, Option<infertap_core::ledger::ContextLimit>),
    /// Pods came, changed or went.
    Pods(crate::pods::PodBatch),
    /// The memory of engines was read.
    Memory(Nanos, Vec<MemoryReading>),
    /// The watch thread panicked: nothing new would be found any more.
    Blind,
    /// The end.
    Stop,
}

/// What a record asks of the agent itself; done after the batch, when the ring is no longer borrowed.
enum Duty {
    Answer(Socket),
    Forked(u32),
    Executed(u32),
    Exited(u32),
    Mapping(CudaMapping),
}

/// State of the tap thread.
pub(super) struct Tap {
    attacher: Attacher,
    attached: attached::Attached,
    targets: Targets,
    ring: Ring,
    pipeline: Pipeline,
    /// Behind the pipeline: what it tells, priced.
    money: Money,
    exporter: Arc<Exporter>,
    recorder: Option<Recorder>,
    hints: SyncSender<Hint>,
    /// Engine → its processes and their parts.
    engines: BTreeMap<Arc<str>, HashMap<u32, Part>>,
    /// Engine → the TCP ports that it listens on.
    ports: BTreeMap<Arc<str>, Vec<u16>>,
    observations: Vec<Observation>,
    duties: Vec<Duty>,
    /// Pieces that were to be captured and could not be read.
    faults: u64,
    drops_told: HashMap<&'static str, u64>,
    recorder_lost: u64,
    /// Processes that should be watched and can't be, and why: what `/readyz` tells.
    troubles: BTreeMap<u32, String>,
    /// Counts tokens that nobody tells; absent when that is off.
    counter: Option<Counter>,
    /// Calls within engines are probed.
    hooks: bool,
    kinds: HashMap<Arc<str>, EngineKind>,
    /// What was told last of engines' coverage by calls.
    calls_told: HashMap<(Arc<str>, &'static str), bool>,
    cuda: cuda::Cuda,
}

impl Tap {
    #[expect(clippy::too_many_arguments, reason = "what it is made of, once")]
    pub(super) fn new(
        attacher: Attacher,
        cuda_sums: Arc<CudaSums>,
        targets: Targets,
        ring: Ring,
        config: &Config,
        exporter: Arc<Exporter>,
        recorder: Option<Recorder>,
        hints: SyncSender<Hint>,
        counter: Option<Counter>,
    ) -> Tap {
        let mut money = Money::new(config.prices());
        money.set_gpu_price(config.gpu_price());
        Tap {
            attacher,
            attached: attached::Attached::new(config.capture.socket_probe),
            targets,
            ring,
            pipeline: Pipeline::new(counts::pipeline(config, counter.is_some())),
            money,
            counter,
            exporter,
            recorder,
            hints,
            engines: BTreeMap::new(),
            ports: BTreeMap::new(),
            observations: Vec::new(),
            duties: Vec::new(),
            faults: 0,
            drops_told: HashMap::new(),
            recorder_lost: 0,
            troubles: BTreeMap::new(),
            hooks: config.engine.hooks,
            kinds: HashMap::new(),
            calls_told: HashMap::new(),
            cuda: cuda::Cuda::new(config.gpu.cuda, cuda_sums),
        }
    }

    /// Runs until told to stop. `end` gets the reason when it ends by itself.
    pub(super) fn run(
        mut self,
        commands: &Receiver<Command>,
        end: tokio::sync::oneshot::Sender<String>,
    ) -> Option<Recorder> {
        let (mut ticked, mut counted) = (Instant::now(), Instant::now());
        let mut wait = IDLE_WAIT;
        loop {
            if let Err(error) = self.ring.wait(wait) {
                let _ = end.send(error.to_string());
                return self.finish();
            }
            let taken = self.take_records();
            self.take_counts();
            if let Err(reason) = self.take_answers() {
                let _ = end.send(reason);
                return self.finish();
            }
            wait = if taken > 0 { BUSY_WAIT } else { IDLE_WAIT };
            loop {
                match commands.try_recv() {
                    Ok(Command::Changes(changes)) => {
                        for change in changes {
                            self.change(change);
                        }
                        self.be_ready();
                    }
                    Ok(Command::Configure(config)) => {
                        self.pipeline.set_scenes(config.scenes());
                        self.pipeline.set_proxies(config.proxies());
                        self.money.set_prices(config.prices());
                        self.money.set_gpu_price(config.gpu_price());
                        self.pipeline.set_trace_header(config.trace_header());
                        self.pipeline
                            .set_content(config.content.rules().into(), config.content.limits());
                    }
                    Ok(Command::Gpu(update)) => self.gpus(*update),
                    Ok(Command::ContextLimit(id, limit)) => self.exporter.context_limit(&id, limit),
                    Ok(Command::Pods(batch)) => self.pods_changed(&batch),
                    Ok(Command::Memory(at, readings)) => self.memory_read(at, readings),
                    Ok(Command::Blind) => {
                        let _ = end.send("the discovery thread panicked".to_owned());
                        return self.finish();
                    }
                    Ok(Command::Stop) | Err(TryRecvError::Disconnected) => {
                        while self.take_records() > 0 {}
                        return self.finish();
                    }
                    Err(TryRecvError::Empty) => break,
                }
            }
            if ticked.elapsed() >= TICK {
                ticked = Instant::now();
                self.pipeline.advance(monotonic_ns(), &mut self.observations);
                self.publish();
            }
            if counted.elapsed() >= COUNTERS {
                counted = Instant::now();
                self.read_counters();
                self.retry();
                self.read_cuda();
                self.tell_attaching();
                self.exporter.records().advance();
                if let Some(failure) = self.recorder.as_ref().and_then(Recorder::failure) {
                    let _ = end.send(format!("recording failed: {failure}"));
                    return self.finish();
                }
            }
        }
    }

    fn take_records(&mut self) -> usize {
        let Tap {
            ring,
            pipeline,
            exporter,
            recorder,
            observations,
            duties,
            faults,
            ..
        } = self;
        let taken = ring.drain(BATCH, |record| {
            if let Some(recorder) = recorder {
                recorder.record(record);
            }
            let event = match Event::decode(record) {
                Ok(event) => event,
                Err(error) => {
                    tracing::debug!("{error}");
                    exporter.metrics().agent_loss(AgentLoss::Decode, 1);
                    return;
                }
            };
            exporter.metrics().event(&event.kind);
            match event.kind {
                EventKind::FdUnknown(socket) => duties.push(Duty::Answer(socket)),
                EventKind::Fork { child, .. } => duties.push(Duty::Forked(child)),
                EventKind::Exec { tgid } => duties.push(Duty::Executed(tgid)),
                EventKind::Exit { tgid } => duties.push(Duty::Exited(tgid)),
                EventKind::CudaMapping(event) => duties.push(Duty::Mapping(event)),
                EventKind::Data { .. }
                    if RecordHeader::read(record).is_some_and(|h| h.flags & record_flag::FAULT != 0) =>
                {
                    *faults += 1;
                }
                _ => {}
            }
            pipeline.handle(event, observations);
        });
        self.do_duties();
        self.publish();
        taken
    }

    fn do_duties(&mut self) {
        for duty in std::mem::take(&mut self.duties) {
            let done = match duty {
                Duty::Answer(socket) => self.targets.answer(&socket),
                Duty::Forked(child) => {
                    self.targets.inherited(child);
                    self.attach(child);
                    self.look_for_calls(child);
                    self.watch_cuda(child);
                    Ok(())
                }
                Duty::Executed(pid) => {
                    // A hint that finds no room is no loss: all processes are looked at each second.
                    let _ = self.hints.try_send(Hint::Executed(pid));
                    self.restart_cuda(pid);
                    if self.targets.watches(pid) {
                        self.executed(pid)
                    } else {
                        Ok(())
                    }
                }
                Duty::Exited(pid) => {
                    self.trouble(pid, None);
                    self.end_cuda(pid);
                    self.targets.forget(pid);
                    self.detach(pid);
                    Ok(())
                }
                Duty::Mapping(event) => {
                    self.cuda_mapping(event);
                    Ok(())
                }
            };
            if let Err(error) = done {
                // Mostly a child that has ended already; one that lives on and is an engine's is told by `watch`.
                tracing::debug!("{error}");
            }
        }
    }

    /// Prices what was observed, gives it to the exporter, and mutes what the core has no use for.
    fn publish(&mut self) {
        self.ask_for_counts();
        if self.observations.is_empty() {
            return;
        }
        self.money.apply(unix_ms(), &mut self.observations);
        for observation in &self.observations {
            if let Observation::Ignore(conn) = observation
                && let Err(error) = self.targets.mute(*conn)
            {
                tracing::debug!("{error}");
            }
        }
        self.exporter.apply(&self.observations);
        self.observations.clear();
    }

    fn read_counters(&mut self) {
        for (reason, count) in self.targets.drops() {
            let total = count
                + if reason == DropReason::ReadFault {
                    self.faults
                } else {
                    0
                };
            self.exporter.metrics().kernel_drops(reason, total);
            let told = self.drops_told.entry(reason.label()).or_default();
            if total > *told {
                if let Some(recorder) = &self.recorder {
                    recorder.dropped(monotonic_ns(), reason.label(), total - *told);
                }
                if reason == DropReason::RingFull {
                    let lost = total - *told;
                    tracing::warn!("{lost} records lost: the ring was full; raise capture.ring_bytes");
                }
                *told = total;
            }
        }
        self.exporter
            .metrics()
            .open_connections(self.pipeline.stats().connections);
        if let Some(recorder) = &self.recorder {
            let lost = recorder.lost();
            self.exporter
                .metrics()
                .agent_loss(AgentLoss::Recorder, lost - self.recorder_lost);
            self.recorder_lost = lost;
        }
    }

    fn finish(mut self) -> Option<Recorder> {
        self.pipeline.advance(monotonic_ns(), &mut self.observations);
        self.pipeline.settle(&mut self.observations);
        self.publish();
        self.read_counters();
        self.read_cuda();
        self.recorder
    }
}

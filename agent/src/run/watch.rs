//! The watch thread: looks at the process table and at the memory of engines, tells the tap thread what changed.
//!
//! Owns: when to look. Refuses: how (discovery, the memory sampler) and what follows (the tap).

use super::tap::Command;
use crate::clock::monotonic_ns;
use crate::count::context_limit;
use crate::discover::{Change, DiscoverConfig, FoundEngine, Scan, Scanner, ScannerConfig, diff};
use crate::sampler::memory::MemorySampler;
use infertap_core::{EngineInfo, EngineKind};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

/// Shortest time between two looks: a burst of executed programs (a build, say) must not keep procfs busy.
const SHORTEST: Duration = Duration::from_millis(250);

/// What the watch thread is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hint {
    /// This process executed a program: it may be an engine now.
    Executed(u32),
    /// The end.
    Stop,
}

/// Looks at the process table every second, and soon after a program was executed.
pub(super) struct Watcher {
    scanner: Scanner,
    interval: Duration,
    commands: Sender<Command>,
    engines: Vec<FoundEngine>,
    problems: BTreeSet<String>,
    memory: Option<Memory>,
    /// Engines whose context limit is known; ids are few, and come again.
    limited: BTreeSet<Arc<str>>,
}

/// The reading of memory, and when it is due.
struct Memory {
    sampler: MemorySampler,
    interval: Duration,
    due: Instant,
}

impl Drop for Watcher {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // Fails only when the tap thread has ended too, and told so.
            let _ = self.commands.send(Command::Blind);
        }
    }
}

impl Watcher {
    /// `memory`: what reads the memory of engines, and how often.
    pub(super) fn new(
        config: DiscoverConfig,
        commands: Sender<Command>,
        memory: Option<(MemorySampler, Duration)>,
    ) -> Watcher {
        let interval = config.scan_interval.duration();
        Watcher {
            scanner: Scanner::new(ScannerConfig::new(config)),
            interval,
            commands,
            engines: Vec::new(),
            problems: BTreeSet::new(),
            memory: memory.map(|(sampler, interval)| Memory {
                sampler,
                interval,
                due: Instant::now(),
            }),
            limited: BTreeSet::new(),
        }
    }

    pub(super) fn run(mut self, hints: &Receiver<Hint>) {
        let mut first = true;
        loop {
            let looked = Instant::now();
            let scan = self.scanner.scan();
            self.tell_problems(&scan);
            let changes = diff(&self.engines, &scan.engines);
            self.engines = scan.engines;
            self.limited
                .retain(|id| self.engines.iter().any(|engine| engine.info.id == *id));
            if !self.tell_last_memory(&changes) {
                return;
            }
            // The first look is told in any case: with it the agent is ready.
            let tell = std::mem::take(&mut first) || !changes.is_empty();
            let limits = self.to_look_for_limits(&changes);
            if tell && self.commands.send(Command::Changes(changes)).is_err() {
                return;
            }
            if !self.tell_limits(&limits) {
                return;
            }
            if !self.pause(looked, hints) {
                return;
            }
        }
    }

    /// Engines whose context limit is to be looked for: new ones, and others of which it is not known.
    fn to_look_for_limits(&self, changes: &[Change]) -> Vec<Arc<EngineInfo>> {
        let wanted = changes.iter().filter_map(|change| match change {
            Change::Up(engine) => Some(engine),
            Change::Changed(engine) => Some(engine).filter(|engine| !self.limited.contains(&engine.info.id)),
            Change::Down(_) => None,
        });
        let computes = wanted.filter(|engine| engine.info.kind != EngineKind::Gateway);
        computes.map(|engine| Arc::clone(&engine.info)).collect()
    }

    /// After the engines themselves were told: reading files may take a while. `false` when nobody is there to be told.
    fn tell_limits(&mut self, engines: &[Arc<EngineInfo>]) -> bool {
        engines.iter().all(|engine| {
            let limit = context_limit(self.scanner.host(), engine);
            if limit.is_some() {
                self.limited.insert(Arc::clone(&engine.id));
            } else {
                self.limited.remove(&engine.id);
            }
            let command = Command::ContextLimit(Arc::clone(&engine.id), limit);
            self.commands.send(command).is_ok()
        })
    }

    /// Waits for the next look; `false` at the end.
    fn pause(&mut self, looked: Instant, hints: &Receiver<Hint>) -> bool {
        let mut due = looked + self.interval;
        loop {
            if !self.read_memory() {
                return false;
            }
            let wake = self.memory.as_ref().map_or(due, |memory| due.min(memory.due));
            match hints.recv_timeout(wake.saturating_duration_since(Instant::now())) {
                Ok(Hint::Executed(pid)) => {
                    self.scanner.touch(pid);
                    due = due.min(looked + SHORTEST);
                }
                Ok(Hint::Stop) | Err(RecvTimeoutError::Disconnected) => return false,
                Err(RecvTimeoutError::Timeout) if Instant::now() >= due => return true,
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// Reads the memory of all engines when that is due; `false` when nobody is there to be told.
    fn read_memory(&mut self) -> bool {
        let Some(memory) = self.memory.as_mut() else {
            return true;
        };
        let now = Instant::now();
        if now < memory.due {
            return true;
        }
        memory.due = now + memory.interval;
        let readings: Vec<_> = self
            .engines
            .iter()
            .filter(|engine| engine.info.kind != EngineKind::Gateway)
            .map(|engine| memory.sampler.read(&engine.info.id, &engine.info.pids))
            .collect();
        readings.is_empty()
            || self
                .commands
                .send(Command::Memory(monotonic_ns(), readings))
                .is_ok()
    }

    /// What engines that are gone left in their control groups: it may tell that they were killed for memory.
    fn tell_last_memory(&mut self, changes: &[Change]) -> bool {
        let Some(memory) = self.memory.as_mut() else {
            return true;
        };
        let gone = changes.iter().filter_map(|change| match change {
            Change::Down(id) => memory.sampler.last(id),
            Change::Up(_) | Change::Changed(_) => None,
        });
        let readings: Vec<_> = gone.collect();
        readings.is_empty()
            || self
                .commands
                .send(Command::Memory(monotonic_ns(), readings))
                .is_ok()
    }

    /// Each problem once, when it appears.
    fn tell_problems(&mut self, scan: &Scan) {
        let now: BTreeSet<String> = scan.problems.iter().map(ToString::to_string).collect();
        for problem in now.difference(&self.problems) {
            tracing::warn!("{problem}");
        }
        self.problems = now;
    }
}

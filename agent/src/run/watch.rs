//! The watch thread: looks at the process table, tells the tap thread what changed.
//!
//! Owns: when to look. Refuses: how (discovery) and what follows (the tap).

use super::tap::Command;
use crate::discover::{DiscoverConfig, FoundEngine, Scan, Scanner, ScannerConfig, diff};
use std::collections::BTreeSet;
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
    pub(super) fn new(config: DiscoverConfig, commands: Sender<Command>) -> Watcher {
        let interval = config.scan_interval.duration();
        Watcher {
            scanner: Scanner::new(ScannerConfig::new(config)),
            interval,
            commands,
            engines: Vec::new(),
            problems: BTreeSet::new(),
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
            // The first look is told in any case: with it the agent is ready.
            let tell = std::mem::take(&mut first) || !changes.is_empty();
            if tell && self.commands.send(Command::Changes(changes)).is_err() {
                return;
            }
            if !self.pause(looked, hints) {
                return;
            }
        }
    }

    /// Waits for the next look; `false` at the end.
    fn pause(&mut self, looked: Instant, hints: &Receiver<Hint>) -> bool {
        let mut due = looked + self.interval;
        loop {
            match hints.recv_timeout(due.saturating_duration_since(Instant::now())) {
                Ok(Hint::Executed(pid)) => {
                    self.scanner.touch(pid);
                    due = due.min(looked + SHORTEST);
                }
                Ok(Hint::Stop) | Err(RecvTimeoutError::Disconnected) => return false,
                Err(RecvTimeoutError::Timeout) => return true,
            }
        }
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

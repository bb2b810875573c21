//! What the tap knows of attaching: what it has asked for, what came of it, and whether it goes on.
//!
//! Owns: the answers of the attaching thread. Refuses: waiting for any of them.

use super::super::attach::{Answer, Ticket};
use super::Tap;
use crate::config::SocketProbe;
use crate::probe::Coverage;
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

/// The longest that attaching to one process takes where nothing is wrong; the kernel is known to take ten seconds.
const SLOW: Duration = Duration::from_secs(30);

/// State of it.
#[derive(Debug)]
pub(super) struct Attached {
    /// A process's C library is attached to before it is watched.
    by_process: bool,
    /// Processes to whose C library is being attached.
    asked: HashMap<u32, Ticket>,
    coverage: HashMap<u32, Coverage>,
    /// What was told of the time that attaching took.
    spent: Duration,
    /// Attaching stands still.
    slow: Option<String>,
}

impl Attached {
    pub(super) fn new(sockets: SocketProbe) -> Attached {
        Attached {
            by_process: sockets == SocketProbe::Uprobe,
            asked: HashMap::new(),
            coverage: HashMap::new(),
            spent: Duration::ZERO,
            slow: None,
        }
    }

    /// Numbers of the functions that are probed in these processes; `None` when there is none of them, or one was not
    /// looked at yet.
    pub(super) fn functions(&self, pids: &[u32]) -> Option<BTreeSet<u32>> {
        let mut all = BTreeSet::new();
        for pid in pids {
            all.extend(self.coverage.get(pid)?.functions.as_ref()?);
        }
        (!pids.is_empty()).then_some(all)
    }

    /// Whether the CUDA calls of these processes are counted; `None` when none of them has CUDA mapped.
    pub(super) fn cuda(&self, pids: impl Iterator<Item = u32>) -> Option<bool> {
        pids.filter_map(|pid| self.coverage.get(&pid)?.cuda)
            .reduce(|one, other| one || other)
    }

    /// The CUDA calls of this process are counted no more.
    pub(super) fn forget_cuda(&mut self, pid: u32) {
        if let Some(coverage) = self.coverage.get_mut(&pid) {
            coverage.cuda = None;
        }
    }

    /// It is being attached to the C library of this process.
    pub(super) fn is_asked(&self, pid: u32) -> bool {
        self.asked.contains_key(&pid)
    }

    /// What is wrong with attaching.
    pub(super) fn trouble(&self) -> Option<&String> {
        self.slow.as_ref()
    }
}

impl Tap {
    /// Attaches to the C library of a process, where sockets are observed there. Whether that is to be awaited: then
    /// [`Tap::attached`] goes on with it.
    pub(super) fn attach(&mut self, pid: u32) -> bool {
        if self.attached.by_process && !self.attached.is_asked(pid) {
            let ticket = self.attacher.sockets(pid);
            self.attached.asked.insert(pid, ticket);
        }
        self.attached.by_process
    }

    /// Detaches from the C library and the functions of a process.
    pub(super) fn detach(&mut self, pid: u32) {
        self.attached.asked.remove(&pid);
        if let Some(coverage) = self.attached.coverage.get_mut(&pid) {
            coverage.functions = None;
        }
        self.attacher.detach(pid);
    }

    /// Takes the answers that are there. An error when there will be none any more.
    pub(super) fn take_answers(&mut self) -> Result<(), String> {
        let mut covered = false;
        while let Some(answer) = self.attacher.answer()? {
            match answer {
                Answer::Sockets(pid, ticket, done) => {
                    // Of a process that was let go meanwhile there is nothing to do.
                    if self.attached.asked.get(&pid) == Some(&ticket) {
                        self.attached.asked.remove(&pid);
                        self.attached(pid, done);
                    }
                }
                Answer::CudaForgotten(pid, ticket, rows) => {
                    self.cuda_forgotten(pid, ticket, rows.as_deref());
                }
                Answer::Coverage(pid, coverage) => {
                    covered = true;
                    if coverage == Coverage::default() {
                        self.attached.coverage.remove(&pid);
                    } else {
                        self.attached.coverage.insert(pid, coverage);
                    }
                }
                Answer::Probe(state) => self.tell_probe(state),
            }
        }
        if covered {
            self.tell_calls();
        }
        Ok(())
    }

    /// Tells how attaching goes.
    pub(super) fn tell_attaching(&mut self) {
        let state = self.attacher.state();
        let spent = state.spent.saturating_sub(self.attached.spent);
        self.attached.spent += spent;
        self.exporter.metrics().attaching(state.waiting, spent);
        let slow = state.busy.filter(|busy| busy.since.elapsed() >= SLOW);
        if slow.is_some() == self.attached.slow.is_some() {
            return;
        }
        self.attached.slow = slow.map(|busy| {
            let place = match busy.pid {
                Some(pid) => format!("process {pid}"),
                None => "what processes have mapped".to_owned(),
            };
            format!(
                "attaching probes stands still at {place}: engines that come or go meanwhile are not probed; the kernel is long \
                 in it, or their files are on a disk that does not answer"
            )
        });
        match &self.attached.slow {
            Some(slow) => tracing::warn!("{slow}"),
            None => tracing::info!("attaching probes goes on"),
        }
        self.be_ready();
    }
}

//! What the tap thread watches: engines come and go, processes are attached to, what fails is told and tried again.
//!
//! Owns: `/readyz`'s reasons and the coverage of engines. Refuses: finding engines (the watch thread's, by discovery).

use super::Tap;
use crate::clock::monotonic_ns;
use crate::discover::{Change, FoundEngine, Part};
use crate::probe::ProbeError;
use infertap_core::pressure::MemoryReading;
use infertap_core::{EngineKind, Event, EventKind, Nanos};
use std::collections::HashMap;
use std::sync::Arc;

impl Tap {
    pub(super) fn change(&mut self, change: Change) {
        tracing::info!("{change}");
        match change {
            Change::Up(engine) | Change::Changed(engine) => self.engine_up(&engine),
            Change::Down(id) => self.engine_down(&id),
        }
    }

    fn engine_up(&mut self, engine: &FoundEngine) {
        let at = monotonic_ns();
        let info = &engine.info;
        // A gateway computes nothing: there is nothing to count with, and it calls no GPU.
        let computes = info.kind != EngineKind::Gateway;
        if computes {
            self.exporter.engine_up(info);
        }
        if let Some(recorder) = &self.recorder {
            recorder.engine_up(at, info);
        }
        if let Some(counter) = self.counter.as_ref().filter(|_| computes) {
            counter.engine_up(info);
        }
        // The core first: events of a process must find its engine.
        self.tell(at, EventKind::EngineUp(Arc::clone(info)));

        let parts: HashMap<u32, Part> = engine.processes.iter().map(|p| (p.pid, p.part)).collect();
        let before = self
            .engines
            .insert(Arc::clone(&info.id), parts.clone())
            .unwrap_or_default();
        for pid in before.keys().filter(|pid| !parts.contains_key(pid)) {
            self.end_cuda(*pid);
            self.unwatch(*pid);
        }
        self.ports.insert(Arc::clone(&info.id), info.ports.clone());
        self.listen();
        let mut covered = true;
        for (&pid, part) in &parts {
            match part {
                Part::Server => covered &= self.watch(&info.id, pid),
                // What workers say on their sockets is the engine's own business, not a client's request.
                Part::Worker => self.unwatch(pid),
                // A descendant that no rule knows is watched if it inherited a watched process's sockets, and left
                // alone if not.
                Part::Helper => {}
            }
        }
        // CUDA is called by whoever computes, which mostly is a worker.
        for pid in parts.keys().filter(|_| computes) {
            self.watch_cuda(*pid);
        }
        if computes {
            self.exporter.engine_coverage(&info.id, "socket", covered);
        } else {
            // It has no coverage that would tell, so it is there once it is watched.
            self.exporter.engine_up(info);
        }
        self.kinds.insert(Arc::clone(&info.id), info.kind);
        self.tell_calls();
        for note in &engine.notes {
            tracing::info!("{}: {note}", info.id);
        }
    }

    /// Arrivals are noted on the ports of all engines.
    fn listen(&mut self) {
        let ports = self.ports.values().flatten().copied();
        if let Err(error) = self.targets.listen(ports) {
            tracing::warn!("requests begin when they are read: {error}");
        }
    }

    /// Before the changes of the same look, so that the last reading of an engine that is gone still counts.
    pub(super) fn memory_read(&mut self, at: Nanos, readings: Vec<MemoryReading>) {
        for reading in readings {
            let reading = Arc::new(reading);
            if let Some(recorder) = &self.recorder {
                recorder.memory(at, &reading);
            }
            self.tell(at, EventKind::Memory(reading));
        }
        self.publish();
    }

    /// Tells the core what the agent itself found out.
    pub(super) fn tell(&mut self, at: u64, kind: EventKind<'_>) {
        self.exporter.metrics().event(&kind);
        self.pipeline.handle(Event { at, kind }, &mut self.observations);
    }

    /// Whether it is watched now; where its C library is to be attached to first, it is soon, or its trouble is told.
    fn watch(&mut self, engine: &str, pid: u32) -> bool {
        if self.targets.watches(pid) {
            return true;
        }
        if self.attach(pid) {
            return false;
        }
        let watched = self.targets.watch(pid);
        self.watching(engine, pid, watched)
    }

    /// Tells what became of watching a process.
    pub(super) fn watching(&mut self, engine: &str, pid: u32, done: Result<usize, ProbeError>) -> bool {
        match done {
            Ok(sockets) => {
                tracing::info!("{engine}: watching process {pid}, {sockets} sockets open already");
                self.look_for_calls(pid);
                self.trouble(pid, None);
                true
            }
            Err(error) => {
                let trouble = format!("{engine}: process {pid} can't be watched: {error}");
                if self.trouble(pid, Some(trouble.clone())) {
                    tracing::warn!("{trouble}");
                }
                false
            }
        }
    }

    /// Notes what keeps a process from being watched, or that nothing does; whether that is news.
    pub(super) fn trouble(&mut self, pid: u32, trouble: Option<String>) -> bool {
        let changed = match trouble {
            Some(text) => self.troubles.insert(pid, text.clone()) != Some(text),
            None => self.troubles.remove(&pid).is_some(),
        };
        if changed {
            self.be_ready();
        }
        changed
    }

    /// The agent runs, so it is ready; that it sees less than it should is told beside it.
    pub(super) fn be_ready(&self) {
        let troubles = self.troubles.values().chain(self.attached.trouble());
        self.exporter.set_ready(true, troubles.cloned().collect());
    }

    pub(super) fn unwatch(&mut self, pid: u32) {
        self.trouble(pid, None);
        if self.targets.watches(pid) || self.attached.is_asked(pid) {
            self.targets.forget(pid);
            self.detach(pid);
        }
    }

    fn engine_down(&mut self, id: &Arc<str>) {
        let at = monotonic_ns();
        for pid in self.engines.remove(id).unwrap_or_default().into_keys() {
            self.end_cuda(pid);
            self.unwatch(pid);
        }
        self.forget_engine_cuda(id);
        self.ports.remove(id);
        self.listen();
        if let Some(recorder) = &self.recorder {
            recorder.engine_down(at, id);
        }
        self.tell(
            at,
            EventKind::EngineDown {
                engine: Arc::clone(id),
            },
        );
        self.publish();
        self.kinds.remove(id);
        if let Some(counter) = &self.counter {
            counter.engine_down(id);
        }
        self.forget_calls(id);
        self.exporter.engine_down(id);
    }

    /// A watched process runs another program: what is attached to it, and what it has open, is no longer the same.
    pub(super) fn executed(&mut self, pid: u32) -> Result<(), ProbeError> {
        self.detach(pid);
        if self.attach(pid) {
            // It is watched again once its C library is attached to.
            self.targets.forget(pid);
            return Ok(());
        }
        let done = self.targets.executed(pid).map(drop);
        if done.is_ok() {
            self.look_for_calls(pid);
        } else {
            self.targets.forget(pid);
            self.watch_servers(|of_engine| of_engine == pid);
        }
        done
    }

    /// Tries again to watch what could not be watched: a process that has only just begun may not have its C library
    /// mapped yet.
    pub(super) fn retry(&mut self) {
        if !self.troubles.is_empty() {
            let troubled: Vec<u32> = self.troubles.keys().copied().collect();
            self.watch_servers(|pid| troubled.contains(&pid));
        }
    }

    fn cover_sockets(&self, engine: &str, servers: &[u32]) {
        let covered = servers.iter().all(|pid| self.targets.watches(*pid));
        self.exporter.engine_coverage(engine, "socket", covered);
    }

    /// Attaching to the C library of a process is done: it is watched from now on.
    pub(super) fn attached(&mut self, pid: u32, done: Result<(), ProbeError>) {
        if self.targets.watches(pid) {
            // A forked one, which is watched since it is there.
            if let Err(error) = done {
                tracing::debug!("process {pid}: {error}");
            }
            return;
        }
        let done = done.and_then(|()| self.targets.watch(pid));
        let engine = self.engines.iter().find_map(|(id, parts)| {
            let server = parts.get(&pid) == Some(&Part::Server);
            server.then(|| (Arc::clone(id), servers(parts)))
        });
        match engine {
            Some((id, servers)) => {
                self.watching(&id, pid, done);
                self.cover_sockets(&id, &servers);
                self.tell_calls();
            }
            None => match done {
                Ok(_) => self.look_for_calls(pid),
                Err(error) => tracing::debug!("process {pid}: {error}"),
            },
        }
    }

    /// Watches those of the engines' servers that are `wanted` and not watched yet.
    fn watch_servers(&mut self, wanted: impl Fn(u32) -> bool) {
        for (id, parts) in self.engines.clone() {
            let servers = servers(&parts);
            if servers.iter().any(|pid| wanted(*pid)) {
                for pid in servers.iter().filter(|pid| wanted(**pid)) {
                    self.watch(&id, *pid);
                }
                self.cover_sockets(&id, &servers);
            }
        }
    }
}

fn servers(parts: &HashMap<u32, Part>) -> Vec<u32> {
    let servers = parts.iter().filter(|(_, part)| **part == Part::Server);
    servers.map(|(pid, _)| *pid).collect()
}

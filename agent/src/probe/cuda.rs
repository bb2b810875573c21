//! CUDA calls of watched processes: found in the driver and runtime libraries that they have mapped, and counted.
//!
//! Owns: which libraries are attached to, for whom, and until when: where every call of the runtime is seen at the driver as
//! well, the probes on the runtime go, which halves the cost of a launch. Refuses: symbols (`symbols`), sums (`counts`),
//! and which processes are an engine's. `docs/cuda.md` tells how a call is counted once.

mod counts;
mod library;
pub mod symbols;

use super::calls::Identity;
use super::detach::{Closing, Links, detach};
use super::mapped::{MappedFile, executable_files};
use super::{CudaRow, ProbeError, ProbeState};
use aya::Ebpf;
use counts::Counts;
pub use counts::CudaSums;
use infertap_abi::{CLASSES, CudaClass, CudaProcess, CudaRange};
use library::{Library, layout};
pub use library::{MappedLibrary, libraries};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};
use symbols::Side;

/// Name of the probe.
pub(super) const PROBE: &str = "cuda";
/// Processes that are looked at; the kernel's table has room for as many.
const MAX_PROCESSES: usize = 1024;
/// Libraries that are attached to at once.
const MAX_FILES: usize = 256;
/// How long until it is looked again whether a process has mapped more: while it grows, while it does not, and once its
/// driver library is known. A copy of the runtime that is not known is no loss: the driver counts its calls.
const GROWING: Duration = Duration::from_millis(200);
const RESTING: Duration = Duration::from_secs(1);
const KNOWN: Duration = Duration::from_secs(30);
/// Calls of one class that must have been seen on both sides before the runtime's probes go, and how many of them may not:
/// what frees nothing or fails a check never reaches the driver.
const ENOUGH: u64 = 64;
const MISSING_OF: u64 = 20;
/// How long the runtime's probes stay when they are needed no longer: calls are under way.
const LINGER: Duration = Duration::from_secs(10);

const CLASS: [CudaClass; CLASSES - 1] = [
    CudaClass::Launch,
    CudaClass::Graph,
    CudaClass::Alloc,
    CudaClass::Free,
    CudaClass::Copy,
    CudaClass::Sync,
    CudaClass::Virtual,
];

/// What is attached, and whose calls are counted.
#[derive(Debug)]
pub(super) struct Cuda {
    counts: Counts,
    files: HashMap<Identity, Library>,
    /// Files with links that are being closed: they are attached to again only then.
    closing: HashMap<Identity, Vec<Closing>>,
    processes: BTreeMap<u32, Process>,
    /// Programs that the kernel refused: tried once.
    refused: BTreeSet<&'static str>,
    told: Option<bool>,
    news: Vec<ProbeState>,
}

#[derive(Debug)]
struct Process {
    due: Instant,
    /// Pages of its address space when its mappings were read last.
    pages: Option<u64>,
    /// What the kernel side was told.
    told: Option<CudaProcess>,
    /// When classes were found to be seen at the driver.
    confirmed: BTreeMap<u32, Instant>,
}

impl Cuda {
    /// And a reader of all sums.
    pub(super) fn new(ebpf: &mut Ebpf) -> Result<(Cuda, CudaSums), ProbeError> {
        let sums = CudaSums::new(ebpf)?;
        let cuda = Cuda {
            counts: Counts::new(ebpf)?,
            files: HashMap::new(),
            closing: HashMap::new(),
            processes: BTreeMap::new(),
            refused: BTreeSet::new(),
            told: None,
            news: Vec::new(),
        };
        Ok((cuda, sums))
    }

    /// Looks into a process from now on.
    pub(super) fn watch(&mut self, ebpf: &mut Ebpf, procfs: &Path, pid: u32, now: Instant) {
        if self.processes.contains_key(&pid) || self.processes.len() >= MAX_PROCESSES {
            return;
        }
        let process = Process {
            due: now,
            pages: None,
            told: None,
            confirmed: BTreeMap::new(),
        };
        self.processes.insert(pid, process);
        self.look(ebpf, procfs, now);
    }

    /// Reads again what processes have mapped that have grown.
    pub(super) fn look(&mut self, ebpf: &mut Ebpf, procfs: &Path, now: Instant) {
        let due: Vec<u32> = self
            .processes
            .iter()
            .filter(|(_, process)| process.due <= now)
            .map(|(pid, _)| *pid)
            .collect();
        for pid in due {
            let pages = pages(procfs, pid);
            let Some(process) = self.processes.get_mut(&pid) else {
                continue;
            };
            let known = process
                .told
                .is_some_and(|told| told.driver[0] != CudaRange::default());
            if process.pages.is_some() && process.pages == pages {
                process.due = now + if known { KNOWN } else { RESTING };
                continue;
            }
            process.due = now + if known { KNOWN } else { GROWING };
            process.pages = pages;
            // Gone, or not ours to look at, which discovery tells.
            if let Ok(files) = executable_files(procfs, pid) {
                self.found(ebpf, pid, &files, now);
            }
        }
    }

    fn found(&mut self, ebpf: &mut Ebpf, pid: u32, files: &[MappedFile], now: Instant) {
        let libraries: Vec<(Side, &MappedFile)> = files
            .iter()
            .filter_map(|file| Some((Side::of(file.file_name())?, file)))
            .collect();
        if libraries.is_empty() {
            return;
        }
        let identity = |file: &MappedFile| (file.device.clone(), file.inode);
        self.closing
            .retain(|_, closing| !closing.iter().all(Closing::is_over));
        let waits = libraries
            .iter()
            .any(|(_, file)| self.closing.contains_key(&identity(file)));
        if waits && let Some(process) = self.processes.get_mut(&pid) {
            // With part of the probes its calls would be counted in part. It is looked at as if it had grown.
            process.pages = None;
            process.due = now + GROWING;
            return;
        }
        for (side, file) in &libraries {
            let identity = identity(file);
            if let Some(library) = self.files.get_mut(&identity) {
                library.path.clone_from(&file.path);
                library.processes.insert(pid);
            } else if self.files.len() < MAX_FILES {
                self.files.insert(identity, Library::of(*side, file, pid));
            }
        }
        let Some(process) = self.processes.get(&pid) else {
            return;
        };
        let value = layout(&libraries, process.driver_only());
        self.settle(ebpf, now);
        if self.write(pid, value) {
            self.tell();
        }
    }

    /// Tells the kernel side, when it is news.
    fn write(&mut self, pid: u32, value: CudaProcess) -> bool {
        let Some(process) = self.processes.get_mut(&pid) else {
            return false;
        };
        if process.told == Some(value) {
            return false;
        }
        let first = process.told.is_none();
        let done = if first { self.counts.begin(pid) } else { Ok(()) };
        match done.and_then(|()| self.counts.set(pid, value)) {
            Ok(()) => process.told = Some(value),
            Err(error) if first => {
                tracing::warn!("process {pid}: its CUDA calls are not counted: {error}");
                self.counts.end(pid);
            }
            Err(error) => tracing::debug!("process {pid}: {error}"),
        }
        true
    }

    /// Takes note of which of the runtime's calls are seen at the driver too, and detaches what is needed no longer. Call
    /// it once a second.
    pub(super) fn confirm(&mut self, ebpf: &mut Ebpf, now: Instant) {
        let mut changed = Vec::new();
        for (pid, process) in &mut self.processes {
            let (Some(mut told), Some(work)) = (process.told, self.counts.work(*pid)) else {
                continue;
            };
            for class in CLASS {
                let (calls, seen) = (work.runtime_calls[class as usize], work.confirmed[class as usize]);
                if told.driver_only & class.bit() == 0
                    && calls >= ENOUGH
                    && calls.saturating_sub(seen) <= calls / MISSING_OF
                {
                    told.driver_only |= class.bit();
                    process.confirmed.insert(class as u32, now);
                }
            }
            if process.told != Some(told) {
                changed.push((*pid, told));
            }
        }
        for (pid, value) in changed {
            tracing::debug!(
                "process {pid}: the driver sees calls of the runtime, classes {:#x}",
                value.driver_only
            );
            self.write(pid, value);
        }
        self.settle(ebpf, now);
    }

    /// Attaches to what is needed, and detaches from what is not.
    fn settle(&mut self, ebpf: &mut Ebpf, now: Instant) {
        let Cuda {
            files,
            closing,
            processes,
            refused,
            news,
            ..
        } = self;
        closing.retain(|_, closing| !closing.iter().all(Closing::is_over));
        let mut over: Vec<(Identity, Links)> = Vec::new();
        for (identity, library) in files {
            for class in CLASS {
                let needed = library.side == Side::Driver
                    || library.processes.iter().any(|pid| {
                        let confirmed = processes
                            .get(pid)
                            .and_then(|process| process.confirmed.get(&(class as u32)));
                        confirmed.is_none_or(|since| now.saturating_duration_since(*since) < LINGER)
                    });
                let attached = library.links.contains_key(&(class as u32));
                if needed && !attached && !closing.contains_key(identity) {
                    let links = library.attach(ebpf, class, refused, news);
                    library.links.insert(class as u32, links);
                } else if !needed && let Some(links) = library.links.remove(&(class as u32)) {
                    over.push((identity.clone(), links));
                }
            }
        }
        self.close(ebpf, over);
    }

    /// Detaches, and notes from which files.
    fn close(&mut self, ebpf: &mut Ebpf, over: Vec<(Identity, Links)>) {
        let (files, links): (Vec<Identity>, Vec<Links>) = over.into_iter().unzip();
        let closing = detach(ebpf, links.into_iter().flatten().collect());
        if closing.is_over() {
            return;
        }
        for identity in files {
            self.closing.entry(identity).or_default().push(closing.clone());
        }
    }

    fn tell(&mut self) {
        let launches = |library: &&Library| library.has_links(CudaClass::Launch);
        let up = self.files.values().any(|library| launches(&library));
        if self.told == Some(up) {
            return;
        }
        self.told = Some(up);
        let first = self
            .files
            .values()
            .find(launches)
            .or_else(|| self.files.values().next());
        let path = first.map_or_else(String::new, |library| library.path.display().to_string());
        let detail = if up {
            format!("first in {path}")
        } else {
            format!("no function of CUDA's was found in {path}, or none could be probed")
        };
        self.news.push(ProbeState {
            probe: PROBE,
            up,
            detail: Some(detail),
        });
    }

    /// What became known since this was last asked.
    pub(super) fn take_news(&mut self) -> Vec<ProbeState> {
        std::mem::take(&mut self.news)
    }

    /// Whether the calls of this process are counted; `None` when it has no CUDA mapped, as far as is known.
    pub(super) fn covers(&self, pid: u32) -> Option<bool> {
        let mut libraries = self
            .files
            .values()
            .filter(|library| library.processes.contains(&pid))
            .peekable();
        libraries.peek()?;
        let counted = self
            .processes
            .get(&pid)
            .is_some_and(|process| process.told.is_some());
        Some(counted && libraries.any(|library| library.has_links(CudaClass::Launch)))
    }

    /// A process has ended, or is watched no longer: its last sums, if any were kept.
    pub(super) fn forget(&mut self, ebpf: &mut Ebpf, pid: u32) -> Option<Vec<CudaRow>> {
        let process = self.processes.remove(&pid)?;
        let rows = process.told.map(|_| self.counts.end(pid));
        let mut over = Vec::new();
        self.files.retain(|identity, library| {
            if library.processes.remove(&pid) && library.processes.is_empty() {
                let links = std::mem::take(&mut library.links);
                over.push((identity.clone(), links.into_values().flatten().collect()));
                return false;
            }
            true
        });
        self.close(ebpf, over);
        rows
    }
}

impl Process {
    fn driver_only(&self) -> u32 {
        self.told.map_or(0, |told| told.driver_only)
    }
}

/// Pages of a process's address space: a library cannot be mapped without more.
fn pages(procfs: &Path, pid: u32) -> Option<u64> {
    let text = fs::read_to_string(procfs.join(pid.to_string()).join("statm")).ok()?;
    text.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests;

//! CUDA calls of watched engines: whose are counted, and what the sums become.
//!
//! Owns: sums of processes onto engines, so that no count goes back or is lost when a process ends. Refuses: counting
//! (`probe`), and series (the exporter's).

use super::super::attach::Ticket;
use super::Tap;
use crate::export::metrics::{Copies, CudaCalls};
use crate::export::{CudaStatus, CudaStream};
use crate::probe::{CudaRow, CudaSums};
use infertap_abi::{CudaCall, NO_STREAM, REST_STREAM};
use infertap_core::gpu::{CudaMapping, MappedMemory};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// Streams of one engine that the API tells: the busiest.
const MAX_STREAMS: usize = 64;

/// State of it.
#[derive(Debug)]
pub(super) struct Cuda {
    /// It is switched on.
    on: bool,
    sums: Arc<CudaSums>,
    watched: BTreeSet<u32>,
    /// Processes whose sums the attaching thread has yet to end. Until it has, what is read of a process is theirs, and not of
    /// the one that has their number or has come out of them since.
    ending: BTreeMap<Ticket, Ending>,
    processes: BTreeMap<u32, Process>,
    /// Calls of each engine, those of its processes that have ended included.
    engines: HashMap<Arc<str>, CudaCalls>,
    covered: HashMap<Arc<str>, bool>,
    /// That no engine has CUDA was told, or one has.
    absence_told: bool,
}

#[derive(Debug, Default)]
struct Process {
    told: CudaCalls,
    memory: MappedMemory,
    /// Bytes of its plain allocations; `None` when not all could be followed.
    plain: Option<u64>,
    streams: Vec<CudaStream>,
    /// Whose it was when it was counted last; none before that.
    engine: Option<Arc<str>>,
}

#[derive(Debug)]
struct Ending {
    pid: u32,
    told: CudaCalls,
    engine: Option<Arc<str>>,
}

impl Process {
    fn held(&self) -> Option<u64> {
        self.plain?.checked_add(self.memory.held()?)
    }
}

impl Cuda {
    pub(super) fn new(on: bool, sums: Arc<CudaSums>) -> Cuda {
        Cuda {
            on,
            sums,
            watched: BTreeSet::new(),
            ending: BTreeMap::new(),
            processes: BTreeMap::new(),
            engines: HashMap::new(),
            covered: HashMap::new(),
            absence_told: false,
        }
    }

    fn is_ending(&self, pid: u32) -> bool {
        self.ending.values().any(|ending| ending.pid == pid)
    }
}

impl Tap {
    /// Counts the CUDA calls of a process of an engine, whatever its part.
    pub(super) fn watch_cuda(&mut self, pid: u32) {
        if self.cuda.on && self.cuda.watched.insert(pid) {
            self.attacher.cuda(pid);
        }
    }

    /// A process has ended, or is watched no longer: its last counts are told.
    pub(super) fn end_cuda(&mut self, pid: u32) {
        if !self.cuda.watched.remove(&pid) {
            return;
        }
        let owner = self.owner(pid);
        if let Some(engine) = owner.as_ref().filter(|_| !self.cuda.is_ending(pid)) {
            let rows = self.cuda.sums.of(pid);
            if !rows.is_empty() {
                self.count_cuda(engine, pid, &rows);
            }
        }
        let process = self.cuda.processes.remove(&pid).unwrap_or_default();
        let ending = Ending {
            pid,
            told: process.told,
            engine: owner.clone(),
        };
        let ticket = self.attacher.forget_cuda(pid);
        self.cuda.ending.insert(ticket, ending);
        self.attached.forget_cuda(pid);
        if let Some(engine) = owner.filter(|engine| self.cuda.engines.contains_key(engine)) {
            self.tell_cuda(&engine, &CudaCalls::default());
        }
    }

    /// The sums of a process have ended. What they have more than was told goes to the engine that it was of, if that is there.
    pub(super) fn cuda_forgotten(&mut self, pid: u32, ticket: Ticket, rows: Option<&[CudaRow]>) {
        // What was asked before it and not begun is answered with it: these sums are of the first.
        let later = self.cuda.ending.split_off(&(ticket + 1));
        let (of_pid, others): (BTreeMap<_, _>, BTreeMap<_, _>) =
            std::mem::replace(&mut self.cuda.ending, later)
                .into_iter()
                .partition(|(_, ending)| ending.pid == pid);
        self.cuda.ending.extend(others);
        let first = of_pid.into_values().next();
        let (Some(rows), Some(ending)) = (rows, first) else {
            return;
        };
        let more = sums(rows).0.since(&ending.told);
        if let Some(engine) = ending.engine
            && let Some(calls) = self.cuda.engines.get_mut(&engine)
        {
            calls.add(&more);
            self.tell_cuda(&engine, &more);
        }
    }

    /// A process that is watched for CUDA runs another program.
    pub(super) fn restart_cuda(&mut self, pid: u32) {
        if self.cuda.watched.contains(&pid) {
            self.end_cuda(pid);
            self.watch_cuda(pid);
        }
    }

    /// A process made, mapped or gave back physical memory.
    pub(super) fn cuda_mapping(&mut self, event: CudaMapping) {
        if self.cuda.watched.contains(&event.tgid) {
            let process = self.cuda.processes.entry(event.tgid).or_default();
            process.memory.handle(event.mapping);
        }
    }

    /// Reads what was counted and tells it.
    pub(super) fn read_cuda(&mut self) {
        if !self.cuda.on {
            return;
        }
        for (pid, rows) in self.cuda.sums.read() {
            if self.cuda.is_ending(pid) {
                continue;
            }
            // A forked process whose engine is not known yet: its counts stay where they are until it is.
            if let Some(engine) = self.owner(pid) {
                self.count_cuda(&engine, pid, &rows);
            }
        }
        self.cover_cuda();
    }

    fn count_cuda(&mut self, engine: &Arc<str>, pid: u32, rows: &[CudaRow]) {
        let (calls, plain) = sums(rows);
        let process = self.cuda.processes.entry(pid).or_default();
        let more = calls.since(&process.told);
        process.told.add(&more);
        process.plain = plain;
        process.streams = streams(pid, rows);
        process.engine = Some(Arc::clone(engine));
        self.cuda
            .engines
            .entry(Arc::clone(engine))
            .or_default()
            .add(&more);
        self.tell_cuda(engine, &more);
    }

    fn tell_cuda(&self, engine: &Arc<str>, more: &CudaCalls) {
        let of_engine = self.engines.get(engine);
        let processes: Vec<&Process> = of_engine
            .into_iter()
            .flat_map(HashMap::keys)
            .filter_map(|pid| self.cuda.processes.get(pid))
            .filter(|process| process.engine.is_some())
            .collect();
        let held = processes
            .iter()
            .try_fold(0_u64, |sum, process| sum.checked_add(process.held()?));
        self.exporter.metrics().cuda(engine, more, held);
        let mut streams: Vec<CudaStream> = processes
            .iter()
            .flat_map(|process| process.streams.clone())
            .collect();
        streams.sort_by_key(|stream| {
            std::cmp::Reverse(stream.kernel_launches + stream.graph_launches + stream.copies)
        });
        streams.truncate(MAX_STREAMS);
        if let Some(calls) = self.cuda.engines.get(engine) {
            self.exporter
                .engine_cuda(engine, CudaStatus::new(calls, held, streams));
        }
    }

    fn cover_cuda(&mut self) {
        for (id, parts) in &self.engines {
            let Some(covered) = self.attached.cuda(parts.keys().copied()) else {
                continue;
            };
            self.cuda.absence_told = true;
            if self.cuda.covered.insert(Arc::clone(id), covered) != Some(covered) {
                self.exporter.engine_coverage(id, "cuda", covered);
                if covered {
                    tracing::info!("{id}: its CUDA calls are counted");
                } else {
                    tracing::warn!("{id}: it has CUDA mapped, and its calls can't be counted");
                }
            }
        }
        if !self.engines.is_empty() && !std::mem::replace(&mut self.cuda.absence_told, true) {
            tracing::info!("no engine has CUDA mapped: its calls will be counted as soon as one has");
        }
    }

    /// An engine is gone.
    pub(super) fn forget_engine_cuda(&mut self, id: &Arc<str>) {
        self.cuda.engines.remove(id);
        self.cuda.covered.remove(id);
    }

    fn owner(&self, pid: u32) -> Option<Arc<str>> {
        let owner = self.engines.iter().find(|(_, parts)| parts.contains_key(&pid));
        owner
            .map(|(id, _)| Arc::clone(id))
            .or_else(|| self.cuda.processes.get(&pid)?.engine.clone())
    }
}

/// The sums over all streams; and the bytes that are held, when all allocations could be followed.
fn sums(rows: &[CudaRow]) -> (CudaCalls, Option<u64>) {
    let mut calls = CudaCalls::default();
    let (mut allocated, mut freed, mut whole) = (0_u64, 0_u64, true);
    for row in rows {
        let count = row.count;
        match row.call {
            CudaCall::KernelLaunch => calls.kernel_launches += count.calls,
            CudaCall::GraphLaunch => calls.graph_launches += count.calls,
            CudaCall::Alloc => {
                calls.allocations += count.calls;
                calls.alloc_failures += count.failures;
                allocated = allocated.wrapping_add(count.bytes);
            }
            CudaCall::Create => {
                calls.allocations += count.calls;
                calls.alloc_failures += count.failures;
            }
            CudaCall::Free => freed = freed.wrapping_add(count.bytes),
            CudaCall::Untracked => whole &= count.calls == 0,
            CudaCall::FreeUnknown => calls.unknown_frees += count.calls,
            CudaCall::Sync => {
                calls.syncs += count.calls;
                calls.sync_ns += count.ns;
            }
            CudaCall::CopyHostToDevice
            | CudaCall::CopyDeviceToHost
            | CudaCall::CopyDeviceToDevice
            | CudaCall::CopyPeer
            | CudaCall::CopyHostToHost
            | CudaCall::CopyAny => {
                let at = usize::from(row.call as u16 - CudaCall::CopyHostToDevice as u16);
                if let Some(Copies { calls, bytes }) = calls.copies.get_mut(at) {
                    *calls += count.calls;
                    *bytes = bytes.wrapping_add(count.bytes);
                }
            }
        }
    }
    // The sums are read one after the other: a free may be in before its allocation.
    (calls, whole.then(|| allocated.saturating_sub(freed)))
}

fn streams(pid: u32, rows: &[CudaRow]) -> Vec<CudaStream> {
    let mut streams: BTreeMap<u64, CudaStream> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.count.calls > 0) {
        let named = || CudaStream {
            pid,
            stream: match row.stream {
                NO_STREAM => "default".to_owned(),
                REST_STREAM => "other".to_owned(),
                handle => format!("{handle:#x}"),
            },
            ..CudaStream::default()
        };
        match row.call {
            CudaCall::KernelLaunch => {
                streams.entry(row.stream).or_insert_with(named).kernel_launches += row.count.calls;
            }
            CudaCall::GraphLaunch => {
                streams.entry(row.stream).or_insert_with(named).graph_launches += row.count.calls;
            }
            CudaCall::Alloc
            | CudaCall::Free
            | CudaCall::Create
            | CudaCall::Untracked
            | CudaCall::FreeUnknown
            | CudaCall::Sync => {}
            _ => {
                let stream = streams.entry(row.stream).or_insert_with(named);
                stream.copies += row.count.calls;
                stream.copied_bytes = stream.copied_bytes.wrapping_add(row.count.bytes);
            }
        }
    }
    streams.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use infertap_abi::CudaCount;

    fn row(call: CudaCall, stream: u64, calls: u64, bytes: u64) -> CudaRow {
        CudaRow {
            call,
            stream,
            count: CudaCount {
                calls,
                bytes,
                ..CudaCount::default()
            },
        }
    }

    #[test]
    fn sums_are_over_all_streams_and_what_is_held_is_what_was_not_freed() {
        let mut rows = vec![
            row(CudaCall::KernelLaunch, 0, 3, 0),
            row(CudaCall::KernelLaunch, 0xa0, 4, 0),
            row(CudaCall::GraphLaunch, 0xa0, 2, 0),
            row(CudaCall::CopyHostToDevice, 0, 1, 100),
            row(CudaCall::CopyAny, 0xa0, 2, 7),
            row(CudaCall::Alloc, 0, 5, 5000),
            row(CudaCall::Create, 0, 1, 999),
            row(CudaCall::Free, 0, 2, 2000),
            row(CudaCall::Untracked, 0, 0, 0),
        ];
        let (calls, held) = sums(&rows);
        assert_eq!(
            (calls.kernel_launches, calls.graph_launches, calls.allocations),
            (7, 2, 6)
        );
        assert_eq!(calls.copies[0], Copies { calls: 1, bytes: 100 });
        assert_eq!(calls.copies[5], Copies { calls: 2, bytes: 7 });
        assert_eq!(held, Some(3000), "physical memory is followed by its mappings");
        rows.push(row(CudaCall::Untracked, 0, 1, 10));
        assert_eq!(sums(&rows).1, None);
        let told: Vec<(String, u64, u64)> = streams(7, &rows)
            .into_iter()
            .map(|stream| (stream.stream, stream.kernel_launches, stream.copied_bytes))
            .collect();
        assert_eq!(told, [("default".to_owned(), 3, 100), ("0xa0".to_owned(), 4, 7)]);
    }

    #[test]
    fn what_is_new_is_each_number_s_own_increase() {
        let at = |kernel_launches, bytes| {
            let mut calls = CudaCalls {
                kernel_launches,
                ..CudaCalls::default()
            };
            calls.copies[1] = Copies { calls: 1, bytes };
            calls
        };
        let mut told = at(5, 10);
        let more = at(9, 4).since(&told);
        assert_eq!(
            (more.kernel_launches, more.copies[1]),
            (4, Copies::default()),
            "none goes back"
        );
        told.add(&more);
        assert_eq!(told, at(9, 10));
    }
}

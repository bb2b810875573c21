//! The maps of the CUDA family: whose calls are counted, and the sums.
//!
//! Owns: making the keys that must always be found, reading sums over all CPUs, and leaving nothing behind of a process.
//! Refuses: what the sums mean.

use super::super::loader::take;
use super::super::targets::abi;
use super::super::{CudaRow, ProbeError};
use aya::Ebpf;
use aya::maps::{HashMap, Map, MapData, PerCpuHashMap, PerCpuValues};
use infertap_abi::{CudaCall, CudaCount, CudaKey, CudaProcess, CudaWork, NO_STREAM, REST_STREAM};
use std::collections::{BTreeMap, HashSet};
use std::os::fd::AsFd as _;

/// The map of the sums.
const SUMS: &str = "CUDA_COUNTS";
/// Calls that name a stream.
const STREAMED: [CudaCall; 8] = [
    CudaCall::KernelLaunch,
    CudaCall::GraphLaunch,
    CudaCall::CopyHostToDevice,
    CudaCall::CopyDeviceToHost,
    CudaCall::CopyDeviceToDevice,
    CudaCall::CopyPeer,
    CudaCall::CopyHostToHost,
    CudaCall::CopyAny,
];

type Sums = PerCpuHashMap<MapData, abi::CudaKey, abi::CudaCount>;

/// The maps.
pub(super) struct Counts {
    processes: HashMap<MapData, u32, abi::CudaProcess>,
    work: HashMap<MapData, u32, abi::CudaWork>,
    counts: Sums,
    allocations: HashMap<MapData, abi::CudaPointer, u64>,
    cpus: usize,
}

impl std::fmt::Debug for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Counts").finish_non_exhaustive()
    }
}

impl Counts {
    pub(super) fn new(ebpf: &mut Ebpf) -> Result<Counts, ProbeError> {
        Ok(Counts {
            processes: take::<HashMap<_, u32, abi::CudaProcess>>(ebpf, "CUDA_PROCESSES")?,
            work: take::<HashMap<_, u32, abi::CudaWork>>(ebpf, "CUDA_WORK")?,
            counts: take::<PerCpuHashMap<_, abi::CudaKey, abi::CudaCount>>(ebpf, SUMS)?,
            allocations: take::<HashMap<_, abi::CudaPointer, u64>>(ebpf, "CUDA_ALLOCS")?,
            cpus: aya::util::nr_cpus().map_err(|(_, error)| ProbeError::Ring(error))?,
        })
    }

    fn nothing(&self) -> Result<PerCpuValues<abi::CudaCount>, ProbeError> {
        PerCpuValues::try_from(vec![abi::CudaCount(CudaCount::default()); self.cpus])
            .map_err(ProbeError::Ring)
    }

    /// Makes what a process's calls must find before any is counted.
    pub(super) fn begin(&mut self, tgid: u32) -> Result<(), ProbeError> {
        for (call, stream) in CudaCall::ALL
            .map(|call| (call, NO_STREAM))
            .into_iter()
            .chain(STREAMED.map(|call| (call, REST_STREAM)))
        {
            let key = key(tgid, call, stream);
            let nothing = self.nothing()?;
            self.counts
                .insert(key, nothing, 0)
                .map_err(ProbeError::map(SUMS))?;
        }
        self.work
            .insert(tgid, abi::CudaWork(CudaWork::default()), 0)
            .map_err(ProbeError::map("CUDA_WORK"))
    }

    /// Says where a process's libraries are: its calls are counted from now on.
    pub(super) fn set(&mut self, tgid: u32, process: CudaProcess) -> Result<(), ProbeError> {
        self.processes
            .insert(tgid, abi::CudaProcess(process), 0)
            .map_err(ProbeError::map("CUDA_PROCESSES"))
    }

    /// What was confirmed of the runtime's calls.
    pub(super) fn work(&self, tgid: u32) -> Option<CudaWork> {
        self.work.get(&tgid, 0).ok().map(|work| work.0)
    }

    /// Counts no more of a process, and gives its last sums.
    pub(super) fn end(&mut self, tgid: u32) -> Vec<CudaRow> {
        // What is not there needs no removal.
        let _ = self.processes.remove(&tgid);
        let _ = self.work.remove(&tgid);
        let keys: Vec<_> = self
            .counts
            .keys()
            .filter_map(Result::ok)
            .filter(|key| key.0.tgid == tgid)
            .collect();
        let rows = keys.iter().filter_map(|key| row(&self.counts, *key)).collect();
        for key in keys {
            // Before Linux 5.10 an element that is used again has the values of its last use on other CPUs.
            if let Ok(nothing) = self.nothing() {
                let _ = self.counts.insert(key, nothing, 0);
            }
            let _ = self.counts.remove(&key);
        }
        let keys: Vec<_> = self.allocations.keys().filter_map(Result::ok).collect();
        for key in keys.into_iter().filter(|key| key.0.tgid == tgid) {
            let _ = self.allocations.remove(&key);
        }
        rows
    }
}

/// Reads the sums by a descriptor of its own, so without waiting for who attaches.
pub struct CudaSums(Sums);

impl std::fmt::Debug for CudaSums {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CudaSums").finish_non_exhaustive()
    }
}

impl CudaSums {
    /// Before the map is taken.
    pub(super) fn new(ebpf: &Ebpf) -> Result<CudaSums, ProbeError> {
        let missing = ProbeError::Missing {
            kind: "map",
            name: SUMS,
        };
        let Some(Map::PerCpuHashMap(data)) = ebpf.map(SUMS) else {
            return Err(missing);
        };
        let data = MapData::from_fd(data.fd().as_fd().try_clone_to_owned()?);
        data.and_then(|data| PerCpuHashMap::try_from(Map::PerCpuHashMap(data)))
            .map(CudaSums)
            .map_err(ProbeError::map(SUMS))
    }

    /// All sums, by process. A key that is made meanwhile is read the next time.
    pub fn read(&self) -> BTreeMap<u32, Vec<CudaRow>> {
        let mut rows: BTreeMap<u32, Vec<CudaRow>> = BTreeMap::new();
        for key in self.keys() {
            if let Some(row) = row(&self.0, key) {
                rows.entry(key.0.tgid).or_default().push(row);
            }
        }
        rows
    }

    /// Those of one process; none when its calls are not counted.
    pub fn of(&self, tgid: u32) -> Vec<CudaRow> {
        let keys = self.keys().into_iter();
        keys.filter(|key| key.0.tgid == tgid)
            .filter_map(|key| row(&self.0, key))
            .collect()
    }

    /// Each key once: the kernel begins again from the first where the one that it was asked to go on from was removed
    /// meanwhile, and sums that are taken twice would count calls that nobody made.
    fn keys(&self) -> Vec<abi::CudaKey> {
        let mut seen = HashSet::new();
        let keys = self.0.keys().filter_map(Result::ok);
        keys.filter(|key| seen.insert((key.0.tgid, key.0.call, key.0.stream)))
            .collect()
    }
}

fn row(sums: &Sums, key: abi::CudaKey) -> Option<CudaRow> {
    let mut count = CudaCount::default();
    for cpu in sums.get(&key, 0).ok()?.iter() {
        count.calls += cpu.0.calls;
        count.bytes = count.bytes.wrapping_add(cpu.0.bytes);
        count.ns += cpu.0.ns;
        count.failures += cpu.0.failures;
    }
    Some(CudaRow {
        call: CudaCall::try_from(key.0.call).ok()?,
        stream: key.0.stream,
        count,
    })
}

fn key(tgid: u32, call: CudaCall, stream: u64) -> abi::CudaKey {
    abi::CudaKey(CudaKey {
        tgid,
        call: call as u16,
        reserved: 0,
        stream,
    })
}

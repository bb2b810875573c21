//! Loads the committed BPF object, attaches its programs, hands out its maps.

use super::attach::{
    ARRIVAL_FIELDS, ARRIVAL_TRACEPOINTS, LibcSpec, PROCESS_TRACEPOINTS, SOCKET_LIBC, SOCKET_TRACEPOINTS,
    TracepointSpec,
};
use super::calls::Calls;
use super::cuda::{Cuda, CudaSums};
use super::detach::{Closing, Links, detach};
use super::targets::abi;
use super::{Coverage, CudaRow, ProbeError, ProbeState, Ring, Targets, Tracefs, libc, tracefs};
use crate::config::SocketProbe;
use aya::programs::uprobe::UProbeScope;
use aya::programs::{ProgramError, TracePoint, UProbe};
use aya::{Ebpf, EbpfLoader};
use std::collections::HashMap;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The committed BPF object: built by `cargo xtask ebpf`, byte-reproducible, checked by `cargo xtask ebpf --check`.
pub static OBJECT: &[u8] = aya::include_bytes_aligned!("../../bpf/infertap.bpf.o");

const PROCESS: &str = "process_tracepoint";
const ARRIVAL: &str = "arrival_tracepoint";
/// How often it is looked whether the runtime's probes are needed.
const CONFIRM: Duration = Duration::from_secs(1);

/// What the loader needs to know.
#[derive(Debug, Clone)]
pub struct ProbeOptions {
    /// How sockets are read.
    pub socket_probe: SocketProbe,
    /// Whether requests begin when they reach the socket, not when they are read; in tracepoint mode.
    pub arrivals: bool,
    /// Bytes of the ring buffer: a power of two, at least a page.
    pub ring_bytes: u32,
    /// Connections and descriptors in the kernel's tables.
    pub max_connections: u32,
    /// procfs, as the agent sees the host's processes.
    pub procfs: PathBuf,
}

/// The loaded object and its links: dropping it detaches everything.
#[derive(Debug)]
pub struct Probes {
    ebpf: Ebpf,
    socket_probe: SocketProbe,
    procfs: PathBuf,
    libc_links: HashMap<u32, Links>,
    /// Processes whose links are being closed.
    libc_closing: HashMap<u32, Closing>,
    states: Vec<ProbeState>,
    calls: Calls,
    cuda: Cuda,
    cuda_sums: Arc<CudaSums>,
    confirmed: Instant,
}

impl Probes {
    /// Loads and attaches. Runs on a thread of its own, because tracefs may have to be mounted for it alone.
    ///
    /// # Errors
    /// Missing privilege, kernel feature or tracefs; each error says what to do.
    pub fn load(options: &ProbeOptions) -> Result<(Probes, Targets, Ring), ProbeError> {
        let options = options.clone();
        std::thread::Builder::new()
            .name("probe-loader".to_owned())
            .spawn(move || Probes::load_here(&options))?
            .join()
            .unwrap_or_else(|_| {
                Err(ProbeError::Ring(std::io::Error::other(
                    "the probe loader panicked",
                )))
            })
    }

    fn load_here(options: &ProbeOptions) -> Result<(Probes, Targets, Ring), ProbeError> {
        let tracefs = match Tracefs::for_this_thread() {
            Err(error) if options.socket_probe == SocketProbe::Tracepoint => return Err(error),
            tracefs => tracefs,
        };
        let arrivals = match &tracefs {
            Ok(tracefs) if options.arrivals && options.socket_probe == SocketProbe::Tracepoint => {
                Some(arrival_offsets(tracefs))
            }
            _ => None,
        };
        let processes = tracefs.and_then(|tracefs| tracefs::fork_child_offset(&tracefs));
        let child_offset = *processes.as_ref().unwrap_or(&0);
        let mut loader = EbpfLoader::new();
        if let Some(Ok(offsets)) = &arrivals {
            for (constant, offset) in offsets {
                loader.override_global(constant, offset, true);
            }
        }
        let mut ebpf = loader
            .map_max_entries("EVENTS", options.ring_bytes)
            .map_max_entries("FDS", options.max_connections)
            .map_max_entries("CONNS", options.max_connections)
            .override_global("CHILD_PID_OFFSET", &child_offset, true)
            .load(OBJECT)
            .map_err(Box::new)?;
        let targets = Targets::new(
            options.procfs.clone(),
            take::<aya::maps::HashMap<_, u32, abi::Target>>(&mut ebpf, "TARGETS")?,
            take::<aya::maps::HashMap<_, abi::FdKey, u64>>(&mut ebpf, "FDS")?,
            take::<aya::maps::HashMap<_, u64, abi::Conn>>(&mut ebpf, "CONNS")?,
            take::<aya::maps::Array<_, u64>>(&mut ebpf, "PORTS")?,
            take::<aya::maps::PerCpuArray<_, u64>>(&mut ebpf, "DROPS")?,
        );
        let ring = Ring::new(take::<aya::maps::RingBuf<_>>(&mut ebpf, "EVENTS")?);
        // Without it the agent runs: what came and went is found when the process table is looked at, and a forked worker
        // is watched then.
        let processes = processes.and_then(|_| attach_all(&mut ebpf, PROCESS, PROCESS_TRACEPOINTS));
        let mut states = vec![processes.unwrap_or_else(|error| ProbeState {
            probe: PROCESS,
            up: false,
            detail: Some(error.to_string()),
        })];
        if let Some(offsets) = arrivals {
            // Without it a request begins when it is read.
            let attached = offsets.and_then(|_| attach_all(&mut ebpf, ARRIVAL, ARRIVAL_TRACEPOINTS));
            states.push(attached.unwrap_or_else(|error| ProbeState {
                probe: ARRIVAL,
                up: false,
                detail: Some(error.to_string()),
            }));
        }
        match options.socket_probe {
            SocketProbe::Tracepoint => {
                states.push(attach_all(&mut ebpf, "socket_tracepoint", SOCKET_TRACEPOINTS)?);
            }
            SocketProbe::Uprobe => {
                for spec in SOCKET_LIBC {
                    load_uprobe(&mut ebpf, spec.program)?;
                    if let Some(exit) = spec.exit {
                        load_uprobe(&mut ebpf, exit)?;
                    }
                }
                states.push(ProbeState {
                    probe: "socket_uprobe",
                    up: true,
                    detail: None,
                });
            }
        }
        let (cuda, cuda_sums) = Cuda::new(&mut ebpf)?;
        let probes = Probes {
            cuda,
            cuda_sums: Arc::new(cuda_sums),
            confirmed: Instant::now(),
            ebpf,
            socket_probe: options.socket_probe,
            procfs: options.procfs.clone(),
            libc_links: HashMap::new(),
            libc_closing: HashMap::new(),
            states,
            calls: Calls::default(),
        };
        Ok((probes, targets, ring))
    }

    /// What runs and what does not.
    pub fn states(&self) -> &[ProbeState] {
        &self.states
    }

    /// Attaches what is attached per process: in uprobe mode, its C library's socket calls. Call it before
    /// [`Targets::watch`], so that no call is half seen.
    ///
    /// # Errors
    /// The process has no C library of its own (a static binary), or a required symbol is missing in it.
    pub fn attach_process(&mut self, pid: u32) -> Result<(), ProbeError> {
        if self.socket_probe == SocketProbe::Tracepoint || self.libc_links.contains_key(&pid) {
            return Ok(());
        }
        let Some(scope) = NonZeroU32::new(pid).map(UProbeScope::OneProcess) else {
            return Ok(());
        };
        let libraries = libc::mapped(&self.procfs, pid).map_err(|source| ProbeError::Process {
            path: self.procfs.join(format!("{pid}/maps")),
            source,
        })?;
        if libraries.is_empty() {
            return Err(ProbeError::NoLibc);
        }
        if let Some(closing) = self.libc_closing.remove(&pid) {
            // With both, each call would be told twice.
            closing.wait();
        }
        let mut links = Links::new();
        for library in &libraries {
            let places = libc::places(library);
            for spec in SOCKET_LIBC {
                let place = places.get(spec.symbol).copied();
                if let Err(error) = self.attach_libc(*spec, place, library, scope, &mut links)
                    && spec.required
                {
                    self.close_libc(pid, links);
                    return Err(error);
                }
            }
        }
        self.libc_links.insert(pid, links);
        Ok(())
    }

    fn attach_libc(
        &mut self,
        spec: LibcSpec,
        place: Option<u64>,
        library: &std::path::Path,
        scope: UProbeScope,
        links: &mut Links,
    ) -> Result<(), ProbeError> {
        // The return first, for the same reason as with tracepoints.
        for program in spec.exit.into_iter().chain([spec.program]) {
            let uprobe = uprobe(&mut self.ebpf, program)?;
            let link = match place {
                Some(offset) => uprobe.attach(offset, library, scope),
                None => uprobe.attach(spec.symbol, library, scope),
            }
            .map_err(|source| ProbeError::Attach {
                program,
                target: format!("{} in {}", spec.symbol, library.display()),
                source: Box::new(source),
            })?;
            links.push((program, link));
        }
        Ok(())
    }

    /// Undoes [`Probes::attach_process`].
    pub fn detach_process(&mut self, pid: u32) {
        if let Some(links) = self.libc_links.remove(&pid) {
            self.close_libc(pid, links);
        }
        self.calls.forget(&mut self.ebpf, pid);
    }

    fn close_libc(&mut self, pid: u32, links: Links) {
        self.libc_closing.retain(|_, closing| !closing.is_over());
        let closing = detach(&mut self.ebpf, links);
        self.libc_closing.insert(pid, closing);
    }

    /// Looks for functions of engines and tokenizers in what `pid` has mapped, attaches to them, and looks again from time to
    /// time.
    pub fn attach_calls(&mut self, pid: u32, now: Instant) {
        self.calls.look(&mut self.ebpf, &self.procfs, pid, now);
    }

    /// Counts the CUDA calls of a process from when it has CUDA mapped.
    pub fn watch_cuda(&mut self, pid: u32, now: Instant) {
        self.cuda.watch(&mut self.ebpf, &self.procfs, pid, now);
    }

    /// Counts no more of a process; its last sums, if any were kept.
    pub fn forget_cuda(&mut self, pid: u32) -> Option<Vec<CudaRow>> {
        self.cuda.forget(&mut self.ebpf, pid)
    }

    /// Looks whether processes have mapped CUDA, engines or tokenizers since, and detaches from what is needed no longer.
    /// Call it about every 100 ms.
    pub fn advance(&mut self, now: Instant) {
        self.cuda.look(&mut self.ebpf, &self.procfs, now);
        for pid in self.calls.due(now) {
            self.attach_calls(pid, now);
        }
        if now.saturating_duration_since(self.confirmed) >= CONFIRM {
            self.confirmed = now;
            self.cuda.confirm(&mut self.ebpf, now);
        }
    }

    /// What became known of the probes on functions since this was last asked.
    pub fn take_news(&mut self) -> Vec<ProbeState> {
        let mut news = self.calls.take_news();
        news.extend(self.cuda.take_news());
        news
    }

    /// What of a process is probed.
    pub fn coverage(&self, pid: u32) -> Coverage {
        Coverage {
            functions: self.calls.functions_of(pid),
            cuda: self.cuda.covers(pid),
        }
    }

    /// The sums of CUDA calls, which whoever has this reads while probes are attached or detached.
    pub fn cuda_sums(&self) -> Arc<CudaSums> {
        Arc::clone(&self.cuda_sums)
    }
}

/// Where the arrival family's fields are in this kernel's records.
fn arrival_offsets(tracefs: &Tracefs) -> Result<Vec<(&'static str, u32)>, ProbeError> {
    ARRIVAL_FIELDS
        .iter()
        .map(|&(name, field, size, constant)| {
            Ok((constant, tracefs::field_of(tracefs, "tcp", name, field, size)?))
        })
        .collect()
}

pub(super) fn take<M>(ebpf: &mut Ebpf, name: &'static str) -> Result<M, ProbeError>
where
    M: TryFrom<aya::maps::Map, Error = aya::maps::MapError>,
{
    let map = ebpf
        .take_map(name)
        .ok_or(ProbeError::Missing { kind: "map", name })?;
    M::try_from(map).map_err(ProbeError::map(name))
}

fn tracepoint<'a>(ebpf: &'a mut Ebpf, name: &'static str) -> Result<&'a mut TracePoint, ProbeError> {
    let program = ebpf.program_mut(name).ok_or(ProbeError::Missing {
        kind: "program",
        name,
    })?;
    program.try_into().map_err(|_| ProbeError::Missing {
        kind: "tracepoint program",
        name,
    })
}

pub(super) fn uprobe<'a>(ebpf: &'a mut Ebpf, name: &'static str) -> Result<&'a mut UProbe, ProbeError> {
    let program = ebpf.program_mut(name).ok_or(ProbeError::Missing {
        kind: "program",
        name,
    })?;
    program.try_into().map_err(|_| ProbeError::Missing {
        kind: "uprobe program",
        name,
    })
}

pub(super) fn load_uprobe(ebpf: &mut Ebpf, name: &'static str) -> Result<(), ProbeError> {
    match uprobe(ebpf, name)?.load() {
        Ok(()) | Err(ProgramError::AlreadyLoaded) => Ok(()),
        Err(source) => Err(ProbeError::Attach {
            program: name,
            target: "load".to_owned(),
            source: Box::new(source),
        }),
    }
}

/// Loads and attaches a table of tracepoints. One that is not required and not there is left out.
fn attach_all(
    ebpf: &mut Ebpf,
    probe: &'static str,
    specs: &'static [TracepointSpec],
) -> Result<ProbeState, ProbeError> {
    let mut missing = Vec::new();
    for spec in specs {
        let error = |source| ProbeError::Attach {
            program: spec.program,
            target: format!("{}:{}", spec.category, spec.name),
            source: Box::new(source),
        };
        let program = tracepoint(ebpf, spec.program)?;
        match program.load() {
            Ok(()) | Err(ProgramError::AlreadyLoaded) => {}
            Err(source) => return Err(error(source)),
        }
        match program.attach(spec.category, spec.name) {
            Ok(_) => {}
            Err(_) if !spec.required => missing.push(spec.name),
            Err(source) => return Err(error(source)),
        }
    }
    let detail = (!missing.is_empty()).then(|| format!("this kernel has no {}", missing.join(", ")));
    Ok(ProbeState {
        probe,
        up: true,
        detail,
    })
}

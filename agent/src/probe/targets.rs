//! Which processes are watched, and the descriptor table's user side: seeding, answering, muting, clearing.

use super::ProbeError;
use crate::discover::sockets;
use aya::maps::{Array, HashMap, MapData, MapError, PerCpuArray};
use infertap_abi::{Conn, DropReason, FdKey, PORT_WORDS, Target, conn_flag, conn_state};
use infertap_core::event::{ConnId, Socket};
use std::collections::HashSet;
use std::path::PathBuf;

/// `BPF_NOEXIST`: seeding must not overwrite what the kernel side has learned meanwhile.
const NO_EXIST: u64 = 1;
/// `BPF_EXIST`: an answer must not bring back a connection that was closed meanwhile; nothing would remove it again.
const EXIST: u64 = 2;

/// The maps that say what is watched.
pub struct Targets {
    procfs: PathBuf,
    processes: HashMap<MapData, u32, abi::Target>,
    fds: HashMap<MapData, abi::FdKey, u64>,
    conns: HashMap<MapData, u64, abi::Conn>,
    ports: Array<MapData, u64>,
    drops: PerCpuArray<MapData, u64>,
    /// What `ports` holds.
    listened: Vec<u64>,
    watched: HashSet<u32>,
    next_id: u64,
}

/// aya asks map keys and values to be `Pod`, a foreign trait: wrappers make it ours to promise.
pub(super) mod abi {
    #![allow(unreachable_pub)] // the macro's items are as public as their module
    macro_rules! pod {
        ($($name:ident),*) => {$(
            #[derive(Debug, Clone, Copy)]
            #[repr(transparent)]
            pub struct $name(pub infertap_abi::$name);
            // SAFETY: repr(C) of integers without padding (sizes are asserted in infertap-abi), so any bytes are valid.
            unsafe impl aya::Pod for $name {}
        )*};
    }
    pod!(
        Target,
        FdKey,
        Conn,
        CudaKey,
        CudaCount,
        CudaPointer,
        CudaProcess,
        CudaWork
    );
}

impl Targets {
    pub(super) fn new(
        procfs: PathBuf,
        processes: HashMap<MapData, u32, abi::Target>,
        fds: HashMap<MapData, abi::FdKey, u64>,
        conns: HashMap<MapData, u64, abi::Conn>,
        ports: Array<MapData, u64>,
        drops: PerCpuArray<MapData, u64>,
    ) -> Targets {
        Targets {
            procfs,
            processes,
            fds,
            conns,
            ports,
            drops,
            listened: vec![0; PORT_WORDS as usize],
            watched: HashSet::new(),
            next_id: 1,
        }
    }

    /// Processes that are watched.
    pub fn watched(&self) -> impl Iterator<Item = u32> + '_ {
        self.watched.iter().copied()
    }

    /// Whether `tgid` is watched.
    pub fn watches(&self, tgid: u32) -> bool {
        self.watched.contains(&tgid)
    }

    /// Watches a process: its calls are seen from now on, and the sockets that it has open are joined late. Returns how
    /// many sockets were seeded. Watching again changes nothing.
    pub fn watch(&mut self, tgid: u32) -> Result<usize, ProbeError> {
        if !self.watched.insert(tgid) {
            return Ok(0);
        }
        let target = Target {
            engine: 0,
            reserved: 0,
        };
        let seeded = self
            .processes
            .insert(tgid, abi::Target(target), 0)
            .map_err(ProbeError::map("TARGETS"))
            .and_then(|()| self.seed(tgid));
        if seeded.is_err() {
            self.watched.remove(&tgid);
        }
        seeded
    }

    /// A process that the kernel side began to watch by itself (fork of a watched one).
    pub fn inherited(&mut self, tgid: u32) {
        self.watched.insert(tgid);
    }

    fn seed(&mut self, tgid: u32) -> Result<usize, ProbeError> {
        let open = match sockets::stream_sockets(&self.procfs, tgid) {
            Ok(open) => open,
            // A process that is gone already has nothing to seed; its exit is told by its own event.
            Err(error) if is_gone(&error) => return Ok(0),
            Err(source) => {
                return Err(ProbeError::Process {
                    path: self.procfs.join(format!("{tgid}/fd")),
                    source,
                });
            }
        };
        let mut seeded = 0;
        // Descriptors of one socket (dup) are one connection.
        let mut by_inode: std::collections::HashMap<u64, (u64, Conn)> = std::collections::HashMap::new();
        for socket in open {
            let id = self.next_id();
            let (id, conn) = by_inode.entry(socket.inode).or_insert((
                id,
                Conn {
                    state: conn_state::STREAM,
                    transport: socket.transport as u8,
                    role: socket.role as u8,
                    flags: conn_flag::LATE,
                    ..Conn::default()
                },
            ));
            conn.refs += 1;
            self.conns
                .insert(*id, abi::Conn(*conn), 0)
                .map_err(ProbeError::map("CONNS"))?;
            let key = abi::FdKey(FdKey { tgid, fd: socket.fd });
            if self.fds.insert(key, *id, NO_EXIST).is_ok() {
                seeded += 1;
            } else if conn.refs == 1 {
                // The kernel side was faster (or its table is full, which it counts).
                let _ = self.conns.remove(id);
                by_inode.remove(&socket.inode);
            } else {
                conn.refs -= 1;
                self.conns
                    .insert(*id, abi::Conn(*conn), 0)
                    .map_err(ProbeError::map("CONNS"))?;
            }
        }
        Ok(seeded)
    }

    /// An id that the kernel side can't make: its low byte is a CPU below 128.
    fn next_id(&mut self) -> u64 {
        self.next_id += 1;
        (self.next_id << 8) | 0xff
    }

    /// Answers the kernel side's question about a descriptor.
    pub fn answer(&mut self, socket: &Socket) -> Result<(), ProbeError> {
        let key = abi::FdKey(FdKey {
            tgid: socket.tgid,
            fd: socket.fd,
        });
        // The descriptor may have been closed or reused since.
        if self.fds.get(&key, 0).ok() != Some(socket.conn.0) {
            return Ok(());
        }
        let kind = sockets::fd_kind(&self.procfs, socket.tgid, socket.fd);
        if let Some(transport) = kind.transport() {
            let Ok(abi::Conn(conn)) = self.conns.get(&socket.conn.0, 0) else {
                return Ok(());
            };
            let known = Conn {
                state: conn_state::STREAM,
                transport: transport as u8,
                ..conn
            };
            return self.replace(socket.conn, known);
        }
        let _ = self.conns.remove(&socket.conn.0);
        // Looking took a while: the number may be another descriptor's by now, which must not be ignored.
        if self.fds.get(&key, 0).ok() != Some(socket.conn.0) {
            return Ok(());
        }
        self.fds.insert(key, 0, EXIST).or_else(absent_is_fine("FDS"))
    }

    /// The core has no use for this connection's bytes: they are counted, no longer copied.
    pub fn mute(&mut self, conn: ConnId) -> Result<(), ProbeError> {
        let Ok(abi::Conn(known)) = self.conns.get(&conn.0, 0) else {
            return Ok(());
        };
        let muted = Conn {
            state: conn_state::MUTED,
            ..known
        };
        self.replace(conn, muted)
    }

    /// Overwrites what is known of a connection, unless it has ended.
    fn replace(&mut self, conn: ConnId, known: Conn) -> Result<(), ProbeError> {
        self.conns
            .insert(conn.0, abi::Conn(known), EXIST)
            .or_else(absent_is_fine("CONNS"))
    }

    /// Stops watching a process and clears what the kernel side knows of it. For one that has ended, or is no longer
    /// an engine's.
    pub fn forget(&mut self, tgid: u32) {
        self.watched.remove(&tgid);
        let _ = self.processes.remove(&tgid);
        let keys: Vec<abi::FdKey> = self
            .fds
            .keys()
            .filter_map(Result::ok)
            .filter(|key| key.0.tgid == tgid)
            .collect();
        for key in keys {
            if let Ok(id) = self.fds.get(&key, 0) {
                let _ = self.fds.remove(&key);
                if id != 0 {
                    let _ = self.conns.remove(&id);
                }
            }
        }
    }

    /// A watched process executed another program: its close-on-exec descriptors are gone.
    pub fn executed(&mut self, tgid: u32) -> Result<usize, ProbeError> {
        self.forget(tgid);
        self.watch(tgid)
    }

    /// Notes arrivals on these local TCP ports, and on no others. On other sockets with such a port, in other network
    /// namespaces, they are noted in vain.
    ///
    /// # Errors
    /// The map can't be written.
    pub fn listen(&mut self, ports: impl Iterator<Item = u16>) -> Result<(), ProbeError> {
        let mut wanted = vec![0u64; PORT_WORDS as usize];
        for port in ports {
            wanted[usize::from(port >> 6)] |= 1 << (port & 63);
        }
        for (index, (word, known)) in (0..).zip(wanted.into_iter().zip(&mut self.listened)) {
            if word != *known {
                self.ports.set(index, word, 0).map_err(ProbeError::map("PORTS"))?;
                *known = word;
            }
        }
        Ok(())
    }

    /// What the kernel side lost so far, by reason, over all CPUs.
    pub fn drops(&self) -> Vec<(DropReason, u64)> {
        DropReason::ALL
            .into_iter()
            .map(|reason| {
                let sum = self
                    .drops
                    .get(&(reason as u32), 0)
                    .map_or(0, |cpus| cpus.iter().sum());
                (reason, sum)
            })
            .collect()
    }
}

/// How procfs says that a process has ended.
fn is_gone(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(::libc::ENOENT | ::libc::ESRCH))
}

/// For an update with [`EXIST`]: that the entry is gone means that what it stood for has ended.
fn absent_is_fine(map: &'static str) -> impl Fn(MapError) -> Result<(), ProbeError> {
    move |error| match &error {
        MapError::SyscallError(call) if call.io_error.raw_os_error() == Some(::libc::ENOENT) => Ok(()),
        _ => Err(ProbeError::map(map)(error)),
    }
}

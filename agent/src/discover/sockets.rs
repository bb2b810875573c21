//! What a descriptor is: stream sockets told apart from datagrams, files and pipes, and how a process came by them.
//!
//! Owns: the join of `/proc/PID/fd` with the socket tables of the process's own network namespace. Refuses: what is
//! said on the sockets.

use super::host::{Host, for_each_line, inode_of};
use infertap_abi::{Role, Transport};
use std::collections::{HashMap, HashSet};
use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Largest socket table that is read: some 2 million sockets.
const TABLE_LIMIT: u64 = 256 * 1024 * 1024;

/// What a descriptor is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FdKind {
    /// A TCP (or MPTCP) socket, IPv4 or IPv6.
    Tcp,
    /// A Unix stream socket; `SOCK_SEQPACKET` and `SOCK_DGRAM` are [`FdKind::Other`].
    UnixStream,
    /// Anything else.
    Other,
    /// Closed meanwhile, or not ours to look at.
    Unreadable,
}

impl FdKind {
    /// The ABI's name for it; `None` for what is no stream socket.
    pub fn transport(self) -> Option<Transport> {
        match self {
            FdKind::Tcp => Some(Transport::Tcp),
            FdKind::UnixStream => Some(Transport::Unix),
            FdKind::Other | FdKind::Unreadable => None,
        }
    }
}

/// One stream socket that a process holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SocketFd {
    /// Descriptor.
    pub fd: u32,
    /// Socket family.
    pub transport: Transport,
    /// `Listen`, or `Accepted` where the local address is one that is listened on here, or `Connected` for another TCP
    /// socket that has a peer; `Unknown` otherwise.
    pub role: Role,
    /// It waits for connections.
    pub listening: bool,
    /// The socket's inode: the same socket has the same one in every process and descriptor.
    pub inode: u64,
    /// Local TCP port.
    pub port: Option<u16>,
}

/// What descriptor `fd` of `pid` is, under the procfs `root`.
///
/// Asks the kernel for the socket's protocol name first (the `system.sockprotoname` attribute, which every kernel that
/// infertap runs on has), and looks the inode up in the tables where that does not tell.
pub fn fd_kind(root: &Path, pid: u32, fd: u32) -> FdKind {
    let host = Host::new(root);
    let path = host.path(pid, "fd").join(fd.to_string());
    let Ok(link) = std::fs::read_link(&path) else {
        return FdKind::Unreadable;
    };
    // Only sockets are asked: an attribute of a file could wait for a dead file server.
    let Some(inode) = inode_of(link.as_os_str().as_bytes(), b"socket") else {
        return FdKind::Other;
    };
    if let Some(kind) = protocol_name(&path).and_then(|name| kind_of_protocol(&name)) {
        return kind;
    }
    let tables = SocketTables::read(&host, pid, &HashSet::from([inode]));
    match tables.found.get(&inode) {
        Some(entry) if entry.transport == Transport::Tcp => FdKind::Tcp,
        Some(_) => FdKind::UnixStream,
        None => FdKind::Other,
    }
}

/// Every stream socket that `pid` holds, under the procfs `root`, by descriptor.
///
/// # Errors
/// The process is gone, or it may not be looked at (`CAP_SYS_PTRACE`).
pub fn stream_sockets(root: &Path, pid: u32) -> io::Result<Vec<SocketFd>> {
    let host = Host::new(root);
    let mut held: Vec<(u32, u64)> = host
        .fds(pid)?
        .into_iter()
        .filter_map(|(fd, link)| Some((fd, inode_of(link.as_bytes(), b"socket")?)))
        .collect();
    held.sort_unstable();
    if held.is_empty() {
        return Ok(Vec::new());
    }
    let wanted: HashSet<u64> = held.iter().map(|(_, inode)| *inode).collect();
    let tables = SocketTables::read(&host, pid, &wanted);
    Ok(held
        .into_iter()
        .filter_map(|(fd, inode)| match tables.found.get(&inode) {
            Some(entry) => Some(SocketFd {
                fd,
                transport: entry.transport,
                role: tables.role(entry),
                listening: entry.state == State::Listening,
                inode,
                port: entry.port,
            }),
            // Opened in another network namespace, or in no table yet (a socket that is neither bound nor connected):
            // the kernel still names its protocol.
            None => Some(SocketFd {
                fd,
                transport: fd_kind_by_name(&host, pid, fd, inode)?.transport()?,
                role: Role::Unknown,
                listening: false,
                inode,
                port: None,
            }),
        })
        .collect())
}

fn fd_kind_by_name(host: &Host, pid: u32, fd: u32, inode: u64) -> Option<FdKind> {
    let path = host.path(pid, "fd").join(fd.to_string());
    let link = std::fs::read_link(&path).ok()?;
    if inode_of(link.as_os_str().as_bytes(), b"socket") != Some(inode) {
        return None;
    }
    kind_of_protocol(&protocol_name(&path)?)
}

/// `None` where the name does not tell: "UNIX" is every type of Unix socket before 5.15.
fn kind_of_protocol(name: &[u8]) -> Option<FdKind> {
    match name {
        b"TCP" | b"TCPv6" | b"MPTCP" | b"MPTCPv6" => Some(FdKind::Tcp),
        b"UNIX-STREAM" => Some(FdKind::UnixStream),
        b"UNIX" => None,
        _ => Some(FdKind::Other),
    }
}

/// The `system.sockprotoname` attribute that sockfs gives every socket (net/socket.c, `sockfs_xattr_get`).
fn protocol_name(path: &Path) -> Option<Vec<u8>> {
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    let mut name = [0u8; 64];
    // SAFETY: both strings end in a nul, and the kernel writes at most `name.len()` bytes into `name`.
    let len = unsafe {
        libc::getxattr(
            path.as_ptr(),
            c"system.sockprotoname".as_ptr(),
            name.as_mut_ptr().cast(),
            name.len(),
        )
    };
    let name = name.get(..usize::try_from(len).ok()?)?;
    Some(name.strip_suffix(b"\0").unwrap_or(name).to_vec())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Listening,
    Connected,
    Other,
}

#[derive(Debug, Clone)]
struct Entry {
    transport: Transport,
    state: State,
    port: Option<u16>,
    /// Path of a Unix socket, or nothing.
    path: Vec<u8>,
}

/// The rows of a network namespace's socket tables that matter for one process.
#[derive(Debug, Default)]
struct SocketTables {
    found: HashMap<u64, Entry>,
    listening_ports: HashSet<u16>,
    listening_paths: HashSet<Vec<u8>>,
}

impl SocketTables {
    /// Reads the tables that process `pid` sees, keeping the rows of `wanted` inodes. A table that is not there (IPv6
    /// switched off) has no rows.
    fn read(host: &Host, pid: u32, wanted: &HashSet<u64>) -> SocketTables {
        let mut tables = SocketTables::default();
        for name in ["net/tcp", "net/tcp6"] {
            let _ = for_each_line(&host.path(pid, name), TABLE_LIMIT, |line| {
                if let Some(row) = TcpRow::parse(line) {
                    if row.state == State::Listening {
                        tables.listening_ports.insert(row.port);
                    }
                    if wanted.contains(&row.inode) {
                        tables.found.insert(
                            row.inode,
                            Entry {
                                transport: Transport::Tcp,
                                state: row.state,
                                port: Some(row.port),
                                path: Vec::new(),
                            },
                        );
                    }
                }
                true
            });
        }
        let _ = for_each_line(&host.path(pid, "net/unix"), TABLE_LIMIT, |line| {
            if let Some((inode, entry)) = parse_unix_row(line) {
                if entry.state == State::Listening && !entry.path.is_empty() {
                    tables.listening_paths.insert(entry.path.clone());
                }
                if wanted.contains(&inode) {
                    tables.found.insert(inode, entry);
                }
            }
            true
        });
        tables
    }

    fn role(&self, entry: &Entry) -> Role {
        match entry.state {
            State::Listening => Role::Listen,
            State::Connected => match entry.port {
                Some(port) if self.listening_ports.contains(&port) => Role::Accepted,
                Some(_) => Role::Connected,
                // An accepted Unix socket bears the address of its listener; the other end mostly none.
                None if !entry.path.is_empty() && self.listening_paths.contains(&entry.path) => {
                    Role::Accepted
                }
                None => Role::Unknown,
            },
            State::Other => Role::Unknown,
        }
    }
}

/// A row of `/proc/PID/net/tcp` or `tcp6`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TcpRow {
    pub(super) port: u16,
    pub(super) inode: u64,
    state: State,
}

impl TcpRow {
    pub(super) fn is_listening(&self) -> bool {
        self.state == State::Listening
    }

    /// `sl local_address rem_address st tx:rx tr:when retrnsmt uid timeout inode …`; the heading is no row.
    pub(super) fn parse(line: &[u8]) -> Option<TcpRow> {
        let line = std::str::from_utf8(line).ok()?;
        let mut fields = line.split_ascii_whitespace();
        let local = fields.nth(1)?;
        let port = u16::from_str_radix(local.rsplit_once(':')?.1, 16).ok()?;
        let state = match fields.nth(1)? {
            "0A" => State::Listening,
            "01" | "04" | "05" | "08" => State::Connected,
            _ => State::Other,
        };
        let inode = fields.nth(5)?.parse().ok()?;
        Some(TcpRow { port, inode, state })
    }
}

/// `Num: RefCount Protocol Flags Type St Inode Path`: hexadecimal but the inode; stream sockets only.
fn parse_unix_row(line: &[u8]) -> Option<(u64, Entry)> {
    let mut rest = line;
    let mut fields: [&[u8]; 7] = [b""; 7];
    for field in &mut fields {
        rest = rest.trim_ascii_start();
        let end = memchr::memchr(b' ', rest).unwrap_or(rest.len());
        *field = &rest[..end];
        rest = &rest[end..];
    }
    let hex = |field: &[u8]| u32::from_str_radix(std::str::from_utf8(field).ok()?, 16).ok();
    if hex(fields[4])? != libc::SOCK_STREAM as u32 {
        return None;
    }
    let inode = std::str::from_utf8(fields[6]).ok()?.parse().ok()?;
    // __SO_ACCEPTCON, and SS_CONNECTED (include/linux/net.h).
    let state = match (hex(fields[3])? & 0x0001_0000 != 0, hex(fields[5])?) {
        (true, _) => State::Listening,
        (false, 3) => State::Connected,
        _ => State::Other,
    };
    let path = rest.trim_ascii_start().to_vec();
    Some((
        inode,
        Entry {
            transport: Transport::Unix,
            state,
            port: None,
            path,
        },
    ))
}

/// The inodes and ports of all TCP listeners in the network namespace of `pid`.
pub(super) fn tcp_listeners(host: &Host, pid: u32) -> HashMap<u64, u16> {
    let mut listeners = HashMap::new();
    for name in ["net/tcp", "net/tcp6"] {
        let _ = for_each_line(&host.path(pid, name), TABLE_LIMIT, |line| {
            if let Some(row) = TcpRow::parse(line).filter(TcpRow::is_listening) {
                listeners.insert(row.inode, row.port);
            }
            true
        });
    }
    listeners
}

#[cfg(test)]
#[path = "sockets_tests.rs"]
mod tests;

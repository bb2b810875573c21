//! TCP listeners of processes, with each network namespace's tables read once a look.
//!
//! Owns: that cache. Refuses: parsing (`sockets`).

use super::host::{Host, inode_of};
use super::sockets::tcp_listeners;
use std::collections::HashMap;
use std::io;
use std::os::unix::ffi::OsStrExt;

/// Listening sockets by network namespace, for one look at the process table.
#[derive(Debug, Default)]
pub(super) struct Listeners {
    tables: HashMap<Key, HashMap<u64, u16>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Key {
    Namespace(u64),
    /// The namespace can't be told: the process's own view is good for the process alone.
    Process(u32),
}

impl Listeners {
    /// Inode and port of every listener in the network namespace of `pid`.
    pub(super) fn of(&mut self, host: &Host, pid: u32, namespace: Option<u64>) -> &HashMap<u64, u16> {
        let key = namespace.map_or(Key::Process(pid), Key::Namespace);
        self.tables.entry(key).or_insert_with(|| tcp_listeners(host, pid))
    }
}

/// The listening TCP sockets that `pid` holds, by inode.
///
/// # Errors
/// The process is gone, or it may not be looked at.
pub(super) fn listening_sockets(
    host: &Host,
    pid: u32,
    namespace: Option<u64>,
    listeners: &mut Listeners,
) -> io::Result<Vec<(u64, u16)>> {
    let fds = host.fds(pid)?;
    let inodes: Vec<u64> = fds
        .iter()
        .filter_map(|(_, link)| inode_of(link.as_bytes(), b"socket"))
        .collect();
    if inodes.is_empty() {
        return Ok(Vec::new());
    }
    let table = listeners.of(host, pid, namespace);
    let mut held: Vec<(u64, u16)> = inodes
        .iter()
        .filter_map(|inode| Some((*inode, *table.get(inode)?)))
        .collect();
    held.sort_unstable();
    held.dedup();
    Ok(held)
}

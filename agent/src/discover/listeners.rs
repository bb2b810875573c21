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

    /// Those of `sockets`, which `pid` holds, that listen.
    pub(super) fn among(
        &mut self,
        host: &Host,
        pid: u32,
        namespace: Option<u64>,
        sockets: &[u64],
    ) -> Vec<(u64, u16)> {
        let table = self.of(host, pid, namespace);
        sockets
            .iter()
            .filter_map(|inode| Some((*inode, *table.get(inode)?)))
            .collect()
    }
}

/// The inodes of the sockets that `pid` holds, ascending.
///
/// # Errors
/// The process is gone, or it may not be looked at.
pub(super) fn socket_inodes(host: &Host, pid: u32) -> io::Result<Vec<u64>> {
    let fds = host.fds(pid)?;
    let mut inodes: Vec<u64> = fds
        .iter()
        .filter_map(|(_, link)| inode_of(link.as_bytes(), b"socket"))
        .collect();
    inodes.sort_unstable();
    inodes.dedup();
    Ok(inodes)
}

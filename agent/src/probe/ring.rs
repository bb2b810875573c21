//! The ring buffer's reading end.

use super::ProbeError;
use aya::maps::{MapData, RingBuf};
use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

/// Reads records in the order in which the kernel side reserved them, over all CPUs.
pub struct Ring {
    ring: RingBuf<MapData>,
}

impl Ring {
    pub(super) fn new(ring: RingBuf<MapData>) -> Ring {
        Ring { ring }
    }

    /// Waits until the kernel side wakes the reader, or `timeout` has passed. Wake-ups are batched, so a timeout does
    /// not mean that the ring is empty: call [`Ring::drain`] either way.
    pub fn wait(&self, timeout: Duration) -> Result<(), ProbeError> {
        let mut poll = libc::pollfd {
            fd: self.ring.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        let millis = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: one valid pollfd.
        let ready = unsafe { libc::poll(&raw mut poll, 1, millis) };
        if ready < 0 {
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// Hands up to `limit` records to `each`; returns how many there were. The limit keeps a flood from starving the
    /// caller's other duties.
    pub fn drain(&mut self, limit: usize, mut each: impl FnMut(&[u8])) -> usize {
        let mut taken = 0;
        while taken < limit {
            let Some(record) = self.ring.next() else { break };
            each(&record);
            taken += 1;
        }
        taken
    }
}

//! A file whose opening by one process waits until the test lets it: how a slow disk, or a kernel that is long in attaching, looks
//! to that process, for as long as the test wants and no longer.
//!
//! Owns: a fanotify group with permission events, and the thread that answers everybody else's at once. Refuses: closing behind
//! itself: when it is dropped, for whatever reason, the kernel lets all pass. Needs root.

use anyhow::{Context, Result, ensure};
use std::{
    ffi::CString,
    fs::File,
    io::{self, Read, Write},
    mem,
    os::{
        fd::{FromRawFd, OwnedFd, RawFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// How long until the thread looks whether it is to end.
const TURN: Duration = Duration::from_millis(20);

/// While it is there, `process` cannot open the file.
#[derive(Debug)]
pub struct Gate {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    held: AtomicBool,
    over: AtomicBool,
}

impl Gate {
    /// Holds back openings of `file` by `process` from now on.
    ///
    /// # Errors
    /// This is not root, or the kernel has no such events.
    pub fn close(file: &Path, process: u32) -> Result<Gate> {
        let flags = libc::FAN_CLASS_CONTENT | libc::FAN_CLOEXEC | libc::FAN_NONBLOCK;
        let events = (libc::O_RDONLY | libc::O_CLOEXEC) as libc::c_uint;
        // SAFETY: no memory is passed.
        let group = unsafe { libc::fanotify_init(flags, events) };
        ensure!(group >= 0, "no fanotify group: {}", io::Error::last_os_error());
        // SAFETY: the descriptor is new and nobody else's.
        let group = unsafe { File::from_raw_fd(group) };
        let path = CString::new(file.as_os_str().as_bytes())?;
        // SAFETY: the path is a C string that outlives the call.
        let marked = unsafe {
            libc::fanotify_mark(
                std::os::fd::AsRawFd::as_raw_fd(&group),
                libc::FAN_MARK_ADD,
                libc::FAN_OPEN_PERM,
                libc::AT_FDCWD,
                path.as_ptr(),
            )
        };
        ensure!(
            marked == 0,
            "can't hold {}: {}",
            file.display(),
            io::Error::last_os_error()
        );
        let shared = Arc::new(Shared::default());
        let of_thread = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("gate".to_owned())
            .spawn(move || keep(&group, process, &of_thread))
            .context("can't start a thread")?;
        Ok(Gate {
            shared,
            thread: Some(thread),
        })
    }

    /// Waits until the process stands before it.
    ///
    /// # Errors
    /// It does not come.
    pub fn wait_held(&self, limit: Duration) -> Result<()> {
        let begun = Instant::now();
        while !self.shared.held.load(Ordering::Acquire) {
            ensure!(begun.elapsed() < limit, "the process does not open the file");
            thread::sleep(TURN);
        }
        Ok(())
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // One that panicked has dropped the group as well.
            let _ = thread.join();
        }
    }
}

/// Answers until it is over; what is held then passes, because the group ends.
fn keep(mut group: &File, process: u32, shared: &Shared) {
    let mut held: Vec<OwnedFd> = Vec::new();
    let mut buffer = [0_u8; 4096];
    while !shared.over.load(Ordering::Acquire) {
        let read = match group.read(&mut buffer) {
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                thread::sleep(TURN);
                continue;
            }
            Err(_) => return,
        };
        let mut rest = &buffer[..read];
        while let Some((pid, fd, length)) = event(rest) {
            rest = &rest[length..];
            if fd < 0 {
                continue;
            }
            // SAFETY: the kernel has opened it for this reader.
            let file = unsafe { OwnedFd::from_raw_fd(fd) };
            if pid == process as i32 {
                held.push(file);
                shared.held.store(true, Ordering::Release);
                continue;
            }
            let answer = [fd.to_ne_bytes(), libc::FAN_ALLOW.to_ne_bytes()].concat();
            if group.write_all(&answer).is_err() {
                return;
            }
        }
    }
}

/// Whose it is, the file as opened for the reader, and how long the event is; `None` at the end.
fn event(bytes: &[u8]) -> Option<(i32, RawFd, usize)> {
    use libc::fanotify_event_metadata as Event;
    let number = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let length = number(mem::offset_of!(Event, event_len))? as usize;
    let fd = number(mem::offset_of!(Event, fd))? as i32;
    let pid = number(mem::offset_of!(Event, pid))? as i32;
    (length >= mem::size_of::<Event>() && length <= bytes.len()).then_some((pid, fd, length))
}

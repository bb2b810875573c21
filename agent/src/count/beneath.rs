//! Opening files as a process sees them, without leaving its root.
//!
//! Owns: `openat2` with `RESOLVE_IN_ROOT`: a link to `/etc/…` in a container's file system is the container's `/etc`, not
//! ours. Refuses: what is no plain file, and reading more than it is asked to.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The root of a process's file system.
#[derive(Debug)]
pub(super) struct Root(File);

/// A file's identity, and when it was changed last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Identity {
    device: u64,
    inode: u64,
    changed: i64,
}

impl Root {
    /// Opens a folder: `/proc/PID/root`, or one that stands for it.
    ///
    /// # Errors
    /// It is not there, or not ours to look at.
    pub(super) fn open(folder: &Path) -> io::Result<Root> {
        let mut options = File::options();
        options
            .read(true)
            .custom_flags(libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC);
        options.open(folder).map(Root)
    }

    /// Opens a plain file.
    ///
    /// # Errors
    /// It is not there, or no plain file.
    pub(super) fn file(&self, path: &str) -> io::Result<File> {
        // Without O_NONBLOCK a named pipe would keep us waiting.
        let file = self.at(path, libc::O_RDONLY | libc::O_NONBLOCK | libc::O_CLOEXEC)?;
        if file.metadata()?.is_file() {
            Ok(file)
        } else {
            Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no plain file"))
        }
    }

    /// At most `limit` bytes of a plain file; `None`: it is not there.
    ///
    /// # Errors
    /// It can't be read, or is larger.
    pub(super) fn read(&self, path: &str, limit: u64) -> io::Result<Option<Vec<u8>>> {
        let file = match self.file(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut bytes = Vec::new();
        file.take(limit + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > limit {
            return Err(io::Error::new(
                io::ErrorKind::FileTooLarge,
                format!("it is larger than {limit} bytes"),
            ));
        }
        Ok(Some(bytes))
    }

    /// Names in a folder, at most `limit` of them, sorted.
    pub(super) fn names(&self, path: &str, limit: usize) -> Vec<String> {
        let Ok(folder) = self.at(path, libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC) else {
            return Vec::new();
        };
        // The descriptor, not the path: nothing can be put between.
        let entries = std::fs::read_dir(format!("/proc/self/fd/{}", folder.as_raw_fd()));
        let mut names: Vec<String> = entries
            .into_iter()
            .flatten()
            .take(limit)
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect();
        names.sort_unstable();
        names
    }

    fn at(&self, path: &str, flags: libc::c_int) -> io::Result<File> {
        let path = CString::new(path)?;
        // SAFETY: `open_how` is plain numbers, for which zeros are a value, and the kernel asks for zeros where no field is
        // set (include/uapi/linux/openat2.h).
        let mut how: libc::open_how = unsafe { std::mem::zeroed() };
        how.flags = flags as u64;
        how.resolve = libc::RESOLVE_IN_ROOT | libc::RESOLVE_NO_MAGICLINKS;
        // SAFETY: the descriptor is open as long as `self`; the path ends with a zero byte and `how` has the size that is
        // told; both outlive the call, which writes to neither. Linux has had openat2(2) since 5.6.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_openat2,
                self.0.as_raw_fd(),
                path.as_ptr(),
                std::ptr::from_ref(&how),
                size_of::<libc::open_how>(),
            )
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call has just given us this descriptor, and nobody else has it.
        Ok(unsafe { File::from_raw_fd(fd as libc::c_int) })
    }
}

/// Which file it is.
///
/// # Errors
/// The system's.
pub(super) fn identity(file: &File) -> io::Result<Identity> {
    use std::os::unix::fs::MetadataExt;
    let meta = file.metadata()?;
    Ok(Identity {
        device: meta.dev(),
        inode: meta.ino(),
        changed: meta.ctime(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_do_not_lead_out_of_the_root() {
        let folder = tempfile::tempdir().expect("a folder");
        let outside = folder.path().join("secret");
        std::fs::write(&outside, "outside").expect("a file");
        let inside = folder.path().join("root");
        std::fs::create_dir_all(inside.join("models/deep")).expect("a folder");
        std::fs::write(inside.join("models/a.json"), "inside").expect("a file");
        symlink(&outside, inside.join("models/absolute")).expect("a link");
        symlink("../../../secret", inside.join("models/relative")).expect("a link");
        symlink("../a.json", inside.join("models/deep/good")).expect("a link");
        symlink("/models/a.json", inside.join("models/rooted")).expect("a link");
        let root = Root::open(&inside).expect("the root");
        let read = |path: &str| root.read(path, 100).ok().flatten();
        assert_eq!(read("/models/a.json").as_deref(), Some(&b"inside"[..]));
        assert_eq!(read("models/deep/good").as_deref(), Some(&b"inside"[..]));
        assert_eq!(read("/models/rooted").as_deref(), Some(&b"inside"[..]));
        assert_eq!(read("/models/absolute"), None);
        assert_eq!(read("/models/relative"), None);
        assert_eq!(read("../secret"), None);
        assert!(root.read("/models/a.json", 3).is_err(), "larger than the limit");
        assert!(root.file("/models").is_err(), "a folder");
        assert_eq!(
            root.names("/models", 10),
            ["a.json", "absolute", "deep", "relative", "rooted"]
        );
        assert!(root.names("/nothing", 10).is_empty());
    }
}

//! Files that destinations need: secrets, certificates, keys.
//!
//! Owns: reading them within bounds. Refuses: what is no regular file: a pipe would be waited for without end.

use std::fs::OpenOptions;
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// The whole file. May block.
///
/// # Errors
/// It can't be read, is no regular file, or has more than `limit` bytes.
pub(super) fn read(path: &Path, limit: u64) -> Result<Vec<u8>, String> {
    let failed = |error: std::io::Error| format!("{} can't be read: {error}", path.display());
    // A pipe without a writer is opened at once that way.
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)
        .map_err(failed)?;
    if !file.metadata().map_err(failed)?.is_file() {
        return Err(format!("{} is no regular file", path.display()));
    }
    let mut bytes = Vec::new();
    file.take(limit.saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    if bytes.len() as u64 > limit {
        return Err(format!(
            "{} is too large: it may have {limit} bytes",
            path.display()
        ));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_whole_or_not_at_all() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        std::fs::write(&path, "12345").expect("writes");
        assert_eq!(read(&path, 5), Ok(b"12345".to_vec()));
        let pipe = folder.path().join("pipe");
        let name = std::ffi::CString::new(pipe.to_str().expect("UTF-8")).expect("a name");
        // SAFETY: the name ends with a zero byte and lives on.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        for (path, limit, why) in [
            (&path, 4, "too large"),
            (&pipe, 5, "no regular file"),
            (&folder.path().to_owned(), 5, "no regular file"),
            (&folder.path().join("none"), 5, "can't be read"),
        ] {
            let error = read(path, limit).expect_err(why);
            assert!(
                error.contains(why) && error.contains(&*path.to_string_lossy()),
                "{error}"
            );
        }
    }
}

//! A disk that can be filled.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A small file system in memory, gone when dropped.
pub(super) struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    /// Half a megabyte of it. Needs root.
    pub(super) fn mount() -> SmallDisk {
        let folder = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=512k", "tmpfs"])
            .arg(folder.path())
            .status()
            .unwrap();
        assert!(mounted.success(), "mounting a tmpfs needs root");
        SmallDisk(folder)
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Leaves no room on it, until what this returns is removed.
    pub(super) fn fill(&self) -> PathBuf {
        let filler = self.path().join("filler");
        let filled = std::fs::write(&filler, vec![0; 1 << 20]);
        assert!(filled.is_err(), "it is full");
        filler
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.0.path()).status();
    }
}

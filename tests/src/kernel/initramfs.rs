//! An initramfs: a cpio archive in the `newc` format, with the libraries that its programs are linked to.
//!
//! Owns: the archive's bytes, finding libraries through `ldd`. Refuses: compression.

use anyhow::{Context, Result, ensure};
use std::{collections::BTreeSet, fs, path::Path, process::Command};

const FOLDER: u32 = 0o040_755;
const FILE: u32 = 0o100_755;

/// An archive under construction.
#[derive(Debug, Default)]
pub(super) struct Initramfs {
    bytes: Vec<u8>,
    names: BTreeSet<String>,
}

impl Initramfs {
    /// Adds a program, and the libraries that it needs.
    pub(super) fn program(&mut self, name: &str, path: &Path) -> Result<()> {
        self.file(name, path)?;
        let output = Command::new("ldd")
            .arg(path)
            .output()
            .context("can't start ldd")?;
        ensure!(output.status.success(), "ldd {} failed", path.display());
        // `libc.so.6 => /lib/…/libc.so.6 (0x…)`, or `/lib64/ld-linux-x86-64.so.2 (0x…)`.
        for word in String::from_utf8_lossy(&output.stdout)
            .split_whitespace()
            .filter(|word| word.starts_with('/'))
        {
            self.file(word.trim_start_matches('/'), Path::new(word))?;
        }
        Ok(())
    }

    /// Adds an empty folder, and the folders that it is in.
    pub(super) fn folder(&mut self, name: &str) {
        if let Some((parent, _)) = name.rsplit_once('/') {
            self.folder(parent);
        }
        if self.names.insert(name.to_owned()) {
            self.entry(name, FOLDER, &[]);
        }
    }

    fn file(&mut self, name: &str, path: &Path) -> Result<()> {
        if self.names.contains(name) {
            return Ok(());
        }
        if let Some((parent, _)) = name.rsplit_once('/') {
            self.folder(parent);
        }
        let data = fs::read(path).with_context(|| format!("can't read {}", path.display()))?;
        self.names.insert(name.to_owned());
        self.entry(name, FILE, &data);
        Ok(())
    }

    fn entry(&mut self, name: &str, mode: u32, data: &[u8]) {
        let number = self.names.len() as u32;
        // Magic, then: inode, mode, owner, group, links, time, size, device numbers (4), length of the name, checksum.
        let fields = [
            number,
            mode,
            0,
            0,
            1,
            0,
            data.len() as u32,
            0,
            0,
            0,
            0,
            name.len() as u32 + 1,
            0,
        ];
        self.bytes.extend(b"070701");
        for field in fields {
            self.bytes.extend(format!("{field:08x}").bytes());
        }
        self.bytes.extend(name.bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(data);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    /// The archive.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_aligned_and_parents_come_first() {
        let mut image = Initramfs::default();
        // Before the program, whose own bytes may hold the same word.
        image.folder("proc");
        image.program("bin/deep/true", Path::new("/bin/true")).unwrap();
        let bytes = image.finish();
        let at = |name: &str| {
            let name = [name.as_bytes(), &[0]].concat();
            bytes
                .windows(name.len())
                .position(|window| window == name)
                .unwrap()
                - 110
        };
        for name in ["bin", "bin/deep", "bin/deep/true", "proc", "TRAILER!!!"] {
            assert_eq!(at(name) % 4, 0, "{name}");
            assert_eq!(&bytes[at(name)..at(name) + 6], b"070701", "{name}");
        }
        assert!(at("bin") < at("bin/deep") && at("bin/deep") < at("bin/deep/true"));
        assert!(String::from_utf8_lossy(&bytes).contains("libc.so"));
    }
}

//! What the committed BPF object was built from: a small text beside it, checked by tests that have no BPF toolchain.
//!
//! Owns: the stamp's format and the digest of the sources. Refuses: building (`cargo xtask ebpf`). The digest guards
//! against forgetting to rebuild, not against malice; `cargo xtask ebpf --check` compares the bytes.

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// The committed object, relative to the repository's root.
pub const OBJECT: &str = "agent/bpf/infertap.bpf.o";
/// Its stamp.
pub const STAMP: &str = "agent/bpf/infertap.bpf.json";

/// Which tools and sources made an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    /// `rustc --version`.
    pub rustc: String,
    /// `bpf-linker --version`.
    pub bpf_linker: String,
    /// Digest of every source file of the BPF crate and the ABI crate.
    pub sources: String,
    /// Digest of the object.
    pub object: String,
}

impl Stamp {
    /// The stamp of `object`, built from the sources under `root` as they are now.
    pub fn new(root: &Path, rustc: String, bpf_linker: String, object: &[u8]) -> Result<Stamp> {
        let mut digest = Digest::new();
        digest.update(object);
        Ok(Stamp {
            rustc,
            bpf_linker,
            sources: sources_digest(root)?,
            object: digest.finish(),
        })
    }

    /// Reads a stamp file.
    pub fn read(path: &Path) -> Result<Stamp> {
        let text = fs::read_to_string(path).with_context(|| format!("can't read {}", path.display()))?;
        serde_json::from_str(&text).with_context(|| format!("{} is no build stamp", path.display()))
    }

    /// Writes a stamp file.
    pub fn write(&self, path: &Path) -> Result<()> {
        let mut text = serde_json::to_string_pretty(self)?;
        text.push('\n');
        fs::write(path, text).with_context(|| format!("can't write {}", path.display()))
    }

    /// Whether the object and the sources under `root` are those that this stamp was made for; the error says what to do.
    pub fn verify(&self, root: &Path) -> Result<()> {
        let object = fs::read(root.join(OBJECT)).with_context(|| format!("can't read {OBJECT}"))?;
        let mut digest = Digest::new();
        digest.update(&object);
        anyhow::ensure!(
            digest.finish() == self.object,
            "{OBJECT} is not the object that {STAMP} describes: run `cargo xtask ebpf` and commit both"
        );
        anyhow::ensure!(
            sources_digest(root)? == self.sources,
            "the sources under ebpf/ changed since {OBJECT} was built: run `cargo xtask ebpf` and commit the result"
        );
        Ok(())
    }
}

/// Digest of every file that the object is built from, names included, in the order of their names.
pub fn sources_digest(root: &Path) -> Result<String> {
    let mut files = Vec::new();
    collect(&root.join("ebpf"), &mut files)?;
    files.sort();
    let mut digest = Digest::new();
    for file in files {
        let name = file
            .strip_prefix(root)
            .unwrap_or(&file)
            .to_string_lossy()
            .into_owned();
        let bytes = fs::read(&file).with_context(|| format!("can't read {}", file.display()))?;
        digest.update(&(name.len() as u64).to_le_bytes());
        digest.update(name.as_bytes());
        digest.update(&(bytes.len() as u64).to_le_bytes());
        digest.update(&bytes);
    }
    Ok(digest.finish())
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("can't list {}", folder.display()))? {
        let path = entry?.path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if path.is_dir() {
            if name != "target" {
                collect(&path, files)?;
            }
        } else if path.extension().is_some_and(|e| e == "rs" || e == "toml") || name == "Cargo.lock" {
            files.push(path);
        }
    }
    Ok(())
}

/// FNV-1a, 128 bits.
struct Digest(u128);

impl Digest {
    fn new() -> Digest {
        Digest(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d)
    }

    fn update(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u128::from(*byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
        }
    }

    fn finish(&self) -> String {
        format!("{:032x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_is_fnv_1a_128() {
        let of = |text: &str| {
            let mut digest = Digest::new();
            digest.update(text.as_bytes());
            digest.finish()
        };
        // Test vectors of the IETF draft draft-eastlake-fnv.
        assert_eq!(of(""), "6c62272e07bb014262b821756295c58d");
        assert_eq!(of("a"), "d228cb696f1a8caf78912b704e4a8964");
    }

    #[test]
    fn a_changed_source_or_object_is_told_and_build_outputs_are_not_sources() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("ebpf/src/main.rs", "fn main() {}");
        write("ebpf/Cargo.lock", "version = 4");
        write(OBJECT, "ELF");
        let stamp = Stamp::new(root.path(), "rustc".into(), "bpf-linker".into(), b"ELF").unwrap();
        stamp.write(&root.path().join(STAMP)).unwrap();
        let stamp = Stamp::read(&root.path().join(STAMP)).unwrap();
        stamp.verify(root.path()).unwrap();
        write("ebpf/target/release/junk.rs", "x");
        stamp.verify(root.path()).unwrap();
        write("ebpf/src/main.rs", "fn main() { }");
        assert!(
            stamp
                .verify(root.path())
                .unwrap_err()
                .to_string()
                .contains("cargo xtask ebpf")
        );
        write("ebpf/src/main.rs", "fn main() {}");
        write(OBJECT, "ELF2");
        assert!(
            stamp
                .verify(root.path())
                .unwrap_err()
                .to_string()
                .contains("cargo xtask ebpf")
        );
    }
}

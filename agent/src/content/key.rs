//! The key of the hashes: made once, and kept beside the store.
//!
//! Owns: its file. Refuses: sending it anywhere; a copy of records without this file tells nothing of what they were made of.

use infertap_core::content::HashKey;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The name of its file, in the folder of the store.
const NAME: &str = "content.key";

/// The key, read or made when it is first asked for.
#[derive(Debug, Default)]
pub(super) struct KeyFile {
    path: OnceLock<PathBuf>,
    key: OnceLock<HashKey>,
}

impl KeyFile {
    /// It is beside this store. Once.
    pub(super) fn beside(&self, store: &Path) {
        let _ = self.path.set(store.with_file_name(NAME));
    }

    /// The key. Where its file can't be used, one that holds until the agent ends: said once.
    pub(super) fn get(&self) -> HashKey {
        *self.key.get_or_init(|| {
            let kept = match self.path.get() {
                Some(path) => open(path).map_err(|error| format!("{}: {error}", path.display())),
                None => Err("there is no store to keep it beside".to_owned()),
            };
            kept.unwrap_or_else(|why| {
                tracing::warn!("hashes of content can be compared until the agent ends only: their key is not kept ({why})");
                HashKey(random().unwrap_or_default())
            })
        })
    }
}

fn random() -> io::Result<[u8; 32]> {
    let mut bytes = [0; 32];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Reads the file; makes it where there is none. One of another size is not overwritten: it may be somebody else's.
fn open(path: &Path) -> io::Result<HashKey> {
    match File::open(path) {
        Ok(file) => {
            let mut bytes = Vec::new();
            file.take(33).read_to_end(&mut bytes)?;
            let key = <[u8; 32]>::try_from(bytes);
            key.map(HashKey)
                .map_err(|_| io::Error::other("it is not of 32 bytes; delete it to have another made"))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let key = random()?;
            // Whole or not there: half a key would be refused for ever.
            let part = path.with_extension("key.part");
            let _ = std::fs::remove_file(&part);
            let mut file = OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&part)?;
            file.write_all(&key)?;
            file.sync_all()?;
            std::fs::rename(&part, path)?;
            Ok(HashKey(key))
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn it_is_made_once_for_its_owner_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = folder.path().join("infertap.db");
        let key = || {
            let file = KeyFile::default();
            file.beside(&store);
            file.get().0
        };
        let first = key();
        assert_eq!(key(), first, "the next start has it too");
        assert_ne!(first, [0; 32]);
        let path = folder.path().join(NAME);
        let mode = std::fs::metadata(&path).expect("the file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        std::fs::write(&path, b"short").expect("written");
        assert_ne!(key(), first, "another, for this run");
        assert_eq!(
            std::fs::read(&path).expect("read"),
            b"short",
            "and the file is left alone"
        );
    }
}

//! Why the store can't be used, in words that say what to do.
//!
//! Owns: the wording. Refuses: deciding whether the agent can do without.

use rusqlite::ErrorCode;
use std::io;
use std::path::{Path, PathBuf};

/// Why the store can't be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Its folder or its lock can't be made.
    #[error("the store {} can't be made: {source}; name another file with store.path, or \"\" to keep nothing", path.display())]
    Make {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Another agent has it open.
    #[error("the store {} is in use by another agent; give each one a file of its own with store.path", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// There is no such file.
    #[error("there is no store {}; `infertap run` makes it, and store.path names another", path.display())]
    Absent {
        /// The file.
        path: PathBuf,
    },
    /// A newer program wrote it.
    #[error(
        "the store {} was written by a newer infertap (schema {found}, this one knows {known}): upgrade, or move the file away to begin anew",
        path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its schema's version.
        found: i64,
        /// The newest that is known here.
        known: i64,
    },
    /// An older program wrote it, and it is only to be read.
    #[error(
        "the store {} was written by an older infertap (schema {found}, this one needs {known}): `infertap run` brings it up to date",
        path.display()
    )]
    Older {
        /// The file.
        path: PathBuf,
        /// Its schema's version.
        found: i64,
        /// The one that is needed.
        known: i64,
    },
    /// A database, but not ours.
    #[error("{} is a database of another program; name another file with store.path", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// Damaged, or no database at all.
    #[error(
        "the store {} is damaged ({detail}): move it away, with {file}-wal and {file}-shm, to begin anew; `sqlite3 {file} .recover` shows what can be saved",
        path.display(), file = path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What SQLite found.
        detail: String,
    },
    /// The file system can't do what SQLite needs.
    #[error(
        "the store {} can't be used on its file system (journal mode {mode}): name a file on a local disk with store.path",
        path.display()
    )]
    Journal {
        /// The file.
        path: PathBuf,
        /// The journal mode that SQLite fell back to.
        mode: String,
    },
    /// Whatever else SQLite says.
    #[error("the store {} can't be used: {source}", path.display())]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// What it says.
        source: rusqlite::Error,
    },
    /// No thread to write with.
    #[error("cannot start the thread of the store: {source}")]
    Thread {
        /// Why.
        source: io::Error,
    },
}

impl StoreError {
    /// What SQLite said of the file at `path`.
    pub(super) fn of(path: &Path, source: rusqlite::Error) -> StoreError {
        match source.sqlite_error_code() {
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => StoreError::Damaged {
                path: path.to_owned(),
                detail: source.to_string(),
            },
            _ => StoreError::Sqlite {
                path: path.to_owned(),
                source,
            },
        }
    }
}

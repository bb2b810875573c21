//! Opening the file: for writing, and for reading.
//!
//! Owns: the lock, the pragmas, and finding out whether a file is ours and sound. Refuses: writing rows.

use super::error::StoreError;
use super::schema::{self, APPLICATION, MIGRATIONS, Marks, VERSION};
use rusqlite::{Connection, OpenFlags};
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a statement waits for another connection.
const BUSY: Duration = Duration::from_secs(2);
/// Files up to this size are checked as a whole when they are opened, which takes less than a second.
const CHECKED: u64 = 64 << 20;
/// What is kept of the write-ahead log after a checkpoint.
const WAL_BYTES: i64 = 16 << 20;

/// `path` with `suffix` behind its name, as SQLite names the files beside it.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Makes the folder and the file (for its owner alone), and locks it against other agents. The lock is on a file of its own: SQLite
/// loses its locks on the database when anybody in the process closes it.
pub(super) fn lock(path: &Path) -> Result<File, StoreError> {
    let fail = |source: io::Error| StoreError::Make {
        path: path.to_owned(),
        source,
    };
    if let Some(folder) = path.parent() {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .map_err(fail)?;
    }
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(beside(path, "-lock"))
        .map_err(fail)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(StoreError::InUse {
            path: path.to_owned(),
        }),
        Err(TryLockError::Error(error)) => Err(fail(error)),
    }
}

/// Opens the file for the thread that writes, of which there is one.
pub(super) fn writable(path: &Path) -> Result<Connection, StoreError> {
    // SQLite would make it readable for all, and its logs get the mode of the database.
    OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(path)
        .map_err(|source| StoreError::Make {
            path: path.to_owned(),
            source,
        })?;
    let fail = |source| StoreError::of(path, source);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut db = Connection::open_with_flags(path, flags).map_err(fail)?;
    db.busy_timeout(BUSY).map_err(fail)?;
    let marks = ours(path, schema::marks(&db).map_err(fail)?)?;
    if marks.empty {
        // Only possible before the first table: lets rows that were dropped give their space back.
        db.pragma_update(None, "auto_vacuum", "INCREMENTAL")
            .map_err(fail)?;
    } else {
        check(path, &db)?;
    }
    let mode: String = db
        .pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0))
        .map_err(fail)?;
    if mode != "wal" {
        return Err(StoreError::Journal {
            path: path.to_owned(),
            mode,
        });
    }
    db.pragma_update(None, "synchronous", "NORMAL").map_err(fail)?;
    db.pragma_update(None, "journal_size_limit", WAL_BYTES)
        .map_err(fail)?;
    schema::migrate(&mut db, MIGRATIONS).map_err(fail)?;
    Ok(db)
}

/// Opens the file for reading.
pub(super) fn readable(path: &Path) -> Result<Connection, StoreError> {
    if !path.exists() {
        return Err(StoreError::Absent {
            path: path.to_owned(),
        });
    }
    let fail = |source| StoreError::of(path, source);
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(path, flags).map_err(fail)?;
    db.busy_timeout(BUSY).map_err(fail)?;
    let marks = ours(path, schema::marks(&db).map_err(fail)?)?;
    if marks.version < VERSION {
        return Err(StoreError::Older {
            path: path.to_owned(),
            found: marks.version,
            known: VERSION,
        });
    }
    Ok(db)
}

/// Whether a file with these marks may be used.
fn ours(path: &Path, marks: Marks) -> Result<Marks, StoreError> {
    if !marks.empty && marks.application != APPLICATION {
        return Err(StoreError::Foreign {
            path: path.to_owned(),
        });
    }
    if marks.version > VERSION {
        return Err(StoreError::Newer {
            path: path.to_owned(),
            found: marks.version,
            known: VERSION,
        });
    }
    Ok(marks)
}

/// Finds damage beforehand, where that does not take long; elsewhere it is found when it is met.
fn check(path: &Path, db: &Connection) -> Result<(), StoreError> {
    if std::fs::metadata(path).is_ok_and(|file| file.len() > CHECKED) {
        return Ok(());
    }
    let found: String = db
        .query_row("PRAGMA quick_check(1)", [], |row| row.get(0))
        .map_err(|source| StoreError::of(path, source))?;
    if found == "ok" {
        return Ok(());
    }
    Err(StoreError::Damaged {
        path: path.to_owned(),
        detail: found.replace('\n', "; "),
    })
}

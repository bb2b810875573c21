//! The thread that writes.
//!
//! Owns: batches, and what happens when one fails: it is lost and counted, one warning is given, and after a while the
//! file is opened anew. Refuses: waiting for anybody but the disk.

use super::error::StoreError;
use super::status::{Loss, StoreStatus};
use super::{Trouble, Write, open};
use rusqlite::{Connection, ErrorCode, TransactionBehavior};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

/// How long a batch waits for more after its first write.
const GATHER: Duration = Duration::from_millis(50);
/// Writes of one batch.
const BATCH: usize = 4096;
/// How long a file that failed is left alone.
pub(super) const RETRY: Duration = Duration::from_secs(10);

/// What the thread is told.
pub(super) enum Message {
    /// Write this.
    Write(Box<dyn Write>),
    /// Answer when everything before is done.
    Flush(Sender<()>),
}

/// The state of the file.
enum State {
    /// It can be written.
    Open(Connection),
    /// It failed; to be opened again at this time.
    Failed(Instant),
}

/// The thread.
pub(super) struct Writer {
    path: PathBuf,
    state: State,
    /// The file as it was when it was opened: one that was moved away must not be written any more.
    inode: Option<u64>,
    status: Arc<StoreStatus>,
    trouble: Trouble,
}

fn inode(path: &Path) -> Option<u64> {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata(path).ok().map(|file| file.ino())
}

impl Writer {
    pub(super) fn new(path: &Path, db: Connection, status: Arc<StoreStatus>, trouble: Trouble) -> Writer {
        Writer {
            path: path.to_owned(),
            inode: inode(path),
            state: State::Open(db),
            status,
            trouble,
        }
    }

    /// Runs until nobody can send any more.
    pub(super) fn run(mut self, inbox: &Receiver<Message>) {
        let mut batch: Vec<Box<dyn Write>> = Vec::new();
        while let Ok(first) = inbox.recv() {
            let until = Instant::now() + GATHER;
            let mut next = Some(first);
            let mut asked = None;
            while let Some(message) = next.take() {
                match message {
                    Message::Write(write) => batch.push(write),
                    Message::Flush(done) => {
                        asked = Some(done);
                        break;
                    }
                }
                if batch.len() < BATCH {
                    let left = until.saturating_duration_since(Instant::now());
                    next = inbox.recv_timeout(left).ok();
                }
            }
            if !batch.is_empty() {
                self.batch(&batch);
                batch.clear();
            }
            if let Some(done) = asked {
                // Who asked may have given up.
                let _ = done.send(());
            }
        }
    }

    fn batch(&mut self, batch: &[Box<dyn Write>]) {
        self.look();
        let count = batch.len() as u64;
        let State::Open(db) = &mut self.state else {
            self.status.lose(Loss::Failed, count);
            return;
        };
        match write(db, batch) {
            Ok(written) => {
                self.status.wrote(written);
                self.status.lose(Loss::Failed, count - written);
                self.works();
            }
            Err(error) => {
                self.status.lose(Loss::Failed, count);
                self.fails(&StoreError::of(&self.path, error));
            }
        }
    }

    /// Opens the file again where it was replaced, or where it failed some time ago.
    fn look(&mut self) {
        match self.state {
            State::Open(_) if inode(&self.path) == self.inode => return,
            State::Failed(until) if Instant::now() < until => return,
            _ => {}
        }
        match open::writable(&self.path) {
            Ok(db) => {
                self.inode = inode(&self.path);
                self.state = State::Open(db);
            }
            Err(error) => self.fails(&error),
        }
    }

    fn works(&self) {
        if !self.status.up() {
            self.status.set_up(true);
            tracing::info!("the store {} works again", self.path.display());
            (self.trouble)(None);
        }
    }

    fn fails(&mut self, error: &StoreError) {
        self.state = State::Failed(Instant::now() + RETRY);
        if self.status.up() {
            self.status.set_up(false);
            let told = format!("nothing is kept for the next start: {error}");
            tracing::warn!("{told}; tried again every {} s", RETRY.as_secs());
            (self.trouble)(Some(told));
        }
    }
}

/// Writes all in one transaction; how many of them were. What fails alone is undone alone.
fn write(db: &mut Connection, batch: &[Box<dyn Write>]) -> rusqlite::Result<u64> {
    let mut all = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let mut written = 0;
    for write in batch {
        let one = all.savepoint()?;
        match write.write(&one) {
            Ok(()) => {
                one.commit()?;
                written += 1;
            }
            Err(error) if is_the_writes(&error) => {
                tracing::debug!("store: a write is refused: {error}");
                drop(one);
            }
            Err(error) => return Err(error),
        }
    }
    all.commit()?;
    Ok(written)
}

/// The error is this write's own, and not one of the file.
fn is_the_writes(error: &rusqlite::Error) -> bool {
    !matches!(
        error.sqlite_error_code(),
        Some(
            ErrorCode::DatabaseCorrupt
                | ErrorCode::NotADatabase
                | ErrorCode::DiskFull
                | ErrorCode::SystemIoFailure
                | ErrorCode::CannotOpen
                | ErrorCode::ReadOnly
                | ErrorCode::PermissionDenied
                | ErrorCode::DatabaseBusy
                | ErrorCode::DatabaseLocked
                | ErrorCode::OutOfMemory
                | ErrorCode::FileLockingProtocolFailed
        )
    )
}

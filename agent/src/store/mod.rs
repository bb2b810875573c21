//! The embedded store: what should outlive the agent, in one SQLite file.
//!
//! Owns: the file, its schema, the one thread that writes, and reading. Refuses: what the rows mean (whoever has a table
//! does: see [`tables`]), and harming the agent: a disk that fails or is full stops the store, and nothing else.
//!
//! A new table is a file in `tables/` and a line in `schema::MIGRATIONS`. What writes to it implements [`Write`], and
//! is done in the next batch: one transaction for all that was submitted within some 50 ms. A transaction that was
//! committed is not lost when the process is killed; when the host loses power the last ones may be, and the file stays
//! sound (WAL, `synchronous = NORMAL`).

mod config;
mod error;
mod open;
mod schema;
mod status;
pub mod tables;
#[cfg(test)]
mod tests;
mod writer;

pub use config::StoreConfig;
pub use error::StoreError;
pub use schema::{MIGRATIONS, Migration};
pub use status::{Loss, StoreStatus};

use rusqlite::Connection;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use writer::{Message, Writer};

/// Writes that wait for the next batch at once; further ones are refused, and counted.
const QUEUE: usize = 4096;
/// How long the end of the store waits for the disk.
const CLOSE: Duration = Duration::from_secs(5);

/// Something to be written with the next batch.
pub trait Write: Send + 'static {
    /// Writes it. Runs within the transaction of the batch; what it did is undone when it fails, and what others wrote is
    /// not. Statements should be [cached](Connection::prepare_cached).
    ///
    /// # Errors
    /// What SQLite says. The write is then lost, and counted.
    fn write(&self, db: &Connection) -> rusqlite::Result<()>;
}

/// Is told in a sentence what is amiss with the store, or `None` when it works again.
pub type Trouble = Box<dyn Fn(Option<String>) + Send>;

/// The store, open for writing. Methods take `&self` and may be called from any thread.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    status: Arc<StoreStatus>,
    /// `None` only while it is closed.
    inbox: Option<SyncSender<Message>>,
    thread: Option<JoinHandle<()>>,
    /// Held for as long as the store is open: two agents on one file would overwrite each other's totals.
    _lock: File,
}

impl Store {
    /// Opens the file, makes it and its folder where there is none, and brings its schema up to date.
    ///
    /// # Errors
    /// It can't be used; the error says what to do.
    pub fn open(path: &Path, trouble: Trouble) -> Result<Store, StoreError> {
        let lock = open::lock(path)?;
        let db = open::writable(path)?;
        let status = Arc::new(StoreStatus::new(path, true));
        let (inbox, messages) = sync_channel(QUEUE);
        let writer = Writer::new(path, db, Arc::clone(&status), trouble);
        let thread = std::thread::Builder::new()
            .name("infertap-store".to_owned())
            .spawn(move || writer.run(&messages))
            .map_err(|source| StoreError::Thread { source })?;
        Ok(Store {
            path: path.to_owned(),
            status,
            inbox: Some(inbox),
            thread: Some(thread),
            _lock: lock,
        })
    }

    /// Gives `write` to the writing thread and returns at once. `false`: it was refused and counted as lost, as too many
    /// wait already. One that is accepted can still be lost, when the disk fails: whoever writes totals should write them
    /// again when [`StoreStatus::lost`] has grown.
    pub fn submit(&self, write: impl Write) -> bool {
        self.submit_boxed(Box::new(write))
    }

    /// As [`Store::submit`].
    pub fn submit_boxed(&self, write: Box<dyn Write>) -> bool {
        let Some(inbox) = &self.inbox else {
            return false;
        };
        match inbox.try_send(Message::Write(write)) {
            Ok(()) => true,
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                self.status.lose(Loss::QueueFull, 1);
                false
            }
        }
    }

    /// Waits until everything that was submitted before is committed or lost; `false` when that took longer than `limit`.
    pub fn flush(&self, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        let (done, wait) = std::sync::mpsc::channel();
        let Some(inbox) = &self.inbox else {
            return false;
        };
        let mut message = Message::Flush(done);
        while let Err(TrySendError::Full(back)) = inbox.try_send(message) {
            if Instant::now() >= until {
                return false;
            }
            message = back;
            std::thread::sleep(Duration::from_millis(5));
        }
        let left = until.saturating_duration_since(Instant::now());
        wait.recv_timeout(left).is_ok()
    }

    /// Reads, on a connection of its own: neither waits for the writer nor makes it wait.
    ///
    /// # Errors
    /// The file can't be opened or read.
    pub fn read<T>(&self, read: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, StoreError> {
        Reader::open(&self.path)?.read(read)
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How it is doing.
    pub fn status(&self) -> &Arc<StoreStatus> {
        &self.status
    }
}

impl Drop for Store {
    /// Writes what waits, and closes the file; a disk that takes too long is left to the end of the process.
    fn drop(&mut self) {
        let done = self.flush(CLOSE);
        self.inbox = None;
        if let Some(thread) = self.thread.take()
            && done
        {
            let _ = thread.join();
        }
    }
}

/// The store, open for reading: beside an agent that writes, or when none runs.
#[derive(Debug)]
pub struct Reader {
    path: PathBuf,
    db: Connection,
}

impl Reader {
    /// Opens a file that is there.
    ///
    /// # Errors
    /// There is none, it can't be read, or its schema is not the one that this program knows.
    pub fn open(path: &Path) -> Result<Reader, StoreError> {
        Ok(Reader {
            path: path.to_owned(),
            db: open::readable(path)?,
        })
    }

    /// Reads; all within one state of the file.
    ///
    /// # Errors
    /// The file can't be read.
    pub fn read<T>(&self, read: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, StoreError> {
        let fail = |source| StoreError::of(&self.path, source);
        let all = self.db.unchecked_transaction().map_err(fail)?;
        read(&all).map_err(fail)
    }
}

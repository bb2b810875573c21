//! How the store is doing, for whoever asks: metrics, and writers of totals.
//!
//! Owns: the counts. Refuses: their names as metrics (`export::metrics`).

use super::open::beside;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Why a write was lost. `reason` label of `infertap_store_lost_total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// Too many waited already.
    QueueFull,
    /// The disk or the file failed, or had failed a moment ago.
    Failed,
}

impl Loss {
    /// Every reason.
    pub const ALL: [Loss; 2] = [Loss::QueueFull, Loss::Failed];

    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Loss::QueueFull => "queue_full",
            Loss::Failed => "failed",
        }
    }
}

/// How the store is doing.
#[derive(Debug)]
pub struct StoreStatus {
    path: PathBuf,
    up: AtomicBool,
    written: AtomicU64,
    lost: [AtomicU64; Loss::ALL.len()],
}

impl StoreStatus {
    /// That of the store at `path`, which is `up`, or could not be opened.
    pub(crate) fn new(path: &Path, up: bool) -> StoreStatus {
        StoreStatus {
            path: path.to_owned(),
            up: AtomicBool::new(up),
            written: AtomicU64::new(0),
            lost: Default::default(),
        }
    }

    /// It writes.
    pub fn up(&self) -> bool {
        self.up.load(Ordering::Relaxed)
    }

    /// Writes that were committed.
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Writes that were lost for a reason.
    pub fn lost_for(&self, loss: Loss) -> u64 {
        self.lost[loss as usize].load(Ordering::Relaxed)
    }

    /// Writes that were lost. Whoever keeps totals in the store writes them again when this grows.
    pub fn lost(&self) -> u64 {
        Loss::ALL.into_iter().map(|loss| self.lost_for(loss)).sum()
    }

    /// Bytes that the file and its write-ahead log take; `None` where that can't be told.
    pub fn bytes(&self) -> Option<u64> {
        let file = std::fs::metadata(&self.path).ok()?.len();
        let wal = std::fs::metadata(beside(&self.path, "-wal")).map_or(0, |wal| wal.len());
        Some(file.saturating_add(wal))
    }

    pub(super) fn set_up(&self, up: bool) {
        self.up.store(up, Ordering::Relaxed);
    }

    pub(super) fn wrote(&self, count: u64) {
        self.written.fetch_add(count, Ordering::Relaxed);
    }

    pub(super) fn lose(&self, loss: Loss, count: u64) {
        self.lost[loss as usize].fetch_add(count, Ordering::Relaxed);
    }
}

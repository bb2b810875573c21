//! Recordings of raw events: what `infertap record` writes and `infertap replay` reads.
//!
//! Owns: the file format, the writer that never makes its caller wait, the blanking of content before anything reaches
//! the disk, and the replay through the core. Refuses: the meaning of what it stores (the core's) and deciding what
//! is recorded (the caller's). `docs/recordings.md` tells users what is in a recording.

pub mod blank;
mod command;
pub mod format;
mod priced;
#[cfg(test)]
mod priced_tests;
mod reader;
mod replay;
mod table;
#[cfg(test)]
mod tests;
mod writer;

pub use command::{ReplayCommand, ReplayError, ReplayMetrics, ReplayOutput, replay_command};
pub use format::{Frame, RecordingHeader, Totals};
pub use priced::Pricing;
pub use reader::{Ending, Reader};
pub use replay::{ReplaySummary, Replayed, replay, replay_priced, replay_records};
pub use writer::{Recorder, RecorderOptions};

/// What can go wrong with a recording. Each message tells what to do next.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// Opening, creating, reading or writing failed.
    #[error("cannot {action} {file}: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which file.
        file: String,
        /// Why it failed.
        source: std::io::Error,
    },
    /// There is a file of that name and overwriting was not asked for.
    #[error("{file} exists already: remove it or choose another name (nothing was recorded)")]
    Exists {
        /// The file.
        file: String,
    },
    /// The file does not begin as a recording does.
    #[error("{file} is not an infertap recording: make one with `infertap record FILE`")]
    Foreign {
        /// The file.
        file: String,
    },
    /// The file's format is newer than this program.
    #[error(
        "{file} has recording format {found}, and this infertap reads up to format {supported}: \
         replay it with the infertap that made it, or a newer one"
    )]
    Format {
        /// The file.
        file: String,
        /// Its format.
        found: u16,
        /// What this program reads.
        supported: u16,
    },
    /// The raw events have another binary layout.
    #[error(
        "{file} was made by infertap {agent} with event layout {found}, and this infertap ({own}) reads layout \
         {supported}: replay it with infertap {agent}"
    )]
    Layout {
        /// The file.
        file: String,
        /// Version of the agent that made it.
        agent: String,
        /// Version of this program.
        own: &'static str,
        /// Its layout.
        found: u16,
        /// The layout of this program.
        supported: u16,
    },
    /// The file is damaged.
    #[error(
        "{file} is damaged after {frames} whole frames ({what}): copy it again from where it was recorded; \
         what came before the damage can be trusted"
    )]
    Damaged {
        /// The file.
        file: String,
        /// Whole frames before the damage.
        frames: u64,
        /// What was found.
        what: String,
    },
    /// The writer thread is gone.
    #[error("the recording thread ended before its time: {file} is cut short")]
    WriterGone {
        /// The file.
        file: String,
    },
}

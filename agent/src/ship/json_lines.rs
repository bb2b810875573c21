//! JSON lines, to standard output or a file: one record a line.
//!
//! Owns: the section, the thread that writes. A reader that stands still blocks that thread alone; records then wait in their
//! queue. Refuses: files (`lines_file`), and what stands in a line (`line`).

use super::line::line;
use super::lines_file::Appender;
use super::outlet::not_encoded;
use super::{Destination, Fault, Limits, Verdict};
use crate::config::{Size, Span};
use crate::config_section;
use crate::store::tables::record::KeptRecord;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::time::Duration;
use tokio::sync::oneshot;

/// Longest line, bytes.
const MAX_LINE: usize = 16 << 20;
/// How long a writer is waited for.
const ATTEMPT: Duration = Duration::from_secs(10);
pub(super) const STDOUT: &str = "stdout";

config_section! {
    /// Kept records as lines of JSON, in the shape of `infertap requests --json`, for a program that collects logs. Read
    /// again on SIGHUP and when the file changes. See docs/logs.md.
    pub struct JsonLinesSection {
        /// "stdout", or the absolute path of a file that they are appended to; "": nowhere. The agent's own log is on standard error.
        pub path: String = String::new(),
        /// Size from which on the file becomes FILE.1, that FILE.2, and so on; 64KiB to 64GiB, or 0: another program rotates it. Moved
        /// away or emptied, it is begun anew.
        pub max_bytes: Size = Size::bytes(100 << 20),
        /// How many such files are kept; 0 to 100.
        pub keep_files: u32 = 3,
        /// Records that wait in memory while they can't be written; 1 to 1000000. When there are more, the oldest are dropped.
        pub queue_records: u64 = 20_000,
        /// The same by their size in memory; 1MiB to 4GiB.
        pub queue_bytes: Size = Size::bytes(32 << 20),
    }
}

impl JsonLinesSection {
    /// Something is written.
    pub fn on(&self) -> bool {
        !self.path.is_empty()
    }

    /// What is out of its range: key, and why and what would be right.
    pub fn invalid(&self) -> Vec<(String, String)> {
        let mut out = Vec::new();
        let mut require = |ok: bool, key: &str, reason: String| {
            if !ok {
                out.push((format!("json_lines.{key}"), reason));
            }
        };
        let path = &self.path;
        let file = Path::new(path);
        require(
            !self.on() || path == STDOUT || (file.is_absolute() && !path.ends_with('/')),
            "path",
            format!("{path:?} is neither \"stdout\" nor the absolute path of a file"),
        );
        let size = self.max_bytes;
        require(
            size.get() == 0 || (Size::bytes(64 << 10)..=Size::bytes(64 << 30)).contains(&size),
            "max_bytes",
            format!("{size} is not within 64KiB to 64GiB, and not 0"),
        );
        require(
            self.keep_files <= 100,
            "keep_files",
            format!("{} is above 100", self.keep_files),
        );
        require(
            (1..=1_000_000).contains(&self.queue_records),
            "queue_records",
            format!("{} is not within 1 to 1000000", self.queue_records),
        );
        require(
            (Size::bytes(1 << 20)..=Size::bytes(4 << 30)).contains(&self.queue_bytes),
            "queue_bytes",
            format!("{} is not within 1MiB to 4GiB", self.queue_bytes),
        );
        out
    }

    /// Bounds of its queue.
    pub fn limits(&self) -> Limits {
        let size = |size: u64| usize::try_from(size).unwrap_or(usize::MAX);
        Limits {
            queue_records: size(self.queue_records),
            queue_bytes: size(self.queue_bytes.get()),
            batch_records: 256,
            batch_bytes: 1 << 20,
            batch_wait: Span::millis(200).duration(),
            max_age: None,
        }
    }

    /// The time of an attempt. The writer goes on after it; what it then tells counts for the next.
    pub fn attempt(&self) -> Duration {
        ATTEMPT
    }
}

/// Lines and who wants to know what became of them.
type Job = (Arc<Vec<String>>, oneshot::Sender<Verdict>);

/// JSON lines, as a destination.
#[derive(Debug)]
pub struct JsonLines {
    writer: SyncSender<Job>,
    /// The answer of the writer to lines that it had not written when the time of their attempt was over.
    late: tokio::sync::Mutex<Option<oneshot::Receiver<Verdict>>>,
}

impl JsonLines {
    /// As configured. The file is opened when the first lines come.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn new(config: &JsonLinesSection) -> std::io::Result<JsonLines> {
        let appender = match &*config.path {
            STDOUT => Appender::stdout(),
            path => Appender::file(Path::new(path), config.max_bytes.get(), config.keep_files),
        };
        JsonLines::to(appender)
    }

    fn to(mut appender: Appender) -> std::io::Result<JsonLines> {
        let (writer, jobs) = sync_channel::<Job>(1);
        std::thread::Builder::new()
            .name("json-lines".to_owned())
            .spawn(move || {
                while let Ok((lines, answer)) = jobs.recv() {
                    let written = AssertUnwindSafe(|| append(&mut appender, &lines));
                    // The thread outlives a mistake of ours, or nothing would ever be written again.
                    let verdict = catch_unwind(written).unwrap_or_else(|_| not_encoded(lines.len()));
                    let _ = answer.send(verdict);
                }
            })?;
        Ok(JsonLines {
            writer,
            late: tokio::sync::Mutex::default(),
        })
    }
}

fn append(appender: &mut Appender, lines: &[String]) -> Verdict {
    let written = appender.append(lines);
    match written.error {
        None => Verdict::ACCEPTED,
        Some(error) if written.lines == 0 => Verdict::retry(error.to_string()),
        Some(error) => Verdict::Partly {
            again: (written.lines..lines.len()).collect(),
            rejected: 0,
            reason: error.to_string(),
            after: None,
            fault: Fault::Destination,
        },
    }
}

impl Destination for JsonLines {
    type Payload = Arc<Vec<String>>;

    fn name(&self) -> &'static str {
        "json_lines"
    }

    fn encode(&self, records: &[Arc<KeptRecord>]) -> Arc<Vec<String>> {
        let lines = records.iter().map(|kept| {
            // Records are plain data: this does not fail.
            let mut line = line(kept, MAX_LINE).unwrap_or_default();
            line.push('\n');
            line
        });
        Arc::new(lines.collect())
    }

    /// Where the time of the attempt before was over, this waits for the answer to that one: it is the same batch, which must not
    /// be written twice.
    async fn send(&self, payload: &Arc<Vec<String>>) -> Verdict {
        let mut late = self.late.lock().await;
        if late.is_none() {
            let (answer, answered) = oneshot::channel();
            match self.writer.try_send((Arc::clone(payload), answer)) {
                Ok(()) => *late = Some(answered),
                Err(TrySendError::Full(_)) => {
                    return Verdict::retry("what was to be written before is not yet");
                }
                Err(TrySendError::Disconnected(_)) => {
                    return Verdict::retry("the thread that writes is gone");
                }
            }
        }
        let Some(answered) = late.as_mut() else {
            return Verdict::retry("nothing was begun");
        };
        let verdict = answered.await;
        *late = None;
        verdict.unwrap_or_else(|_| Verdict::retry("the thread that writes is gone"))
    }

    /// The batch stays as it is: what becomes of it is told later.
    fn timed_out(&self, limit: Duration) -> Verdict {
        Verdict::retry(format!("not written within {} s", limit.as_secs_f64()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ship::samples::kept;
    use std::collections::BTreeSet;
    use std::ffi::CString;
    use std::io::{BufRead as _, BufReader};

    #[test]
    fn a_reader_that_stands_still_costs_attempts_and_no_line_comes_twice() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("pipe");
        let name = CString::new(path.display().to_string()).expect("no NUL");
        // SAFETY: a path that ends in NUL, which outlives the call.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        let section = JsonLinesSection {
            path: path.display().to_string(),
            ..JsonLinesSection::default()
        };
        let lines = JsonLines::new(&section).expect("a thread");
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .expect("a runtime");
        // More than a pipe holds.
        let many: Vec<_> = (0..200).map(|n| Arc::new(kept(n))).collect();
        let payload = lines.encode(&many);
        assert!(payload.iter().map(String::len).sum::<usize>() > 100_000);
        let attempt =
            |time| runtime.block_on(async { tokio::time::timeout(time, lines.send(&payload)).await });
        for _ in 0..3 {
            assert!(attempt(Duration::from_millis(100)).is_err(), "nobody reads");
        }
        let reader = std::thread::spawn(move || {
            let pipe = BufReader::new(std::fs::File::open(path).expect("opens"));
            let read = pipe.lines().take(200).map(|line| {
                let line: serde_json::Value = serde_json::from_str(&line.expect("a line")).expect("JSON");
                line["id"].as_str().expect("an id").to_owned()
            });
            read.collect::<Vec<String>>()
        });
        assert_eq!(attempt(Duration::from_secs(20)), Ok(Verdict::ACCEPTED));
        let read = reader.join().expect("reads");
        assert_eq!(read.iter().collect::<BTreeSet<_>>().len(), 200);
    }

    #[test]
    fn the_section_has_ranges() {
        let mut section = JsonLinesSection::default();
        assert_eq!(section.invalid(), []);
        assert!(!section.on());
        for path in ["stdout", "/var/log/infertap/records.jsonl"] {
            section.path = path.to_owned();
            assert_eq!(section.invalid(), [], "{path}");
        }
        section.max_bytes = Size::bytes(0);
        assert_eq!(section.invalid(), []);
        section.path = "records.jsonl".to_owned();
        section.max_bytes = Size::bytes(10);
        section.keep_files = 101;
        section.queue_records = 0;
        section.queue_bytes = Size::bytes(1);
        let keys: Vec<String> = section.invalid().into_iter().map(|(key, _)| key).collect();
        let expected = ["path", "max_bytes", "keep_files", "queue_records", "queue_bytes"];
        assert_eq!(keys, expected.map(|key| format!("json_lines.{key}")));
    }
}

//! Writing: a thread of its own behind a bounded queue, so that whoever reads the ring never waits for a disk.
//!
//! Owns: the queue and its bound, flushing (at most a second is lost to a `kill -9`), the totals. Refuses: blocking the
//! caller: what does not fit is dropped, counted, and marked in the file where it is missing.

use super::RecordingError;
use super::blank::Blanker;
use super::format::{Frame, RecordingHeader, Totals, preamble};
use crate::clock::monotonic_ns;
use infertap_abi::{HEADER_LEN, RecordHeader};
use infertap_core::gpu::GpuReading;
use infertap_core::{EngineInfo, Nanos, pressure::MemoryReading};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use zstd::stream::write::Encoder;

/// Bytes that may wait for the writer, overhead of each message included.
const QUEUE_BYTES: usize = 32 * 1024 * 1024;
/// What a queued message costs besides its bytes.
const MESSAGE_OVERHEAD: usize = 64;
/// How old unflushed bytes may grow.
const FLUSH_EVERY: Duration = Duration::from_millis(500);
/// Uncompressed bytes after which a zstd frame is closed: its checksum then vouches for all before.
const ZSTD_FRAME_BYTES: u64 = 8 * 1024 * 1024;
const ZSTD_LEVEL: i32 = 3;

/// How to record.
#[derive(Debug, Clone, Copy, Default)]
pub struct RecorderOptions {
    /// Keep prompts and outputs as they were sent. Off: they are blanked before anything is written.
    pub with_content: bool,
    /// Replace a file of that name.
    pub overwrite: bool,
}

/// A recording under way. All methods may be called from any thread and none of them waits, but for
/// [`Recorder::finish`].
#[derive(Debug)]
pub struct Recorder {
    path: PathBuf,
    sender: Sender<Message>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Result<Totals, io::Error>>>,
}

#[derive(Debug, Default)]
struct Shared {
    queued_bytes: AtomicUsize,
    lost_records: AtomicU64,
    lost_bytes: AtomicU64,
    failed: AtomicBool,
    failure: Mutex<Option<String>>,
}

#[derive(Debug)]
enum Message {
    Record(Box<[u8]>),
    EngineUp { at: Nanos, engine: Arc<EngineInfo> },
    EngineDown { at: Nanos, engine: Arc<str> },
    Memory { at: Nanos, reading: Arc<MemoryReading> },
    Drops { at: Nanos, reason: String, count: u64 },
    Gpu { at: Nanos, reading: Arc<GpuReading> },
    Finish,
}

impl Recorder {
    /// Creates the file (mode 0600), writes its header, and starts the writer.
    pub fn create(path: &Path, options: RecorderOptions) -> Result<Recorder, RecordingError> {
        let mut open = OpenOptions::new();
        open.write(true).mode(0o600);
        if options.overwrite {
            open.create(true).truncate(true);
        } else {
            open.create_new(true);
        }
        let file = open.open(path).map_err(|source| {
            if source.kind() == io::ErrorKind::AlreadyExists {
                RecordingError::Exists {
                    file: path.display().to_string(),
                }
            } else {
                io_error("create", path, source)
            }
        })?;
        let header = RecordingHeader {
            abi: infertap_abi::VERSION,
            agent: env!("CARGO_PKG_VERSION").to_owned(),
            kernel: kernel_release(),
            arch: std::env::consts::ARCH.to_owned(),
            started_monotonic_ns: monotonic_ns(),
            started_unix_ns: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |d| d.as_nanos() as u64),
            with_content: options.with_content,
        };
        let mut sink = Sink::start(file).map_err(|e| io_error("write", path, e))?;
        sink.frame(&Frame::Header(header))
            .and_then(|()| sink.flush())
            .map_err(|e| io_error("write", path, e))?;

        let shared = Arc::new(Shared::default());
        let (sender, receiver) = channel();
        let writer = Writer {
            sink,
            blanker: (!options.with_content).then(Blanker::new),
            shared: Arc::clone(&shared),
            totals: Totals::default(),
        };
        let thread = std::thread::Builder::new()
            .name("infertap-record".to_owned())
            .spawn(move || writer.run(&receiver))
            .map_err(|e| io_error("start a writer for", path, e))?;
        Ok(Recorder {
            path: path.to_owned(),
            sender,
            shared,
            thread: Some(thread),
        })
    }

    /// One ring-buffer record, as the kernel side wrote it. What follows the captured bytes is left out. Never waits:
    /// dropped and counted when the writer is too far behind.
    pub fn record(&self, record: &[u8]) {
        let used = RecordHeader::read(record)
            .map_or(record.len(), |h| HEADER_LEN.saturating_add(h.captured as usize))
            .min(record.len());
        let record = &record[..used];
        let cost = record.len() + MESSAGE_OVERHEAD;
        let queued = self.shared.queued_bytes.fetch_add(cost, Ordering::Relaxed);
        if self.shared.failed.load(Ordering::Relaxed)
            || queued + cost > QUEUE_BYTES
            || self.sender.send(Message::Record(record.into())).is_err()
        {
            self.shared.queued_bytes.fetch_sub(cost, Ordering::Relaxed);
            self.shared.lost_records.fetch_add(1, Ordering::Relaxed);
            self.shared
                .lost_bytes
                .fetch_add(record.len() as u64, Ordering::Relaxed);
        }
    }

    /// Discovery found an engine, or learned more about one. Call it before the engine's records.
    pub fn engine_up(&self, at: Nanos, engine: &Arc<EngineInfo>) {
        self.send(Message::EngineUp {
            at,
            engine: Arc::clone(engine),
        });
    }

    /// All processes of an engine are gone.
    pub fn engine_down(&self, at: Nanos, engine: &Arc<str>) {
        self.send(Message::EngineDown {
            at,
            engine: Arc::clone(engine),
        });
    }

    /// The memory of an engine was read.
    pub fn memory(&self, at: Nanos, reading: &Arc<MemoryReading>) {
        self.send(Message::Memory {
            at,
            reading: Arc::clone(reading),
        });
    }

    /// The kernel side dropped `count` more events for this reason (a label of `infertap_abi::DropReason`).
    pub fn dropped(&self, at: Nanos, reason: &str, count: u64) {
        if count > 0 {
            self.send(Message::Drops {
                at,
                reason: reason.to_owned(),
                count,
            });
        }
    }

    /// A GPU was read.
    pub fn gpu(&self, at: Nanos, reading: &Arc<GpuReading>) {
        self.send(Message::Gpu {
            at,
            reading: Arc::clone(reading),
        });
    }

    /// Raw records that were not written so far because the writer was too far behind or had failed.
    pub fn lost(&self) -> u64 {
        self.shared.lost_records.load(Ordering::Relaxed)
    }

    /// Why writing has stopped, when it has (a full disk, say). The caller should stop recording then.
    pub fn failure(&self) -> Option<String> {
        self.shared
            .failure
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Writes what is queued and the end marker, and closes the file. Waits for that.
    pub fn finish(mut self) -> Result<Totals, RecordingError> {
        self.send(Message::Finish);
        let Some(thread) = self.thread.take() else {
            return Err(self.gone());
        };
        match thread.join() {
            Ok(Ok(totals)) => Ok(totals),
            Ok(Err(source)) => Err(io_error("write", &self.path, source)),
            Err(_) => Err(self.gone()),
        }
    }

    fn gone(&self) -> RecordingError {
        RecordingError::WriterGone {
            file: self.path.display().to_string(),
        }
    }

    /// Engines and drop counts are rare: they are queued whatever the backlog. A failed writer has told its failure.
    fn send(&self, message: Message) {
        let _ = self.sender.send(message);
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.send(Message::Finish);
            let _ = thread.join();
        }
    }
}

struct Writer {
    sink: Sink,
    blanker: Option<Blanker>,
    shared: Arc<Shared>,
    totals: Totals,
}

impl Writer {
    fn run(mut self, receiver: &Receiver<Message>) -> Result<Totals, io::Error> {
        let result = self.write_all(receiver);
        if let Err(error) = &result {
            *self.shared.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_string());
            self.shared.failed.store(true, Ordering::Relaxed);
        }
        result.map(|()| self.totals)
    }

    fn write_all(&mut self, receiver: &Receiver<Message>) -> Result<(), io::Error> {
        let mut flushed = Instant::now();
        loop {
            match receiver.recv_timeout(FLUSH_EVERY) {
                Ok(Message::Finish) | Err(RecvTimeoutError::Disconnected) => break,
                Ok(message) => self.take(message)?,
                Err(RecvTimeoutError::Timeout) => {}
            }
            if flushed.elapsed() >= FLUSH_EVERY {
                self.write_lost()?;
                self.sink.flush()?;
                flushed = Instant::now();
            }
        }
        // What others queued behind the Finish is beyond the end of the recording.
        self.write_lost()?;
        self.totals.ended_monotonic_ns = monotonic_ns();
        self.sink.frame(&Frame::End(self.totals))?;
        self.sink.close()
    }

    fn take(&mut self, message: Message) -> Result<(), io::Error> {
        match message {
            Message::Record(mut record) => {
                self.shared
                    .queued_bytes
                    .fetch_sub(record.len() + MESSAGE_OVERHEAD, Ordering::Relaxed);
                self.write_lost()?;
                if let Some(blanker) = &mut self.blanker {
                    blanker.blank(&mut record);
                }
                self.totals.records += 1;
                self.totals.payload_bytes += record.len().saturating_sub(HEADER_LEN) as u64;
                self.sink.frame(&Frame::Record(&record))
            }
            Message::EngineUp { at, engine } => {
                if let Some(blanker) = &mut self.blanker {
                    blanker.engine_up(Arc::clone(&engine));
                }
                self.sink.frame(&Frame::EngineUp { at, engine })
            }
            Message::EngineDown { at, engine } => {
                if let Some(blanker) = &mut self.blanker {
                    blanker.engine_down(&engine);
                }
                self.sink.frame(&Frame::EngineDown { at, engine })
            }
            Message::Memory { at, reading } => self.sink.frame(&Frame::Memory { at, reading }),
            Message::Drops { at, reason, count } => {
                self.totals.dropped += count;
                self.sink.frame(&Frame::Drops { at, reason, count })
            }
            Message::Gpu { at, reading } => self.sink.frame(&Frame::Gpu { at, reading }),
            Message::Finish => Ok(()),
        }
    }

    /// Marks what the queue had no room for since the last mark.
    fn write_lost(&mut self) -> Result<(), io::Error> {
        let lost = self.shared.lost_records.load(Ordering::Relaxed);
        let records = lost - self.totals.lost_records;
        if records == 0 {
            return Ok(());
        }
        self.totals.lost_records = lost;
        let bytes = self.shared.lost_bytes.swap(0, Ordering::Relaxed);
        self.sink.frame(&Frame::Lost { records, bytes })
    }
}

/// The compressed stream: frames in, zstd frames of bounded size out.
struct Sink {
    encoder: Option<Encoder<'static, File>>,
    in_frame: u64,
    scratch: Vec<u8>,
}

impl Sink {
    fn start(mut file: File) -> Result<Sink, io::Error> {
        file.write_all(&preamble())?;
        Ok(Sink {
            encoder: Some(encoder(file)?),
            in_frame: 0,
            scratch: Vec::new(),
        })
    }

    fn frame(&mut self, frame: &Frame<'_>) -> Result<(), io::Error> {
        self.scratch.clear();
        if !frame.encode(&mut self.scratch) {
            return Err(io::Error::other("a frame is larger than the format allows"));
        }
        let Some(open) = &mut self.encoder else {
            return Err(closed());
        };
        open.write_all(&self.scratch)?;
        self.in_frame += self.scratch.len() as u64;
        if self.in_frame >= ZSTD_FRAME_BYTES {
            if let Some(full) = self.encoder.take() {
                self.encoder = Some(encoder(full.finish()?)?);
            }
            self.in_frame = 0;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), io::Error> {
        self.encoder.as_mut().ok_or_else(closed)?.flush()
    }

    fn close(&mut self) -> Result<(), io::Error> {
        match self.encoder.take() {
            Some(encoder) => encoder.finish()?.sync_all(),
            None => Ok(()),
        }
    }
}

fn closed() -> io::Error {
    io::Error::other("the recording is closed")
}

fn encoder(file: File) -> Result<Encoder<'static, File>, io::Error> {
    let mut encoder = Encoder::new(file, ZSTD_LEVEL)?;
    encoder.include_checksum(true)?;
    Ok(encoder)
}

fn io_error(action: &'static str, path: &Path, source: io::Error) -> RecordingError {
    RecordingError::Io {
        action,
        file: path.display().to_string(),
        source,
    }
}

fn kernel_release() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease")
        .map_or_else(|_| "unknown".to_owned(), |s| s.trim().to_owned())
}

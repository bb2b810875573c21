//! Reading: frames out of a recording, one at a time, in constant memory.
//!
//! Owns: the checks that refuse foreign, newer and damaged files, and the end of a file that was cut short. Refuses:
//! meaning. The file is hostile: every length is bounded before it is believed.

use super::RecordingError;
use super::format::{
    END, FORMAT_VERSION, FRAME_HEAD_LEN, Frame, MAX_PAYLOAD, PREAMBLE_LEN, RecordingHeader, SKIPPABLE,
    Totals, preamble_version,
};
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;
use zstd::stream::read::Decoder;

/// Largest zstd window that is accepted, as a power of two (16 MiB); the writer's is 2 MiB.
const WINDOW_LOG_MAX: u32 = 24;

/// How a recording ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// With its end marker.
    Complete(Totals),
    /// In the middle: the recorder was killed, or the copy is incomplete.
    Truncated,
}

/// An open recording.
pub struct Reader {
    file: String,
    header: RecordingHeader,
    decoder: Decoder<'static, BufReader<Box<dyn Read + Send>>>,
    payload: Vec<u8>,
    frames: u64,
    ending: Option<Ending>,
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader")
            .field("file", &self.file)
            .field("header", &self.header)
            .field("frames", &self.frames)
            .field("ending", &self.ending)
            .finish_non_exhaustive()
    }
}

impl Reader {
    /// Opens a recording and checks that this program can read it. `-` is standard input.
    pub fn open(path: &Path) -> Result<Reader, RecordingError> {
        if path.as_os_str() == "-" {
            return Reader::new("standard input", Box::new(io::stdin()));
        }
        let name = path.display().to_string();
        match File::open(path) {
            Ok(file) => Reader::new(&name, Box::new(file)),
            Err(source) => Err(RecordingError::Io {
                action: "open",
                file: name,
                source,
            }),
        }
    }

    /// As [`Reader::open`], from any stream of bytes; `name` is for messages.
    pub fn new(name: &str, mut input: Box<dyn Read + Send>) -> Result<Reader, RecordingError> {
        let io_error = |source| RecordingError::Io {
            action: "read",
            file: name.to_owned(),
            source,
        };
        let mut preamble = [0; PREAMBLE_LEN];
        let got = read_up_to(&mut input, &mut preamble).map_err(io_error)?;
        let version = preamble_version(&preamble[..got]).ok_or_else(|| RecordingError::Foreign {
            file: name.to_owned(),
        })?;
        if version != FORMAT_VERSION {
            return Err(RecordingError::Format {
                file: name.to_owned(),
                found: version,
                supported: FORMAT_VERSION,
            });
        }
        let mut decoder = Decoder::new(input).map_err(io_error)?;
        decoder.window_log_max(WINDOW_LOG_MAX).map_err(io_error)?;
        let mut reader = Reader {
            file: name.to_owned(),
            header: RecordingHeader {
                abi: 0,
                agent: String::new(),
                kernel: String::new(),
                arch: String::new(),
                started_monotonic_ns: 0,
                started_unix_ns: 0,
                with_content: false,
            },
            decoder,
            payload: Vec::new(),
            frames: 0,
            ending: None,
        };
        let Some(Frame::Header(header)) = reader.next_frame()? else {
            return Err(damaged(name, 0, "its header is missing"));
        };
        if header.abi != infertap_abi::VERSION {
            return Err(RecordingError::Layout {
                file: name.to_owned(),
                agent: header.agent,
                own: env!("CARGO_PKG_VERSION"),
                found: header.abi,
                supported: infertap_abi::VERSION,
            });
        }
        reader.header = header;
        Ok(reader)
    }

    /// What the recording says of itself.
    pub fn header(&self) -> &RecordingHeader {
        &self.header
    }

    /// How it ended; `None` until [`Reader::next_frame`] has returned `None`.
    pub fn ending(&self) -> Option<Ending> {
        self.ending
    }

    /// Whole frames read so far, the header's included.
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// The next frame; `None` at the end marker (which is not returned) and where a file was cut short: see
    /// [`Reader::ending`].
    ///
    /// # Errors
    /// [`RecordingError::Damaged`] when the bytes are no frame, [`RecordingError::Io`] when they can't be read.
    pub fn next_frame(&mut self) -> Result<Option<Frame<'_>>, RecordingError> {
        let Some(kind) = self.advance()? else {
            return Ok(None);
        };
        match Frame::decode(kind, &self.payload) {
            Ok(frame) => Ok(frame),
            Err(what) => Err(damaged(&self.file, self.frames, what)),
        }
    }

    /// Reads on to the next frame that is to be returned, into `self.payload`; tells its type.
    fn advance(&mut self) -> Result<Option<u8>, RecordingError> {
        while self.ending.is_none() {
            let mut head = [0; FRAME_HEAD_LEN];
            if !self.fill(Part::Head(&mut head))? {
                break;
            }
            let len = u32::from_le_bytes([head[1], head[2], head[3], head[4]]) as usize;
            if len > MAX_PAYLOAD {
                return Err(damaged(
                    &self.file,
                    self.frames,
                    format!("a frame of {len} bytes"),
                ));
            }
            self.payload.resize(len, 0);
            if !self.fill(Part::Payload)? {
                break;
            }
            if head[0] < SKIPPABLE {
                let decoded = if head[0] == END {
                    Frame::decode(END, &self.payload)
                } else {
                    Ok(None)
                };
                match decoded {
                    Ok(Some(Frame::End(totals))) => self.ending = Some(Ending::Complete(totals)),
                    Ok(_) => {
                        self.frames += 1;
                        return Ok(Some(head[0]));
                    }
                    Err(what) => return Err(damaged(&self.file, self.frames, what)),
                }
            }
            self.frames += 1;
        }
        Ok(None)
    }

    /// Fills a part of a frame. `false` when the file ends first, which makes it a truncated one.
    fn fill(&mut self, part: Part<'_>) -> Result<bool, RecordingError> {
        let buffer = match part {
            Part::Head(head) => &mut head[..],
            Part::Payload => &mut self.payload[..],
        };
        match read_up_to(&mut self.decoder, buffer) {
            Ok(got) if got == buffer.len() => Ok(true),
            Ok(_) => {
                self.ending = Some(Ending::Truncated);
                Ok(false)
            }
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
                self.ending = Some(Ending::Truncated);
                Ok(false)
            }
            // zstd reports what does not decode as `Other`; the rest comes from the file.
            Err(e) if e.raw_os_error().is_none() => Err(damaged(&self.file, self.frames, e.to_string())),
            Err(source) => Err(RecordingError::Io {
                action: "read",
                file: self.file.clone(),
                source,
            }),
        }
    }
}

enum Part<'a> {
    Head(&'a mut [u8; FRAME_HEAD_LEN]),
    Payload,
}

fn damaged(file: &str, frames: u64, what: impl Into<String>) -> RecordingError {
    RecordingError::Damaged {
        file: file.to_owned(),
        frames,
        what: what.into(),
    }
}

/// Fills `buffer` as far as the input goes; tells how far.
fn read_up_to(input: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut got = 0;
    while got < buffer.len() {
        match input.read(&mut buffer[got..]) {
            Ok(0) => break,
            Ok(n) => got += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(got)
}

//! The recording's layout: a plain preamble, then a zstd stream of frames.
//!
//! Owns: magic, versions, frame types and their bounds, encoding and decoding of one frame. Refuses: files, compression
//! and threads (`reader`, `writer`). Everything read here is hostile until checked.
//!
//! ```text
//! preamble  8 bytes magic, u16 format version, 6 bytes zero        (not compressed)
//! frames    u8 type, u32 length, payload …                         (zstd, one or more zstd frames)
//! ```
//!
//! Integers are little-endian. The first frame is the header, the last the end marker; a file without an end marker
//! was cut short. Frame types from [`SKIPPABLE`] up may be added without a new format version: readers skip them.

use infertap_core::gpu::GpuReading;
use infertap_core::{EngineInfo, Nanos, pressure::MemoryReading};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// First bytes of every recording. The high bit, CR LF, and ^Z show a transfer that was not binary, as in PNG.
pub const MAGIC: [u8; 8] = *b"\x89ITAP\r\n\x1a";
/// Version of this layout.
pub const FORMAT_VERSION: u16 = 1;
/// Bytes before the compressed stream.
pub const PREAMBLE_LEN: usize = 16;
/// Bytes before each frame's payload.
pub const FRAME_HEAD_LEN: usize = 5;
/// Most payload bytes of one frame. A raw record is at most 64 + 16,384; an engine description some kilobytes.
pub const MAX_PAYLOAD: usize = 256 * 1024;
/// Frame types from here up are skipped by readers that do not know them.
pub const SKIPPABLE: u8 = 0x80;

const HEADER: u8 = 1;
const RECORD: u8 = 2;
const ENGINE_UP: u8 = 3;
const ENGINE_DOWN: u8 = 4;
const DROPS: u8 = 5;
const LOST: u8 = 6;
/// Skippable: an older reader lacks the engines' memory, and nothing else.
const MEMORY: u8 = 0x82;
/// Type of the end marker.
pub(super) const END: u8 = 7;
/// Came after the first release of the format, so readers from before skip it.
const GPU: u8 = 0x80;

/// What a recording says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordingHeader {
    /// [`infertap_abi::VERSION`] of the raw records.
    pub abi: u16,
    /// Version of the agent.
    pub agent: String,
    /// Kernel release.
    pub kernel: String,
    /// Machine architecture.
    pub arch: String,
    /// CLOCK_MONOTONIC nanoseconds at the start.
    pub started_monotonic_ns: Nanos,
    /// Wall clock at the start, nanoseconds since 1970 (UTC).
    pub started_unix_ns: u64,
    /// Prompts and outputs are in it, as they were sent.
    pub with_content: bool,
}

/// What was recorded, told by the end marker.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// CLOCK_MONOTONIC nanoseconds at the end.
    pub ended_monotonic_ns: Nanos,
    /// Raw records written.
    pub records: u64,
    /// Bytes of payload in them.
    pub payload_bytes: u64,
    /// Raw records that the writer could not keep up with.
    pub lost_records: u64,
    /// Events that the kernel side dropped.
    pub dropped: u64,
}

/// One frame. Raw records are borrowed from the reader's buffer.
#[derive(Debug, Clone, PartialEq)]
pub enum Frame<'a> {
    /// The recording's description; the first frame.
    Header(RecordingHeader),
    /// One ring-buffer record: its header and the captured bytes, for [`infertap_core::Event::decode`].
    Record(&'a [u8]),
    /// Discovery found an engine, or learned more about one.
    EngineUp {
        /// When.
        at: Nanos,
        /// What.
        engine: Arc<EngineInfo>,
    },
    /// All processes of an engine are gone.
    EngineDown {
        /// When.
        at: Nanos,
        /// Its id.
        engine: Arc<str>,
    },
    /// The memory of an engine was read.
    Memory {
        /// When.
        at: Nanos,
        /// What.
        reading: Arc<MemoryReading>,
    },
    /// The kernel side dropped events since the last such frame.
    Drops {
        /// When it was noticed.
        at: Nanos,
        /// Label of the reason.
        reason: String,
        /// How many.
        count: u64,
    },
    /// The writer could not keep up, here.
    Lost {
        /// Raw records that are missing.
        records: u64,
        /// Their bytes.
        bytes: u64,
    },
    /// A GPU was read.
    Gpu {
        /// When.
        at: Nanos,
        /// What.
        reading: Arc<GpuReading>,
    },
    /// The recording was ended properly.
    End(Totals),
}

#[derive(Serialize, Deserialize)]
struct EngineUpBody {
    at: Nanos,
    engine: Arc<EngineInfo>,
}

#[derive(Serialize, Deserialize)]
struct EngineDownBody {
    at: Nanos,
    engine: Arc<str>,
}

#[derive(Serialize, Deserialize)]
struct GpuBody {
    at: Nanos,
    reading: Arc<GpuReading>,
}

#[derive(Serialize, Deserialize)]
struct MemoryBody {
    at: Nanos,
    reading: Arc<MemoryReading>,
}

#[derive(Serialize, Deserialize)]
struct DropsBody {
    at: Nanos,
    reason: String,
    count: u64,
}

#[derive(Serialize, Deserialize)]
struct LostBody {
    records: u64,
    bytes: u64,
}

/// The preamble of this version.
pub fn preamble() -> [u8; PREAMBLE_LEN] {
    let mut bytes = [0; PREAMBLE_LEN];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..10].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
    bytes
}

/// The format version that a preamble tells; `None` when the bytes begin no recording.
pub fn preamble_version(bytes: &[u8]) -> Option<u16> {
    let rest = bytes.strip_prefix(&MAGIC)?;
    Some(u16::from_le_bytes([*rest.first()?, *rest.get(1)?]))
}

impl Frame<'_> {
    /// Appends the frame to `out`. `false`, and nothing appended, when it is larger than a frame may be.
    #[must_use]
    pub fn encode(&self, out: &mut Vec<u8>) -> bool {
        let json =
            |kind: u8, value: Result<Vec<u8>, serde_json::Error>| value.ok().map(|bytes| (kind, bytes));
        let built = match self {
            Frame::Record(bytes) => return push(RECORD, bytes, out),
            Frame::Header(header) => json(HEADER, serde_json::to_vec(header)),
            Frame::EngineUp { at, engine } => json(
                ENGINE_UP,
                serde_json::to_vec(&EngineUpBody {
                    at: *at,
                    engine: Arc::clone(engine),
                }),
            ),
            Frame::EngineDown { at, engine } => json(
                ENGINE_DOWN,
                serde_json::to_vec(&EngineDownBody {
                    at: *at,
                    engine: Arc::clone(engine),
                }),
            ),
            Frame::Memory { at, reading } => json(
                MEMORY,
                serde_json::to_vec(&MemoryBody {
                    at: *at,
                    reading: Arc::clone(reading),
                }),
            ),
            Frame::Drops { at, reason, count } => json(
                DROPS,
                serde_json::to_vec(&DropsBody {
                    at: *at,
                    reason: reason.clone(),
                    count: *count,
                }),
            ),
            Frame::Lost { records, bytes } => json(
                LOST,
                serde_json::to_vec(&LostBody {
                    records: *records,
                    bytes: *bytes,
                }),
            ),
            Frame::Gpu { at, reading } => json(
                GPU,
                serde_json::to_vec(&GpuBody {
                    at: *at,
                    reading: Arc::clone(reading),
                }),
            ),
            Frame::End(totals) => json(END, serde_json::to_vec(totals)),
        };
        built.is_some_and(|(kind, bytes)| push(kind, &bytes, out))
    }

    /// Decodes the payload of a frame of this type. `Ok(None)` for a type that is to be skipped.
    pub fn decode(kind: u8, payload: &[u8]) -> Result<Option<Frame<'_>>, String> {
        let bad = |what: &'static str| move |e: serde_json::Error| format!("{what} frame: {e}");
        let frame = match kind {
            RECORD => Frame::Record(payload),
            HEADER => Frame::Header(serde_json::from_slice(payload).map_err(bad("header"))?),
            ENGINE_UP => {
                let body: EngineUpBody = serde_json::from_slice(payload).map_err(bad("engine"))?;
                Frame::EngineUp {
                    at: body.at,
                    engine: body.engine,
                }
            }
            ENGINE_DOWN => {
                let body: EngineDownBody = serde_json::from_slice(payload).map_err(bad("engine"))?;
                Frame::EngineDown {
                    at: body.at,
                    engine: body.engine,
                }
            }
            DROPS => {
                let body: DropsBody = serde_json::from_slice(payload).map_err(bad("drop count"))?;
                Frame::Drops {
                    at: body.at,
                    reason: body.reason,
                    count: body.count,
                }
            }
            LOST => {
                let body: LostBody = serde_json::from_slice(payload).map_err(bad("loss"))?;
                Frame::Lost {
                    records: body.records,
                    bytes: body.bytes,
                }
            }
            GPU => {
                let body: GpuBody = serde_json::from_slice(payload).map_err(bad("GPU"))?;
                Frame::Gpu {
                    at: body.at,
                    reading: body.reading,
                }
            }
            END => Frame::End(serde_json::from_slice(payload).map_err(bad("end"))?),
            MEMORY => {
                let body: MemoryBody = serde_json::from_slice(payload).map_err(bad("memory"))?;
                Frame::Memory {
                    at: body.at,
                    reading: body.reading,
                }
            }
            _ if kind >= SKIPPABLE => return Ok(None),
            _ => return Err(format!("unknown frame type {kind}")),
        };
        Ok(Some(frame))
    }
}

fn push(kind: u8, payload: &[u8], out: &mut Vec<u8>) -> bool {
    if payload.len() > MAX_PAYLOAD {
        return false;
    }
    out.push(kind);
    out.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    out.extend_from_slice(payload);
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use infertap_core::EngineKind;

    fn round_trip(frame: &Frame<'_>) {
        let mut bytes = Vec::new();
        assert!(frame.encode(&mut bytes));
        let len = u32::from_le_bytes([bytes[1], bytes[2], bytes[3], bytes[4]]) as usize;
        assert_eq!(len, bytes.len() - FRAME_HEAD_LEN);
        assert_eq!(
            Frame::decode(bytes[0], &bytes[FRAME_HEAD_LEN..]).as_ref(),
            Ok(&Some(frame.clone()))
        );
    }

    #[test]
    fn every_frame_survives_its_bytes() {
        round_trip(&Frame::Header(RecordingHeader {
            abi: infertap_abi::VERSION,
            agent: "0.1.0".into(),
            kernel: "6.1.0".into(),
            arch: "x86_64".into(),
            started_monotonic_ns: 5,
            started_unix_ns: u64::MAX,
            with_content: false,
        }));
        round_trip(&Frame::Record(&[7; 100]));
        round_trip(&Frame::EngineUp {
            at: 9,
            engine: Arc::new(EngineInfo {
                id: "vllm-8000".into(),
                kind: EngineKind::Vllm,
                model: Some("m".into()),
                version: None,
                pid: 1,
                pids: vec![1, 2],
                ports: vec![8000],
                container: None,
                pod_uid: None,
            }),
        });
        round_trip(&Frame::EngineDown {
            at: 10,
            engine: "vllm-8000".into(),
        });
        round_trip(&Frame::Drops {
            at: 11,
            reason: "ring_full".into(),
            count: 3,
        });
        round_trip(&Frame::Gpu {
            at: 12,
            reading: Arc::new(GpuReading {
                uuid: "GPU-1".into(),
                parent: None,
                since: Some(2),
                energy_j: Some(1.5),
                busy: vec![infertap_core::gpu::BusySample { end: 12, ratio: 0.25 }],
                memory_used: Some(u64::MAX),
                memory_total: None,
                processes: Some(vec![infertap_core::gpu::GpuProcess {
                    tgid: 7,
                    memory: None,
                    sm: Some(0.5),
                }]),
            }),
        });
        round_trip(&Frame::Lost { records: 1, bytes: 2 });
        round_trip(&Frame::End(Totals {
            records: 4,
            ..Totals::default()
        }));
    }

    #[test]
    fn oversize_frames_are_not_written_and_unknown_ones_are_told_apart() {
        let mut out = Vec::new();
        assert!(!Frame::Record(&vec![0; MAX_PAYLOAD + 1]).encode(&mut out));
        assert!(out.is_empty());
        assert_eq!(Frame::decode(0x90, b"later"), Ok(None));
        assert_eq!(Frame::decode(0x33, b""), Err("unknown frame type 51".into()));
        assert!(Frame::decode(HEADER, b"{").is_err());
    }

    #[test]
    fn the_preamble_tells_recordings_from_other_files() {
        assert_eq!(preamble_version(&preamble()), Some(FORMAT_VERSION));
        assert_eq!(preamble_version(b"\x28\xb5\x2f\xfd0123456789"), None);
        assert_eq!(preamble_version(&MAGIC), None);
        assert_eq!(preamble_version(b""), None);
    }
}

//! Records of CUDA calls, decoded: bursts of work, and what happened to GPU memory.
//!
//! Owns: the checks of their payloads. Refuses: what is only counted in the kernel (launches, copies), which makes no record.

use super::{AllocFailure, CudaBurst, CudaMapping, Mapping};
use crate::event::{DecodeError, EventKind};
use infertap_abi::{CudaBurstRecord, CudaMemory, CudaMemoryRecord, RecordHeader};

fn short(header: &RecordHeader, payload: &[u8]) -> DecodeError {
    DecodeError::Length {
        captured: header.captured,
        len: header.len,
        actual: payload.len(),
    }
}

/// A burst. Its times are put in order: they are taken on several threads.
pub(crate) fn burst(header: &RecordHeader, payload: &[u8]) -> Result<CudaBurst, DecodeError> {
    let record = CudaBurstRecord::read(payload).ok_or_else(|| short(header, payload))?;
    let end = header.ts_ns;
    let wait = record.wait_ns.min(end);
    let last_launch = record.last_ns.min(wait);
    Ok(CudaBurst {
        tgid: header.tgid,
        tid: header.tid,
        begin: record.begin_ns.min(last_launch),
        last_launch,
        wait,
        end,
        kernels: record.kernels,
        graphs: record.graphs,
    })
}

/// What happened to memory.
pub(crate) fn memory(header: &RecordHeader, payload: &[u8]) -> Result<EventKind<'static>, DecodeError> {
    let record = CudaMemoryRecord::read(payload).ok_or_else(|| short(header, payload))?;
    let what = CudaMemory::try_from(record.what).map_err(|e| DecodeError::Unknown {
        field: "memory event",
        value: e.0,
    })?;
    let mapping = match what {
        CudaMemory::Failed => {
            return Ok(EventKind::AllocFailure(AllocFailure {
                tgid: header.tgid,
                tid: header.tid,
                bytes: record.bytes,
                code: record.code,
            }));
        }
        CudaMemory::Created => Mapping::Created {
            handle: record.handle,
            bytes: record.bytes,
        },
        CudaMemory::Mapped => Mapping::Mapped {
            address: record.address,
            bytes: record.bytes,
            handle: record.handle,
        },
        CudaMemory::Unmapped => Mapping::Unmapped {
            address: record.address,
            bytes: record.bytes,
        },
        CudaMemory::Released => Mapping::Released {
            handle: record.handle,
        },
    };
    Ok(EventKind::CudaMapping(CudaMapping {
        tgid: header.tgid,
        mapping,
    }))
}

#[cfg(test)]
mod tests {
    use crate::event::{DecodeError, Event, EventKind};
    use crate::gpu::{AllocFailure, CudaBurst, CudaMapping, Mapping};
    use infertap_abi::{RecordHeader, RecordKind};

    fn record(kind: RecordKind, words: [u64; 4]) -> Vec<u8> {
        let header = RecordHeader {
            ts_ns: 1_000,
            kind: kind as u16,
            captured: 32,
            len: 32,
            tgid: 7,
            tid: 8,
            ..RecordHeader::default()
        };
        let payload = words.iter().flat_map(|word| word.to_le_bytes());
        header.to_bytes().into_iter().chain(payload).collect()
    }

    #[test]
    fn a_burst_is_what_its_record_says_with_its_times_in_order() {
        for (words, begin, last_launch, wait) in [
            ([100, 300, 400, 5 | 2 << 32], 100, 300, 400),
            ([100, 500, 400, 5 | 2 << 32], 100, 400, 400),
            ([9_000, 9_000, 9_000, 5 | 2 << 32], 1_000, 1_000, 1_000),
        ] {
            let bytes = record(RecordKind::CudaBurst, words);
            let event = Event::decode(&bytes).expect("decodes");
            let EventKind::CudaBurst(burst) = event.kind else {
                panic!("{event:?}");
            };
            let expected = CudaBurst {
                tgid: 7,
                tid: 8,
                begin,
                last_launch,
                wait,
                end: 1_000,
                kernels: 5,
                graphs: 2,
            };
            assert_eq!((event.at, burst), (1_000, expected));
        }
    }

    #[test]
    fn memory_events_are_told_apart_by_their_number() {
        let decoded = |what: u64| {
            let bytes = record(RecordKind::CudaMemory, [what, 4096, 0xa000, 77]);
            format!("{:?}", Event::decode(&bytes).map(|event| event.kind))
        };
        let mapping = |mapping| {
            let kind = EventKind::CudaMapping(CudaMapping { tgid: 7, mapping });
            format!("{:?}", Ok::<_, DecodeError>(kind))
        };
        let failed = AllocFailure {
            tgid: 7,
            tid: 8,
            bytes: 4096,
            code: 2,
        };
        assert_eq!(
            decoded(1 | 2 << 32),
            format!("{:?}", Ok::<_, DecodeError>(EventKind::AllocFailure(failed)))
        );
        assert_eq!(
            decoded(2),
            mapping(Mapping::Created {
                handle: 77,
                bytes: 4096
            })
        );
        assert_eq!(
            decoded(3),
            mapping(Mapping::Mapped {
                address: 0xa000,
                bytes: 4096,
                handle: 77
            })
        );
        assert_eq!(
            decoded(4),
            mapping(Mapping::Unmapped {
                address: 0xa000,
                bytes: 4096
            })
        );
        assert_eq!(decoded(5), mapping(Mapping::Released { handle: 77 }));
        assert!(decoded(6).contains("memory event"));
    }

    #[test]
    fn a_short_payload_is_an_error() {
        for kind in [RecordKind::CudaBurst, RecordKind::CudaMemory] {
            let mut bytes = record(kind, [1, 2, 3, 4]);
            let header = RecordHeader {
                captured: 31,
                ..RecordHeader::read(&bytes).expect("a header")
            };
            bytes[..64].copy_from_slice(&header.to_bytes());
            assert!(matches!(Event::decode(&bytes), Err(DecodeError::Length { .. })));
        }
    }
}

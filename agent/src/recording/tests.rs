//! Files: what is written is read, and files that are cut, damaged, foreign or newer are told apart.

use super::format::{Frame, RecordingHeader, Totals, preamble};
use super::*;
use infertap_abi::{Direction, HEADER_LEN, RecordHeader, RecordKind, Role, Transport};
use infertap_core::pressure::{CgroupReading, CgroupVersion, MemoryEvents, MemoryReading, StallTotals};
use infertap_core::{EngineInfo, EngineKind};
use std::path::Path;
use std::sync::Arc;

/// A data record of connection 7 at stream offset `offset`.
pub(super) fn data(direction: Direction, at: u64, offset: u64, payload: &[u8]) -> Vec<u8> {
    let header = RecordHeader {
        ts_ns: at,
        conn_id: 7,
        offset,
        kind: RecordKind::Data as u16,
        captured: payload.len() as u32,
        len: payload.len() as u32,
        tgid: 42,
        dir_role: RecordHeader::pack(direction as u8, Role::Accepted as u8),
        transport: Transport::Tcp as u8,
        ..Default::default()
    };
    let mut record = header.to_bytes().to_vec();
    record.extend_from_slice(payload);
    record
}

fn engine() -> Arc<EngineInfo> {
    Arc::new(EngineInfo {
        id: "llama_cpp-8080".into(),
        kind: EngineKind::LlamaCpp,
        model: None,
        version: None,
        pid: 42,
        pids: vec![42],
        ports: vec![8080],
        container: None,
        pod_uid: None,
    })
}

fn owned(frame: Frame<'_>) -> Frame<'static> {
    match frame {
        Frame::Record(bytes) => Frame::Record(Vec::leak(bytes.to_vec())),
        Frame::Header(header) => Frame::Header(header),
        Frame::EngineUp { at, engine } => Frame::EngineUp { at, engine },
        Frame::EngineDown { at, engine } => Frame::EngineDown { at, engine },
        Frame::Memory { at, reading } => Frame::Memory { at, reading },
        Frame::Drops { at, reason, count } => Frame::Drops { at, reason, count },
        Frame::Lost { records, bytes } => Frame::Lost { records, bytes },
        Frame::Gpu { at, reading } => Frame::Gpu { at, reading },
        Frame::End(totals) => Frame::End(totals),
    }
}

fn read_all(reader: &mut Reader) -> Result<Vec<Frame<'static>>, RecordingError> {
    let mut frames = Vec::new();
    while let Some(frame) = reader.next_frame()? {
        frames.push(owned(frame));
    }
    Ok(frames)
}

fn from_bytes(bytes: &[u8]) -> Result<Reader, RecordingError> {
    Reader::new("test", Box::new(std::io::Cursor::new(bytes.to_vec())))
}

fn write(path: &Path) -> Totals {
    let options = RecorderOptions {
        with_content: true,
        overwrite: false,
    };
    let recorder = Recorder::create(path, options).expect("creates");
    recorder.engine_up(1, &engine());
    // The ring's size classes leave bytes behind the captured ones; they are not recorded.
    let mut padded = data(Direction::In, 2, 0, b"GET /health HTTP/1.1\r\n\r\n");
    padded.resize(HEADER_LEN + 512, 0xaa);
    recorder.record(&padded);
    recorder.dropped(3, "ring_full", 4);
    recorder.dropped(3, "read_fault", 0);
    recorder.engine_down(5, &"llama_cpp-8080".into());
    recorder.finish().expect("finishes")
}

#[test]
fn what_is_recorded_is_read_in_order() {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("a.infertap");
    let totals = write(&path);
    assert_eq!((totals.records, totals.payload_bytes, totals.dropped), (1, 24, 4));

    let mut reader = Reader::open(&path).expect("opens");
    assert!(reader.header().with_content);
    assert_eq!(reader.header().agent, env!("CARGO_PKG_VERSION"));
    assert!(reader.header().started_monotonic_ns > 0);
    assert_eq!(
        read_all(&mut reader).expect("reads"),
        [
            Frame::EngineUp {
                at: 1,
                engine: engine()
            },
            Frame::Record(&data(Direction::In, 2, 0, b"GET /health HTTP/1.1\r\n\r\n")),
            Frame::Drops {
                at: 3,
                reason: "ring_full".into(),
                count: 4
            },
            Frame::EngineDown {
                at: 5,
                engine: "llama_cpp-8080".into()
            },
        ]
    );
    assert_eq!(reader.ending(), Some(Ending::Complete(totals)));
}

#[test]
fn a_recording_is_for_its_owner_alone_and_never_overwritten_unasked() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("a.infertap");
    write(&path);
    let mode = std::fs::metadata(&path).expect("exists").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let before = std::fs::read(&path).expect("reads");
    let error = Recorder::create(&path, RecorderOptions::default()).expect_err("exists");
    assert!(matches!(error, RecordingError::Exists { .. }), "{error}");
    assert_eq!(std::fs::read(&path).expect("reads"), before);
}

#[test]
fn a_file_cut_anywhere_gives_its_whole_frames_and_says_that_it_was_cut() {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("a.infertap");
    write(&path);
    let whole = std::fs::read(&path).expect("reads");
    let frames = read_all(&mut from_bytes(&whole).expect("opens")).expect("reads");
    let mut opened = 0;
    for cut in 0..whole.len() {
        match from_bytes(&whole[..cut]) {
            Ok(mut reader) => {
                opened += 1;
                let read = read_all(&mut reader).expect("a cut is no damage");
                assert_eq!(read, frames[..read.len()]);
                // The end marker may be there before the checksum that follows it is.
                if reader.ending() != Some(Ending::Truncated) {
                    assert_eq!(read.len(), frames.len(), "cut at {cut}");
                }
            }
            Err(RecordingError::Foreign { .. }) => assert!(cut < 10, "cut at {cut}"),
            Err(RecordingError::Damaged { frames: 0, .. }) => {}
            Err(other) => panic!("cut at {cut}: {other}"),
        }
    }
    assert!(opened > 0);
}

#[test]
fn what_was_flushed_survives_a_writer_that_is_killed() {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("a.infertap");
    let recorder = Recorder::create(&path, RecorderOptions::default()).expect("creates");
    recorder.engine_up(1, &engine());
    // The writer flushes on its own; a copy of the file is what a kill would leave.
    let copy = loop {
        let copy = std::fs::read(&path).expect("reads");
        let mut reader = from_bytes(&copy).expect("the header is flushed at once");
        if !read_all(&mut reader).expect("reads").is_empty() {
            break copy;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    };
    let mut reader = from_bytes(&copy).expect("opens");
    assert_eq!(read_all(&mut reader).expect("reads").len(), 1);
    assert_eq!(reader.ending(), Some(Ending::Truncated));
    drop(recorder);
    let mut reader = Reader::open(&path).expect("opens");
    read_all(&mut reader).expect("reads");
    assert!(matches!(reader.ending(), Some(Ending::Complete(_))));
}

#[test]
fn damage_is_an_error_and_never_a_panic() {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("a.infertap");
    write(&path);
    let whole = std::fs::read(&path).expect("reads");
    let frames = read_all(&mut from_bytes(&whole).expect("opens")).expect("reads");
    let mut found = 0;
    for at in 0..whole.len() {
        for bit in [0x01, 0x80] {
            let mut damaged = whole.clone();
            damaged[at] ^= bit;
            let result = from_bytes(&damaged).and_then(|mut reader| read_all(&mut reader));
            match result {
                Ok(read) if read == frames => {}
                Ok(_) => found += 1,
                Err(error) => {
                    found += 1;
                    assert!(!error.to_string().is_empty());
                }
            }
        }
    }
    assert!(found > whole.len());
}

fn with_header(edit: impl FnOnce(&mut RecordingHeader), version: u16) -> Vec<u8> {
    let mut header = RecordingHeader {
        abi: infertap_abi::VERSION,
        agent: "9.9.9".into(),
        kernel: "k".into(),
        arch: "a".into(),
        started_monotonic_ns: 0,
        started_unix_ns: 0,
        with_content: false,
    };
    edit(&mut header);
    let mut frames = Vec::new();
    assert!(Frame::Header(header).encode(&mut frames));
    let mut file = preamble().to_vec();
    file[8..10].copy_from_slice(&version.to_le_bytes());
    file.extend(zstd::encode_all(&frames[..], 1).expect("compresses"));
    file
}

#[test]
fn foreign_and_newer_files_are_refused_with_what_to_do() {
    let refuse = |bytes: &[u8]| from_bytes(bytes).expect_err("refused").to_string();
    for foreign in [
        &b""[..],
        b"{\"json\":1}",
        &[0x28, 0xb5, 0x2f, 0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    ] {
        assert_eq!(
            refuse(foreign),
            "test is not an infertap recording: make one with `infertap record FILE`"
        );
    }
    assert_eq!(
        refuse(&with_header(|_| {}, 2)),
        "test has recording format 2, and this infertap reads up to format 1: replay it with the infertap that made \
         it, or a newer one"
    );
    let other = infertap_abi::VERSION + 1;
    assert!(refuse(&with_header(|h| h.abi = other, 1)).ends_with("replay it with infertap 9.9.9"));
}

#[test]
fn hostile_lengths_and_windows_take_no_memory() {
    let mut file = preamble().to_vec();
    file.extend(zstd::encode_all(&[1, 0xff, 0xff, 0xff, 0xff][..], 1).expect("compresses"));
    assert!(matches!(from_bytes(&file), Err(RecordingError::Damaged { .. })));

    let mut encoder = zstd::stream::write::Encoder::new(preamble().to_vec(), 1).expect("encoder");
    encoder.window_log(27).expect("accepted");
    encoder.long_distance_matching(true).expect("accepted");
    std::io::Write::write_all(&mut encoder, &[1, 0, 0, 0, 0]).expect("writes");
    let file = encoder.finish().expect("finishes");
    assert!(matches!(from_bytes(&file), Err(RecordingError::Damaged { .. })));
}

#[test]
fn a_recording_without_requests_replays_to_none_and_says_what_it_lost() {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("a.infertap");
    write(&path);
    let (mut out, mut notes) = (Vec::new(), Vec::new());
    let command = ReplayCommand {
        file: path,
        output: ReplayOutput::Json,
        ..ReplayCommand::default()
    };
    replay_command(&command, &mut out, &mut notes).expect("replays");
    assert_eq!(String::from_utf8(out).expect("text"), "");
    let notes = String::from_utf8(notes).expect("text");
    assert!(notes.contains("requests: 0"), "{notes}");
    assert!(
        notes.contains("warning: 4 events were dropped before the recorder (ring_full)"),
        "{notes}"
    );
}

#[test]
fn readings_of_memory_survive_their_bytes_and_older_readers_skip_them() {
    let frame = Frame::Memory {
        at: 10,
        reading: Arc::new(MemoryReading {
            engine: "vllm-8000".into(),
            cgroups: vec![CgroupReading {
                path: "/system.slice/vllm.service".into(),
                version: CgroupVersion::V2,
                own: true,
                current: Some(1 << 40),
                max: None,
                high: None,
                swap: Some(0),
                events: MemoryEvents {
                    oom_kill: Some(1),
                    ..MemoryEvents::default()
                },
                stalls: None,
            }],
            host: Some(StallTotals {
                some_us: 3,
                full_us: 2,
            }),
        }),
    };
    let mut bytes = Vec::new();
    assert!(frame.encode(&mut bytes));
    assert!(bytes[0] >= format::SKIPPABLE);
    let (kind, payload) = (bytes[0], &bytes[format::FRAME_HEAD_LEN..]);
    assert_eq!(Frame::decode(kind, payload), Ok(Some(frame)));
    assert!(Frame::decode(kind, b"{}").is_err());
}

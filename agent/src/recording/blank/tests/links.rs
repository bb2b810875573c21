//! Properties of blanking what vLLM's processes say to each other: no length changes, the core reads the same facts, and
//! what is written does not depend on content, for every layout, however the bytes are split.
//!
//! Messages are made from the layouts; wherever no fact stands there is a random value, whose bytes are chosen by a salt.

use super::*;
use infertap_core::engine::vllm::{OUTPUTS, REQUESTS, Request, Step, VllmReader};
use infertap_core::wire::zmtp::{SIGNATURE, ZmtpDecoder, ZmtpEvent};

mod messages;
use messages::*;

fn engine(version: Option<&str>) -> Arc<EngineInfo> {
    Arc::new(EngineInfo {
        id: "vllm-8000".into(),
        kind: EngineKind::Vllm,
        model: None,
        version: version.map(Into::into),
        pid: 42,
        pids: vec![42],
        ports: vec![8000],
        container: None,
        pod_uid: None,
    })
}

/// A direction's bytes from `skip` on, in records of these sizes; of each so many of ten parts were captured.
fn cut(bytes: &[u8], outputs: bool, skip: usize, sizes: &[(usize, usize)]) -> Vec<Vec<u8>> {
    let direction = if outputs { Direction::In } else { Direction::Out };
    let flags = if skip > 0 { record_flag::LATE } else { 0 };
    let mut rest = &bytes[skip.min(bytes.len())..];
    let (mut offset, mut sizes) = (0, sizes.iter().cycle());
    let mut out = Vec::new();
    while !rest.is_empty() {
        let (size, tenths) = sizes.next().expect("endless");
        let (piece, after) = rest.split_at((*size).min(rest.len()));
        let captured = &piece[..piece.len() * tenths / 10];
        let mut record = record(direction, Role::Accepted, flags, offset, piece.len(), captured);
        let mut header = RecordHeader::read(&record).expect("whole");
        header.tgid = 42;
        header.transport = Transport::Unix as u8;
        record[..HEADER_LEN].copy_from_slice(&header.to_bytes());
        out.push(record);
        offset += piece.len();
        rest = after;
    }
    out
}

fn blanked_for(records: &[Vec<u8>], version: Option<&str>) -> Vec<Vec<u8>> {
    let mut blanker = Blanker::new();
    blanker.engine_up(engine(version));
    records
        .iter()
        .map(|record| {
            let mut record = record.clone();
            blanker.blank(&mut record);
            record
        })
        .collect()
}

/// What the core reads, but for what stopped a request.
fn facts(records: &[Vec<u8>], outputs: bool, skip: usize, release: &str) -> Vec<String> {
    let mut decoder = ZmtpDecoder::new(if outputs { OUTPUTS } else { REQUESTS });
    if skip > 0 {
        decoder.resync();
    }
    let reader = VllmReader::new(Some(release));
    let mut told = Vec::new();
    for record in records {
        let header = RecordHeader::read(record).expect("whole");
        let missing = u64::from(header.len - header.captured);
        let mut sink = |event: ZmtpEvent<'_>| {
            let ZmtpEvent::Message(message) = event else {
                return;
            };
            told.push(if outputs {
                reader.step(message).map(|mut step: Step<'_>| {
                    step.outputs.iter_mut().for_each(|output| output.stop = None);
                    format!("{step:?}")
                })
            } else {
                reader
                    .request(message)
                    .map(|request: Request<'_>| format!("{request:?}"))
            });
        };
        decoder.push(&record[HEADER_LEN..], &mut sink);
        decoder.gap(missing, &mut sink);
    }
    told.into_iter()
        .map(|told| told.unwrap_or_else(|error| error.to_string()))
        .collect()
}

fn salted(talk: &Talk, salt: u8) -> Talk {
    Talk { salt, ..talk.clone() }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn the_same_facts_are_read_and_content_leaves_no_trace(
        talk in talks(), outputs in any::<bool>(),
        sizes in proptest::collection::vec(prop_oneof![1usize..40, 100usize..9000], 1..6),
    ) {
        let sizes: Vec<(usize, usize)> = sizes.into_iter().map(|size| (size, 10)).collect();
        let before = cut(&talk.stream(outputs), outputs, 0, &sizes);
        let after = blanked_for(&before, Some(&talk.release));
        prop_assert!(before.iter().zip(&after).all(|(b, a)| b.len() == a.len() && b[..HEADER_LEN] == a[..HEADER_LEN]));
        let told = facts(&after, outputs, 0, &talk.release);
        prop_assert_eq!(told.len(), talk.messages);
        prop_assert_eq!(&told, &facts(&before, outputs, 0, &talk.release));
        prop_assert!(told.iter().all(|fact| fact.contains("chatcmpl-")), "{told:?}");
        for salt in [2, 7] {
            let other = cut(&salted(&talk, salt).stream(outputs), outputs, 0, &sizes);
            prop_assert_ne!(&other, &before);
            prop_assert_eq!(&blanked_for(&other, Some(&talk.release)), &after);
        }
    }

    #[test]
    fn joined_late_and_with_holes_no_fact_is_made_up(
        talk in talks(), outputs in any::<bool>(), skip in 0usize..2000,
        sizes in proptest::collection::vec((1usize..3000, 0usize..=10), 1..6),
    ) {
        let before = cut(&talk.stream(outputs), outputs, skip, &sizes);
        let after = blanked_for(&before, Some(&talk.release));
        let known = facts(&before, outputs, skip, &talk.release);
        for fact in facts(&after, outputs, skip, &talk.release) {
            prop_assert!(!fact.contains("chatcmpl-") || known.contains(&fact), "{fact}");
        }
        let other = cut(&salted(&talk, 2).stream(outputs), outputs, skip, &sizes);
        prop_assert_eq!(blanked_for(&other, Some(&talk.release)), after);
    }

    #[test]
    fn of_an_unknown_layout_nothing_passes(talk in talks(), outputs in any::<bool>(), size in 1usize..4000) {
        let records = cut(&talk.stream(outputs), outputs, 0, &[(size, 10)]);
        for version in [None, Some("0.7.0"), Some("dev")] {
            // The nearest layout of a release that is older than all is the oldest.
            if version.is_some() && talk.release == "0.8.5" {
                continue;
            }
            let after: Vec<u8> =
                blanked_for(&records, version).iter().flat_map(|r| r[HEADER_LEN..].to_vec()).collect();
            let abort = !outputs && talk.messages > 2;
            prop_assert!(abort || memchr::memmem::find(&after, b"chatcmpl-").is_none());
            prop_assert!(memchr::memmem::find(&after, b"max_tokens").is_none());
        }
    }

    #[test]
    fn any_bytes_in_a_body_are_blanked_in_place(
        mut body in proptest::collection::vec(any::<u8>(), 0..400), outputs in any::<bool>(), size in 1usize..200,
        release in prop::sample::select(releases()),
    ) {
        let mut bytes = Talk { release: release.clone(), tokens: Vec::new(), content: Vec::new(), messages: 0, salt: 0 }
            .stream(outputs);
        if let Some(first) = body.first_mut() {
            *first = 0x90 | (*first & 0x0f);
        }
        if !outputs {
            frame(1, &[0], &mut bytes);
        }
        frame(0, &body, &mut bytes);
        let before = cut(&bytes, outputs, 0, &[(size, 10)]);
        let after = blanked_for(&before, Some(&release));
        prop_assert!(before.iter().zip(&after).all(|(b, a)| b.len() == a.len()));
        for fact in facts(&after, outputs, 0, &release) {
            prop_assert!(!fact.starts_with("Added") || facts(&before, outputs, 0, &release).contains(&fact));
        }
    }
}

#[test]
fn what_released_classes_and_libzmq_made_keeps_its_facts_and_loses_its_text() {
    let streams: Value =
        serde_json::from_str(include_str!("../../../../core/testdata/vllm/streams.json")).expect("valid");
    for stream in streams.as_array().expect("two") {
        let outputs = stream["name"] == "outputs";
        let hex = stream[stream["side"].as_str().expect("text")]
            .as_str()
            .expect("hex");
        let bytes: Vec<u8> = (0..hex.len() / 2)
            .map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).expect("hex"))
            .collect();
        for size in [1, 7, 8192] {
            let before = cut(&bytes, outputs, 0, &[(size, 10)]);
            let after = blanked_for(&before, Some("0.32.0+cpu"));
            assert_eq!(
                facts(&after, outputs, 0, "0.32.0"),
                facts(&before, outputs, 0, "0.32.0")
            );
            let after: Vec<u8> = after.iter().flat_map(|r| r[HEADER_LEN..].to_vec()).collect();
            // Token ids of the prompt, a stop string, an adapter, a cache salt.
            for needle in [
                &b"\xcd\x0f\xfd"[..],
                b"\xce\x00\x01\x11\x70",
                b"END",
                b"sql",
                b"adapters",
                b"salt",
            ] {
                assert_eq!(memchr::memmem::find(&after, needle), None, "{needle:?}");
            }
        }
    }
}

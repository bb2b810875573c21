//! Properties of blanking what vLLM's processes say to each other: no length changes, the core reads the same facts, and
//! what is written does not depend on content, for every layout, however the bytes are split.
//!
//! Messages are made from the layouts; wherever no fact stands there is a random value, whose bytes are chosen by a salt.

use super::*;
use infertap_core::engine::vllm::{OUTPUTS, REQUESTS, Request, Step, VllmReader};
use infertap_core::wire::zmtp::{SIGNATURE, ZmtpDecoder, ZmtpEvent};

/// A value without its bytes.
#[derive(Debug, Clone)]
enum Shape {
    /// Of so many bytes behind its marker: 0, 1, 2, 4, 8.
    Int(u8),
    Negative,
    Float,
    Bool,
    Nil,
    Str(usize),
    Bin(usize),
    Ext(usize),
    Array(Vec<Shape>),
    Map(Vec<(Shape, Shape)>),
}

fn shapes() -> impl Strategy<Value = Shape> {
    let leaf = prop_oneof![
        prop::sample::select(vec![0, 1, 2, 4, 8]).prop_map(Shape::Int),
        Just(Shape::Negative),
        Just(Shape::Float),
        Just(Shape::Bool),
        Just(Shape::Nil),
        prop_oneof![0usize..40, 250usize..300].prop_map(Shape::Str),
        (0usize..300).prop_map(Shape::Bin),
        (0usize..40).prop_map(Shape::Ext),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Shape::Array),
            proptest::collection::vec((inner.clone(), inner), 0..3).prop_map(Shape::Map),
        ]
    })
}

impl Shape {
    fn write(&self, salt: u8, out: &mut Vec<u8>) {
        match self {
            Shape::Int(0) => out.push(17 + salt),
            Shape::Int(width) => {
                out.push(0xcc + width.ilog2() as u8);
                out.extend((0..*width).map(|i| 33 + salt + i));
            }
            Shape::Negative => out.push(0xe3 + salt),
            Shape::Float => {
                out.push(0xcb);
                out.extend([60 + salt; 8]);
            }
            Shape::Bool => out.push(0xc2 + salt % 2),
            Shape::Nil => out.push(0xc0),
            Shape::Str(len) => {
                header(0xd9, *len, out);
                // Upper case: no name that is listed begins like this.
                out.extend((0..*len).map(|i| b'A' + (salt + (i % 7) as u8) % 26));
            }
            Shape::Bin(len) => {
                header(0xc4, *len, out);
                // What looks like frames would be taken for some after a hole.
                out.extend(vec![0x60 + salt; *len]);
            }
            Shape::Ext(len) => {
                out.extend([0xc7, *len as u8, 3 + salt]);
                out.extend(vec![0x60 + salt; *len]);
            }
            Shape::Array(items) => {
                out.extend([0xdc, 0, items.len() as u8]);
                for item in items {
                    item.write(salt, out);
                }
            }
            Shape::Map(pairs) => {
                out.push(0x80 + pairs.len() as u8);
                for (key, value) in pairs {
                    key.write(salt, out);
                    value.write(salt, out);
                }
            }
        }
    }
}

/// A length with the smallest width that holds it.
fn header(marker: u8, len: usize, out: &mut Vec<u8>) {
    match u8::try_from(len) {
        Ok(len) => out.extend([marker, len]),
        Err(_) => out.extend([marker + 1, (len >> 8) as u8, len as u8]),
    }
}

fn str(text: &str, out: &mut Vec<u8>) {
    header(0xd9, text.len(), out);
    out.extend(text.bytes());
}

fn float(value: f64, out: &mut Vec<u8>) {
    out.push(0xcb);
    out.extend(value.to_be_bytes());
}

/// Fields of a struct in the release that has this row.
fn rows(of: &str) -> Vec<(String, Vec<String>)> {
    let file: Value =
        serde_json::from_str(include_str!("../../../../core/src/engine/vllm/layouts.json")).expect("valid");
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    file[of]
        .as_array()
        .expect("rows")
        .iter()
        .map(|row| {
            let fields = row["fields"].as_array().expect("fields");
            (text(&row["from"]), fields.iter().map(text).collect())
        })
        .collect()
}

/// The layout that a release has.
fn layout(of: &str, release: &str) -> Vec<String> {
    let key =
        |version: &str| -> Vec<u32> { version.split('.').map(|n| n.parse().expect("a number")).collect() };
    let mut rows = rows(of);
    rows.retain(|(from, _)| key(from) <= key(release));
    rows.pop().expect("as old as that").1
}

/// Releases that begin a layout.
fn releases() -> Vec<String> {
    let mut all: Vec<String> = ["EngineCoreRequest", "EngineCoreOutput", "EngineCoreOutputs"]
        .iter()
        .flat_map(|of| rows(of))
        .map(|(from, _)| from)
        .collect();
    all.sort();
    all.dedup();
    all
}

/// What a conversation is made of; the salt chooses the bytes of all that is no fact.
#[derive(Debug, Clone)]
struct Talk {
    release: String,
    tokens: Vec<Shape>,
    content: Vec<Shape>,
    messages: usize,
    salt: u8,
}

impl Talk {
    fn content(&self, at: usize, out: &mut Vec<u8>) {
        self.content[at % self.content.len()].write(self.salt, out);
    }

    /// A struct as an array of this layout.
    fn structure(&self, of: &str, number: usize, out: &mut Vec<u8>) {
        let fields = layout(of, &self.release);
        out.extend([0xdc, 0, fields.len() as u8]);
        for (at, field) in fields.iter().enumerate() {
            self.field(field, number, at + number, out);
        }
    }

    fn field(&self, name: &str, number: usize, at: usize, out: &mut Vec<u8>) {
        let salt = self.salt;
        match name {
            "request_id" => str(&format!("chatcmpl-{number:x}-0a1b2c3d"), out),
            "external_req_id" => str(&format!("chatcmpl-{number:x}"), out),
            "prompt_token_ids" | "new_token_ids" => Shape::Array(self.tokens.clone()).write(salt, out),
            "arrival_time" | "timestamp" => float(1e5 + number as f64, out),
            "sampling_params" => {
                out.push(0x83);
                str("max_tokens", out);
                out.push(32 + number as u8);
                str("stop", out);
                self.content(at, out);
                Shape::Str(9).write(salt, out);
                self.content(at + 1, out);
            }
            "finish_reason" => out.push((number % 4) as u8),
            "stop_reason" => Shape::Str(5).write(salt, out),
            "events" => {
                out.push(0x92);
                for kind in [1, 2] {
                    out.push(0x82);
                    str("type", out);
                    out.push(kind);
                    str("timestamp", out);
                    float(9e4 + number as f64, out);
                }
            }
            "prefill_stats" => {
                out.push(0x82);
                str("num_prompt_tokens", out);
                out.extend([0xcc, 200]);
                str("num_cached_tokens", out);
                out.push(48);
            }
            "scheduler_stats" => {
                out.push(0x85);
                str("num_running_reqs", out);
                out.push(3);
                str("num_waiting_reqs", out);
                out.push(4);
                str("kv_cache_usage", out);
                float(0.25, out);
                str("waiting_lora_adapters", out);
                Shape::Map(vec![(Shape::Str(7), Shape::Int(0))]).write(salt, out);
                str("prefix_cache_stats", out);
                out.push(0x82);
                str("queries", out);
                out.extend([0xcc, 200]);
                str("hits", out);
                out.push(48);
            }
            "outputs" => {
                out.push(0x92);
                self.structure("EngineCoreOutput", number, out);
                self.structure("EngineCoreOutput", number + 1, out);
            }
            "engine_index"
            | "client_index"
            | "current_wave"
            | "priority"
            | "num_cached_tokens"
            | "num_external_computed_tokens"
            | "num_nans_in_logits"
            | "eos_token_id"
            | "data_parallel_rank"
            | "wave_complete"
            | "start_wave" => out.push(2),
            "resumable" | "abort_immediately" | "reasoning_ended" => out.push(0xc3),
            "cache_salt" | "session_id" | "weight_version" => Shape::Str(11).write(salt, out),
            "trace_headers" | "reasoning_parser_kwargs" | "kv_transfer_params" | "ec_transfer_params" => {
                Shape::Map(vec![(Shape::Str(11), Shape::Str(5))]).write(salt, out);
            }
            _ => {
                out.push(0x92);
                self.content(at, out);
                self.content(at + 2, out);
            }
        }
    }

    /// What one direction carries.
    fn stream(&self, outputs: bool) -> Vec<u8> {
        let mut out = SIGNATURE.to_vec();
        out.extend([3, 1]);
        out.extend(b"NULL");
        out.resize(64, 0);
        frame(4, b"\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER", &mut out);
        for number in 0..self.messages {
            let mut body = Vec::new();
            if outputs {
                self.structure("EngineCoreOutputs", number, &mut body);
                frame(1, &body, &mut out);
                frame(0, &vec![0x60 + self.salt; 300], &mut out);
            } else if number % 3 == 2 {
                body.push(0x91);
                str(&format!("chatcmpl-{number:x}-0a1b2c3d"), &mut body);
                frame(1, &[1], &mut out);
                frame(0, &body, &mut out);
            } else {
                self.structure("EngineCoreRequest", number, &mut body);
                frame(1, &[0], &mut out);
                frame(0, &body, &mut out);
            }
        }
        out
    }
}

fn frame(flags: u8, body: &[u8], out: &mut Vec<u8>) {
    if let Ok(len) = u8::try_from(body.len()) {
        out.extend([flags, len]);
    } else {
        out.push(flags | 2);
        out.extend((body.len() as u64).to_be_bytes());
    }
    out.extend_from_slice(body);
}

fn talks() -> impl Strategy<Value = Talk> {
    (
        prop::sample::select(releases()),
        proptest::collection::vec(
            prop::sample::select(vec![Shape::Int(0), Shape::Int(1), Shape::Int(2), Shape::Int(4)]),
            1..200,
        ),
        proptest::collection::vec(shapes(), 1..6),
        1usize..5,
    )
        .prop_map(|(release, tokens, content, messages)| Talk {
            release,
            tokens,
            content,
            messages,
            salt: 1,
        })
}

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

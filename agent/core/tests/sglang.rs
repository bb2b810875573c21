//! An SGLang engine from the inside: what libzmq put on its sockets, joined with the HTTP that its server spoke.

mod support;

use infertap_abi::{Role, Transport};
use infertap_core::{
    EngineInfo, EngineKind, Event, EventKind, Observation, Pipeline, PipelineConfig, RequestRecord, Source,
};
use std::sync::Arc;
use support::*;

/// The response that `streams.json` is about.
const ID: &str = "1f0c7d5a9b8e4c62a1b2c3d4e5f60718";

/// What the process that binds reads and writes, for requests and for outputs.
fn streams(encoding: &str) -> [(Vec<u8>, Vec<u8>); 2] {
    let parsed: serde_json::Value =
        serde_json::from_str(include_str!("../testdata/sglang/streams.json")).expect("valid fixtures");
    let bytes = |name: &str, side: &str| {
        let rows = parsed.as_array().expect("rows");
        let row = rows
            .iter()
            .find(|row| row["name"] == name && row["encoding"] == encoding);
        let hex = row.expect("a row")[side].as_str().expect("hex");
        (0..hex.len() / 2)
            .map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).expect("hex"))
            .collect()
    };
    ["requests", "outputs"].map(|name| (bytes(name, "in"), bytes(name, "out")))
}

fn known() -> Pipeline {
    let mut pipeline = Pipeline::new(PipelineConfig::default());
    let info = EngineInfo {
        kind: EngineKind::Sglang,
        ..EngineInfo::clone(&engine(Some("m")))
    };
    pipeline.handle(
        Event {
            at: 0,
            kind: EventKind::EngineUp(Arc::new(info)),
        },
        &mut Vec::new(),
    );
    pipeline
}

fn unix(conn: u64, late: bool) -> Wire {
    let mut socket = socket(conn, Role::Accepted, late);
    socket.transport = Transport::Unix;
    Wire::new(socket)
}

fn pieces(bytes: &[u8], size: usize, at: u64, step: fn(Vec<u8>) -> Step) -> Vec<Row> {
    bytes
        .chunks(size)
        .map(|piece| (at, step(piece.to_vec())))
        .collect()
}

fn document(completion: u64, choices: &str) -> Step {
    let body = format!(
        r#"{{"id":"{ID}","object":"chat.completion","model":"m","choices":[{choices}],"usage":{{"prompt_tokens":54,"completion_tokens":{completion},"total_tokens":{}}}}}"#,
        54 + completion
    );
    Out(json("200 OK", &body))
}

/// Engine times of the fixtures: queued 100.5 s, scheduled 100.75 s, first token 101 s. The milliseconds of a table begin
/// at one second.
fn converse(encoding: &str, size: usize, skip: usize, answer: Vec<Row>) -> Vec<Observation> {
    let mut pipeline = known();
    let [requests_bytes, outputs_bytes] = streams(encoding);
    let late = skip > 0;
    let mut http = Wire::new(socket(7, Role::Accepted, false));
    let (mut requests, mut outputs) = (unix(8, late), unix(9, late));
    let from = |bytes: &[u8]| bytes[skip.min(bytes.len())..].to_vec();
    let mut out = Vec::new();
    let mut play = |wire: &mut Wire, rows: Vec<Row>| out.extend(play_on(&mut pipeline, wire, &rows));
    play(&mut requests, pieces(&from(&requests_bytes.0), size, 50_000, In));
    play(&mut outputs, pieces(&from(&outputs_bytes.1), size, 50_000, Out));
    play(&mut http, vec![(99_400, In(ask()))]);
    play(&mut requests, pieces(&from(&requests_bytes.1), size, 99_450, Out));
    play(&mut outputs, pieces(&from(&outputs_bytes.0), size, 101_500, In));
    play(&mut http, answer);
    check_pairing(&out);
    out
}

const CHOICE: &str = r#"{"index":0,"message":{"role":"assistant","content":"ab"},"finish_reason":"length"}"#;

fn only(out: &[Observation]) -> &RequestRecord {
    let records = records(out);
    assert_eq!(records.len(), 1, "{}", render(out));
    records[0]
}

fn messages_understood(out: &[Observation]) -> Vec<bool> {
    out.iter()
        .filter_map(|o| match o {
            Observation::EngineMessages { understood, .. } => Some(*understood),
            _ => None,
        })
        .collect()
}

#[test]
fn the_engine_tells_queue_prefill_decode_and_tokens() {
    for encoding in ["pickle", "msgpack"] {
        for size in [7, 100, 8192] {
            let out = converse(encoding, size, 0, vec![(101_600, document(2, CHOICE))]);
            let record = only(&out);
            assert_eq!(
                [record.t0_ns, record.t1_ns, record.t2_ns, record.t3_ns],
                [100_400_000_000, 100_750_000_000, 101_000_000_000, 102_500_000_000].map(Some),
                "{encoding}"
            );
            assert_eq!(
                [record.queue_s, record.prefill_s, record.decode_s, record.ttft_s],
                [0.35, 0.25, 1.5, 0.6].map(Some)
            );
            assert_eq!(
                [
                    record.input_tokens,
                    record.output_tokens,
                    record.cached_input_tokens,
                    record.reasoning_tokens
                ],
                [54, 2, 48, 1].map(Some)
            );
            let sources = record.sources;
            assert_eq!(
                [
                    sources.t1,
                    sources.t2,
                    sources.t3,
                    sources.input_tokens,
                    sources.output_tokens
                ],
                [Some(Source::Engine); 5]
            );
            assert_eq!(messages_understood(&out), [true]);
        }
    }
}

#[test]
fn connections_that_were_open_before_are_joined() {
    for encoding in ["pickle", "msgpack"] {
        // Past the greeting and into the first message of the outputs; the request's is seen whole.
        let out = converse(encoding, 300, 64, vec![(101_600, document(2, CHOICE))]);
        let record = only(&out);
        assert_eq!(
            (record.output_tokens, record.sources.output_tokens),
            (Some(2), Some(Source::Engine)),
            "{encoding}"
        );
        assert_eq!(messages_understood(&out), [true]);
    }
}

#[test]
fn one_of_several_choices_is_not_taken_for_all() {
    let two = format!("{CHOICE},{}", CHOICE.replace("\"index\":0", "\"index\":1"));
    let out = converse("pickle", 8192, 0, vec![(101_600, document(5, &two))]);
    let record = only(&out);
    assert_eq!((record.t1_ns, record.queue_s), (None, None));
    assert_eq!(
        (record.output_tokens, record.sources.output_tokens),
        (Some(5), Some(Source::Usage))
    );
}

#[test]
fn what_is_no_message_steps_down_and_is_said() {
    let mut pipeline = known();
    let [requests, _] = streams("pickle");
    let mut link = unix(8, false);
    let mut bytes = requests.1[..64].to_vec();
    bytes.extend_from_slice(b"\x00\x05\x80\x05N.x");
    let out = play_on(&mut pipeline, &mut link, &[(1, Out(bytes))]);
    assert_eq!(messages_understood(&out), [false]);
    assert!(
        render(&out).contains("anomaly engine_message"),
        "{}",
        render(&out)
    );
}

//! What libzmq put on a vLLM engine's sockets, and the HTTP that its API server spoke meanwhile.
#![allow(unreachable_pub)]

use crate::support::*;
use infertap_abi::{Role, Transport};
use infertap_core::{EngineInfo, Event, EventKind, Observation, Pipeline, PipelineConfig, RequestRecord};
use std::sync::Arc;

/// The response that `streams.json` is about.
pub const ID: &str = "chatcmpl-1f0c7d5a9b8e4c62";

pub struct Streams {
    /// What the API server reads and writes on its request socket.
    pub requests: (Vec<u8>, Vec<u8>),
    /// What it reads and writes on its output socket.
    pub outputs: (Vec<u8>, Vec<u8>),
}

pub fn streams() -> Streams {
    let parsed: serde_json::Value =
        serde_json::from_str(include_str!("../../testdata/vllm/streams.json")).expect("valid fixtures");
    let bytes = |at: usize, side: &str| {
        let hex = parsed[at][side].as_str().expect("hex");
        (0..hex.len() / 2)
            .map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).expect("hex"))
            .collect()
    };
    Streams {
        requests: (bytes(0, "in"), bytes(0, "out")),
        outputs: (bytes(1, "in"), bytes(1, "out")),
    }
}

pub fn known(version: &str) -> Pipeline {
    let mut pipeline = Pipeline::new(PipelineConfig::default());
    let info = EngineInfo {
        version: Some(version.into()),
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

pub fn unix(conn: u64, late: bool) -> Wire {
    let mut socket = socket(conn, Role::Accepted, late);
    socket.transport = Transport::Unix;
    Wire::new(socket)
}

/// In pieces as libzmq's I/O thread makes them, and smaller ones.
pub fn pieces(bytes: &[u8], size: usize, at: u64, step: fn(Vec<u8>) -> Step) -> Vec<Row> {
    bytes
        .chunks(size)
        .map(|piece| (at, step(piece.to_vec())))
        .collect()
}

/// Engine times of the fixtures: queued 100.5 s, scheduled 100.75 s, first token 101 s, last 102.5 s. The milliseconds
/// of a table begin at one second.
pub fn converse(pipeline: &mut Pipeline, streamed: bool, size: usize, skip: usize) -> Vec<Observation> {
    let streams = streams();
    let late = skip > 0;
    let mut http = Wire::new(socket(7, Role::Accepted, false));
    let (mut requests, mut outputs) = (unix(8, late), unix(9, late));
    let from = |bytes: &[u8]| bytes[skip.min(bytes.len())..].to_vec();
    let mut out = Vec::new();
    let mut play = |wire: &mut Wire, rows: Vec<Row>| out.extend(play_on(pipeline, wire, &rows));

    play(
        &mut requests,
        pieces(&from(&streams.requests.0), size, 50_000, In),
    );
    play(&mut outputs, pieces(&from(&streams.outputs.1), size, 50_000, Out));
    play(&mut http, vec![(99_400, In(ask()))]);
    play(
        &mut requests,
        pieces(&from(&streams.requests.1), size, 99_450, Out),
    );
    play(&mut outputs, pieces(&from(&streams.outputs.0), size, 101_600, In));
    let rows = if streamed {
        let token = |content: &str, finish: &str| {
            event(&format!(
                r#"{{"id":"{ID}","object":"chat.completion.chunk","created":1,"model":"m","choices":[{{"index":0,"delta":{{"content":"{content}"}},"finish_reason":{finish}}}]}}"#
            ))
        };
        vec![
            (100_100, Out(stream_head())),
            (100_101, Out(token("a", "null"))),
            (101_600, Out(token("b", "\"length\""))),
            (101_601, Out(chunk("data: [DONE]\n\n"))),
            (101_602, Out(text("0\r\n\r\n"))),
        ]
    } else {
        let body = format!(
            r#"{{"id":"{ID}","object":"chat.completion","model":"m","choices":[{{"index":0,"message":{{"role":"assistant","content":"ab"}},"finish_reason":"length"}}],"usage":{{"prompt_tokens":54,"completion_tokens":2,"total_tokens":56}}}}"#
        );
        vec![(101_600, Out(json("200 OK", &body)))]
    };
    play(&mut http, rows);
    check_pairing(&out);
    out
}

pub fn only(out: &[Observation]) -> &RequestRecord {
    let records = records(out);
    assert_eq!(records.len(), 1, "{}", render(out));
    records[0]
}

pub fn messages_understood(out: &[Observation]) -> Vec<bool> {
    out.iter()
        .filter_map(|o| match o {
            Observation::EngineMessages { understood, .. } => Some(*understood),
            _ => None,
        })
        .collect()
}

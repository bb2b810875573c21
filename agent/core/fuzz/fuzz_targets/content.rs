//! What requests and answers say: any split gives the same transcript, its texts are what a plain reading of the JSON finds,
//! what is redacted is that text redacted, limits hold, and hashes keep no text.
//!
//! An input is two bytes of options, a request's body, `\0A`, and the response's.
#![no_main]

use infertap_abi::{Direction, Role, Transport};
use infertap_core::content::{
    ContentRules, HashKey, Heard, Keep, Mode, PartKind, Side, Transcript, transcript,
};
use infertap_core::event::{Closed, ConnId, Event, EventKind, Socket};
use infertap_core::protocol::{PROTOCOLS, Protocol, SaidKind};
use infertap_core::redact::{Counts, Redactor};
use infertap_core::wire::sse::SseEvent;
use infertap_core::{EngineInfo, EngineKind, Observation, Pipeline, PipelineConfig};
use infertap_core_fuzz::{Op, options, split, whole};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use std::sync::{Arc, LazyLock};

static REDACTOR: LazyLock<Redactor> = LazyLock::new(Redactor::default);
const PATHS: [&str; 2] = ["/v1/chat/completions", "/v1/completions"];
const ALL: Keep = Keep {
    mode: Mode::Full,
    max_bytes: usize::MAX,
};
const SOCKET: Socket = Socket {
    conn: ConnId(1),
    tgid: 100,
    tid: 100,
    fd: 7,
    transport: Transport::Tcp,
    role: Role::Accepted,
    late: false,
};

/// One connection of an engine, from which pieces are read and to which they are written.
struct Wire {
    pipeline: Pipeline,
    out: Vec<Observation>,
    at: u64,
    offsets: [u64; 2],
}

impl Wire {
    fn new() -> Wire {
        let rules = ContentRules {
            scenes: Vec::new(),
            others: ALL,
        };
        let mut wire = Wire {
            pipeline: Pipeline::new(PipelineConfig {
                content: Arc::new(rules),
                ..PipelineConfig::default()
            }),
            out: Vec::new(),
            at: 0,
            offsets: [0; 2],
        };
        let info = EngineInfo {
            id: "generic-1".into(),
            kind: EngineKind::Generic,
            model: None,
            version: None,
            pid: SOCKET.tgid,
            pids: vec![SOCKET.tgid],
            ports: vec![1],
            container: None,
            pod_uid: None,
        };
        wire.handle(EventKind::EngineUp(Arc::new(info)));
        wire.handle(EventKind::Open(SOCKET));
        wire
    }

    fn handle(&mut self, kind: EventKind<'_>) {
        self.at += 1000;
        self.pipeline.handle(Event { at: self.at, kind }, &mut self.out);
    }

    fn say(&mut self, direction: Direction, ops: &[Op<'_>]) {
        let way = usize::from(direction == Direction::Out);
        for op in ops {
            match *op {
                Op::Gap(len) => self.offsets[way] += len,
                Op::Feed(bytes) => {
                    let offset = self.offsets[way];
                    self.offsets[way] += bytes.len() as u64;
                    self.handle(EventKind::Data {
                        socket: SOCKET,
                        direction,
                        offset,
                        len: bytes.len() as u32,
                        bytes,
                        arrived: None,
                        dur_ns: 0,
                        blocked: false,
                    });
                }
            }
        }
    }
}

/// What was heard of one request, read in these pieces.
fn heard(path: &str, streamed: bool, asked: &[Op<'_>], answered: &[Op<'_>]) -> Option<Arc<Heard>> {
    let length = |ops: &[Op<'_>]| -> u64 {
        let of = |op: &Op<'_>| match *op {
            Op::Feed(bytes) => bytes.len() as u64,
            Op::Gap(len) => len,
        };
        ops.iter().map(of).sum()
    };
    let head = format!(
        "POST {path} HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        length(asked)
    );
    let kind = if streamed {
        "text/event-stream"
    } else {
        "application/json"
    };
    // To the end of the connection.
    let status = format!("HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\n\r\n");
    let mut wire = Wire::new();
    wire.say(Direction::In, &[Op::Feed(head.as_bytes())]);
    wire.say(Direction::In, asked);
    wire.say(Direction::Out, &[Op::Feed(status.as_bytes())]);
    wire.say(Direction::Out, answered);
    let [bytes_in, bytes_out] = wire.offsets;
    wire.handle(EventKind::Close(Closed {
        socket: SOCKET,
        bytes_in,
        bytes_out,
        peer_gone: false,
    }));
    wire.pipeline.advance(1 << 60, &mut wire.out);
    let of = |observation| match observation {
        Observation::Finished(finished) => finished.content,
        _ => None,
    };
    let mut all = wire.out.into_iter().filter_map(of);
    let one = all.next();
    assert!(all.next().is_none(), "one request, several contents");
    one
}

fn made(heard: &Heard, keep: Keep) -> Transcript {
    transcript(heard, keep, &REDACTOR, &HashKey([7; 32]))
}

fn json(transcript: &Transcript) -> String {
    serde_json::to_string(transcript).expect("a transcript is JSON")
}

/// Every string of a tree, names too.
fn strings(value: &Value, out: &mut Vec<String>) {
    match value {
        Value::String(text) => out.push(text.clone()),
        Value::Array(all) => all.iter().for_each(|one| strings(one, out)),
        Value::Object(members) => members.iter().for_each(|(name, one)| {
            out.push(name.clone());
            strings(one, out);
        }),
        _ => {}
    }
}

/// Documents: no text that is not in them, and none missing that stands where texts stand.
fn documents(protocol: &dyn Protocol, body: &[u8]) {
    let tree: Option<Value> = serde_json::from_slice(body).ok();
    for (messages, list) in [
        (protocol.prompt(body), "messages"),
        (protocol.answer(body), "choices"),
    ] {
        let (Some(messages), Some(tree)) = (messages, &tree) else {
            continue;
        };
        let mut known = Vec::new();
        strings(tree, &mut known);
        let parts = messages.iter().flat_map(|message| &message.parts);
        for part in parts.clone().filter(|part| part.kind != PartKind::Other) {
            let empty = part.content.is_empty();
            assert!(empty || known.contains(&part.content), "{:?}", part.content);
        }
        let Some(all) = tree.get(list).and_then(Value::as_array) else {
            continue;
        };
        assert_eq!(messages.len(), all.len());
        for (said, message) in all.iter().zip(&messages) {
            let said = if list == "choices" {
                said.get("message").unwrap_or(&Value::Null)
            } else {
                said
            };
            if let Some(text) = said.get("content").and_then(Value::as_str) {
                assert!(message.parts.iter().any(|part| part.content == text), "{text:?}");
            }
        }
    }
}

/// A streamed message: its pieces, by a plain walk over its tree.
fn pieces(tree: &Value) -> Vec<(u32, SaidKind, String)> {
    let mut out = Vec::new();
    let number = |value: &Value| {
        let index = value.get("index").and_then(Value::as_u64);
        index.and_then(|index| u32::try_from(index).ok()).unwrap_or(0)
    };
    let string = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).unwrap_or("").to_owned();
    for choice in tree
        .get("choices")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        let index = number(choice);
        let mut tell = |kind, text: String| {
            if !text.is_empty() {
                out.push((index, kind, text));
            }
        };
        tell(SaidKind::Text, string(choice, "text"));
        let Some(delta) = choice.get("delta") else {
            continue;
        };
        let reasoning = string(delta, "reasoning_content");
        let reasoning = if reasoning.is_empty() {
            string(delta, "reasoning")
        } else {
            reasoning
        };
        tell(SaidKind::Reasoning, reasoning);
        tell(SaidKind::Text, string(delta, "content"));
        tell(SaidKind::Text, string(delta, "refusal"));
        let calls = delta.get("tool_calls").and_then(Value::as_array);
        let mut functions: Vec<(u32, &Value)> = Vec::new();
        for call in calls.into_iter().flatten() {
            let both = ["function", "custom"].into_iter().filter_map(|key| call.get(key));
            functions.extend(both.map(|function| (number(call), function)));
        }
        functions.extend(delta.get("function_call").map(|function| (0, function)));
        for (at, function) in functions {
            tell(SaidKind::CallName(at), string(function, "name"));
            tell(SaidKind::CallArguments(at), string(function, "arguments"));
            tell(SaidKind::CallArguments(at), string(function, "input"));
        }
    }
    out
}

fn streamed(protocol: &dyn Protocol, data: &[u8]) {
    let mut said = Vec::new();
    let understood = protocol.said(SseEvent { name: b"", data }, &mut |piece| {
        assert!(!piece.text.is_empty());
        said.push((piece.choice, piece.kind, piece.text.into_owned()));
    });
    // Arrays that stand for objects, and the like, are the lenient reading's own.
    if understood
        && let Ok(tree) = serde_json::from_slice::<Value>(data)
        && tree.is_object()
        && !nested_arrays(&tree)
    {
        assert_eq!(said, pieces(&tree));
    }
}

/// Where an object is expected an array of its members is taken too.
fn nested_arrays(tree: &Value) -> bool {
    let choices = tree.get("choices").and_then(Value::as_array);
    choices.into_iter().flatten().any(|choice| {
        let delta = choice.get("delta");
        let calls = delta.and_then(|delta| delta.get("tool_calls")?.as_array());
        let function = |of: &Value| {
            ["function", "custom", "function_call"]
                .iter()
                .any(|key| of.get(key).is_some_and(Value::is_array))
        };
        choice.is_array()
            || delta.is_some_and(|delta| delta.is_array() || function(delta))
            || calls
                .into_iter()
                .flatten()
                .any(|call| call.is_array() || function(call))
    })
}

/// What is kept, and what it counts against the limit.
fn cost(side: &Side) -> usize {
    let parts = side.messages.iter().flat_map(|message| &message.parts);
    parts.map(|part| part.content.len() + 32).sum()
}

fn kept(heard: &Heard, max_bytes: usize) {
    let full = made(heard, ALL);
    let redacted = made(
        heard,
        Keep {
            mode: Mode::Redacted,
            ..ALL
        },
    );
    for (full, redacted) in [(&full.input, &redacted.input), (&full.output, &redacted.output)] {
        assert_eq!((full.absent, full.bytes), (redacted.absent, redacted.bytes));
        assert!(!full.truncated || full.messages.iter().any(|message| message.role.len() >= 128 - 3));
        assert_eq!(full.messages.len(), redacted.messages.len());
        for (raw, made) in full.messages.iter().zip(&redacted.messages) {
            assert_eq!(raw.parts.len(), made.parts.len());
            for (raw, made) in raw.parts.iter().zip(&made.parts) {
                let expected = REDACTOR.redact(&raw.content, usize::MAX, &mut Counts::new());
                assert_eq!(*made.content, *expected.text);
                assert!(raw.kind != PartKind::Other || raw.content.is_empty());
            }
        }
    }
    let cut = made(heard, Keep { max_bytes, ..ALL });
    for side in [&cut.input, &cut.output] {
        assert!(cost(side) <= max_bytes, "{} of {max_bytes}", cost(side));
    }
    let hashed = made(
        heard,
        Keep {
            mode: Mode::Hash,
            ..ALL
        },
    );
    for side in [&hashed.input, &hashed.output] {
        assert!(side.messages.is_empty());
        assert!(side.absent.is_none() || side.hash.is_none());
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((flags, seed, stream)) = options(input) else {
        return;
    };
    let at = stream.windows(2).position(|pair| pair == b"\0A");
    let (asked, answered) = at.map_or((stream, &[][..]), |at| (&stream[..at], &stream[at + 2..]));
    let path = PATHS[usize::from(flags & 1)];
    let as_stream = flags & 2 == 0;
    for protocol in PROTOCOLS {
        for body in [asked, answered] {
            documents(*protocol, body);
            streamed(*protocol, body);
        }
    }
    let (asked, answered) = (whole(asked), whole(answered));
    let one = heard(path, as_stream, &asked, &answered);
    let other = heard(path, as_stream, &split(&asked, seed), &split(&answered, seed));
    assert_eq!(one.is_some(), other.is_some());
    if let Some((one, other)) = one.zip(other) {
        for mode in [Mode::Full, Mode::Hash] {
            let keep = Keep { mode, ..ALL };
            assert_eq!(json(&made(&one, keep)), json(&made(&other, keep)));
        }
        kept(&one, usize::from(flags >> 2) * 16);
    }
});

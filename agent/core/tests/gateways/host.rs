//! A host with an engine and a gateway before it.
//!
//! Owns: both sides' connections, what is said on them, and what was told of it. Refuses: expectations.
#![allow(unreachable_pub)]

use crate::support::{check_pairing, engine, json, post, socket};
use infertap_abi::{Direction, Role};
use infertap_core::{
    EngineInfo, EngineKind, Event, EventKind, Observation, Pipeline, PipelineConfig,
    event::{Closed, Socket},
    gateway::{GatewayExchange, Joined},
};
use std::sync::Arc;

pub const GATEWAY: u32 = 700;
pub const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
pub const SPAN: &str = "00f067aa0ba902b7";

/// Both sides of a host, with a clock in milliseconds.
pub struct Host {
    pipeline: Pipeline,
    out: Vec<Observation>,
    wires: Vec<(Socket, [u64; 2])>,
    /// Pieces of so many bytes.
    pub split: usize,
}

impl Host {
    pub fn new() -> Host {
        let mut pipeline = Pipeline::new(PipelineConfig::default());
        let gateway = EngineInfo {
            id: "nginx-8080".into(),
            kind: EngineKind::Gateway,
            pid: GATEWAY,
            pids: vec![GATEWAY],
            ..EngineInfo::clone(&engine(None))
        };
        let mut out = Vec::new();
        for info in [engine(None), Arc::new(gateway)] {
            let kind = EventKind::EngineUp(info);
            pipeline.handle(Event { at: 0, kind }, &mut out);
        }
        Host {
            pipeline,
            out,
            wires: Vec::new(),
            split: usize::MAX,
        }
    }

    /// A connection of the gateway with a client, or of the engine.
    pub fn connect(&mut self, gateway: bool) -> usize {
        let mut socket = socket(self.wires.len() as u64 + 1, Role::Accepted, false);
        if gateway {
            socket.tgid = GATEWAY;
        }
        self.handle(0, EventKind::Open(socket));
        self.wires.push((socket, [0; 2]));
        self.wires.len() - 1
    }

    pub fn handle(&mut self, ms: u64, kind: EventKind<'_>) {
        let at = 1_000_000_000 + ms * 1_000_000;
        self.pipeline.handle(Event { at, kind }, &mut self.out);
    }

    pub fn data(&mut self, ms: u64, wire: usize, direction: Direction, bytes: &[u8]) {
        for piece in bytes.chunks(self.split) {
            let (socket, positions) = &mut self.wires[wire];
            let position = &mut positions[usize::from(direction == Direction::Out)];
            let (socket, offset) = (*socket, *position);
            *position += piece.len() as u64;
            self.handle(
                ms,
                EventKind::Data {
                    socket,
                    direction,
                    offset,
                    len: piece.len() as u32,
                    bytes: piece,
                    arrived: None,
                    dur_ns: 0,
                    blocked: false,
                },
            );
        }
    }

    pub fn read(&mut self, ms: u64, wire: usize, bytes: &[u8]) {
        self.data(ms, wire, Direction::In, bytes);
    }

    pub fn write(&mut self, ms: u64, wire: usize, bytes: &[u8]) {
        self.data(ms, wire, Direction::Out, bytes);
    }

    pub fn close(&mut self, ms: u64, wire: usize, peer_gone: bool) {
        let (socket, [bytes_in, bytes_out]) = self.wires[wire];
        self.handle(
            ms,
            EventKind::Close(Closed {
                socket,
                bytes_in,
                bytes_out,
                peer_gone,
            }),
        );
    }

    /// Long after everything.
    pub fn end(mut self) -> Vec<Observation> {
        self.pipeline.advance(100_000_000_000, &mut self.out);
        check_pairing(&self.out);
        self.out
    }
}

pub fn ask(headers: &str, content: &str) -> Vec<u8> {
    let body = format!(r#"{{"model":"m","messages":[{{"role":"user","content":"{content}"}}]}}"#);
    post("/v1/chat/completions", headers, &body)
}

pub fn traceparent() -> String {
    format!("traceparent: 00-{TRACE}-{SPAN}-01\r\n")
}

pub fn answer(id: &str) -> Vec<u8> {
    json(
        "200 OK",
        &format!(
            r#"{{"id":"{id}","object":"chat.completion","model":"m","choices":[{{"index":0,"message":{{"role":"assistant","content":"x"}},"finish_reason":"stop"}}],"usage":{{"prompt_tokens":3,"completion_tokens":2}}}}"#
        ),
    )
}

pub fn refusal() -> Vec<u8> {
    json("500 Internal Server Error", r#"{"error":{"message":"no"}}"#)
}

pub fn joined(out: &[Observation]) -> Vec<&Joined> {
    let told = out.iter().filter_map(|o| match o {
        Observation::Joined(joined) => Some(&**joined),
        _ => None,
    });
    told.collect()
}

pub fn exchanges(out: &[Observation]) -> Vec<&GatewayExchange> {
    let told = out.iter().filter_map(|o| match o {
        Observation::Gateway(exchange) => Some(&**exchange),
        _ => None,
    });
    told.collect()
}

/// One request by way of the gateway: read at `ms`, passed on 5 ms later, answered after 100 and passed back 3 later.
pub fn pass(host: &mut Host, ms: u64, asked: &[u8], passed_on: &[u8], answered: &[u8], passed_back: &[u8]) {
    let (client, engine) = (host.connect(true), host.connect(false));
    host.read(ms, client, asked);
    host.read(ms + 5, engine, passed_on);
    host.write(ms + 100, engine, answered);
    host.write(ms + 103, client, passed_back);
}

pub fn near(seconds: Option<f64>, expected: f64) -> bool {
    seconds.is_some_and(|seconds| (seconds - expected).abs() < 1e-6)
}

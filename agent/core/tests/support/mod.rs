//! Conversations as tables: what a serving process read and wrote on a socket, when; and observations as text.
//!
//! Owns: the table language, HTTP and event-stream builders, the rendering for snapshots. Refuses: expectations.
#![allow(dead_code, unreachable_pub)]

mod check;
mod http;
mod render;

pub use check::*;
pub use http::*;
#[allow(unused_imports)] // not every test shows what it got
pub use render::*;

use infertap_abi::{Direction, Role, Transport};
use infertap_core::{
    Cause, EngineInfo, EngineKind, Event, EventKind, Observation, Pipeline, PipelineConfig, RequestRecord,
    event::{Closed, ConnId, Socket},
};
use std::{collections::HashMap, fmt::Write, sync::Arc};

/// The process of every table.
pub const TGID: u32 = 4242;

/// One thing that happens on a connection.
#[derive(Debug, Clone)]
pub enum Step {
    /// Read by the process.
    In(Vec<u8>),
    /// Written by the process.
    Out(Vec<u8>),
    /// Read, but lost on the way to the core.
    LostIn(Vec<u8>),
    /// Written, but lost on the way to the core.
    LostOut(Vec<u8>),
    /// Read, of which only the first bytes were captured.
    CutIn(Vec<u8>, usize),
    /// Written, of which only the first bytes were captured.
    CutOut(Vec<u8>, usize),
    Eof,
    /// An end of stream that was lost on the way to the core.
    LostEof,
    Shutdown,
    ReadError(u16),
    WriteError(u16),
    Close,
    Exit,
    /// Time passes.
    Advance,
}

pub use Step::*;

/// Milliseconds, and what happens then.
pub type Row = (u64, Step);

pub fn engine(model: Option<&str>) -> Arc<EngineInfo> {
    Arc::new(EngineInfo {
        id: "vllm-8000".into(),
        kind: EngineKind::Vllm,
        model: model.map(Into::into),
        version: None,
        pid: TGID,
        pids: vec![TGID],
        ports: vec![8000],
        container: None,
        pod_uid: None,
    })
}

/// A connection in play: offsets are kept as the kernel side keeps them.
#[derive(Debug, Clone, Copy)]
pub struct Wire {
    pub socket: Socket,
    pub read: u64,
    pub written: u64,
    pub peer_gone: bool,
}

pub fn socket(conn: u64, role: Role, late: bool) -> Socket {
    Socket {
        conn: ConnId(conn),
        tgid: TGID,
        tid: 1,
        fd: 7,
        transport: Transport::Tcp,
        role,
        late,
    }
}

impl Wire {
    pub fn new(socket: Socket) -> Wire {
        Wire {
            socket,
            read: 0,
            written: 0,
            peer_gone: false,
        }
    }

    fn data(&mut self, at: u64, direction: Direction, bytes: &[u8], captured: usize) -> Event<'static> {
        let position = if direction == Direction::In {
            &mut self.read
        } else {
            &mut self.written
        };
        let offset = *position;
        *position += bytes.len() as u64;
        Event {
            at,
            kind: EventKind::Data {
                socket: self.socket,
                direction,
                offset,
                len: bytes.len() as u32,
                bytes: bytes[..captured.min(bytes.len())].to_vec().leak(),
                dur_ns: 50_000,
                blocked: false,
                arrived: None,
            },
        }
    }

    /// The event of a step; `None` when it is lost.
    pub fn event(&mut self, at: u64, step: &Step) -> Option<Event<'static>> {
        let socket = self.socket;
        let kind = match step {
            In(bytes) => return Some(self.data(at, Direction::In, bytes, usize::MAX)),
            Out(bytes) => return Some(self.data(at, Direction::Out, bytes, usize::MAX)),
            CutIn(bytes, captured) => return Some(self.data(at, Direction::In, bytes, *captured)),
            CutOut(bytes, captured) => return Some(self.data(at, Direction::Out, bytes, *captured)),
            LostIn(bytes) => {
                self.read += bytes.len() as u64;
                return None;
            }
            LostOut(bytes) => {
                self.written += bytes.len() as u64;
                return None;
            }
            Eof | LostEof => {
                self.peer_gone = true;
                if matches!(step, LostEof) {
                    return None;
                }
                EventKind::Eof(socket)
            }
            Shutdown => EventKind::Shutdown(socket),
            ReadError(errno) => EventKind::Error {
                socket,
                direction: Direction::In,
                errno: *errno,
            },
            WriteError(errno) => EventKind::Error {
                socket,
                direction: Direction::Out,
                errno: *errno,
            },
            Close => EventKind::Close(Closed {
                socket,
                bytes_in: self.read,
                bytes_out: self.written,
                peer_gone: self.peer_gone,
            }),
            Exit => EventKind::Exit { tgid: TGID },
            Advance => return None,
        };
        Some(Event { at, kind })
    }
}

/// Plays rows on one connection; the times are milliseconds after one second.
pub fn play_on(pipeline: &mut Pipeline, wire: &mut Wire, rows: &[Row]) -> Vec<Observation> {
    let mut out = Vec::new();
    for (ms, step) in rows {
        let at = 1_000_000_000 + ms * 1_000_000;
        if let Some(event) = wire.event(at, step) {
            pipeline.handle(event, &mut out);
        } else if matches!(step, Advance) {
            pipeline.advance(at, &mut out);
        }
    }
    out
}

/// A pipeline that knows the engine of [`TGID`].
pub fn pipeline(model: Option<&str>) -> Pipeline {
    let mut pipeline = Pipeline::new(PipelineConfig::default());
    pipeline.handle(
        Event {
            at: 0,
            kind: EventKind::EngineUp(engine(model)),
        },
        &mut Vec::new(),
    );
    pipeline
}

/// Plays rows on a fresh accepted connection of a fresh pipeline.
pub fn play(rows: &[Row]) -> Vec<Observation> {
    let mut pipeline = pipeline(None);
    let socket = socket(7, Role::Accepted, false);
    let mut out = Vec::new();
    pipeline.handle(
        Event {
            at: 1_000_000_000,
            kind: EventKind::Open(socket),
        },
        &mut out,
    );
    out.extend(play_on(&mut pipeline, &mut Wire::new(socket), rows));
    check_pairing(&out);
    out
}

/// Plays rows on a connection that was open before the agent.
pub fn play_late(role: Role, rows: &[Row]) -> Vec<Observation> {
    let out = play_on(&mut pipeline(None), &mut Wire::new(socket(7, role, true)), rows);
    check_pairing(&out);
    out
}

pub fn records(out: &[Observation]) -> Vec<&RequestRecord> {
    out.iter()
        .filter_map(|o| match o {
            Observation::Finished(finished) => Some(&finished.record),
            _ => None,
        })
        .collect()
}

pub fn finished(out: &[Observation]) -> Vec<&infertap_core::observation::Finished> {
    out.iter()
        .filter_map(|o| {
            if let Observation::Finished(f) = o {
                Some(&**f)
            } else {
                None
            }
        })
        .collect()
}

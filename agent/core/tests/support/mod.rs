//! Conversations as tables: what a serving process read and wrote on a socket, when; and observations as text.
//!
//! Owns: the table language, HTTP and event-stream builders, the rendering for snapshots. Refuses: expectations.
#![allow(dead_code, unreachable_pub)]

mod http;

pub use http::*;

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

/// Every `Finished` and every `Tokens` has its `Started` before it, with the same labels; none finishes twice; no token
/// sum is below the record's count. Returns how many are still open.
pub fn check_pairing(out: &[Observation]) -> usize {
    let mut open: HashMap<_, i64> = HashMap::new();
    for observation in out {
        match observation {
            Observation::Started(labels) => *open.entry(labels.clone()).or_default() += 1,
            Observation::Tokens { labels, count, .. } => {
                assert!(
                    open.get(labels).is_some_and(|n| *n > 0),
                    "tokens of nobody: {labels:?}"
                );
                assert!(*count > 0);
            }
            Observation::Finished(finished) => {
                let labels = &finished.labels;
                let count = open
                    .get_mut(labels)
                    .unwrap_or_else(|| panic!("never started: {labels:?}"));
                *count -= 1;
                assert!(*count >= 0, "finished twice: {labels:?}");
                check_record(finished);
            }
            Observation::Anomaly { count, .. } => assert!(*count > 0),
            Observation::Step(step) => {
                assert!(step.start.is_none_or(|start| start <= step.end), "{step:?}");
                assert_ne!(step.requests, Some(0), "{step:?}");
            }
            Observation::Ignore(_)
            | Observation::Engine(_)
            | Observation::Capacity(_)
            | Observation::EngineMessages { .. }
            | Observation::TokenizerCalls { .. } => {}
        }
    }
    open.values().map(|n| *n as usize).sum()
}

fn check_record(finished: &infertap_core::observation::Finished) {
    let record = &finished.record;
    let labels = &finished.labels;
    assert_eq!(
        (&record.model, &record.engine, &record.scene),
        (&labels.model, &labels.engine, &labels.scene)
    );
    let spans = [
        record.queue_s,
        record.prefill_s,
        record.decode_s,
        record.ttft_s,
        record.tpot_s,
        record.e2e_s,
    ];
    for span in spans.into_iter().flatten() {
        assert!(span.is_finite() && span >= 0.0, "{record:?}");
    }
    let points: Vec<_> = [
        record.t0_ns,
        record.t1_ns,
        record.t2_ns,
        record.t3_ns,
        record.t4_ns,
    ]
    .into_iter()
    .flatten()
    .collect();
    assert!(points.is_sorted(), "{record:?}");
    assert!(finished.gaps.iter().all(|(gap, _)| *gap >= 0.0));
    check_diagnosis(record);
    assert_eq!(record.sources.t2.is_some(), record.t2_ns.is_some());
    assert_eq!(
        record.sources.input_tokens.is_some(),
        record.input_tokens.is_some()
    );
    assert_eq!(
        record.sources.output_tokens.is_some(),
        record.output_tokens.is_some()
    );
    assert_eq!(
        record.status == infertap_core::Status::Incomplete,
        !record.incomplete.is_empty(),
        "{record:?}"
    );
}

fn check_diagnosis(record: &RequestRecord) {
    let Some(diagnosis) = &record.diagnosis else {
        return;
    };
    assert!(record.incomplete.is_empty(), "{record:?}");
    for cause in Cause::ALL {
        assert!(
            diagnosis
                .share(cause)
                .is_none_or(|share| (0.0..=1.0).contains(&share)),
            "{record:?}"
        );
    }
    assert!(
        diagnosis.interference_s.unwrap_or(0.0) <= record.decode_s.unwrap_or(0.0),
        "{record:?}"
    );
    assert!(
        diagnosis
            .cause
            .is_none_or(|cause| diagnosis.share(cause).is_some()),
        "{record:?}"
    );
}

/// One line an observation.
pub fn render(out: &[Observation]) -> String {
    let mut s = String::new();
    for observation in out {
        match observation {
            Observation::Started(labels) => writeln!(s, "started {} {}", labels.engine, labels.model),
            Observation::Tokens { direction, count, .. } => {
                writeln!(s, "tokens {} +{count}", direction.as_str())
            }
            Observation::Anomaly { kind, count } => writeln!(s, "anomaly {} {count}", kind.as_str()),
            Observation::Ignore(conn) => writeln!(s, "ignore {}", conn.0),
            Observation::Finished(finished) => writeln!(s, "{}", render_record(finished)),
            Observation::EngineMessages { engine, understood } => {
                writeln!(s, "engine messages of {engine}: {understood}")
            }
            // Told by the clock, not by the conversation.
            Observation::Capacity(_) => Ok(()),
            Observation::TokenizerCalls { tied, unassigned } => {
                writeln!(s, "tokenizer calls: {tied} tied, {unassigned} unassigned")
            }
            Observation::Engine(report) => writeln!(
                s,
                "engine {} {:?} prefix {}/{} preempted {}",
                report.engine,
                report.load,
                report.prefix_hit_tokens,
                report.prefix_queried_tokens,
                report.preemptions
            ),
            Observation::Step(step) => writeln!(
                s,
                "step of {} {:?} to {} with {:?} requests, {:?} + {:?} tokens, {:?} s",
                step.engine,
                step.kind,
                step.end,
                step.requests,
                step.prefill_tokens,
                step.decode_tokens,
                step.seconds()
            ),
        }
        .expect("a string");
    }
    s
}

fn render_record(finished: &infertap_core::observation::Finished) -> String {
    let r = &finished.record;
    let mut s = format!("finished {} {} {}", r.status.as_str(), r.protocol, r.model);
    let mut field = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            write!(s, " {name}={value}").expect("a string");
        }
    };
    let sourced = |n: Option<u64>, source: Option<infertap_core::Source>| {
        n.map(|n| format!("{n}({})", source.map_or("?", infertap_core::Source::as_str)))
    };
    let seconds = |s: Option<f64>| s.map(|s| format!("{s:.3}"));
    field("http", r.http_status.map(|n| n.to_string()));
    field("streamed", r.streamed.then(|| "yes".into()));
    field("id", r.response_id.clone());
    field("finish", r.finish_reason.clone());
    field("ttft", seconds(r.ttft_s));
    field("decode", seconds(r.decode_s));
    field("tpot", seconds(r.tpot_s));
    field("e2e", seconds(r.e2e_s));
    field("in", sourced(r.input_tokens, r.sources.input_tokens));
    field("out", sourced(r.output_tokens, r.sources.output_tokens));
    field("cached", r.cached_input_tokens.map(|n| n.to_string()));
    field("reasoning", r.reasoning_tokens.map(|n| n.to_string()));
    field("chunks", Some(r.chunks.to_string()));
    let gaps: Vec<String> = finished
        .gaps
        .iter()
        .map(|(gap, n)| format!("{gap:.3}/{n}"))
        .collect();
    field("gaps", (!gaps.is_empty()).then(|| gaps.join(",")));
    field(
        "incomplete",
        (!r.incomplete.is_empty()).then(|| r.incomplete.join(",")),
    );
    s
}

//! Gateways' exchanges and engines' requests: each is told once, what is joined has what joined it in common, and what only
//! one of each side has in common is joined, in whatever order both sides end.
//!
//! An input is a list of steps of three bytes: what happens, to which of eight pairs of connections, and how.
#![no_main]

use infertap_abi::{Direction, Role, Transport};
use infertap_core::event::{Closed, ConnId, Event, EventKind, Socket};
use infertap_core::gateway::{GatewayOutcome, JoinedBy};
use infertap_core::{EngineInfo, EngineKind, Observation, Pipeline, PipelineConfig};
use libfuzzer_sys::fuzz_target;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

const ENGINE: u32 = 100;
const GATEWAY: u32 = 200;
const MS: u64 = 1_000_000;
/// What has ended waits so long for its other half; less than the core's, so that no edge of it is asked for.
const SOON: u64 = 4_000 * MS;

/// One side's request and its answer, as they were on the wire.
#[derive(Debug, Default, Clone)]
struct Truth {
    conn: u64,
    position: [u64; 2],
    begin: u64,
    end: Option<u64>,
    trace: u8,
    body: u8,
    response: Option<u32>,
    open: bool,
}

struct Host {
    pipeline: Pipeline,
    out: Vec<Observation>,
    now: u64,
    conns: u64,
    responses: u32,
    /// The sides of pairs now: a gateway's, and an engine's.
    sides: [[Truth; 2]; 8],
    /// Those that were, by their side and begin.
    past: [BTreeMap<u64, Truth>; 2],
}

impl Host {
    fn new() -> Host {
        let mut host = Host {
            pipeline: Pipeline::new(PipelineConfig::default()),
            out: Vec::new(),
            now: MS,
            conns: 0,
            responses: 0,
            sides: Default::default(),
            past: Default::default(),
        };
        for (id, kind, pid) in [
            ("generic-1", EngineKind::Generic, ENGINE),
            ("nginx-1", EngineKind::Gateway, GATEWAY),
        ] {
            let info = EngineInfo {
                id: id.into(),
                kind,
                model: None,
                version: None,
                pid,
                pids: vec![pid],
                ports: vec![1],
                container: None,
                pod_uid: None,
            };
            host.handle(EventKind::EngineUp(Arc::new(info)));
        }
        host
    }

    fn handle(&mut self, kind: EventKind<'_>) {
        self.pipeline.handle(Event { at: self.now, kind }, &mut self.out);
    }

    fn socket(conn: u64, side: usize) -> Socket {
        let tgid = [GATEWAY, ENGINE][side];
        Socket {
            conn: ConnId(conn),
            tgid,
            tid: tgid,
            fd: 7,
            transport: Transport::Tcp,
            role: Role::Accepted,
            late: false,
        }
    }

    fn data(&mut self, pair: usize, side: usize, direction: Direction, bytes: &[u8]) {
        let truth = &mut self.sides[pair][side];
        let position = &mut truth.position[usize::from(direction == Direction::Out)];
        let offset = *position;
        *position += bytes.len() as u64;
        let socket = Host::socket(truth.conn, side);
        self.handle(EventKind::Data {
            socket,
            direction,
            offset,
            len: bytes.len() as u32,
            bytes,
            arrived: None,
            dur_ns: 0,
            blocked: false,
        });
    }

    fn close(&mut self, pair: usize, side: usize, peer_gone: bool) {
        let truth = std::mem::take(&mut self.sides[pair][side]);
        if truth.conn == 0 {
            return;
        }
        let [bytes_in, bytes_out] = truth.position;
        self.handle(EventKind::Close(Closed {
            socket: Host::socket(truth.conn, side),
            bytes_in,
            bytes_out,
            peer_gone,
        }));
        self.past[side].insert(truth.begin, truth);
    }

    /// A request is read on a connection of its own.
    fn ask(&mut self, pair: usize, side: usize, trace: u8, body: u8) {
        self.close(pair, side, false);
        self.conns += 1;
        let truth = Truth {
            conn: self.conns,
            begin: self.now,
            trace,
            body,
            open: true,
            ..Truth::default()
        };
        self.sides[pair][side] = truth;
        self.handle(EventKind::Open(Host::socket(self.conns, side)));
        let header = if trace == 0 {
            String::new()
        } else {
            format!("traceparent: 00-{trace:032x}-{:016x}-01\r\n", 7)
        };
        let body = format!(r#"{{"model":"m","messages":[{{"role":"user","content":"{body}"}}]}}"#);
        let request = format!(
            "POST /v1/chat/completions HTTP/1.1\r\n{header}Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        self.data(pair, side, Direction::In, request.as_bytes());
    }

    fn answer(&mut self, pair: usize, side: usize, response: Option<u32>) {
        let truth = &mut self.sides[pair][side];
        if !std::mem::take(&mut truth.open) {
            return;
        }
        truth.response = response;
        truth.end = Some(self.now);
        let (status, body) = match response {
            Some(id) => (
                "200 OK",
                format!(
                    r#"{{"id":"chatcmpl-{id}","object":"chat.completion","model":"m","choices":[{{"index":0,"message":{{"role":"assistant","content":"x"}},"finish_reason":"stop"}}]}}"#
                ),
            ),
            None => ("500 Oh", r#"{"error":{"message":"no"}}"#.to_owned()),
        };
        let answer = format!(
            "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        self.data(pair, side, Direction::Out, answer.as_bytes());
    }

    fn step(&mut self, what: u8, pair: u8, how: u8) {
        self.now += MS;
        let pair = usize::from(pair % 8);
        let (trace, body) = (how & 3, how >> 2 & 3);
        match what % 8 {
            0 => self.ask(pair, 0, trace, body),
            // What the gateway was asked, or something else.
            1 => {
                let asked = &self.sides[pair][0];
                let (trace, body) = if how < 128 {
                    (asked.trace, asked.body)
                } else {
                    (trace, body)
                };
                self.ask(pair, 1, trace, body);
            }
            2 => {
                let response = match how % 4 {
                    0 => None,
                    // One that others may have too.
                    1 => Some(u32::from(how >> 2) % 4),
                    _ => {
                        self.responses += 1;
                        Some(100 + self.responses)
                    }
                };
                self.answer(pair, 1, response);
            }
            3 => {
                let response = match how % 4 {
                    0 => None,
                    1 => Some(u32::from(how >> 2) % 4),
                    // What the engine said that it asked.
                    _ => {
                        let [one, other] = &self.sides[pair];
                        other.response.filter(|_| one.begin < other.begin)
                    }
                };
                self.answer(pair, 0, response);
            }
            4 => self.close(pair, 1, how % 2 == 1),
            5 => self.close(pair, 0, how % 2 == 1),
            6 => {
                self.now += u64::from(how) * 100 * MS;
                self.pipeline.advance(self.now, &mut self.out);
            }
            _ => self.pipeline.advance(self.now, &mut self.out),
        }
    }
}

fn run(input: &[u8]) -> ([BTreeMap<u64, Truth>; 2], Vec<Observation>) {
    let mut host = Host::new();
    for step in input.chunks_exact(3) {
        host.step(step[0], step[1], step[2]);
    }
    host.now += MS;
    for pair in 0..8 {
        host.close(pair, 0, false);
        host.close(pair, 1, false);
    }
    host.pipeline.advance(host.now + (1 << 50), &mut host.out);
    (host.past, host.out)
}

fuzz_target!(|input: &[u8]| {
    let ([served, asked], out) = run(input);
    let (_, again) = run(input);
    assert_eq!(format!("{out:?}"), format!("{again:?}"));

    // Which is which is told by when it began: no two begin at the same time.
    let mut begins = BTreeMap::new();
    let mut exchanges = BTreeMap::new();
    let mut joined = Vec::new();
    for observation in &out {
        match observation {
            Observation::Finished(finished) => {
                let begin = finished.record.t0_ns.expect("it was seen whole");
                assert!(asked.contains_key(&begin), "no engine was asked then");
                assert!(begins.insert(finished.id, begin).is_none());
            }
            Observation::Gateway(exchange) => {
                let begin = exchange.t0_ns.expect("it was seen whole");
                assert!(served.contains_key(&begin), "no gateway was asked then");
                assert!(exchanges.insert(&*exchange.id, exchange).is_none(), "told twice");
            }
            Observation::Joined(part) => joined.push(&**part),
            _ => {}
        }
    }
    assert_eq!(exchanges.len(), served.len());
    assert_eq!(begins.len(), asked.len());

    let mut seen = HashSet::new();
    let mut pairs = BTreeMap::new();
    for found in &joined {
        let part = &found.part;
        assert!(seen.insert(found.request), "joined twice");
        let exchange = exchanges.get(&*part.id).expect("an exchange that is told");
        assert_eq!(exchange.outcome, GatewayOutcome::Joined);
        assert_eq!((exchange.t0_ns, &exchange.gateway), (part.t0_ns, &part.name));
        let begin = begins[&found.request];
        let (one, other) = (&served[&part.t0_ns.expect("known")], &asked[&begin]);
        pairs.insert(other.begin, one.begin);
        match part.joined_by {
            JoinedBy::Response => assert!(one.response.is_some() && one.response == other.response),
            JoinedBy::Trace => assert!(one.trace != 0 && one.trace == other.trace),
            JoinedBy::Content => assert_eq!(one.body, other.body),
        }
        if part.joined_by != JoinedBy::Response {
            assert!(one.begin <= other.begin, "before the gateway was asked");
            assert!(
                one.end.is_none_or(|end| other.begin <= end),
                "after it had answered"
            );
            let clash = one.response.is_some() && other.response.is_some() && one.response != other.response;
            assert!(part.joined_by == JoinedBy::Trace || !clash);
        }
        let durations = [part.before_s, part.after_s];
        assert!(durations.iter().flatten().all(|s| s.is_finite() && *s >= 0.0));
        let carried = found.trace.as_ref().map(|trace| trace.id.clone());
        let expected = (one.trace != 0 && other.trace == 0).then(|| format!("{:032x}", one.trace));
        assert_eq!(carried, expected);
    }
    let joined_ids: HashSet<&str> = joined.iter().map(|found| &*found.part.id).collect();
    for (id, exchange) in &exchanges {
        assert_eq!(
            exchange.outcome == GatewayOutcome::Joined,
            joined_ids.contains(id)
        );
    }

    // An id that one of each side has, where nothing else speaks against it.
    let of = |side: &BTreeMap<u64, Truth>, id: u32| -> Vec<Truth> {
        side.values()
            .filter(|truth| truth.response == Some(id))
            .cloned()
            .collect()
    };
    for truth in asked.values() {
        let Some(id) = truth.response else { continue };
        let (ones, others) = (of(&served, id), of(&asked, id));
        if let ([one], [other]) = (&ones[..], &others[..])
            && let Some((gateway, engine)) = one.end.zip(other.end)
            && gateway.abs_diff(engine) < SOON
            // An engine is asked after its gateway.
            && one.begin <= other.begin
            // As it was passed on: other evidence would speak for others.
            && (one.trace, one.body) == (other.trace, other.body)
        {
            assert_eq!(pairs.get(&other.begin), Some(&one.begin), "{one:?} {other:?}");
        }
    }
});

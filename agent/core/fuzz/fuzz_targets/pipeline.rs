//! The whole core, from records to observations: the same records give the same observations, every request that started
//! finishes once, times do not run backwards, counts are sane, and nothing is left when everything is over.
//!
//! An input is a list of steps: an operation, a connection, a length, and for data the bytes. See `Step`.
#![no_main]

use infertap_abi::{Direction, RecordHeader, RecordKind, Role, Transport, record_flag};
use infertap_core::event::{Event, EventKind};
use infertap_core::observation::TokenDirection;
use infertap_core::{
    EngineInfo, EngineKind, Observation, Pipeline, PipelineConfig, PrefixConfig, RequestRecord,
};
use libfuzzer_sys::fuzz_target;
use std::collections::HashMap;
use std::sync::Arc;

const PID: u32 = 100;
/// The last of the connections is a gateway's.
const GATEWAY: u32 = 200;
const STEP_NS: u64 = 1_000_000;

/// What the kernel side would know of one connection.
#[derive(Default, Clone, Copy)]
struct Counters {
    offset: [u64; 2],
    seq: [u32; 2],
}

/// One step of an input: `operation, connection, length low, length high`, then the bytes of data.
struct Step<'a> {
    operation: u8,
    connection: u8,
    length: u16,
    bytes: &'a [u8],
}

fn steps(mut input: &[u8]) -> Vec<Step<'_>> {
    let mut steps = Vec::new();
    while let [operation, connection, low, high, rest @ ..] = input {
        let length = u16::from_le_bytes([*low, *high]);
        let take = if operation % 16 < 8 {
            rest.len().min(length.into())
        } else {
            0
        };
        let (bytes, after) = rest.split_at(take);
        steps.push(Step {
            operation: operation % 16,
            connection: connection % 4,
            length,
            bytes,
        });
        input = after;
    }
    steps
}

fn engine(id: &str, kind: EngineKind, pid: u32) -> Event<'static> {
    let info = EngineInfo {
        id: id.into(),
        kind,
        model: None,
        version: Some("0.32.0".into()),
        pid,
        pids: vec![pid],
        ports: vec![1],
        container: None,
        pod_uid: None,
    };
    Event {
        at: 0,
        kind: EventKind::EngineUp(Arc::new(info)),
    }
}

fn run(input: &[u8]) -> Vec<Observation> {
    let config = PipelineConfig {
        max_connections: 3,
        max_pipelined: 4,
        prefix: PrefixConfig {
            enabled: true,
            max_bytes: 4096,
            ..PrefixConfig::default()
        },
        ..PipelineConfig::default()
    };
    let mut pipeline = Pipeline::new(config);
    let mut out = Vec::new();
    let mut counters = [Counters::default(); 4];
    let mut now = STEP_NS;
    pipeline.handle(engine("generic-1", EngineKind::Vllm, PID), &mut out);
    pipeline.handle(engine("nginx-1", EngineKind::Gateway, GATEWAY), &mut out);
    for step in steps(input) {
        now += STEP_NS;
        let state = &mut counters[usize::from(step.connection)];
        let mut header = RecordHeader {
            ts_ns: now,
            conn_id: u64::from(step.connection) + 1,
            tgid: if step.connection == 3 { GATEWAY } else { PID },
            tid: PID + u32::from(step.length % 3),
            fd: 7,
            // Two of the connections can be an engine's own.
            transport: if step.connection < 2 {
                Transport::Tcp
            } else {
                Transport::Unix
            } as u8,
            dir_role: RecordHeader::pack(Direction::None as u8, Role::Accepted as u8),
            ..RecordHeader::default()
        };
        let direction = step.operation % 2;
        let way = if direction == 0 {
            Direction::In
        } else {
            Direction::Out
        } as u8;
        match step.operation {
            // Data, whole (0 to 5) or with its end missing (6, 7).
            0..=7 => {
                let missing = if step.operation >= 6 { 100 } else { 0 };
                header.kind = RecordKind::Data as u16;
                header.captured = step.bytes.len() as u32;
                header.len = header.captured + missing;
                header.extra = u32::from(step.length);
                header.flags |= (step.length & 1) * record_flag::ARRIVED;
                header.offset = state.offset[usize::from(direction)];
                header.seq = state.seq[usize::from(direction)];
                header.dir_role = RecordHeader::pack(way, Role::Accepted as u8);
                state.offset[usize::from(direction)] += u64::from(header.len);
                state.seq[usize::from(direction)] += 1;
            }
            // A record is lost.
            8 | 9 => {
                state.offset[usize::from(direction)] += u64::from(step.length);
                state.seq[usize::from(direction)] += 1;
                continue;
            }
            10 => {
                *state = Counters::default();
                header.kind = RecordKind::Open as u16;
                header.flags = if step.length % 2 == 1 {
                    record_flag::LATE
                } else {
                    0
                };
            }
            11 => header.kind = RecordKind::Eof as u16,
            12 => {
                header.kind = RecordKind::Error as u16;
                header.dir_role = RecordHeader::pack(Direction::Out as u8, Role::Accepted as u8);
                header.errno = 32;
            }
            13 => header.kind = RecordKind::Close as u16,
            14 => {
                let kind = if step.length % 2 == 0 {
                    RecordKind::Stall
                } else {
                    RecordKind::Shutdown
                };
                header.kind = kind as u16;
            }
            _ => {
                // Time passes; sometimes it seems to go back.
                now = if step.length == 0 {
                    now.saturating_sub(3 * STEP_NS)
                } else {
                    now + u64::from(step.length) * 10 * STEP_NS
                };
                pipeline.advance(now, &mut out);
                continue;
            }
        }
        let record = [&header.to_bytes()[..], step.bytes].concat();
        match Event::decode(&record) {
            Ok(event) => pipeline.handle(event, &mut out),
            Err(error) => panic!("a true record does not decode: {error}"),
        }
    }
    // Long after the idle timeout nothing can be in flight.
    pipeline.advance(now + (1 << 50), &mut out);
    out
}

fn check_record(record: &RequestRecord) {
    let times = [
        record.t0_ns,
        record.t1_ns,
        record.t2_ns,
        record.t3_ns,
        record.t4_ns,
    ];
    let known: Vec<u64> = times.into_iter().flatten().collect();
    assert!(known.is_sorted(), "times run backwards: {record:?}");
    let durations = [
        record.queue_s,
        record.prefill_s,
        record.decode_s,
        record.tokenize_s,
        record.ttft_s,
        record.tpot_s,
        record.e2e_s,
    ];
    assert!(
        durations.iter().flatten().all(|d| d.is_finite() && *d >= 0.0),
        "{record:?}"
    );
    assert_eq!(
        record.input_tokens.is_some(),
        record.sources.input_tokens.is_some(),
        "{record:?}"
    );
    assert_eq!(
        record.output_tokens.is_some(),
        record.sources.output_tokens.is_some(),
        "{record:?}"
    );
}

fuzz_target!(|input: &[u8]| {
    let out = run(input);
    assert_eq!(
        format!("{out:?}"),
        format!("{:?}", run(input)),
        "the same events, other observations"
    );
    // Input and output tokens: as counted on the way, and as the records have them.
    let (mut counted, mut recorded) = ([0_u64; 2], [0_u64; 2]);
    let mut in_flight: HashMap<(Arc<str>, Arc<str>), u64> = HashMap::new();
    for observation in &out {
        match observation {
            Observation::Started(labels) => {
                assert_eq!(&*labels.engine, "generic-1", "a gateway's counts as a request");
                *in_flight
                    .entry((labels.engine.clone(), labels.model.clone()))
                    .or_default() += 1;
            }
            Observation::Finished(finished) => {
                let key = (finished.labels.engine.clone(), finished.labels.model.clone());
                let count = in_flight.get_mut(&key).filter(|count| **count > 0);
                *count.expect("a request finished that never started") -= 1;
                let tokens = [finished.record.input_tokens, finished.record.output_tokens];
                for (sum, tokens) in recorded.iter_mut().zip(tokens) {
                    *sum = sum.saturating_add(tokens.unwrap_or(0));
                }
                check_record(&finished.record);
                assert!(
                    finished
                        .gaps
                        .iter()
                        .all(|(gap, tokens)| gap.is_finite() && *gap >= 0.0 && *tokens > 0)
                );
            }
            Observation::Tokens { direction, count, .. } => {
                assert!(*count > 0);
                let sum = &mut counted[usize::from(*direction == TokenDirection::Output)];
                *sum = sum.saturating_add(*count);
            }
            Observation::Anomaly { count, .. } => assert!(*count > 0),
            Observation::Step(step) => {
                assert!(step.start.is_none_or(|start| start <= step.end), "{step:?}");
                assert_ne!(step.requests, Some(0), "{step:?}");
            }
            Observation::Gateway(exchange) => {
                assert_eq!(&*exchange.gateway, "nginx-1");
            }
            Observation::Joined(joined) => {
                let part = &joined.part;
                let durations = [part.before_s, part.after_s];
                assert!(
                    durations.iter().flatten().all(|s| s.is_finite() && *s >= 0.0),
                    "{part:?}"
                );
            }
            Observation::Ignore(_)
            | Observation::Engine(_)
            | Observation::Capacity(_)
            | Observation::Pressure(_)
            | Observation::Prefix(_)
            | Observation::Gpu(_)
            | Observation::Charge(_)
            | Observation::Unpriced { .. }
            | Observation::EngineMessages { .. }
            | Observation::Count(_)
            | Observation::TokenCount(_)
            | Observation::TokenizerCalls { .. } => {}
        }
    }
    assert!(
        in_flight.values().all(|count| *count == 0),
        "requests never finished: {in_flight:?}"
    );
    // Counters are reconciled upwards only.
    let covered = counted
        .iter()
        .zip(&recorded)
        .all(|(counted, recorded)| counted >= recorded);
    assert!(covered, "{counted:?} counted, {recorded:?} recorded");
});

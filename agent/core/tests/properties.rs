//! What holds for any split, any loss and any sequence of events.

mod support;

use infertap_abi::{Direction, Role};
use infertap_core::{
    Event, EventKind, Observation, Pipeline, PipelineConfig, RequestRecord, Status, event::Closed,
};
use proptest::prelude::*;
use support::*;

/// A conversation with every kind of request on one kept-alive connection.
fn conversation() -> Vec<Row> {
    let tools = delta(
        r#"{"tool_calls":[{"index":0,"function":{"name":"f","arguments":"{\"a\":1}"}}]}"#,
        "",
    );
    vec![
        (0, In(ask())),
        (10, Out(stream_head())),
        (20, Out([role(), word()].concat())),
        (30, Out(word())),
        (31, Out(chunk(": ping\n\n"))),
        (40, Out(tools)),
        (50, Out([stop(), usage(7, 5)].concat())),
        (60, Out([done(), last_chunk()].concat())),
        (100, In(text("GET /health HTTP/1.1\r\nHost: x\r\n\r\n"))),
        (101, Out(json("200 OK", "{}"))),
        (
            200,
            In(chat(
                r#"{"messages":[{"role":"user","content":"hi"}],"model":"m"}"#,
            )),
        ),
        (
            230,
            Out(json(
                "200 OK",
                r#"{"id":"c2","object":"chat.completion","model":"m","choices":[{"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":4}}"#,
            )),
        ),
        (300, In(chat(r#"{"model":"m","max_tokens":-1}"#))),
        (
            301,
            Out(json(
                "400 Bad Request",
                r#"{"error":{"message":"no","code":400}}"#,
            )),
        ),
        (
            400,
            In(post(
                "/v1/completions",
                "",
                r#"{"model":"m","stream":true,"prompt":"x"}"#,
            )),
        ),
        (410, Out(stream_head())),
        (
            420,
            Out(event(
                r#"{"id":"cmpl-9","object":"text_completion","model":"m","choices":[{"index":0,"text":"a"}]}"#,
            )),
        ),
        (
            430,
            Out(event(
                r#"{"id":"cmpl-9","object":"text_completion","model":"m","choices":[{"index":0,"text":"b","finish_reason":"length"}],"usage":{"prompt_tokens":1,"completion_tokens":2}}"#,
            )),
        ),
        (440, Out([done(), last_chunk()].concat())),
        (500, In(ask())),
        (510, Out(stream_head())),
        (520, Out(word())),
        (530, Out(word())),
        (540, Eof),
        (541, Close),
    ]
}

fn bytes_of(step: &Step) -> Option<(Direction, &[u8])> {
    match step {
        In(bytes) => Some((Direction::In, bytes)),
        Out(bytes) => Some((Direction::Out, bytes)),
        _ => None,
    }
}

fn step(direction: Direction, bytes: &[u8]) -> Step {
    if direction == Direction::In {
        In(text(bytes))
    } else {
        Out(text(bytes))
    }
}

/// Cuts every row's bytes after as many bytes as `cuts` says, in turn.
fn recut(rows: &[Row], cuts: &[usize]) -> Vec<Row> {
    let mut cuts = cuts.iter().cycle();
    let mut recut = Vec::new();
    for (at, row) in rows {
        let Some((direction, mut rest)) = bytes_of(row) else {
            recut.push((*at, row.clone()));
            continue;
        };
        while !rest.is_empty() {
            let (piece, after) = rest.split_at((*cuts.next().expect("endless")).clamp(1, rest.len()));
            recut.push((*at, step(direction, piece)));
            rest = after;
        }
    }
    recut
}

/// Joins rows that follow each other in one direction; the joint row has the last one's time.
fn join(rows: &[Row]) -> Vec<Row> {
    let mut joined: Vec<Row> = Vec::new();
    for (at, row) in rows {
        match (joined.last_mut(), row) {
            (Some((last, In(before))), In(bytes)) | (Some((last, Out(before))), Out(bytes)) => {
                before.extend_from_slice(bytes);
                *last = *at;
            }
            _ => joined.push((*at, row.clone())),
        }
    }
    joined
}

/// A record without its times and what is made from them.
fn timeless(record: &RequestRecord) -> RequestRecord {
    RequestRecord {
        id: String::new(),
        trace_id: String::new(),
        t0_ns: None,
        t1_ns: None,
        t2_ns: None,
        t3_ns: None,
        t4_ns: None,
        queue_s: None,
        prefill_s: None,
        t1_error_s: None,
        decode_s: None,
        ttft_s: None,
        tpot_s: None,
        e2e_s: None,
        diagnosis: None,
        ..record.clone()
    }
}

fn token_sum(out: &[Observation]) -> u64 {
    out.iter()
        .map(|o| {
            if let Observation::Tokens { count, .. } = o {
                *count
            } else {
                0
            }
        })
        .sum()
}

/// What becomes of a piece on its way to the core.
#[derive(Debug, Clone, Copy)]
enum Fate {
    Whole,
    Lost,
    Cut(usize),
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![8 => Just(Fate::Whole), 1 => Just(Fate::Lost), 1 => (0usize..200).prop_map(Fate::Cut)]
}

fn suffer(rows: &[Row], fates: &[Fate]) -> Vec<Row> {
    let mut fates = fates.iter().cycle();
    rows.iter()
        .map(|(at, row)| {
            let Some((direction, bytes)) = bytes_of(row) else {
                return (*at, row.clone());
            };
            let bytes = text(bytes);
            let step = match (*fates.next().expect("endless"), direction) {
                (Fate::Whole, _) => row.clone(),
                (Fate::Lost, Direction::In) => LostIn(bytes),
                (Fate::Lost, _) => LostOut(bytes),
                (Fate::Cut(n), Direction::In) => CutIn(bytes, n),
                (Fate::Cut(n), _) => CutOut(bytes, n),
            };
            (*at, step)
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Pieces of one write are one write: everything is the same, times included.
    #[test]
    fn any_split_tells_the_same(cuts in proptest::collection::vec(1usize..400, 1..20)) {
        let whole = play(&conversation());
        prop_assert_eq!(records(&whole).len(), 5);
        let split = play(&recut(&conversation(), &cuts));
        prop_assert_eq!(render(&split), render(&whole));
        let details = |out: &[Observation]| {
            finished(out).iter().map(|f| (f.record.clone(), f.gaps.clone())).collect::<Vec<_>>()
        };
        prop_assert_eq!(details(&split), details(&whole));
    }

    /// Whatever the reads and writes are, only times differ.
    #[test]
    fn any_joining_tells_the_same_but_for_times(cuts in proptest::collection::vec(1usize..3000, 1..20)) {
        let whole = play(&conversation());
        let other = play(&recut(&join(&conversation()), &cuts));
        let timeless = |out: &[Observation]| records(out).into_iter().map(timeless).collect::<Vec<_>>();
        prop_assert_eq!(timeless(&other), timeless(&whole));
        prop_assert_eq!(token_sum(&other), token_sum(&whole));
    }

    /// Whatever is lost, a record is right or says that it is not.
    #[test]
    fn any_loss_shows(
        cuts in proptest::collection::vec(1usize..600, 1..10),
        fates in proptest::collection::vec(fate(), 1..60),
    ) {
        let whole = play(&conversation());
        let truth = records(&whole);
        let rows = recut(&conversation(), &cuts);
        let out = play(&suffer(&rows, &fates));
        prop_assert_eq!(check_pairing(&out), 0);
        prop_assert!(records(&out).len() <= truth.len() + rows.len());
        for record in records(&out) {
            if record.status == Status::Incomplete {
                continue;
            }
            let same = |t: &&&RequestRecord| {
                let mut expected = RequestRecord {
                    id: record.id.clone(),
                    trace_id: record.trace_id.clone(),
                    // Tells of other requests too, and those may have been lost.
                    diagnosis: record.diagnosis.clone(),
                    ..(**t).clone()
                };
                if record.sources.t1.is_none() {
                    // Inferred from other requests too: where some of those were lost, it is not told.
                    expected.t1_ns = None;
                    expected.queue_s = None;
                    expected.prefill_s = None;
                    expected.t1_error_s = None;
                    expected.sources.t1 = None;
                }
                if record.status == Status::ClientError {
                    // A refusal may come before the whole request was read, so how much of it there was is not known.
                    expected.request_bytes = record.request_bytes;
                    if &*record.model == "unknown" {
                        expected.model = record.model.clone();
                    }
                }
                expected == *record
            };
            prop_assert!(truth.iter().any(|t| same(&t)), "{:#?}\nnot among {:#?}", record, truth);
        }
    }

    /// Time may do as it likes.
    #[test]
    fn any_times_are_survived(times in proptest::collection::vec(any::<u64>(), 40)) {
        let mut pipeline = pipeline(None);
        let mut wire = Wire::new(socket(7, Role::Accepted, false));
        let mut out = Vec::new();
        for ((_, step), at) in conversation().iter().zip(times) {
            pipeline.handle(wire.event(at, step).expect("an event"), &mut out);
            pipeline.advance(at, &mut out);
        }
        check_pairing(&out);
        prop_assert!(finished(&out).len() <= 40);
    }

    /// Events in any order, with any offsets and bytes: nothing breaks, nothing is left open.
    #[test]
    fn any_events_are_survived(steps in proptest::collection::vec(any_step(), 0..150)) {
        let mut pipeline = Pipeline::new(PipelineConfig { max_connections: 2, max_pipelined: 2, ..PipelineConfig::default() });
        let mut out = Vec::new();
        let mut positions = std::collections::HashMap::new();
        for (at, mut kind) in steps {
            // Small offsets stand for the one that fits.
            if let EventKind::Data { socket, direction, offset, len, .. } = &mut kind {
                let next: &mut u64 = positions.entry((socket.conn, *direction as u8)).or_default();
                if *offset < 2500 {
                    *offset = *next;
                }
                *next = offset.saturating_add(u64::from(*len));
            }
            pipeline.handle(Event { at, kind }, &mut out);
            if at % 5 == 0 {
                pipeline.advance(at, &mut out);
            }
            prop_assert!(pipeline.stats().connections + pipeline.stats().ignored <= 2);
            prop_assert_eq!(check_pairing(&out), pipeline.stats().in_flight);
        }
        pipeline.handle(Event { at: 0, kind: EventKind::Exit { tgid: TGID } }, &mut out);
        prop_assert_eq!(check_pairing(&out), 0);
        let stats = pipeline.stats();
        prop_assert_eq!((stats.connections, stats.in_flight), (0, 0));
    }
}

fn fragments() -> Vec<Vec<u8>> {
    vec![
        ask(),
        text(&ask()[..100]),
        chat("{}"),
        chat(r#"{"model":"n"}"#),
        text("GET /health HTTP/1.1\r\n\r\n"),
        text("HEAD /v1/models HTTP/1.1\r\n\r\n"),
        stream_head(),
        role(),
        word(),
        text(&word()[..40]),
        text(&word()[40..]),
        usage(5, 2),
        usage(5, u64::MAX),
        done(),
        last_chunk(),
        json("200 OK", r#"{"object":"chat.completion","model":"m"}"#),
        json("500 Oops", ""),
        text("HTTP/1.1 100 Continue\r\n\r\n"),
        text("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"),
        text("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"),
        text("\x16\x03\x01"),
        text("data: {\"error\":{}}\n\n"),
        text("ffffffffffffffff\r\n"),
    ]
}

fn any_step() -> impl Strategy<Value = (u64, EventKind<'static>)> {
    let bytes = prop_oneof![
        20 => (0..fragments().len()).prop_map(|i| fragments()[i].clone()),
        1 => proptest::collection::vec(any::<u8>(), 0..40),
    ];
    let conn = (1u64..4, any::<bool>(), 0usize..8).prop_map(|(conn, late, role)| {
        let role = [Role::Unknown, Role::Connected]
            .get(role)
            .copied()
            .unwrap_or(Role::Accepted);
        socket(conn, role, late)
    });
    let data = (
        any::<bool>(),
        prop_oneof![3 => 0u64..3000, 1 => any::<u64>()],
        0u32..50,
        bytes,
    );
    (0u64..2_000_000, conn, 0u8..24, data).prop_map(|(at, socket, what, (inbound, offset, extra, bytes))| {
        let direction = if inbound { Direction::In } else { Direction::Out };
        let kind = match what {
            0 => EventKind::Open(socket),
            1 => EventKind::Eof(socket),
            2 => EventKind::Shutdown(socket),
            3 => EventKind::Error {
                socket,
                direction,
                errno: extra as u16,
            },
            4 if inbound => EventKind::Stall(socket),
            4 => EventKind::Peer {
                socket,
                address: std::net::Ipv4Addr::from_bits(extra).into(),
                offset: u64::from(extra / 25),
            },
            5 => EventKind::Close(Closed {
                socket,
                bytes_in: offset,
                bytes_out: u64::from(extra),
                peer_gone: extra % 2 == 1,
            }),
            6 => EventKind::EngineUp(engine(if inbound { Some("served") } else { None })),
            7 => EventKind::EngineDown {
                engine: "vllm-8000".into(),
            },
            _ => EventKind::Data {
                socket,
                direction,
                offset,
                len: (bytes.len() as u32).saturating_add(if what < 10 { extra } else { 0 }),
                bytes: bytes.leak(),
                dur_ns: extra * 1_000_000,
                blocked: false,
                arrived: None,
            },
        };
        (at, kind)
    })
}

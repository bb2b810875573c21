//! What the core holds at most, and what it takes at least.

mod support;

use infertap_abi::{Direction, Role};
use infertap_core::{Event, EventKind, Observation, Pipeline, PipelineConfig, Status};
use support::*;

#[test]
fn a_hundred_thousand_connections_stay_within_bounds() {
    let config = PipelineConfig::default();
    let (most, bytes) = (config.max_connections, config.max_state_bytes);
    let mut pipeline = Pipeline::new(config);
    let mut out = Vec::new();
    let request = ask();
    let answer = [stream_head(), word()].concat();
    let (mut started, mut evicted) = (0, 0);
    for conn in 1..=100_000u64 {
        let mut wire = Wire::new(socket(conn, Role::Accepted, false));
        let at = conn * 1000;
        pipeline.handle(borrowed(&mut wire, at, Direction::In, &request), &mut out);
        pipeline.handle(borrowed(&mut wire, at, Direction::Out, &answer), &mut out);
        for observation in out.drain(..) {
            match observation {
                Observation::Started(_) => started += 1,
                Observation::Finished(f) => {
                    assert_eq!(f.record.incomplete, ["evicted"]);
                    evicted += 1;
                }
                _ => {}
            }
        }
        let stats = pipeline.stats();
        assert!(
            stats.connections <= most && stats.state_bytes <= bytes,
            "{stats:?}"
        );
    }
    assert_eq!(started, 100_000);
    assert_eq!(evicted + pipeline.stats().in_flight, started);
}

/// As [`Wire::event`], without giving the bytes away.
fn borrowed<'a>(wire: &mut Wire, at: u64, direction: Direction, bytes: &'a [u8]) -> Event<'a> {
    let position = if direction == Direction::In {
        &mut wire.read
    } else {
        &mut wire.written
    };
    let offset = *position;
    *position += bytes.len() as u64;
    Event {
        at,
        kind: EventKind::Data {
            socket: wire.socket,
            direction,
            offset,
            len: bytes.len() as u32,
            bytes,
            dur_ns: 0,
            blocked: false,
            arrived: None,
        },
    }
}

#[test]
fn half_heads_and_half_events_stay_within_bounds() {
    let limit = 8 * 1024 * 1024;
    let mut pipeline = Pipeline::new(PipelineConfig {
        max_state_bytes: limit,
        ..PipelineConfig::default()
    });
    let half_head = text(format!(
        "POST /v1/chat/completions HTTP/1.1\r\nX: {}",
        "x".repeat(60_000)
    ));
    let half_event = [
        text("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: "),
        vec![b'x'; 900_000],
    ]
    .concat();
    let mut out = Vec::new();
    for conn in 1..=400u64 {
        let mut wire = Wire::new(socket(conn, Role::Accepted, false));
        if conn % 2 == 0 {
            pipeline.handle(borrowed(&mut wire, conn, Direction::In, &half_head), &mut out);
        } else {
            pipeline.handle(borrowed(&mut wire, conn, Direction::In, &ask()), &mut out);
            pipeline.handle(borrowed(&mut wire, conn, Direction::Out, &half_event), &mut out);
        }
        assert!(
            pipeline.stats().state_bytes <= limit + 3 * 1024 * 1024,
            "{:?}",
            pipeline.stats()
        );
    }
    assert!(pipeline.stats().connections < 400);
    assert_eq!(check_pairing(&out), pipeline.stats().in_flight);
}

#[test]
fn four_megabytes_each_way_are_accounted_to_the_byte() {
    let request = chat(&format!(
        r#"{{"messages":[{{"role":"user","content":"{}"}}],"stream":true,"model":"m"}}"#,
        "lorem \\\"ipsum\\\" ".repeat(260_000)
    ));
    assert!(request.len() > 4_000_000);
    let mut rows: Vec<Row> = request
        .chunks(256_000)
        .map(|piece| (0, In(text(piece))))
        .collect();
    let mut written = stream_head();
    for _ in 0..30_000 {
        written.extend(word());
    }
    written.extend([done(), last_chunk()].concat());
    assert!(written.len() > 4_000_000);
    rows.extend(written.chunks(16_384).map(|piece| (10, Out(text(piece)))));
    let out = play(&rows);
    let record = records(&out)[0];
    assert_eq!(&*record.model, "m");
    assert_eq!(
        (
            record.status,
            record.request_bytes,
            record.response_bytes,
            record.output_tokens
        ),
        (
            Status::Ok,
            request.len() as u64,
            written.len() as u64,
            Some(30_000)
        )
    );
    assert_eq!(
        finished(&out)[0].gaps.len(),
        PipelineConfig::default().max_token_times
    );
}

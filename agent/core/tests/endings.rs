//! How requests end: every status, and every kind of loss.

mod support;

use expect_test::expect;
use infertap_abi::Role;
use infertap_core::{Event, EventKind, Observation, Status};
use support::*;

#[test]
fn every_ending_has_its_status() {
    let error = |json: &str| event(json);
    let until_close = || text("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n");
    let plain_event = |json: &str| text(format!("data: {json}\n\n"));
    let plain_word = || plain_event(r#"{"choices":[{"index":0,"delta":{"content":"a"}}]}"#);
    let plain_stop = || plain_event(r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#);
    let table: Vec<(&str, Status, Option<u64>, Vec<Row>)> = vec![
        (
            "complete",
            Status::Ok,
            Some(2),
            vec![(40, Out(done())), (41, Out(last_chunk()))],
        ),
        (
            "complete, then the client goes",
            Status::Ok,
            Some(2),
            vec![(40, Out([done(), last_chunk()].concat())), (41, Eof), (42, Close)],
        ),
        (
            "half-closed by the client, then complete",
            Status::Ok,
            Some(2),
            vec![(35, Eof), (40, Out(done())), (41, Out(last_chunk())), (42, Close)],
        ),
        (
            "the client hangs up on [DONE]",
            Status::Ok,
            Some(2),
            vec![(40, Out(done())), (41, Eof), (42, Close)],
        ),
        (
            "the client goes, seen by a read",
            Status::Cancelled,
            Some(2),
            vec![(35, Eof), (36, Close)],
        ),
        (
            "the client goes, one more word",
            Status::Cancelled,
            Some(3),
            vec![(35, Eof), (36, Out(word())), (37, Close)],
        ),
        (
            "the client goes, seen by a reset",
            Status::Cancelled,
            Some(2),
            vec![(35, ReadError(104)), (36, Close)],
        ),
        (
            "the client goes, seen by a failed write",
            Status::Cancelled,
            Some(2),
            vec![(35, WriteError(32))],
        ),
        (
            "a failed write whose errno nobody saw",
            Status::Cancelled,
            Some(2),
            vec![(35, WriteError(0)), (36, Close)],
        ),
        (
            "the client goes, the server shuts down",
            Status::Cancelled,
            Some(2),
            vec![(35, Eof), (36, Shutdown), (37, Close)],
        ),
        (
            "the server closes by itself",
            Status::ServerError,
            Some(2),
            vec![(36, Close)],
        ),
        (
            "the server shuts down by itself",
            Status::ServerError,
            Some(2),
            vec![(36, Shutdown), (37, Eof), (38, Close)],
        ),
        (
            "a failed write of the server's own making",
            Status::ServerError,
            Some(2),
            vec![(35, WriteError(14)), (36, Close)],
        ),
        ("the server dies", Status::ServerError, Some(2), vec![(36, Exit)]),
        (
            "an error in the stream",
            Status::ServerError,
            Some(2),
            vec![
                (
                    36,
                    Out(error(
                        r#"{"error":{"message":"x","type":"InternalServerError","code":500}}"#,
                    )),
                ),
                (37, Out(done())),
                (37, Out(last_chunk())),
            ],
        ),
        (
            "a named error",
            Status::ServerError,
            Some(2),
            vec![
                (36, Out(chunk("event: error\ndata: out of memory\n\n"))),
                (37, Out(last_chunk())),
            ],
        ),
        (
            "an error of the client in the stream",
            Status::ClientError,
            Some(2),
            vec![
                (36, Out(error(r#"{"error":{"message":"x","code":"400"}}"#))),
                (37, Out(last_chunk())),
            ],
        ),
        (
            "an error as older engines write it",
            Status::ClientError,
            Some(2),
            vec![
                (36, Out(error(r#"{"object":"error","message":"x","code":404}"#))),
                (37, Out(last_chunk())),
            ],
        ),
        (
            "nothing for ten minutes",
            Status::Timeout,
            Some(2),
            vec![
                (700_000, Advance),
                (700_001, Out(word())),
                (700_002, Out(done())),
                (700_003, Close),
            ],
        ),
        (
            "nothing for ten minutes after the client went",
            Status::Cancelled,
            Some(2),
            vec![(35, Eof), (700_000, Advance)],
        ),
    ];
    for (name, status, output, ending) in table {
        let out = play(&[streaming(), ending].concat());
        let records = records(&out);
        assert_eq!(records.len(), 1, "{name}: {}", render(&out));
        assert_eq!(
            (records[0].status, records[0].output_tokens),
            (status, output),
            "{name}"
        );
        let told: u64 = out
            .iter()
            .map(|o| {
                if let Observation::Tokens { count, .. } = o {
                    *count
                } else {
                    0
                }
            })
            .sum();
        assert_eq!(Some(told), output, "{name}");
    }
    // Without a stream that has begun.
    let table: Vec<(&str, Status, Vec<Row>)> = vec![
        (
            "refused",
            Status::ClientError,
            vec![(0, In(ask())), (1, Out(json("400 Bad Request", "{}")))],
        ),
        (
            "refused before the body was read",
            Status::ClientError,
            vec![
                (0, In(text(&ask()[..150]))),
                (1, Out(json("413 Content Too Large", ""))),
                (2, Close),
            ],
        ),
        (
            "an error of the server",
            Status::ServerError,
            vec![(0, In(ask())), (1, Out(json("503 Service Unavailable", "{}")))],
        ),
        (
            "too late",
            Status::Timeout,
            vec![(0, In(ask())), (1, Out(json("504 Gateway Timeout", "{}")))],
        ),
        (
            "an error with status 200",
            Status::ServerError,
            vec![
                (0, In(ask())),
                (
                    1,
                    Out(json(
                        "200 OK",
                        r#"{"error":{"message":"x","type":"y","code":500}}"#,
                    )),
                ),
            ],
        ),
        (
            "an error that is null",
            Status::Ok,
            vec![
                (0, In(ask())),
                (1, Out(json("200 OK", r#"{"error":null,"choices":[]}"#))),
            ],
        ),
        (
            "the client goes before the answer",
            Status::Cancelled,
            vec![(0, In(ask())), (1, Eof), (2, Close)],
        ),
        (
            "the client goes while it sends",
            Status::Cancelled,
            vec![(0, In(text(&ask()[..150]))), (1, Eof), (2, Close)],
        ),
        (
            "the server closes without an answer",
            Status::ServerError,
            vec![(0, In(ask())), (2, Close)],
        ),
        (
            "no answer at all",
            Status::Timeout,
            vec![(0, In(ask())), (600_001, Advance)],
        ),
        (
            "until close, with an end",
            Status::Ok,
            vec![
                (0, In(ask())),
                (1, Out(until_close())),
                (2, Out(plain_word())),
                (3, Out(plain_event("[DONE]"))),
                (4, Close),
            ],
        ),
        (
            "until close, with a reason",
            Status::Ok,
            vec![
                (0, In(ask())),
                (1, Out(until_close())),
                (2, Out(plain_word())),
                (3, Out(plain_stop())),
                (4, Shutdown),
                (5, Close),
            ],
        ),
        (
            "until close, broken off",
            Status::ServerError,
            vec![
                (0, In(ask())),
                (1, Out(until_close())),
                (2, Out(plain_word())),
                (4, Close),
            ],
        ),
        (
            "until close, cancelled",
            Status::Cancelled,
            vec![
                (0, In(ask())),
                (1, Out(until_close())),
                (2, Out(plain_word())),
                (3, Eof),
                (4, Close),
            ],
        ),
        (
            "a document until close",
            Status::Ok,
            vec![
                (0, In(ask())),
                (1, Out(text("HTTP/1.0 200 OK\r\n\r\n{\"choices\":[]}"))),
                (4, Close),
            ],
        ),
        (
            "half a document until close",
            Status::ServerError,
            vec![
                (0, In(ask())),
                (1, Out(text("HTTP/1.0 200 OK\r\n\r\n{\"choices\":["))),
                (4, Close),
            ],
        ),
    ];
    for (name, status, rows) in table {
        let out = play(&rows);
        let statuses: Vec<_> = records(&out).iter().map(|r| r.status).collect();
        assert_eq!(statuses, [status], "{name}: {}", render(&out));
    }
}

#[test]
fn a_cancelled_request_keeps_what_had_streamed() {
    let out = play(&[streaming(), vec![(35, Eof), (36, Close)]].concat());
    expect![[r#"
        started vllm-8000 m
        tokens output +2
        finished cancelled openai_chat m http=200 streamed=yes id=chatcmpl-1 ttft=0.020 decode=0.010 tpot=0.010 e2e=0.030 out=2(chunk) chunks=2 gaps=0.010/1
    "#]].assert_eq(&render(&out));
}

#[test]
fn a_cancellation_shows_at_the_close_when_its_own_event_was_lost() {
    let out = play(&[streaming(), vec![(35, LostEof), (36, Close)]].concat());
    expect![[r#"
        started vllm-8000 m
        tokens output +2
        finished cancelled openai_chat m http=200 streamed=yes id=chatcmpl-1 ttft=0.020 decode=0.010 tpot=0.010 e2e=0.030 out=2(chunk) chunks=2 gaps=0.010/1
    "#]].assert_eq(&render(&out));
}

#[test]
fn an_engine_that_goes_down_takes_its_requests_along() {
    let mut pipeline = pipeline(None);
    let mut out = play_on(
        &mut pipeline,
        &mut Wire::new(socket(7, Role::Accepted, false)),
        &streaming(),
    );
    pipeline.handle(
        Event {
            at: 2_000_000_000,
            kind: EventKind::EngineDown {
                engine: "vllm-8000".into(),
            },
        },
        &mut out,
    );
    assert_eq!(records(&out)[0].status, Status::ServerError);
    assert_eq!(pipeline.stats().connections, 0);
    assert_eq!(pipeline.stats().in_flight, 0);
}

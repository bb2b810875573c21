//! Which exchanges are requests, and what they are called: pairing, models, trace ids.

mod support;

use expect_test::{Expect, expect};
use infertap_abi::Role;
use infertap_core::{Event, EventKind, RequestRecord, TraceSource};
use support::*;

fn check(rows: &[Row], expected: &Expect) {
    expected.assert_eq(&render(&play(rows)));
}

#[test]
fn what_is_no_inference_is_paired_and_not_told() {
    check(
        &[
            (
                0,
                In(text(
                    "GET /health HTTP/1.1\r\nHost: x\r\n\r\nHEAD /v1/models HTTP/1.1\r\nHost: x\r\n\r\n",
                )),
            ),
            (1, Out(json("200 OK", "{}"))),
            (1, Out(text("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n"))),
            (2, In(chat(r#"{"model":"m"}"#))),
            (
                9,
                Out(json(
                    "200 OK",
                    r#"{"usage":{"prompt_tokens":1,"completion_tokens":3}}"#,
                )),
            ),
            (10, In(post("/v1/embeddings", "", r#"{"model":"m","input":"x"}"#))),
            (
                11,
                Out(json(
                    "200 OK",
                    r#"{"object":"list","model":"m","usage":{"prompt_tokens":1}}"#,
                )),
            ),
            (12, Close),
        ],
        &expect![[r#"
            started vllm-8000 m
            tokens input +1
            tokens output +3
            finished ok openai_chat m http=200 e2e=0.007 in=1(usage) out=3(usage) chunks=0
        "#]],
    );
}

#[test]
fn pipelined_requests_and_interim_responses() {
    let two = [chat(r#"{"model":"a"}"#), chat(r#"{"model":"b"}"#)].concat();
    check(
        &[
            (0, In(two)),
            (3, Out(text("HTTP/1.1 100 Continue\r\n\r\n"))),
            (5, Out(json("200 OK", r#"{"model":"a"}"#))),
            (
                9,
                Out(json(
                    "400 Bad Request",
                    r#"{"error":{"message":"no","type":"invalid_request_error","code":400}}"#,
                )),
            ),
        ],
        &expect![[r#"
            started vllm-8000 a
            started vllm-8000 b
            finished ok openai_chat a http=200 e2e=0.005 chunks=0
            finished client_error openai_chat b http=400 e2e=0.009 chunks=0
        "#]],
    );
}

#[test]
fn the_model_comes_from_the_best_place() {
    let no_model = || chat(r#"{"messages":[]}"#);
    let answer = || Out(json("200 OK", r#"{"model":"answered","choices":[]}"#));
    // Nobody else knows: the response.
    check(
        &[(0, In(no_model())), (1, Out(json("200 OK", r#"{"choices":[]}"#)))],
        &expect![[r#"
        started vllm-8000 unknown
        finished ok openai_chat unknown http=200 e2e=0.001 chunks=0
    "#]],
    );
    check(
        &[(0, In(no_model())), (1, answer())],
        &expect![[r#"
        started vllm-8000 answered
        finished ok openai_chat answered http=200 e2e=0.001 chunks=0
    "#]],
    );
    // The engine's is known at once, so the request counts as running at once.
    let mut known = pipeline(Some("served"));
    let mut wire = Wire::new(socket(7, Role::Accepted, false));
    let out = play_on(&mut known, &mut wire, &[(0, In(no_model()))]);
    expect![[r#"
        started vllm-8000 served
    "#]]
    .assert_eq(&render(&out));
    let out = play_on(&mut known, &mut wire, &[(1, answer()), (2, In(ask()))]);
    expect![[r#"
        finished ok openai_chat served http=200 e2e=0.001 chunks=0
        started vllm-8000 m
    "#]]
    .assert_eq(&render(&out));
}

#[test]
fn the_request_starts_when_its_model_is_read_and_not_later() {
    let body = format!(
        r#"{{"messages":["{}"],"model":"m","tail":"{}"}}"#,
        "x".repeat(5000),
        "y".repeat(5000)
    );
    let request = chat(&body);
    let until_model = request.len() - 5020;
    let mut pipeline = pipeline(None);
    let mut wire = Wire::new(socket(7, Role::Accepted, false));
    assert!(play_on(&mut pipeline, &mut wire, &[(0, In(text(&request[..4000])))]).is_empty());
    let out = play_on(
        &mut pipeline,
        &mut wire,
        &[(1, In(text(&request[4000..until_model + 10])))],
    );
    expect![[r#"
        started vllm-8000 m
    "#]]
    .assert_eq(&render(&out));
}

#[test]
fn trace_ids_come_from_the_client_or_from_facts() {
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let header = format!("traceparent: 00-{trace}-00f067aa0ba902b7-01\r\n");
    let rows = |header: &str| {
        [
            (0, In(post("/v1/chat/completions", header, r#"{"model":"m"}"#))),
            (1, Out(json("200 OK", "{}"))),
            (2, In(post("/v1/chat/completions", header, r#"{"model":"m"}"#))),
            (3, Out(json("200 OK", "{}"))),
        ]
    };
    let out = play(&rows(&header));
    let of_header = |r: &RequestRecord| {
        r.trace_id == trace
            && r.trace_source == TraceSource::Traceparent
            && r.parent_span_id.as_deref() == Some("00f067aa0ba902b7")
    };
    assert!(records(&out).iter().all(|r| of_header(r)), "{out:?}");
    let (out, again) = (play(&rows("")), play(&rows("")));
    let ids: Vec<_> = records(&out)
        .iter()
        .map(|r| (r.id.clone(), r.trace_id.clone()))
        .collect();
    let ids_again: Vec<_> = records(&again)
        .iter()
        .map(|r| (r.id.clone(), r.trace_id.clone()))
        .collect();
    assert_eq!(ids, ids_again);
    assert_ne!(ids[0], ids[1]);
}

#[test]
fn what_is_read_after_the_servers_last_word_is_no_request() {
    // The client's next request crosses the end of keep-alive: the server drains it, the client sends it elsewhere.
    check(
        &[
            (0, In(chat(r#"{"model":"m"}"#))),
            (5, Out(json("200 OK", "{}"))),
            (5, Shutdown),
            (6, In(chat(r#"{"model":"m"}"#))),
            (7, Eof),
            (7, Close),
        ],
        &expect![[r#"
            started vllm-8000 m
            finished ok openai_chat m http=200 e2e=0.005 chunks=0
        "#]],
    );
}

#[test]
fn a_request_begins_when_it_arrives_but_not_before_the_read_of_the_one_before() {
    let mut pipeline = pipeline(None);
    let mut wire = Wire::new(socket(7, Role::Accepted, false));
    let mut out = Vec::new();
    let ms = |ms: u64| 1_000_000_000 + ms * 1_000_000;
    let open = Event {
        at: ms(0),
        kind: EventKind::Open(socket(7, Role::Accepted, false)),
    };
    pipeline.handle(open, &mut out);
    for (read, came) in [(100, 60), (300, 40)] {
        let mut event = wire.event(ms(read), &In(ask())).expect("not lost");
        if let EventKind::Data { arrived, .. } = &mut event.kind {
            *arrived = Some(ms(came));
        }
        pipeline.handle(event, &mut out);
        let answer = vec![(
            read + 10,
            Out(json("200 OK", r#"{"object":"chat.completion","model":"m"}"#)),
        )];
        out.extend(play_on(&mut pipeline, &mut wire, &answer));
    }
    let began: Vec<_> = records(&out).iter().map(|record| record.t0_ns).collect();
    assert_eq!(began, [Some(ms(60)), Some(ms(100))]);
}

//! What is lost on the way, dropped to stay within bounds, repeated, or out of time.

mod support;

use expect_test::expect;
use infertap_abi::{Direction, Role};
use infertap_core::{Event, EventKind, Pipeline, PipelineConfig};
use support::*;

#[test]
fn bytes_over_the_capture_budget() {
    // In the request: nothing that is measured depends on it, and the length is known.
    let body = format!(
        r#"{{"messages":["{}"],"model":"m","stream":true}}"#,
        "x".repeat(9000)
    );
    let request = chat(&body);
    let expected_bytes = request.len() as u64;
    let mut rows = streaming();
    rows[0] = (0, CutIn(request, 1000));
    rows.extend([(40, Out(done())), (40, Out(last_chunk()))]);
    let out = play(&rows);
    assert_eq!(records(&out)[0].request_bytes, expected_bytes);
    expect![[r#"
        anomaly gap 1
        started vllm-8000 m
        tokens output +2
        finished ok openai_chat m http=200 streamed=yes id=chatcmpl-1 ttft=0.020 decode=0.010 tpot=0.010 e2e=0.040 out=2(chunk) chunks=2 gaps=0.010/1
    "#]].assert_eq(&render(&out));
    // In the response: what it held is unknown.
    let mut rows = streaming();
    rows[3] = (20, CutOut(word(), 20));
    rows.extend([(40, Out(done())), (40, Out(last_chunk()))]);
    expect![[r#"
        started vllm-8000 m
        anomaly gap 1
        finished incomplete openai_chat m http=200 streamed=yes id=chatcmpl-1 e2e=0.040 chunks=0 incomplete=gap_out
    "#]].assert_eq(&render(&play(&rows)));
}

#[test]
fn lost_pieces() {
    let ending = || {
        vec![
            (40, Out(word())),
            (50, Out(usage(5, 4))),
            (51, Out(done())),
            (51, Out(last_chunk())),
        ]
    };
    let next = || {
        vec![
            (60, In(chat(r#"{"model":"n"}"#))),
            (
                70,
                Out(json("200 OK", r#"{"object":"chat.completion","model":"n"}"#)),
            ),
        ]
    };
    let with = |index: usize, step: fn(Vec<u8>) -> Step| {
        let mut rows = [streaming(), ending(), next()].concat();
        let bytes = match &rows[index].1 {
            In(bytes) | Out(bytes) => bytes.clone(),
            other => panic!("{other:?}"),
        };
        rows[index].1 = step(bytes);
        render(&play(&rows))
    };
    // A word in the middle of the stream.
    expect![[r#"
        started vllm-8000 m
        anomaly gap 1
        tokens input +5
        tokens output +4
        finished incomplete openai_chat m http=200 streamed=yes id=chatcmpl-1 ttft=0.040 e2e=0.051 in=5(usage) out=4(usage) chunks=1 incomplete=gap_out
        started vllm-8000 n
        finished ok openai_chat n http=200 e2e=0.010 chunks=0
    "#]].assert_eq(&with(3, LostOut));
    // The stream's head.
    expect![[r#"
        started vllm-8000 m
        anomaly gap 1
        tokens input +5
        tokens output +4
        finished incomplete openai_chat m streamed=yes id=chatcmpl-1 ttft=0.020 decode=0.020 tpot=0.007 e2e=0.051 in=5(usage) out=4(usage) chunks=3 gaps=0.010/1,0.010/1 incomplete=gap_out
        started vllm-8000 n
        finished ok openai_chat n http=200 e2e=0.010 chunks=0
    "#]]
    .assert_eq(&with(1, LostOut));
    // The stream's last chunk: found when the next response comes.
    expect![[r#"
        started vllm-8000 m
        started vllm-8000 n
        tokens input +5
        tokens output +4
        finished incomplete openai_chat m http=200 streamed=yes id=chatcmpl-1 ttft=0.020 decode=0.020 tpot=0.007 e2e=0.070 in=5(usage) out=4(usage) chunks=3 gaps=0.010/1,0.010/1 incomplete=gap_out
        finished incomplete openai_chat n http=200 e2e=0.010 chunks=0 incomplete=gap_out
        anomaly gap 1
    "#]].assert_eq(&with(8, LostOut));
    // The first request.
    expect![[r#"
        anomaly unexpected_response 1
        started vllm-8000 m
        tokens input +5
        tokens output +4
        finished incomplete openai_chat m http=200 streamed=yes id=chatcmpl-1 decode=0.020 tpot=0.007 in=5(usage) out=4(usage) chunks=3 gaps=0.010/1,0.010/1 incomplete=gap_in
        started vllm-8000 n
        anomaly gap 1
        finished incomplete openai_chat n http=200 e2e=0.010 chunks=0 incomplete=gap_in
    "#]].assert_eq(&with(0, LostIn));
    // The second request, and its response.
    expect![[r#"
        started vllm-8000 m
        tokens input +5
        tokens output +4
        finished ok openai_chat m http=200 streamed=yes id=chatcmpl-1 ttft=0.020 decode=0.020 tpot=0.007 e2e=0.051 in=5(usage) out=4(usage) chunks=3 gaps=0.010/1,0.010/1
        started vllm-8000 n
        finished incomplete openai_chat n http=200 chunks=0 incomplete=gap_in
        anomaly unexpected_response 1
    "#]].assert_eq(&with(9, LostIn));
    expect![[r#"
        started vllm-8000 m
        tokens input +5
        tokens output +4
        finished ok openai_chat m http=200 streamed=yes id=chatcmpl-1 ttft=0.020 decode=0.020 tpot=0.007 e2e=0.051 in=5(usage) out=4(usage) chunks=3 gaps=0.010/1,0.010/1
        started vllm-8000 n
    "#]].assert_eq(&with(10, LostOut));
    // The last piece before the end is missed too.
    let rows = [
        streaming(),
        vec![
            (40, LostOut([word(), done(), last_chunk()].concat())),
            (41, Close),
        ],
    ]
    .concat();
    expect![[r#"
        started vllm-8000 m
        tokens output +2
        finished incomplete openai_chat m http=200 streamed=yes id=chatcmpl-1 ttft=0.020 decode=0.010 tpot=0.010 e2e=0.041 out=2(chunk) chunks=2 gaps=0.010/1 incomplete=gap_out
        anomaly gap 1
    "#]].assert_eq(&render(&play(&rows)));
}

#[test]
fn a_request_whose_response_may_be_what_was_lost_says_so_though_it_came_later() {
    let rows = [
        streaming(),
        vec![
            (40, Out(done())),
            (40, Out(last_chunk())),
            (50, LostOut(text("HTTP/1.1 200 OK\r\n"))),
            (51, Out(text("\r\n"))),
            (60, In(chat(r#"{"model":"n"}"#))),
            (61, In(chat(r#"{"model":"o"}"#))),
            (
                70,
                Out(json("200 OK", r#"{"object":"chat.completion","model":"o"}"#)),
            ),
        ],
    ]
    .concat();
    expect![[r#"
        started vllm-8000 m
        tokens output +2
        finished ok openai_chat m http=200 streamed=yes id=chatcmpl-1 ttft=0.020 decode=0.010 tpot=0.010 e2e=0.040 out=2(chunk) chunks=2 gaps=0.010/1
        anomaly gap 1
        started vllm-8000 n
        started vllm-8000 o
        finished incomplete openai_chat n chunks=0 incomplete=gap_out
        finished ok openai_chat o http=200 e2e=0.009 chunks=0
    "#]].assert_eq(&render(&play(&rows)));
}

#[test]
fn repeated_bytes_are_taken_once() {
    let mut pipeline = pipeline(None);
    let socket = socket(7, Role::Accepted, false);
    let mut wire = Wire::new(socket);
    let mut out = play_on(&mut pipeline, &mut wire, &streaming());
    let again = Event {
        at: 1_035_000_000,
        kind: EventKind::Data {
            socket,
            direction: Direction::Out,
            offset: wire.written - 50,
            len: 50,
            bytes: word()[word().len() - 50..].to_vec().leak(),
            dur_ns: 0,
            blocked: false,
            arrived: None,
        },
    };
    pipeline.handle(again, &mut out);
    out.extend(play_on(
        &mut pipeline,
        &mut wire,
        &[(40, Out(done())), (40, Out(last_chunk()))],
    ));
    expect![[r#"
        started vllm-8000 m
        anomaly overlap 1
        tokens output +2
        finished ok openai_chat m http=200 streamed=yes id=chatcmpl-1 ttft=0.020 decode=0.010 tpot=0.010 e2e=0.040 out=2(chunk) chunks=2 gaps=0.010/1
    "#]].assert_eq(&render(&out));
}

#[test]
fn time_that_goes_back_is_told() {
    let mut rows = streaming();
    rows[4].0 = 5;
    rows.extend([(40, Out(done())), (40, Out(last_chunk()))]);
    expect![[r#"
        started vllm-8000 m
        anomaly time_went_back 1
        tokens output +2
        finished incomplete openai_chat m http=200 streamed=yes id=chatcmpl-1 ttft=0.020 decode=0.000 tpot=0.000 e2e=0.040 out=2(chunk) chunks=2 gaps=0.000/1 incomplete=clock
    "#]].assert_eq(&render(&play(&rows)));
}

#[test]
fn the_least_recently_active_connection_is_evicted() {
    let mut pipeline = Pipeline::new(PipelineConfig {
        max_connections: 2,
        ..PipelineConfig::default()
    });
    let mut wires: Vec<Wire> = (1..=3)
        .map(|conn| Wire::new(socket(conn, Role::Accepted, false)))
        .collect();
    let mut out = play_on(&mut pipeline, &mut wires[0], &streaming());
    out.extend(play_on(&mut pipeline, &mut wires[1], &streaming()));
    out.extend(play_on(&mut pipeline, &mut wires[2], &streaming()));
    // The rest of the first stream is not another request; what follows it is.
    let rest = [
        (40, Out(word())),
        (41, Out(done())),
        (41, Out(last_chunk())),
        (50, In(chat(r#"{"model":"m"}"#))),
        (60, Out(json("200 OK", "{}"))),
    ];
    out.extend(play_on(&mut pipeline, &mut wires[0], &rest));
    expect![[r#"
        started unknown m
        started unknown m
        tokens output +2
        finished incomplete openai_chat m http=200 streamed=yes id=chatcmpl-1 ttft=0.020 decode=0.010 tpot=0.010 e2e=0.030 out=2(chunk) chunks=2 gaps=0.010/1 incomplete=evicted
        started unknown m
        anomaly evicted 1
        tokens output +2
        finished incomplete openai_chat m http=200 streamed=yes id=chatcmpl-1 ttft=0.020 decode=0.010 tpot=0.010 e2e=0.030 out=2(chunk) chunks=2 gaps=0.010/1 incomplete=evicted
        anomaly evicted 1
        started unknown m
        finished ok openai_chat m http=200 e2e=0.010 chunks=0
    "#]].assert_eq(&render(&out));
}

#[test]
fn pipelining_is_bounded() {
    let mut pipeline = Pipeline::new(PipelineConfig {
        max_pipelined: 2,
        ..PipelineConfig::default()
    });
    let mut wire = Wire::new(socket(1, Role::Accepted, false));
    let ask = |model: &str| chat(&format!(r#"{{"model":"{model}"}}"#));
    let rows = [
        (0, In([ask("a"), ask("b"), ask("c")].concat())),
        (1, Out(json("200 OK", "{}"))),
        (2, Out(json("200 OK", "{}"))),
        (3, Out(json("404 Not Found", "{}"))),
    ];
    expect![[r#"
        started unknown a
        started unknown b
        finished incomplete openai_chat a chunks=0 incomplete=evicted
        started unknown c
        anomaly evicted 1
        finished ok openai_chat b http=200 e2e=0.002 chunks=0
        finished client_error openai_chat c http=404 e2e=0.003 chunks=0
    "#]]
    .assert_eq(&render(&play_on(&mut pipeline, &mut wire, &rows)));
    // Without an answer to any of them, and none of them inference, the connection is given up.
    let health = "GET /health HTTP/1.1\r\n\r\n".repeat(2000);
    let mut wire = Wire::new(socket(2, Role::Accepted, false));
    expect![[r#"
        ignore 2
        anomaly evicted 1
    "#]]
    .assert_eq(&render(&play_on(
        &mut pipeline,
        &mut wire,
        &[(0, In(text(health)))],
    )));
}

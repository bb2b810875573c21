//! Conversations that the agent joined late, or that it has no use for.

mod support;

use expect_test::{Expect, expect};
use infertap_abi::Role;
use support::*;

fn check(rows: &[Row], expected: &Expect) {
    expected.assert_eq(&render(&play(rows)));
}

#[test]
fn joined_in_the_middle_of_a_stream() {
    let rows = [
        (0, Out(text(&word()[30..]))),
        (10, Out(word())),
        (20, Out(word())),
        (30, Out(stop())),
        (31, Out(done())),
        (31, Out(last_chunk())),
        (50, In(ask())),
        (60, Out(stream_head())),
        (70, Out(word())),
        (80, Out(word())),
        (90, Out(done())),
        (90, Out(last_chunk())),
    ];
    let told = render(&play_late(Role::Unknown, &rows));
    assert_eq!(told, render(&play_late(Role::Accepted, &rows)));
    expect![[r#"
        started vllm-8000 m
        tokens output +2
        finished incomplete openai_chat m streamed=yes id=chatcmpl-1 finish=stop decode=0.010 tpot=0.010 out=2(chunk) chunks=2 gaps=0.010/1 incomplete=late_join
        started vllm-8000 m
        tokens output +2
        finished ok openai_chat m http=200 streamed=yes id=chatcmpl-1 ttft=0.020 decode=0.010 tpot=0.010 e2e=0.040 out=2(chunk) chunks=2 gaps=0.010/1
    "#]].assert_eq(&told);
}

#[test]
fn joined_while_the_prompt_is_processed() {
    let rows = [
        (0, Out(stream_head())),
        (10, Out(word())),
        (20, Out(usage(7, 1))),
        (20, Out(done())),
        (20, Out(last_chunk())),
        (30, In(chat(r#"{"model":"m"}"#))),
        (
            40,
            Out(json("200 OK", r#"{"object":"chat.completion","model":"m"}"#)),
        ),
    ];
    expect![[r#"
        started vllm-8000 m
        tokens input +7
        tokens output +1
        finished incomplete openai_chat m http=200 streamed=yes id=chatcmpl-1 decode=0.000 in=7(usage) out=1(usage) chunks=1 incomplete=late_join
        started vllm-8000 m
        finished ok openai_chat m http=200 e2e=0.010 chunks=0
    "#]].assert_eq(&render(&play_late(Role::Unknown, &rows)));
    let rows = [(
        0,
        Out(json(
            "200 OK",
            r#"{"object":"chat.completion","model":"m","usage":{"completion_tokens":3}}"#,
        )),
    )];
    expect![[r#"
        started vllm-8000 m
        tokens output +3
        finished incomplete openai_chat m http=200 out=3(usage) chunks=0 incomplete=late_join
    "#]]
    .assert_eq(&render(&play_late(Role::Accepted, &rows)));
}

#[test]
fn joined_between_requests_or_in_the_middle_of_one() {
    let answer = || Out(json("200 OK", r#"{"object":"chat.completion","model":"m"}"#));
    let rows = [(0, In(chat(r#"{"model":"m"}"#))), (5, answer())];
    expect![[r#"
        started vllm-8000 m
        finished ok openai_chat m http=200 e2e=0.005 chunks=0
    "#]]
    .assert_eq(&render(&play_late(Role::Unknown, &rows)));
    let rows = [
        (0, In(text(r#"orld"}],"model":"m"}"#))),
        (5, answer()),
        (6, In(chat(r#"{"model":"m"}"#))),
        (9, answer()),
    ];
    expect![[r#"
        started vllm-8000 m
        finished incomplete openai_chat m http=200 chunks=0 incomplete=late_join
        started vllm-8000 m
        finished ok openai_chat m http=200 e2e=0.003 chunks=0
    "#]]
    .assert_eq(&render(&play_late(Role::Unknown, &rows)));
}

#[test]
fn who_only_asks_is_ignored() {
    // Known by its role, or by the way of the bytes.
    let plays = [
        play_late(
            Role::Connected,
            &[(0, Out(ask())), (1, In(stream_head())), (2, Close)],
        ),
        play_late(
            Role::Paired,
            &[(0, Out(ask())), (1, In(stream_head())), (2, Close)],
        ),
        play_late(Role::Unknown, &[(0, Out(ask())), (1, In(stream_head()))]),
        play_late(Role::Unknown, &[(0, In(stream_head())), (1, In(word()))]),
    ];
    for out in plays {
        assert_eq!(render(&out), "ignore 7\n");
    }
}

#[test]
fn what_is_no_http_is_ignored() {
    for (bytes, expected) in [
        (
            &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..],
            expect![[r#"
            ignore 7
            anomaly tls 1
        "#]],
        ),
        (
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            expect![[r#"
            ignore 7
            anomaly http2 1
        "#]],
        ),
        (
            b"*1\r\n$4\r\nPING\r\n",
            expect![[r#"
            ignore 7
            anomaly not_http 1
        "#]],
        ),
        (
            b"\x00\x00\x00\x08\x04\xd2\x16\x2f",
            expect![[r#"
            ignore 7
            anomaly not_http 1
        "#]],
        ),
    ] {
        check(
            &[
                (0, In(text(bytes))),
                (1, In(text(bytes))),
                (2, Out(text("+PONG\r\n"))),
                (3, Close),
            ],
            &expected,
        );
    }
}

#[test]
fn a_connection_that_is_upgraded_is_ignored() {
    check(
        &[
            (
                0,
                In(text(
                    "GET /v1/realtime HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
                )),
            ),
            (
                1,
                Out(text(
                    "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
                )),
            ),
            (2, In(text("\x01\x02"))),
        ],
        &expect![[r#"
            ignore 7
        "#]],
    );
}

//! What passes of heads.

use super::*;
use expect_test::{Expect, expect};

fn run(requests: bool, text: &str) -> (String, Vec<Signal>) {
    let mut machine = LineBlank::new(requests);
    let mut signals = Vec::new();
    let out: Vec<u8> = text
        .bytes()
        .map(|byte| {
            let (answer, signal) = machine.byte(byte);
            if signal != Signal::None {
                signals.push(signal);
            }
            answer
        })
        .collect();
    assert_eq!(out.len(), text.len());
    (String::from_utf8(out).expect("ASCII").replace('\r', ""), signals)
}

#[track_caller]
fn check(requests: bool, text: &str, expected: &Expect) {
    let (blanked, signals) = run(requests, text);
    expected.assert_eq(&blanked);
    assert_eq!(signals, [Signal::HeadEnd(text.trim_start().len() as u64)]);
}

#[test]
fn a_request_head_keeps_its_framing_and_loses_who_sent_it() {
    check(
        true,
        "\r\nPOST /v1/chat/completions?key=secret&x=1 HTTP/1.1\r\nHost: llm.corp.example\r\nAuthorization: Bearer sk-secret\r\n\
         Content-Type: application/json; charset=UTF-8\r\nCONTENT-LENGTH: 120\r\nX-Customer-Acme: 7\r\n\
         Traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\nX-Request-Id: abc\r\n  folded secret\r\n\
         Accept: */*\r\nConnection: keep-alive\r\n\r\n",
        &expect![[r"

            POST /v1/chat/completions?xxxxxxxxxxxxxx HTTP/1.1
            Host: xxxxxxxxxxxxxxxx
            Authorization: xxxxxxxxxxxxxxxx
            Content-Type: application/json; charset=UTF-8
            CONTENT-LENGTH: 120
            X-_____________: x
            Traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01
            X-Request-Id: xxx
              xxxxxxxxxxxxx
            Accept: xxx
            Connection: keep-alive

        "]],
    );
}

#[test]
fn paths_pass_by_segment_and_odd_start_lines_keep_their_shape() {
    check(
        true,
        "BREW http://secret.example/openai/deployments/acme/v1/completions SECRET\r\nsecret\r\n\r\n",
        &expect![[r"
            ZZZZ http://se____________/openai/de_________/a___/v1/completions ______
            se____

        "]],
    );
}

#[test]
fn a_response_head_keeps_status_and_encodings() {
    check(
        false,
        "HTTP/1.1 200 OK\nServer : uvicorn\nTransfer-Encoding: gzip, chunked\ncontent-type: text/event-stream\nSet-Cookie: a=b\n\n",
        &expect![[r"
            HTTP/1.1 200 xx
            Server : xxxxxxx
            Transfer-Encoding: gzip, chunked
            content-type: text/event-stream
            Set-Cookie: xxx

        "]],
    );
}

//! Tables of the HTTP/1 decoder.

use super::properties::{Op, expecting, feed, run};
use super::{Decoder, HttpEvent, MAX_HEAD};
use crate::Anomaly;

fn requests(bytes: &[u8]) -> Vec<String> {
    run(Decoder::request(), &[Op::Feed(bytes.to_vec())])
}

fn responses(methods: &[&str], bytes: &[u8]) -> Vec<String> {
    run(expecting(methods), &[Op::Feed(bytes.to_vec())])
}

#[test]
fn pipelined_requests_with_and_without_bodies() {
    let bytes =
        b"\r\nGET /v1/models HTTP/1.1\r\nHost: a\r\n\r\nPOST /x HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc\
        POST /y HTTP/1.1\r\ncontent-length: 0\r\n\r\n";
    assert_eq!(
        requests(bytes),
        [
            r#"GET /v1/models 36 [("host", "a")]"#,
            "end",
            r#"POST /x 39 [("content-length", "3")]"#,
            "body \"abc\"",
            "end",
            r#"POST /y 39 [("content-length", "0")]"#,
            "end"
        ]
    );
}

#[test]
fn chunked_bodies_with_extensions_trailers_and_bare_line_feeds() {
    for body in [
        "4\r\nWiki\r\n6;name=\"v\"\r\npedia \r\n0\r\n\r\n",
        "004\nWiki\n6 \npedia \n0\n\n",
        "4\r\nWiki\r\n6\t;a\r\npedia \r\n0\r\nX-Sum: 1\r\nY: 2\r\n\r\n",
    ] {
        let bytes = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, Chunked\r\n\r\n{body}");
        let expected = [
            r#"200 53 [("transfer-encoding", "gzip, Chunked")]"#.to_owned(),
            "body \"Wikipedia \"".to_owned(),
            format!("framing {}", body.len() - "Wikipedia ".len()),
            "end".to_owned(),
        ];
        assert_eq!(responses(&["POST"], bytes.as_bytes()), expected);
    }
}

#[test]
fn transfer_encoding_wins_over_content_length() {
    let lines = requests(
        b"POST / HTTP/1.1\r\nContent-Length: 100\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
    );
    assert_eq!(lines[1..], ["body \"hi\"", "framing 10", "end"]);
}

#[test]
fn responses_that_have_no_body_or_run_until_close() {
    let lines = responses(
        &["HEAD", "POST", "GET", "POST"],
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n\
          HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\nHTTP/1.0 200 OK\r\n\r\nrest",
    );
    assert_eq!(
        lines,
        [
            r#"200 38 [("content-length", "9")]"#,
            "end",
            "204 27 []",
            "end",
            r#"304 48 [("content-length", "9")]"#,
            "end",
            "200 19 []",
            "body \"rest\"",
            "end"
        ]
    );
}

#[test]
fn informational_responses_come_before_the_final_one() {
    let lines = responses(
        &["HEAD", "POST"],
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nHTTP/1.1 200\r\ncontent-length: 2\r\n\r\nok",
    );
    let statuses: Vec<&str> = lines.iter().map(|line| &line[..3]).collect();
    assert_eq!(statuses, ["100", "200", "end", "200", "bod", "end"]);
}

#[test]
fn upgrades_make_the_rest_opaque() {
    for (method, head) in [
        ("GET", "HTTP/1.1 101 Switching Protocols"),
        ("CONNECT", "HTTP/1.1 200 OK"),
    ] {
        let lines = responses(
            &[method],
            format!("{head}\r\n\r\nHTTP/1.1 200 OK\r\n\r\n").as_bytes(),
        );
        assert_eq!(lines[1..], ["end", "Upgraded"]);
    }
    let mut request = Decoder::request();
    request.feed(b"CONNECT a:1 HTTP/1.1\r\n\r\n", &mut |_| {});
    request.upgrade();
    request.feed(b"\x81\x05Hello", &mut |event| panic!("{event:?}"));
    assert_eq!(request.skipped(), 7);
}

#[test]
fn credentials_never_leave_the_decoder() {
    let secret = "s3cret";
    let names = [
        "Authorization",
        "PROXY-AUTHORIZATION",
        "Cookie",
        "x-api-key",
        "Api-Key",
        "X-Goog-Api-Key",
        "x-auth-token",
        "X-Amz-Security-Token",
        "x-client-secret",
        "x-forwarded-authorization",
    ];
    for name in names {
        let text = format!(
            "GET /v1?a=b&api_key={secret}&KEY={secret} HTTP/1.1\r\n{name}: {secret}\r\nAccept: x\r\n\r\n"
        );
        let lines = requests(text.as_bytes());
        assert!(!lines.concat().contains(secret), "{name}: {lines:?}");
        assert!(
            lines[0].starts_with("GET /v1?a=b&api_key=REDACTED&KEY=REDACTED "),
            "{lines:?}"
        );
        assert!(lines[0].contains("accept"), "{lines:?}");
    }
    let lines = responses(
        &["GET"],
        b"HTTP/1.1 204 x\r\nSet-Cookie: s3cret\r\nx-ratelimit-remaining-tokens: 5\r\n\r\n",
    );
    assert_eq!(lines[0], r#"204 71 [("x-ratelimit-remaining-tokens", "5")]"#);
}

#[test]
fn streams_that_are_not_http_are_told_apart_and_given_up() {
    let cases: [(&[u8], Anomaly); 9] = [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", Anomaly::Tls),
        (b"\x16\x04", Anomaly::NotHttp),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\x12\x04", Anomaly::Http2),
        (b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\nb\r\n", Anomaly::NotHttp),
        (b"PING\r\n", Anomaly::NotHttp),
        (b"\0\0\0\x29\0\x03\0\0user\0postgres\0", Anomaly::NotHttp),
        (b"SSH-2.0-OpenSSH_9.2\r\n", Anomaly::NotHttp),
        (b"EHLO example.org\r\n", Anomaly::NotHttp),
        (
            b"\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x03\x00NULL",
            Anomaly::NotHttp,
        ),
    ];
    for (bytes, anomaly) in cases {
        let mut decoder = Decoder::request();
        let mut seen = Vec::new();
        for byte in bytes.iter().chain(&[b'x'; 9]) {
            decoder.feed(&[*byte], &mut |event| seen.push(format!("{event:?}")));
        }
        assert!(decoder.is_dead(), "{bytes:?}");
        assert_eq!(seen, [format!("{:?}", HttpEvent::Anomaly(anomaly))], "{bytes:?}");
        assert_eq!(requests(bytes), seen);
    }
    for (bytes, anomaly) in [
        (&b"\0\0\x12\x04\0\0\0\0\0\0\x03"[..], Anomaly::Http2),
        (b"\x16\x03\x03\0\x7a", Anomaly::Tls),
        (b"+OK\r\n", Anomaly::NotHttp),
        (b"N", Anomaly::NotHttp),
    ] {
        assert_eq!(
            responses(&[], bytes),
            [format!("{:?}", HttpEvent::Anomaly(anomaly))]
        );
    }
}

#[test]
fn heads_beyond_the_limits_are_counted_and_the_next_message_is_found() {
    let mut many = b"GET / HTTP/1.1\r\n".to_vec();
    many.extend_from_slice(&b"a: b\r\n".repeat(129));
    let mut large = b"GET / HTTP/1.1\r\na: ".to_vec();
    large.resize(MAX_HEAD + 10, b'x');
    for mut bytes in [
        many,
        large,
        b"GET / HTTP/1.1\r\nContent-Length: 1, 2\r\n".to_vec(),
    ] {
        bytes.extend_from_slice(b"\r\n\r\nGET /next HTTP/1.1\r\n\r\n");
        assert_eq!(
            requests(&bytes),
            ["Anomaly(BadRequestHead)", "GET /next 22 []", "end"]
        );
    }
}

#[test]
fn a_long_target_passes_and_an_endless_first_line_does_not() {
    let target = format!("/v1?q={}", "x".repeat(20_000));
    let lines = requests(format!("GET {target} HTTP/1.1\r\n\r\n").as_bytes());
    assert_eq!(
        lines,
        [format!("GET {target} {} []", target.len() + 17), "end".to_owned()]
    );
    let endless = [&b"GET /"[..], &b"x".repeat(2 * MAX_HEAD)].concat();
    assert_eq!(requests(&endless), ["Anomaly(BadRequestHead)"]);
}

#[test]
fn random_bytes_are_given_up_with_bounded_memory() {
    // xorshift64: the same bytes each time, as good as random.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for make in [Decoder::request, Decoder::response] {
        for _ in 0..100 {
            let mut decoder = make();
            let mut anomalies = 0;
            for _ in 0..64 {
                let bytes: Vec<u8> = (0..128).flat_map(|_| random().to_le_bytes()).collect();
                decoder.feed(&bytes, &mut |event| {
                    assert!(matches!(event, HttpEvent::Anomaly(_)), "{event:?}");
                    anomalies += 1;
                });
            }
            assert!(decoder.is_dead() && anomalies == 1 && decoder.buffered() == 0);
            assert_eq!(decoder.skipped(), 64 * 1024);
        }
    }
}

#[test]
fn bad_chunks_end_the_message_and_the_next_one_is_found() {
    for bad in ["zz\r\n", "3\r\nabcX", "fffffffffffffffff\r\n", "1\rx", ";\r\n"] {
        let text = format!(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{bad}HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n"
        );
        let lines = responses(&[], text.as_bytes());
        let tail = [
            "Anomaly(BadChunk)",
            "truncated",
            "500 38 [(\"content-length\", \"0\")]",
            "end",
        ];
        assert_eq!(lines[lines.len() - 4..], tail, "{bad:?}");
    }
}

#[test]
fn a_gap_within_a_body_of_known_framing_keeps_the_place() {
    let head = feed(b"POST / HTTP/1.1\r\nContent-Length: 10\r\n\r\n01");
    let lines = run(
        Decoder::request(),
        &[
            head.clone(),
            Op::Gap(4),
            Op::Gap(1),
            feed(b"789GET / HTTP/1.1\r\n\r\n"),
        ],
    );
    assert_eq!(
        lines[1..],
        [
            "body \"01\"",
            "Anomaly(Gap)",
            "body \"789\"",
            "missing 5",
            "end",
            "GET / 18 []",
            "end"
        ]
    );

    let lines = run(
        Decoder::request(),
        &[head, Op::Gap(20), feed(b"xx}GET /n HTTP/1.1\r\n\r\n")],
    );
    assert_eq!(
        lines[1..],
        [
            "body \"01\"",
            "Anomaly(Gap)",
            "missing 8",
            "end",
            "GET /n 19 []",
            "end"
        ],
        "the framing says that the body ended within the gap"
    );

    let chunk = feed(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\na\r\n01");
    let lines = run(
        Decoder::response(),
        &[chunk.clone(), Op::Gap(8), feed(b"\r\n0\r\n\r\n")],
    );
    assert_eq!(
        lines[1..],
        [
            "body \"01\"",
            "framing 3",
            "Anomaly(Gap)",
            "framing 7",
            "missing 8",
            "end"
        ]
    );

    let lines = run(
        Decoder::response(),
        &[chunk, Op::Gap(9), feed(b"\n0\r\n\r\nHTTP/1.1 204 x\r\n\r\n")],
    );
    assert_eq!(
        lines[1..],
        [
            "body \"01\"",
            "framing 3",
            "Anomaly(Gap)",
            "missing 9",
            "truncated",
            "204 18 []",
            "end"
        ]
    );

    let lines = run(
        Decoder::response(),
        &[feed(b"HTTP/1.1 200 OK\r\n\r\na"), Op::Gap(9), feed(b"b")],
    );
    assert_eq!(
        lines[1..],
        ["body \"a\"", "Anomaly(Gap)", "body \"b\"", "missing 9", "end"]
    );
}

#[test]
fn a_stream_joined_in_the_middle_goes_on_with_the_next_message() {
    let mut decoder = Decoder::request();
    decoder.resync();
    let middle = b"content\":\"POST /x HTTP/1.1\\r\\n\"}\nGET: HTTP/1.1\r\nfoo\r\n\r\n{}POST /v1 HTTP/1.1\r\nContent-Length: 2\r\n\r\nok";
    let lines = run(decoder, &[feed(middle)]);
    assert_eq!(
        lines,
        [r#"POST /v1 40 [("content-length", "2")]"#, "body \"ok\"", "end"]
    );

    let mut decoder = Decoder::response();
    decoder.resync();
    let middle =
        b"data: {}\n\nHTTP/1.1 200 OK\r\nno header\r\n0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n1";
    let lines = run(decoder, &[feed(middle)]);
    assert_eq!(
        lines,
        [r#"200 38 [("content-length", "1")]"#, "body \"1\"", "end"]
    );

    let mut decoder = Decoder::request();
    decoder.resync();
    assert_eq!(run(decoder, &[feed(b"\x17\x03\x03\x00\x20")]), ["Anomaly(Tls)"]);
}

#[test]
fn an_endless_stream_without_a_head_is_given_up_with_bounded_memory() {
    let mut decoder = Decoder::request();
    decoder.resync();
    let piece = vec![b'x'; 1 << 20];
    let mut anomalies = 0;
    for _ in 0..20 {
        decoder.feed(&piece, &mut |event| {
            assert_eq!(event, HttpEvent::Anomaly(Anomaly::NotHttp));
            anomalies += 1;
        });
    }
    assert!(decoder.is_dead());
    assert_eq!(anomalies, 1);
}

#[test]
fn a_partial_head_tells_when_its_message_began() {
    let mut decoder = Decoder::request();
    decoder.feed(b"\r\nPOST / HTT", &mut |event| panic!("{event:?}"));
    assert_eq!((decoder.buffered(), decoder.in_message()), (10, false));
    decoder.feed(b"P/1.1\r\ncontent-length: 1\r\n\r\n", &mut |_| {});
    assert_eq!((decoder.buffered(), decoder.in_message()), (0, true));
}

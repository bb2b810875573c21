//! Properties of the HTTP/1 decoder, and the run that checks, for any stream, what must always hold.

use super::{Decoder, Head, HttpEvent, MAX_HEAD};
use proptest::prelude::*;

/// One step of a stream.
#[derive(Debug, Clone)]
pub(super) enum Op {
    Feed(Vec<u8>),
    Gap(u64),
}

/// Events in a form that does not depend on how the bytes were split: neighbouring bodies, framing and gaps are joined
/// up to the next head, end or anomaly.
#[derive(Debug, Default)]
struct Log {
    lines: Vec<String>,
    body: Vec<u8>,
    framing: u64,
    missing: u64,
    accounted: u64,
}

impl Log {
    fn flush(&mut self) {
        if !self.body.is_empty() {
            let body = String::from_utf8_lossy(&self.body).into_owned();
            self.lines.push(format!("body {body:?}"));
            self.body.clear();
        }
        for (name, count) in [("framing", &mut self.framing), ("missing", &mut self.missing)] {
            if *count > 0 {
                self.lines.push(format!("{name} {count}"));
                *count = 0;
            }
        }
    }

    fn push(&mut self, event: &HttpEvent<'_>) {
        match event {
            HttpEvent::Body(part) => {
                assert!(!part.is_empty(), "an empty body piece says nothing");
                self.body.extend_from_slice(part);
                self.accounted += part.len() as u64;
                return;
            }
            HttpEvent::Framing(count) => {
                self.framing += count;
                self.accounted += count;
                return;
            }
            HttpEvent::BodyGap(count) => {
                self.missing += count;
                self.accounted += count;
                return;
            }
            _ => self.flush(),
        }
        self.lines.push(match event {
            HttpEvent::Head { head, bytes } => {
                self.accounted += bytes;
                match head {
                    Head::Request(r) => format!("{} {} {bytes} {:?}", r.method, r.target, r.headers),
                    Head::Response(r) => format!("{} {bytes} {:?}", r.status, r.headers),
                }
            }
            HttpEvent::End { truncated: true } => "truncated".to_owned(),
            HttpEvent::End { truncated: false } => "end".to_owned(),
            other => format!("{other:?}"),
        });
    }
}

/// Runs a decoder over a stream, then ends it; checks what must hold for any stream.
pub(super) fn run(mut decoder: Decoder, ops: &[Op]) -> Vec<String> {
    let mut log = Log::default();
    let mut total = 0;
    for op in ops {
        match op {
            Op::Feed(bytes) => {
                let within = bytes.as_ptr_range();
                decoder.feed(bytes, &mut |event| {
                    if let HttpEvent::Body(part) = &event {
                        let range = part.as_ptr_range();
                        assert!(
                            within.start <= range.start && range.end <= within.end,
                            "body was copied"
                        );
                    }
                    log.push(&event);
                });
                total += bytes.len() as u64;
            }
            Op::Gap(len) => {
                decoder.gap(*len, &mut |event| log.push(&event));
                total += len;
            }
        }
        assert!(decoder.buffered() <= MAX_HEAD);
        assert_eq!(
            log.accounted + decoder.skipped() + decoder.buffered() as u64,
            total,
            "{:?}",
            log.lines
        );
    }
    decoder.end(&mut |event| log.push(&event));
    log.flush();
    assert_eq!(log.accounted + decoder.skipped(), total, "{:?}", log.lines);
    assert!(!decoder.in_message() && decoder.buffered() == 0);
    log.lines
}

/// A response decoder to which these requests were announced.
pub(super) fn expecting(methods: &[&str]) -> Decoder {
    let mut decoder = Decoder::response();
    for method in methods {
        decoder.expect(method);
    }
    decoder
}

pub(super) fn feed(text: &[u8]) -> Op {
    Op::Feed(text.to_vec())
}

/// Pieces that a stream of one side is made of: whole messages, and what breaks them.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    let texts: Vec<&'static [u8]> =
        vec![
        b"GET / HTTP/1.1\r\n\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 12\r\n\r\n{\"model\":1}\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n0\r\nT: 1\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n1d\ndata: {\"choices\":[]}\n\nabcdef\n3\nabc\n0\n\n",
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 101 Up\r\n\r\n",
        b"\r\n", b"\n", b"garbage", b"HTTP/1.1 ", b"0\r\n\r\n", b"POST ", b": x\r\n", b"\x16\x03",
    ];
    prop_oneof![
        8 => proptest::sample::select(texts).prop_map(<[u8]>::to_vec),
        1 => proptest::collection::vec(any::<u8>(), 0..40),
    ]
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![6 => piece().prop_map(Op::Feed), 1 => (1_u64..60).prop_map(Op::Gap)];
    proptest::collection::vec(op, 0..12)
}

fn split(ops: &[Op], cuts: &[usize]) -> Vec<Op> {
    let mut cuts = cuts.iter().copied().cycle();
    let mut result = Vec::new();
    for op in ops {
        match op {
            Op::Feed(bytes) => {
                let mut rest = &bytes[..];
                while !rest.is_empty() {
                    let cut = cuts.next().unwrap_or(1).clamp(1, rest.len());
                    result.push(feed(&rest[..cut]));
                    rest = &rest[cut..];
                }
            }
            gap @ Op::Gap(_) => result.push(gap.clone()),
        }
    }
    result
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_split_gives_the_same_events(
        ops in ops(),
        cuts in proptest::collection::vec(1_usize..50, 1..8),
        response in any::<bool>(),
        late in any::<bool>(),
    ) {
        let make = || {
            let mut decoder = if response { expecting(&["POST", "HEAD", "CONNECT"]) } else { Decoder::request() };
            if late {
                decoder.resync();
            }
            decoder
        };
        prop_assert_eq!(run(make(), &ops), run(make(), &split(&ops, &cuts)));
    }
}

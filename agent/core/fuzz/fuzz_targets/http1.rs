//! HTTP/1 framing: any split gives the same events, every byte is accounted for, bodies are not copied, events come in
//! order, memory is bounded.
#![no_main]

use infertap_core::wire::http1::{Decoder, Head, HttpEvent, MAX_HEAD};
use infertap_core_fuzz::{Op, options, split, whole};
use libfuzzer_sys::fuzz_target;

/// An event, with neighbouring pieces of body, framing and gaps joined.
#[derive(Debug, PartialEq)]
enum Seen {
    Head(Head, u64),
    Content {
        body: Vec<u8>,
        framing: u64,
        missing: u64,
    },
    Other(String),
}

#[derive(Default)]
struct Log {
    seen: Vec<Seen>,
    accounted: u64,
    open: bool,
}

impl Log {
    fn content(&mut self) -> (&mut Vec<u8>, &mut u64, &mut u64) {
        assert!(self.open, "content outside of a message");
        if !matches!(self.seen.last(), Some(Seen::Content { .. })) {
            self.seen.push(Seen::Content {
                body: Vec::new(),
                framing: 0,
                missing: 0,
            });
        }
        match self.seen.last_mut() {
            Some(Seen::Content {
                body,
                framing,
                missing,
            }) => (body, framing, missing),
            _ => unreachable!("just pushed"),
        }
    }

    fn push(&mut self, event: HttpEvent<'_>) {
        match event {
            HttpEvent::Head { head, bytes } => {
                assert!(!self.open, "a head within a message");
                self.open = !matches!(&head, Head::Response(r) if r.status < 200 && r.status != 101);
                self.accounted += bytes;
                self.seen.push(Seen::Head(head, bytes));
            }
            HttpEvent::Body(part) => {
                assert!(!part.is_empty());
                self.content().0.extend_from_slice(part);
                self.accounted += part.len() as u64;
            }
            HttpEvent::Framing(count) => {
                *self.content().1 += count;
                self.accounted += count;
            }
            HttpEvent::BodyGap(count) => {
                *self.content().2 += count;
                self.accounted += count;
            }
            HttpEvent::End { truncated } => {
                assert!(std::mem::take(&mut self.open), "an end without a message");
                self.seen.push(Seen::Other(format!("end {truncated}")));
            }
            other => self.seen.push(Seen::Other(format!("{other:?}"))),
        }
    }
}

fn run(mut decoder: Decoder, ops: &[Op<'_>]) -> Vec<Seen> {
    let mut log = Log::default();
    let mut total = 0;
    for op in ops {
        match *op {
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
                    log.push(event);
                });
                total += bytes.len() as u64;
            }
            Op::Gap(len) => {
                decoder.gap(len, &mut |event| log.push(event));
                total += len;
            }
        }
        assert!(decoder.buffered() <= MAX_HEAD);
        assert_eq!(decoder.in_message(), log.open);
        assert_eq!(
            log.accounted + decoder.skipped() + decoder.buffered() as u64,
            total
        );
    }
    decoder.end(&mut |event| log.push(event));
    assert!(!log.open && decoder.buffered() == 0);
    assert_eq!(log.accounted + decoder.skipped(), total);
    log.seen
}

fuzz_target!(|input: &[u8]| {
    let Some((flags, seed, stream)) = options(input) else {
        return;
    };
    let make = || {
        let mut decoder = if flags & 1 == 0 {
            Decoder::request()
        } else {
            Decoder::response()
        };
        if flags & 2 != 0 {
            decoder.expect("HEAD");
        }
        if flags & 4 != 0 {
            decoder.expect("CONNECT");
        }
        if flags & 8 != 0 {
            decoder.resync();
        }
        decoder
    };
    let ops = whole(stream);
    assert_eq!(run(make(), &ops), run(make(), &split(&ops, seed)));
});

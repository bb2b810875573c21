//! Event streams: any split gives the same items, without gaps they are the standard's, and no event is over the limit.
#![no_main]

use infertap_core::wire::sse::{SseDecoder, SseItem};
use infertap_core_fuzz::{Op, options, split, whole};
use libfuzzer_sys::fuzz_target;

#[derive(Debug, PartialEq)]
enum Seen {
    Event(Vec<u8>, Vec<u8>),
    Comment,
    Skipped,
}

fn run(limit: usize, ops: &[Op<'_>]) -> Vec<Seen> {
    let mut decoder = SseDecoder::with_limit(limit);
    let mut seen = Vec::new();
    let mut sink = |item: SseItem<'_>| {
        seen.push(match item {
            SseItem::Event(event) => {
                assert!(event.data.len() <= limit && event.name.len() <= limit);
                Seen::Event(event.name.to_vec(), event.data.to_vec())
            }
            SseItem::Comment => Seen::Comment,
            SseItem::Skipped => Seen::Skipped,
        });
    };
    for op in ops {
        match *op {
            Op::Feed(bytes) => decoder.feed(bytes, &mut sink),
            Op::Gap(_) => decoder.gap(&mut sink),
        }
    }
    decoder.end(&mut sink);
    seen
}

/// Lines without their ends, and what follows the last end.
fn lines(mut bytes: &[u8]) -> (Vec<&[u8]>, &[u8]) {
    let mut lines = Vec::new();
    while let Some(end) = bytes.iter().position(|b| matches!(b, b'\r' | b'\n')) {
        lines.push(&bytes[..end]);
        let pair = bytes[end..].starts_with(b"\r\n");
        bytes = &bytes[end + 1 + usize::from(pair)..];
    }
    (lines, bytes)
}

/// The standard's algorithm on the whole text, with the limit added.
fn reference(limit: usize, bytes: &[u8]) -> Vec<Seen> {
    let (lines, rest) = lines(bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes));
    let (mut seen, mut data, mut name, mut size, mut skip) = (Vec::new(), Vec::new(), &b""[..], 0, false);
    for line in lines {
        if line.is_empty() {
            if !data.is_empty() {
                seen.push(Seen::Event(name.to_vec(), data.join(&b'\n')));
            }
            (data, name, size, skip) = (Vec::new(), b"", 0, false);
        } else if !skip && size + line.len() > limit {
            seen.push(Seen::Skipped);
            (data, name, size, skip) = (Vec::new(), b"", 0, true);
        } else if !skip && line[0] == b':' {
            seen.push(Seen::Comment);
        } else if !skip {
            size += line.len();
            let colon = line.iter().position(|b| *b == b':').unwrap_or(line.len());
            let value = line.get(colon + 1..).unwrap_or_default();
            let value = value.strip_prefix(b" ").unwrap_or(value);
            match &line[..colon] {
                b"data" => data.push(value),
                b"event" => name = value,
                _ => {}
            }
        }
    }
    if !skip && size + rest.len() > limit {
        seen.push(Seen::Skipped);
    }
    seen
}

fuzz_target!(|input: &[u8]| {
    let Some((limit, seed, stream)) = options(input) else {
        return;
    };
    let limit = 8 + usize::from(limit) * 4;
    let ops = whole(stream);
    let seen = run(limit, &ops);
    assert_eq!(seen, run(limit, &split(&ops, seed)));
    // An unfinished byte order mark at the very end is held back, and is no line yet.
    let unfinished_mark = stream.len() < 3 && b"\xef\xbb\xbf".starts_with(stream);
    if !ops.iter().any(|op| matches!(op, Op::Gap(_))) && !unfinished_mark {
        assert_eq!(seen, reference(limit, stream));
    }
});

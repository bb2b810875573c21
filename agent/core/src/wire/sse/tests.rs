//! Tables and properties of the event-stream decoder.

use super::{SseDecoder, SseItem};
use proptest::prelude::*;

/// Items as text: `name|data`, `:` for a comment, `skipped`.
fn run(mut decoder: SseDecoder, parts: &[Option<&[u8]>]) -> Vec<String> {
    let mut items = Vec::new();
    let mut sink = |item: SseItem<'_>| {
        items.push(match item {
            SseItem::Event(event) => {
                format!(
                    "{}|{}",
                    String::from_utf8_lossy(event.name),
                    String::from_utf8_lossy(event.data)
                )
            }
            SseItem::Comment => ":".to_owned(),
            SseItem::Skipped => "skipped".to_owned(),
        });
    };
    for part in parts {
        match part {
            Some(bytes) => decoder.feed(bytes, &mut sink),
            None => decoder.gap(&mut sink),
        }
    }
    decoder.end(&mut sink);
    items
}

fn items(text: &str) -> Vec<String> {
    run(SseDecoder::default(), &[Some(text.as_bytes())])
}

#[test]
fn the_standard_s_examples() {
    assert_eq!(items("data: YHOO\ndata: +2\ndata: 10\n\n"), ["|YHOO\n+2\n10"]);
    assert_eq!(
        items(": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third event\n\n"),
        [":", "|first event", "|second event", "| third event"]
    );
    assert_eq!(items("data\n\ndata\ndata\n\ndata:"), ["|", "|\n"]);
    assert_eq!(items("data:test\n\ndata: test\n\n"), ["|test", "|test"]);
}

#[test]
fn every_line_end_and_a_byte_order_mark() {
    assert_eq!(
        items("\u{feff}data: a\r\rdata: b\r\n\r\nevent: e\rdata: c\n\r\n"),
        ["|a", "|b", "e|c"]
    );
    assert_eq!(
        items("\u{feff}\u{feff}data: a\n\ndata: b\n\n"),
        ["|b"],
        "only the first mark is one"
    );
}

#[test]
fn names_and_unknown_fields() {
    assert_eq!(
        items(
            "event: message_start\ndata: {}\n\nevent: lost\n\ndata: x\nretry: 10\nfoo: bar\nevent:a\nevent: b\n\n"
        ),
        ["message_start|{}", "b|x"],
        "an event without data is none, and its name is forgotten"
    );
}

#[test]
fn an_event_that_lies_whole_in_the_bytes_is_not_copied() {
    let bytes = b"event: chunk\ndata: {\"id\":1}\n\n";
    let mut seen = 0;
    SseDecoder::default().feed(bytes, &mut |item| {
        let SseItem::Event(event) = item else {
            panic!("{item:?}")
        };
        assert_eq!(event.data.as_ptr(), bytes[19..].as_ptr());
        assert_eq!(event.name.as_ptr(), bytes[7..].as_ptr());
        seen += 1;
    });
    assert_eq!(seen, 1);
}

#[test]
fn large_events_pass_and_larger_ones_are_skipped_once() {
    let large = "x".repeat(900_000);
    let text = format!("data: {large}\n\ndata: {large}\ndata: {large}\n\ndata: after\n\n");
    let seen = items(&text);
    assert_eq!(seen.iter().map(String::len).collect::<Vec<_>>(), [900_001, 7, 6]);
    assert_eq!(seen[1..], ["skipped", "|after"]);
}

#[test]
fn a_gap_skips_to_the_next_event() {
    let seen = run(
        SseDecoder::default(),
        &[
            Some(b"data: a\n\ndata: b"),
            None,
            None,
            Some(b"tail\ndata: c\n\ndata: d\n\n"),
        ],
    );
    assert_eq!(seen, ["|a", "skipped", "|d"]);
}

fn stream() -> impl Strategy<Value = Vec<u8>> {
    let texts: Vec<&'static [u8]> = vec![
        b"data: {\"a\":1}\n\n",
        b"data:",
        b"data",
        b"event: x",
        b"event",
        b": c",
        b"id: 1",
        b"\n",
        b"\r",
        b"\r\n",
        b"\n\n",
        b" ",
        b"abc",
        b"\xef\xbb\xbf",
        b"\xef",
        b"0123456789012345678901234567890123456789",
    ];
    proptest::collection::vec(proptest::sample::select(texts), 0..24).prop_map(|parts| parts.concat())
}

/// The standard's own algorithm, on the whole text at once.
fn reference(bytes: &[u8], limit: usize) -> Vec<String> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let text = String::from_utf8_lossy(bytes)
        .replace("\r\n", "\n")
        .replace('\r', "\n");
    let mut lines: Vec<&str> = text.split('\n').collect();
    let rest = lines.pop().unwrap_or_default();
    let (mut items, mut data, mut name, mut size, mut skipping) = (Vec::new(), Vec::new(), "", 0, false);
    for line in &lines {
        let line_size = line
            .chars()
            .map(|c| if c == '\u{fffd}' { 1 } else { c.len_utf8() })
            .sum::<usize>();
        if line.is_empty() {
            if !data.is_empty() {
                items.push(format!("{name}|{}", data.join("\n")));
            }
            (data, name, size, skipping) = (Vec::new(), "", 0, false);
        } else if skipping {
        } else if size + line_size > limit {
            items.push("skipped".to_owned());
            (data, name, size, skipping) = (Vec::new(), "", 0, true);
        } else if line.starts_with(':') {
            items.push(":".to_owned());
        } else {
            size += line_size;
            let (field, value) = line.split_once(':').unwrap_or((line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match field {
                "data" => data.push(value),
                "event" => name = value,
                _ => {}
            }
        }
    }
    if !skipping && size + rest.len() > limit {
        items.push("skipped".to_owned());
    }
    items
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn any_split_gives_the_items_of_the_standard(
        // The reference reads lossily, where one lone byte becomes three.
        bytes in stream().prop_filter("is text", |bytes| std::str::from_utf8(bytes).is_ok()),
        cuts in proptest::collection::vec(1_usize..20, 1..8),
        limit in 10_usize..100,
    ) {
        let mut parts = Vec::new();
        let mut rest = &bytes[..];
        for cut in cuts.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (part, after) = rest.split_at((*cut).min(rest.len()));
            parts.push(Some(part));
            rest = after;
        }
        let split = run(SseDecoder::with_limit(limit), &parts);
        prop_assert_eq!(&split, &reference(&bytes, limit));
        prop_assert_eq!(split, run(SseDecoder::with_limit(limit), &[Some(&bytes)]));
    }

    #[test]
    fn arbitrary_bytes_and_gaps_stay_within_bounds(
        parts in proptest::collection::vec(proptest::option::weighted(0.8, proptest::collection::vec(any::<u8>(), 0..64)), 0..40),
    ) {
        let mut decoder = SseDecoder::with_limit(100);
        for part in &parts {
            let mut sink = |item: SseItem<'_>| {
                if let SseItem::Event(event) = item {
                    assert!(event.data.len() + event.name.len() <= 100);
                }
            };
            match part {
                Some(bytes) => decoder.feed(bytes, &mut sink),
                None => decoder.gap(&mut sink),
            }
            prop_assert!(decoder.line.len() + decoder.data.len() + decoder.name.len() <= 200);
        }
    }
}

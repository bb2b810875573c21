//! Tables and properties of the JSON scanner.

use super::{JsonScan, Scalar};
use proptest::prelude::*;
use serde_json::Value;
use std::fmt::Write;

const PATHS: &[&str] = &[
    "model",
    "choices.*.message.content",
    "choices.*.index",
    "usage.prompt_tokens",
    "stream",
    "*",
    "*.*",
    "choices.*",
    "model.model",
];

fn show(index: usize, scalar: &Scalar<'_>) -> String {
    let path = PATHS[index];
    match scalar {
        Scalar::String { text, truncated } => format!("{path}={text:?}{}", if *truncated { "…" } else { "" }),
        Scalar::Number(n) => format!("{path}={n}"),
        Scalar::Bool(b) => format!("{path}={b}"),
        Scalar::Null => format!("{path}=null"),
    }
}

/// Scans parts (`None` is a gap) and tells what was found, then `done`, `failed` or nothing.
fn run(limit: usize, parts: &[Option<&[u8]>]) -> Vec<String> {
    let mut scan = JsonScan::with_limit(PATHS, limit);
    let mut found = Vec::new();
    for part in parts {
        match part {
            Some(bytes) => scan.feed(bytes, &mut |index, scalar| found.push(show(index, &scalar))),
            None => scan.gap(),
        }
    }
    if scan.failed() {
        found.push("failed".to_owned());
    } else if scan.complete() {
        found.push("done".to_owned());
    }
    found
}

fn scan(text: &str) -> Vec<String> {
    run(32, &[Some(text.as_bytes())])
}

#[test]
fn fields_are_found_at_their_paths_only() {
    let text = r#" {"id":{"model":"no"},"choices":[{"index":0,"message":{"content":"a\"b\\"}},{"message":{"content":null},
        "index":-1.5e1}],"messages":[{"model":"no","stream":true}],"model" : "m","stream":false,"usage":{"prompt_tokens":7}} "#;
    assert_eq!(
        scan(text),
        [
            "choices.*.index=0",
            r#"choices.*.message.content="a\"b\\""#,
            "choices.*.message.content=null",
            "choices.*.index=-15",
            r#"model="m""#,
            "stream=false",
            "usage.prompt_tokens=7",
            "done"
        ]
    );
    assert_eq!(scan("[1,[true,[2]],{\"*\":3}]"), ["*=1", "*.*=true", "done"]);
    assert_eq!(
        scan(r#"{"mo\u0064el":1,"modelx":2,"mode":3}"#),
        ["model=1", "done"]
    );
}

#[test]
fn strings_are_unescaped_and_cut_between_characters() {
    for (json, value) in [
        (
            r#""\u00e9\ud83d\ude00\/\b\f\n\r\t""#,
            "\"é😀/\\u{8}\\u{c}\\n\\r\\t\"",
        ),
        (
            r#""\ud83dx\ude00\ud83d\ud83d\ude00""#,
            "\"\u{fffd}x\u{fffd}\u{fffd}😀\"",
        ),
        (
            "\"01234567890123456789012345678901\"",
            "\"01234567890123456789012345678901\"",
        ),
        (
            "\"012345678901234567890123456789012\"",
            "\"01234567890123456789012345678901\"…",
        ),
        (
            "\"0123456789012345678901234567890é\"",
            "\"0123456789012345678901234567890\"…",
        ),
    ] {
        assert_eq!(
            scan(&format!("{{\"model\":{json}}}")),
            [&format!("model={value}"), "done"]
        );
    }
}

#[test]
fn broken_texts_fail_and_unfinished_ones_are_not_complete() {
    for text in [
        "{,}",
        "{\"a\":}",
        "[1,]",
        "[1 2]",
        "{\"a\" 1}",
        "{\"a\":1,}",
        "tru ",
        "nulL",
        "{}x",
        "]",
        "[}",
        "{1:2}",
        "{\"model\":1e}",
        "{\"model\":\"\\x\"}",
        "{\"model\":\"\\u12g4\"}",
        "data: {}",
        "'a'",
    ] {
        assert_eq!(scan(text).last().map(String::as_str), Some("failed"), "{text}");
    }
    for text in ["", "{", "{\"a\":1", "[\"a", "[tru", "[1", " "] {
        assert_eq!(scan(text), Vec::<String>::new(), "{text}");
    }
    for text in ["{}", "[]", "12", "\"x\"", "true", " null "] {
        assert_eq!(scan(text), ["done"], "{text}");
    }
    assert_eq!(scan(&"[".repeat(256)), Vec::<String>::new());
    assert_eq!(scan(&"[".repeat(257)), ["failed"]);
    assert_eq!(
        scan(&format!("{}1{}", "[".repeat(256), "]".repeat(256))),
        ["done"]
    );
}

#[test]
fn after_a_gap_in_a_long_string_the_rest_is_found() {
    let before = br#"{"choices":[{"message":{"content":"It was the "#;
    let after = br#"worst, \"of\" times"},"index":3}],"model":"m"}"#;
    assert_eq!(
        run(32, &[Some(before), None, Some(after)]),
        [
            r#"choices.*.message.content="It was the "…"#,
            "choices.*.index=3",
            "model=\"m\"",
            "done"
        ]
    );
    // The gap began just before the string.
    let before = br#"{"messages":[{"content":"#;
    let after = br#"times, it was {"}],"model":"m","stream":true}"#;
    assert_eq!(
        run(32, &[Some(before), None, Some(after)]),
        ["model=\"m\"", "stream=true", "done"]
    );
    // The gap ended outside of a string: prose where structure should be turns the guess around.
    let before = br#"{"messages":[{"content":"It "#;
    let after = br#","role":"user"}],"model":"m"}"#;
    assert_eq!(
        run(32, &[Some(before), None, Some(after)]),
        ["model=\"m\"", "done"]
    );
}

#[test]
fn string_lengths_are_known_beyond_the_limit() {
    let mut scan = JsonScan::new(PATHS);
    let long = "é".repeat(100_000);
    let text = format!(
        r#"{{"choices":[{{"message":{{"content":"{long}\n\u00e9"}}}},{{"message":{{"content":"x"}}}}]}}"#
    );
    scan.feed(text.as_bytes(), &mut |_, _| {});
    assert_eq!(
        (scan.string_bytes(1), scan.string_bytes(0), scan.string_bytes(99)),
        (200_004, 0, 0)
    );
    scan.reset();
    let mut seen = 0;
    scan.feed(b"{\"model\":null}", &mut |index, scalar| {
        assert_eq!((index, scalar), (0, Scalar::Null));
        seen += 1;
    });
    assert!(scan.complete() && seen == 1 && scan.string_bytes(1) == 0);
}

#[test]
fn scalars_convert_only_to_what_they_are() {
    let text = Scalar::String {
        text: "5",
        truncated: false,
    };
    assert_eq!(
        (text.as_str(), text.as_u64(), text.as_bool(), text.as_f64()),
        (Some("5"), None, None, None)
    );
    for (number, expected) in [
        (5.0, Some(5)),
        (0.0, Some(0)),
        (-1.0, None),
        (1.5, None),
        (1e300, None),
        (9.007_199_254_740_992e15, Some(1 << 53)),
    ] {
        assert_eq!(Scalar::Number(number).as_u64(), expected);
    }
    assert_eq!(Scalar::Number(f64::NAN).as_u64(), None);
    assert_eq!(Scalar::Bool(true).as_bool(), Some(true));
    assert_eq!(Scalar::Null.as_bool(), None);
}

/// What the scanner should find in a value: the scalars at the paths, in text order.
fn reference(value: &Value, at: &[&str], limit: usize, found: &mut Vec<String>) {
    match value {
        Value::Array(items) => items
            .iter()
            .for_each(|item| reference(item, &[at, &["*"]].concat(), limit, found)),
        Value::Object(fields) => fields
            .iter()
            // A key that is spelled like the sign for any index, or holds a dot, is at no path.
            .for_each(|(key, item)| {
                let key = if key == "*" || key.contains('.') {
                    "\0"
                } else {
                    key
                };
                reference(item, &[at, &[key]].concat(), limit, found);
            }),
        scalar => {
            for (index, path) in PATHS
                .iter()
                .enumerate()
                .filter(|(_, path)| **path == at.join("."))
            {
                let _ = path;
                let scalar = match scalar {
                    Value::String(s) => {
                        let mut end = s.len().min(limit);
                        while !s.is_char_boundary(end) {
                            end -= 1;
                        }
                        Scalar::String {
                            text: &s[..end],
                            truncated: s.len() > limit,
                        }
                    }
                    Value::Number(n) => Scalar::Number(n.as_f64().unwrap_or(f64::NAN)),
                    Value::Bool(b) => Scalar::Bool(*b),
                    _ => Scalar::Null,
                };
                found.push(show(index, &scalar));
            }
        }
    }
}

fn value() -> impl Strategy<Value = Value> {
    let keys = vec![
        "model",
        "choices",
        "message",
        "content",
        "index",
        "usage",
        "prompt_tokens",
        "stream",
        "*",
        "",
        "é\"",
        "a.b",
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        proptest::num::f64::NORMAL.prop_map(Value::from),
        ".{0,20}".prop_map(Value::from),
        "[a\\\\\"é😀\\n]{0,9}".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 64, 6, move |inner| {
        let key = proptest::sample::select(keys.clone()).prop_map(str::to_owned);
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            proptest::collection::btree_map(key, inner, 0..6).prop_map(|fields| fields.into_iter().collect()),
        ]
    })
}

fn cut<'a>(bytes: &'a [u8], cuts: &[usize]) -> Vec<Option<&'a [u8]>> {
    let mut parts = Vec::new();
    let mut rest = bytes;
    for cut in cuts.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (part, after) = rest.split_at((*cut).min(rest.len()));
        parts.push(Some(part));
        rest = after;
    }
    parts
}

/// JSON with every character beyond ASCII escaped, as Python's encoder writes it.
fn ascii(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.chars() {
        if c.is_ascii() {
            escaped.push(c);
        } else {
            for unit in c.encode_utf16(&mut [0; 2]) {
                write!(escaped, "\\u{unit:04X}").expect("to memory");
            }
        }
    }
    escaped
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn it_finds_what_a_whole_parse_finds(
        value in value(),
        cuts in proptest::collection::vec(1_usize..30, 1..8),
        limit in 0_usize..24,
    ) {
        let mut expected = Vec::new();
        reference(&value, &[], limit, &mut expected);
        expected.push("done".to_owned());
        let compact = value.to_string();
        let pretty = serde_json::to_string_pretty(&value).expect("a value has a text");
        for text in [&compact, &pretty, &ascii(&compact)] {
            prop_assert_eq!(&run(limit, &cut(text.as_bytes(), &cuts)), &expected);
            prop_assert_eq!(&run(limit, &[Some(text.as_bytes())]), &expected);
        }
    }

    #[test]
    fn any_split_of_any_bytes_gives_the_same(
        bytes in "[\\[\\]{}:,\"\\\\ua1e.tfnl\\- ]{0,60}",
        cuts in proptest::collection::vec(1_usize..10, 1..8),
        gaps in proptest::collection::vec(0_usize..60, 0..3),
    ) {
        let mut whole = Vec::new();
        let mut split = Vec::new();
        let mut rest = bytes.as_bytes();
        for gap in gaps {
            let (part, after) = rest.split_at(gap.min(rest.len()));
            whole.extend([Some(part), None]);
            split.extend(cut(part, &cuts));
            split.push(None);
            rest = after;
        }
        whole.push(Some(rest));
        split.extend(cut(rest, &cuts));
        prop_assert_eq!(run(8, &whole), run(8, &split));
    }
}

//! Messages of the released classes, and of layouts whose releases are not installed, give their facts.

use super::*;
use crate::wire::zmtp::{Limits, SIGNATURE, Start, ZmtpDecoder, ZmtpEvent};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::sync::LazyLock;

static MESSAGES_MADE: LazyLock<Vec<Value>> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../../../testdata/sglang/messages.json")).expect("valid fixtures")
});

fn hex(text: &Value) -> Vec<u8> {
    let text = text.as_str().expect("hex");
    (0..text.len() / 2)
        .map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).expect("hex"))
        .collect()
}

/// What is told of `body` when only so much of it is kept.
fn told(body: &[u8], kept: usize) -> Result<Value, ShapeError> {
    let mut stream = SIGNATURE.to_vec();
    stream.extend_from_slice(b"\x03\x01NULL");
    stream.resize(64, 0);
    stream.push(2);
    stream.extend_from_slice(&(body.len() as u64).to_be_bytes());
    stream.extend_from_slice(body);
    let limits = Limits {
        message: kept,
        ..Limits::default()
    };
    let mut told = None;
    ZmtpDecoder::with_limits(MESSAGES, limits).push(&stream, &mut |event| {
        if let ZmtpEvent::Message(message) = event {
            told = Some(SglangReader.read(message).map(|told| facts(&told)));
        }
    });
    told.expect("a message")
}

fn whole(body: &[u8]) -> Result<Value, ShapeError> {
    told(body, usize::MAX)
}

/// The facts in the fixtures' words.
fn facts(told: &Told<'_>) -> Value {
    let seconds = |at: Option<Nanos>| at.map(|at| at as f64 / 1e9);
    match told {
        Told::Added(added) => {
            let all: Vec<_> = added
                .iter()
                .map(|a| json!({"rid": a.rid, "prompt": a.prompt_tokens}))
                .collect();
            json!({ "added": all })
        }
        Told::Aborted(rid) => json!({ "aborted": rid }),
        Told::Outputs(outputs) => {
            let one = |o: &Output<'_>| {
                json!({"rid": o.rid, "finished": o.finished, "prompt": o.prompt_tokens, "output": o.output_tokens,
                    "cached": o.cached_tokens, "reasoning": o.reasoning_tokens, "retractions": o.retractions,
                    "queued": seconds(o.times.queued), "scheduled": seconds(o.times.scheduled),
                    "prefilled": seconds(o.times.prefilled)})
            };
            json!({ "outputs": outputs.outputs.iter().map(one).collect::<Vec<_>>() })
        }
        Told::Other => json!({ "nothing": null }),
    }
}

#[test]
fn every_message_gives_its_facts() {
    let mut releases = std::collections::BTreeSet::new();
    for made in MESSAGES_MADE.iter() {
        let what = format!("{} {} {}", made["version"], made["encoding"], made["name"]);
        assert_eq!(whole(&hex(&made["body"])).as_ref(), Ok(&made["expect"]), "{what}");
        releases.insert(format!("{} {}", made["version"], made["encoding"]));
    }
    assert!(releases.len() >= 10, "{releases:?}");
}

#[test]
fn every_layout_has_a_number_of_fields_of_its_own() {
    let tables = layouts::tables();
    for (layouts, needed) in [
        (&tables.ids, &["rids", "completion_tokens", "time_stats"][..]),
        (&tables.texts, &["rids", "completion_tokens", "time_stats"]),
        (&tables.request, &["rid", "input_ids"]),
    ] {
        assert!(layouts.len() >= 5);
        for layout in layouts {
            for field in needed {
                assert!(
                    layout.fields.iter().any(|f| f == field),
                    "{} {field}",
                    layout.from
                );
            }
        }
    }
    for layouts in [&tables.ids, &tables.texts] {
        let mut counts: Vec<_> = layouts.iter().map(|layout| layout.fields.len()).collect();
        counts.sort_unstable();
        counts.dedup();
        assert_eq!(counts.len(), layouts.len());
    }
    assert!(layouts::of(&tables.ids, 60).is_some(), "appended to the newest");
    assert!(layouts::of(&tables.ids, 50).is_none() && layouts::of(&tables.ids, 3).is_none());
}

#[test]
fn a_message_cut_anywhere_tells_nothing_wrong() {
    let mut told_of_cut = 0;
    for made in MESSAGES_MADE.iter().filter(|made| made["version"] == "0.5.23") {
        let body = hex(&made["body"]);
        let expected = &made["expect"];
        for kept in 1..body.len() {
            let Ok(cut) = told(&body, kept) else { continue };
            if let (Some(cut), Some(expected)) = (cut["outputs"].as_array(), expected["outputs"].as_array()) {
                for (cut, expected) in cut.iter().zip(expected) {
                    for (key, value) in cut.as_object().expect("an output") {
                        assert!(
                            value.is_null() || *value == expected[key],
                            "{} at {kept}: {key}",
                            made["name"]
                        );
                    }
                    told_of_cut += usize::from(!cut["output"].is_null());
                }
            }
            if let (Some(cut), Some(expected)) = (cut["added"].as_array(), expected["added"].as_array()) {
                for (cut, expected) in cut.iter().zip(expected) {
                    assert_eq!(cut["rid"], expected["rid"]);
                    assert!(
                        cut["prompt"].is_null() || cut["prompt"] == expected["prompt"],
                        "{kept}"
                    );
                }
            }
        }
    }
    assert!(told_of_cut > 0, "counts come before what is large");
}

#[test]
fn every_message_begins_like_one_and_its_middle_does_not() {
    for made in MESSAGES_MADE.iter() {
        let body = hex(&made["body"]);
        let len = body.len() as u64;
        assert_eq!(
            MESSAGES(false, len, &body[..body.len().min(320)]),
            Start::Yes,
            "{made}"
        );
        for kept in 0..20.min(body.len()) {
            assert_ne!(MESSAGES(false, len, &body[..kept]), Start::No, "{kept}");
        }
        assert_eq!(MESSAGES(true, len, &body), Start::No, "one part");
        for from in 1..body.len() {
            let start = MESSAGES(false, len, &body[from..]);
            assert!(
                start != Start::Yes || body[from..].starts_with(b"\xdc"),
                "{} {from}",
                made["name"]
            );
        }
    }
}

#[test]
fn strangers_are_refused() {
    for body in [
        &b"HTTP/1.1 200 OK"[..],
        b"\x80",
        b"\x80\x05N.",
        b"\xc0",
        b"\x90",
        b"\x91\xc0",
        b"\x80\x05].",
    ] {
        assert!(whole(body).is_err(), "{body:02x?}");
    }
    let unknown = b"\x92\xb2BatchTokenIDOutput\x91\xa1a";
    assert_eq!(whole(unknown), Err(ShapeError::Fields(1)));
    assert_eq!(
        whole(b"\x92\xaeSomethingElse!\x01"),
        Ok(json!({ "nothing": null }))
    );
}

proptest! {
    #[test]
    fn mutated_messages_are_read_or_refused(
        which in any::<prop::sample::Index>(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        kept in any::<prop::sample::Index>(),
    ) {
        let made = &MESSAGES_MADE[which.index(MESSAGES_MADE.len())];
        let mut body = hex(&made["body"]);
        for (at, byte) in changes {
            let at = at.index(body.len());
            body[at] = byte;
        }
        let _ = whole(&body);
        let _ = told(&body, kept.index(body.len()) + 1);
    }
}

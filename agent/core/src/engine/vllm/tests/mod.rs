//! Messages of the released classes, and of layouts whose releases are not installed, give their facts.

mod streams;

use super::*;
use crate::wire::msgpack::Kind;
use crate::wire::zmtp::{Limits, ZmtpDecoder, ZmtpEvent};
use serde_json::{Value, json};
use std::sync::LazyLock;

const MESSAGES: &str = include_str!("../../../../testdata/vllm/messages.json");
const STREAMS: &str = include_str!("../../../../testdata/vllm/streams.json");

fn parse(text: &str) -> Vec<Value> {
    serde_json::from_str(text).expect("valid fixtures")
}

fn messages() -> &'static [Value] {
    static PARSED: LazyLock<Vec<Value>> = LazyLock::new(|| parse(MESSAGES));
    &PARSED
}

fn streams() -> &'static [Value] {
    static PARSED: LazyLock<Vec<Value>> = LazyLock::new(|| parse(STREAMS));
    &PARSED
}

fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value[key].as_str().expect(key)
}

fn hex(text: &str) -> Vec<u8> {
    (0..text.len() / 2)
        .map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).expect("hex"))
        .collect()
}

fn parts_of(fixture: &Value) -> Vec<Vec<u8>> {
    let parts = fixture["parts"].as_array().expect("parts");
    parts
        .iter()
        .map(|part| hex(part.as_str().expect("hex")))
        .collect()
}

fn frames(parts: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (index, part) in parts.iter().enumerate() {
        bytes.push(u8::from(index + 1 < parts.len()) | 2);
        bytes.extend_from_slice(&(part.len() as u64).to_be_bytes());
        bytes.extend_from_slice(part);
    }
    bytes
}

fn greeting() -> Vec<u8> {
    let mut bytes = crate::wire::zmtp::SIGNATURE.to_vec();
    bytes.extend_from_slice(b"\x03\x01NULL");
    bytes.resize(64, 0);
    bytes
}

/// Gives `read` the message of these parts as the decoder tells it.
fn with_message(parts: &[Vec<u8>], limits: Limits, read: &mut dyn FnMut(Message<'_>)) {
    let mut decoder = ZmtpDecoder::with_limits(OUTPUTS, limits);
    let mut seen = 0;
    decoder.push(&[greeting(), frames(parts)].concat(), &mut |event| {
        if let ZmtpEvent::Message(message) = event {
            seen += 1;
            read(message);
        }
    });
    assert_eq!(seen, 1);
}

/// The facts in the fixtures' words.
fn facts(stream: &str, reader: VllmReader, message: Message<'_>) -> Result<Value, ShapeError> {
    Ok(if stream == "requests" {
        match reader.request(message)? {
            Request::Added(added) => json!({"added": {
                "engine_id": added.engine_id,
                "external_id": added.external_id,
                "prompt_tokens": added.prompt_tokens,
                "max_tokens": added.max_tokens,
                "arrival": added.arrival,
            }}),
            Request::Aborted(ids) => json!({ "aborted": ids }),
            Request::Other => json!({"nothing": null}),
        }
    } else {
        let step = reader.step(message)?;
        assert!(!step.cut);
        let outputs: Vec<Value> = step.outputs.iter().map(output).collect();
        json!({"step": {
            "engine_index": step.engine_index,
            "timestamp": step.at.map(|at| at as f64 / 1e9),
            "outputs": outputs,
            "stats": step.stats.map(|stats| json!({
                "running": stats.running,
                "waiting": stats.waiting,
                "kv_usage": stats.kv_usage,
                "queries": stats.prefix_queried,
                "hits": stats.prefix_hit,
            })),
        }})
    })
}

fn output(output: &Output<'_>) -> Value {
    let events: Vec<Value> = output
        .events
        .iter()
        .map(|event| {
            let stage = match event.stage {
                Lifecycle::Queued => 1,
                Lifecycle::Scheduled => 2,
                Lifecycle::Preempted => 3,
            };
            json!([stage, event.at as f64 / 1e9])
        })
        .collect();
    json!({
        "engine_id": output.engine_id,
        "new_tokens": output.new_tokens,
        "finish": output.finish.map(FinishReason::as_str),
        "stop": match output.stop {
            Some(StopReason::Text(text)) => json!(text),
            Some(StopReason::Token(token)) => json!(token),
            None => Value::Null,
        },
        "events": events,
        "cached": output.cached_tokens,
        "prompt": output.prompt_tokens,
    })
}

fn check(fixture: &Value, version: Option<&str>) {
    with_message(&parts_of(fixture), Limits::default(), &mut |message| {
        let told = facts(text(fixture, "stream"), VllmReader::new(version), message);
        let what = format!(
            "{} of {} read as {version:?}",
            text(fixture, "name"),
            text(fixture, "version")
        );
        assert_eq!(told.as_ref(), Ok(&fixture["expect"]), "{what}");
    });
}

#[test]
fn messages_of_every_release_give_their_facts() {
    let fixtures = messages();
    assert!(fixtures.iter().filter(|f| text(f, "made") == "released").count() >= 10);
    for fixture in fixtures {
        check(fixture, Some(text(fixture, "version")));
    }
}

#[test]
fn an_unknown_release_is_read_by_the_shape_of_its_messages() {
    for fixture in messages() {
        check(fixture, None);
    }
}

#[test]
fn a_release_between_two_that_were_looked_at_may_have_either_layout() {
    for (between, like) in [
        ("0.8.6", "0.9.2"),
        ("0.10.0", "0.10.2"),
        ("0.11.0", "0.11.2"),
        ("0.15.1", "0.16.0"),
        ("0.15.1", "0.14.1"),
        ("0.19.9", "0.20.2"),
        ("0.27.0", "0.28.0"),
        ("0.27.0", "0.26.0"),
    ] {
        for fixture in messages().iter().filter(|f| text(f, "version") == like) {
            check(fixture, Some(between));
        }
    }
}

#[test]
fn a_later_release_may_append_fields_and_nothing_else() {
    let fixtures = messages();
    let add = fixtures.iter().find(|f| text(f, "name") == "add").expect("there");
    let mut parts = parts_of(add);
    assert_eq!(parts[1][..3], [0xdc, 0, 22]);
    parts[1][2] = 23;
    parts[1].push(0xc3);
    let read = |version: &str, parts: &[Vec<u8>]| {
        let mut result = None;
        with_message(parts, Limits::default(), &mut |message| {
            result = Some(facts("requests", VllmReader::new(Some(version)), message));
        });
        result.expect("read")
    };
    assert_eq!(read("0.40.0", &parts).as_ref(), Ok(&add["expect"]));
    assert_eq!(
        read("0.30.0", &parts[..]).as_ref(),
        Ok(&add["expect"]),
        "the next layout is the newest"
    );
    assert_eq!(read("0.17.1", &parts), Err(ShapeError::Fields(23)));
    parts[1][2] = 21;
    assert!(read("0.40.0", &parts).is_err());
}

#[test]
fn what_does_not_fit_is_refused_with_its_place() {
    let string = |text: &str| [&[0xa0 | text.len() as u8][..], text.as_bytes()].concat();
    let refused = |parts: &[&[u8]], stream: &str| {
        let parts: Vec<Vec<u8>> = parts.iter().map(|part| part.to_vec()).collect();
        let mut error = None;
        with_message(&parts, Limits::default(), &mut |message| {
            error = facts(stream, VllmReader::new(Some("0.32.0")), message).err();
        });
        error
    };
    let kind = |index, found| Some(ShapeError::Field { index, found });
    assert_eq!(
        refused(&[&[9], &[0x90]], "requests"),
        Some(ShapeError::RequestType(9))
    );
    assert_eq!(refused(&[&[0]], "requests"), Some(ShapeError::Parts));
    assert_eq!(refused(&[&[]], "requests"), Some(ShapeError::Parts));
    assert_eq!(
        refused(&[&[0], &[0x93, 1, 2, 3]], "requests"),
        Some(ShapeError::Fields(3))
    );
    assert_eq!(
        refused(&[&[1], &[0x91, 7]], "requests").map(|e| e.to_string()),
        Some("Int where Str was expected".into())
    );
    assert_eq!(
        refused(&[&[1], &[0x90, 0]], "requests"),
        Some(ShapeError::Value("the message's end"))
    );
    let wrong = [&[0xdc, 0, 22][..], &string("id"), &[0xa1, b'x']].concat();
    assert_eq!(refused(&[&[0], &wrong], "requests"), kind(1, Kind::Str));
    assert_eq!(refused(&[&[0x99, 0xc0]], "outputs"), kind(0, Kind::Nil));
    assert_eq!(
        refused(&[&[0x99, 0xff]], "outputs"),
        Some(ShapeError::Value("engine_index"))
    );
    assert_eq!(
        refused(&[&[0x99, 0, 0x90]], "outputs"),
        Some(ShapeError::Msgpack(MsgpackError::Truncated))
    );
    let nan = [
        &[0x99, 0, 0x90, 0xc0, 0xcb][..],
        &f64::NAN.to_be_bytes(),
        &[0xc0; 5],
    ]
    .concat();
    assert_eq!(refused(&[&nan], "outputs"), Some(ShapeError::Value("timestamp")));
}

#[test]
fn a_cut_addition_tells_what_came_before_the_cut() {
    let fixtures = messages();
    let parts = parts_of(fixtures.iter().find(|f| text(f, "name") == "add").expect("there"));
    for (kept, prompt, external) in [
        (60, Some(54), false),
        (parts[1].len(), Some(54), true),
        (42, Some(54), false),
        (41, None, false),
    ] {
        let limits = Limits {
            message: 1 + kept,
            ..Limits::default()
        };
        with_message(&parts, limits, &mut |message| {
            let read = VllmReader::new(Some("0.32.0")).request(message);
            let Ok(Request::Added(added)) = read else {
                panic!("{read:?}")
            };
            assert_eq!(added.engine_id, "chatcmpl-1f0c7d5a9b8e4c62-a1b2c3d4");
            assert_eq!(
                (added.prompt_tokens, added.external_id.is_some()),
                (prompt, external),
                "{kept}"
            );
        });
    }
    let limits = Limits {
        message: 21,
        ..Limits::default()
    };
    with_message(&parts, limits, &mut |message| {
        let read = VllmReader::new(Some("0.32.0")).request(message);
        assert_eq!(read, Err(ShapeError::Value("request_id")));
    });
}

#[test]
fn a_cut_step_tells_its_whole_outputs() {
    let fixtures = messages();
    let parts = parts_of(
        fixtures
            .iter()
            .find(|f| text(f, "name") == "step")
            .expect("there"),
    );
    let mut counts = Vec::new();
    for kept in 0..parts[0].len() {
        let limits = Limits {
            message: kept,
            ..Limits::default()
        };
        with_message(&parts, limits, &mut |message| {
            let Ok(step) = VllmReader::new(Some("0.32.0")).step(message) else {
                assert!(kept < 1, "{kept}");
                return;
            };
            assert!(step.cut);
            for output in &step.outputs {
                assert!(output.new_tokens > 0 && !output.events.is_empty());
            }
            counts.push(step.outputs.len());
        });
    }
    assert!(counts.is_sorted());
    assert_eq!(counts.last(), Some(&2));
}

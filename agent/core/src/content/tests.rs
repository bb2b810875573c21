//! What is made of the same request in each mode.

use super::*;
use crate::{count::Budget, protocol::OpenAiChat, redact::Redactor, wire::sse::SseEvent};
use serde_json::{Value, json};
use std::sync::Arc;

const LIMITS: HeardLimits = HeardLimits {
    one: 1 << 20,
    all: 1 << 20,
};
const KEY: HashKey = HashKey([7; 32]);

fn heard(request: &str, answer: &[&str]) -> Heard {
    let mut heard = Heard::new(&OpenAiChat, &Budget::default(), &Arc::default(), LIMITS);
    heard.request_data(request.as_bytes());
    for text in answer {
        let data = serde_json::json!({"choices": [{"index": 0, "delta": {"content": text}}]}).to_string();
        heard.event(SseEvent {
            name: b"",
            data: data.as_bytes(),
        });
    }
    heard
}

fn made(heard: &Heard, mode: Mode, max_bytes: usize) -> Transcript {
    transcript(heard, Keep { mode, max_bytes }, &Redactor::default(), &KEY)
}

const REQUEST: &str = r#"{"model":"m","messages":[
    {"role":"system","content":"Be kind."},
    {"role":"user","content":[{"type":"text","text":"I am alice\u0040example.com, card 4111 1111 1111 1111"},
        {"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}]},
    {"role":"assistant","content":null,"tool_calls":[{"id":"1","function":{"name":"send","arguments":"{\"to\":\"bob@example.com\"}"}}]},
    {"role":"tool","tool_call_id":"1","content":"sent to 13812345678"}]}"#;

#[test]
fn each_mode_keeps_what_it_says() {
    let heard = heard(REQUEST, &["Write to carol@exam", "ple.com", " now"]);
    let full = made(&heard, Mode::Full, 4096);
    let texts = |side: &Side| -> Vec<String> {
        let parts = side.messages.iter().flat_map(|message| &message.parts);
        parts
            .map(|part| format!("{}: {}", part.kind.as_str(), part.content))
            .collect()
    };
    assert_eq!(
        texts(&full.input),
        [
            "text: Be kind.",
            "text: I am alice@example.com, card 4111 1111 1111 1111",
            "other: ",
            r#"tool_call: {"to":"bob@example.com"}"#,
            "tool_call_response: sent to 13812345678",
        ]
    );
    assert_eq!(texts(&full.output), ["text: Write to carol@example.com now"]);
    assert!(full.redactions.is_empty() && !full.input.truncated);

    let redacted = made(&heard, Mode::Redacted, 4096);
    assert_eq!(
        texts(&redacted.input),
        [
            "text: Be kind.",
            "text: I am [EMAIL], card [CARD]",
            "other: ",
            r#"tool_call: {"to":"[EMAIL]"}"#,
            "tool_call_response: sent to [PHONE]",
        ]
    );
    assert_eq!(texts(&redacted.output), ["text: Write to [EMAIL] now"]);
    let counts: Vec<_> = redacted
        .redactions
        .iter()
        .map(|(kind, n)| (&**kind, *n))
        .collect();
    assert_eq!(counts, [("CARD", 1), ("EMAIL", 3), ("PHONE", 1)]);
    assert_eq!(redacted.input.bytes, full.input.bytes);

    let hash = made(&heard, Mode::Hash, 4096);
    assert!(hash.input.messages.is_empty() && hash.output.messages.is_empty());
    assert_eq!(hash.input.hash.as_ref().map(String::len), Some(64));
    assert_ne!(hash.input.hash, hash.output.hash);
    let json = serde_json::to_string(&hash).expect("JSON");
    assert!(!json.contains("alice") && !json.contains("4111"));
    assert_eq!(made(&heard, Mode::None, 4096).input, Side::default());
}

#[test]
fn a_hash_tells_equal_prompts_and_nothing_without_its_key() {
    let (one, same) = (
        heard(REQUEST, &[]),
        heard(&REQUEST.replace("\"m\"", "\"other model\""), &[]),
    );
    let other = heard(&REQUEST.replace("kind", "curt"), &[]);
    let hash = |heard: &Heard| made(heard, Mode::Hash, 0).input.hash;
    assert_eq!(hash(&one), hash(&same));
    assert_ne!(hash(&one), hash(&other));
    let keep = Keep {
        mode: Mode::Hash,
        max_bytes: 0,
    };
    let elsewhere = transcript(&one, keep, &Redactor::default(), &HashKey([8; 32]));
    assert_ne!(elsewhere.input.hash, hash(&one));
}

#[test]
fn a_hash_tells_prompts_apart_that_are_no_text() {
    let image = |data: &str| {
        let image =
            json!({"type": "image_url", "image_url": {"url": format!("data:image/png;base64,{data}")}});
        json!({"messages": [{"role": "user", "content": [{"type": "text", "text": "What is it?"}, image]}]})
    };
    for (one, other) in [
        (json!({"prompt": [1, 2, 3]}), json!({"prompt": [1, 2, 4]})),
        (json!({"prompt": [1, 2, 3]}), json!({"prompt": [12, 3]})),
        (json!({"prompt": [[1], [2]]}), json!({"prompt": [[1, 2]]})),
        (image("AAAA"), image("AAAB")),
    ] {
        let made = |body: &Value, mode| made(&heard(&body.to_string(), &[]), mode, 4096).input;
        assert_eq!(made(&one, Mode::Hash), made(&one, Mode::Hash));
        assert_ne!(
            made(&one, Mode::Hash).hash,
            made(&other, Mode::Hash).hash,
            "{one}"
        );
        assert_eq!(
            made(&one, Mode::Full),
            made(&other, Mode::Full),
            "nothing of it is kept"
        );
    }
}

#[test]
fn a_limit_never_leaves_a_part_of_a_secret() {
    let request =
        |text: &str| serde_json::json!({"messages": [{"role": "user", "content": text}]}).to_string();
    let text = format!("{} the card is 4111 1111 1111 1111 and so on", "x".repeat(100));
    let heard = heard(&request(&text), &[]);
    for limit in 0..200 {
        let made = made(&heard, Mode::Redacted, limit);
        let kept: String = made
            .input
            .messages
            .iter()
            .flat_map(|m| &m.parts)
            .map(|p| &*p.content)
            .collect();
        assert!(
            !kept.contains("4111") && !kept.contains("card is 4"),
            "{limit}: {kept}"
        );
        assert_eq!(made.input.truncated, limit < text.len() + 32, "{limit}");
    }
}

#[test]
fn what_can_not_be_read_is_absent() {
    for (request, expected) in [
        ("{", Some(Absent::Unreadable)),
        ("{\"messages\":7}", Some(Absent::Unreadable)),
        (&*"[".repeat(1000), Some(Absent::Unreadable)),
        (
            &*format!("{{\"messages\":[{}1]}}", "{},".repeat(100_000)),
            Some(Absent::Unreadable),
        ),
        (r#"{"prompt":[1,2,3]}"#, None),
        (r#"{"prompt":"x","suffix":"y"}"#, None),
    ] {
        let made = made(&heard(request, &[]), Mode::Redacted, 100);
        assert_eq!(made.input.absent, expected, "{request}");
        assert_eq!(made.output, Side::default());
    }
    let mut lost = heard(REQUEST, &["x"]);
    lost.lose_input(Absent::Incomplete);
    lost.lose_output(Absent::TooLarge);
    let made = made(&lost, Mode::Full, 100);
    assert_eq!(
        (made.input.absent, made.output.absent),
        (Some(Absent::Incomplete), Some(Absent::TooLarge))
    );
}

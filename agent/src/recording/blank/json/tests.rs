//! What passes of JSON.

use super::*;
use expect_test::{Expect, expect};

fn blank(text: &str) -> String {
    let mut machine = JsonBlank::new();
    let out: Vec<u8> = text.bytes().map(|b| machine.byte(b)).collect();
    assert_eq!(out.len(), text.len());
    String::from_utf8(out).expect("ASCII")
}

#[track_caller]
fn check(text: &str, expected: &Expect) {
    let blanked = blank(text);
    expected.assert_eq(&blanked);
    let valid = serde_json::from_str::<serde_json::Value>(text).is_ok();
    assert_eq!(
        serde_json::from_str::<serde_json::Value>(&blanked).is_ok(),
        valid,
        "{blanked}"
    );
}

#[test]
fn a_request_keeps_its_facts_and_loses_its_text() {
    check(
        r#"{"model": "org\/smol-2:7b", "messages":[{"role":"user","content":"Grüße \"you\" \n \u00e9!"}],"max_tokens":16,"stream":true,"user":"bob","stop":["END"],"n":2}"#,
        &expect![[
            r#"{"model": "org\/smol-2:7b", "messages":[{"role":"user","content":"xxxxxxxx\nxxx\nx\nx\u0078x"}],"max_tokens":16,"stream":true,"user":"xxx","stop":["xxx"],"n":2}"#
        ]],
    );
}

#[test]
fn empty_stays_empty_and_null_stays_null() {
    check(
        r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"finish_reason":null}]}"#,
        &expect![[
            r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"finish_reason":null}]}"#
        ]],
    );
}

#[test]
fn what_lies_in_somebodys_own_structure_does_not_pass_whatever_its_name() {
    check(
        r#"{"metadata":{"id":"c-42","type":"vip","usage":{"n":7}},"secret_name":{"model":"x1"},"tools":[{"type":"function","function":{"name":"pay","parameters":{"type":"object","properties":{"iban":{"type":"string"}}}}}]}"#,
        &expect![[
            r#"{"metadata":{"id":"xxxx","type":"xxx","usage":{"n":1}},"se_________":{"model":"xx"},"tools":[{"type":"function","function":{"name":"xxx","parameters":{"type":"xxxxxx","pro_______":{"i___":{"type":"xxxxxx"}}}}}]}"#
        ]],
    );
    check(
        r#"{"tool_calls":[{"id":"call_1","function":{"name":"pay","arguments":"{\"card\":4111}"}},{"function":{"arguments":{"model":"a","card":-4111.25e3}}}]}"#,
        &expect![[
            r#"{"tool_calls":[{"id":"call_1","function":{"name":"xxx","arguments":"x\nxxxx\nxxxxxx"}},{"function":{"arguments":{"model":"x","ca__":-1111.11e1}}}]}"#
        ]],
    );
}

#[test]
fn token_ids_and_embeddings_are_content() {
    check(
        r#"{"prompt":[15496,995],"data":[{"embedding":[0.25,-1e-3],"index":3}],"token":{"id":99,"text":"hi"},"usage":{"prompt_tokens":2}}"#,
        &expect![[
            r#"{"prompt":[11111,111],"data":[{"embedding":[1.11,-1e-1],"index":3}],"token":{"id":11,"text":"xx"},"usage":{"prompt_tokens":2}}"#
        ]],
    );
}

#[test]
fn facts_pass_only_as_identifiers_and_a_stop_string_is_no_reason() {
    check(
        r#"{"id":"chatcmpl-1","model":"tell me a secret","object":["secret"],"stop_reason":"secret","error":{"message":"bad key sk-1","type":"invalid_request_error","code":401}}"#,
        &expect![[
            r#"{"id":"chatcmpl-1","model":"tellxxxxxxxxxxxx","object":["xxxxxx"],"stop_reason":"sxxxxx","error":{"message":"xxxxxxxxxxxx","type":"invalid_request_error","code":401}}"#
        ]],
    );
}

#[test]
fn several_texts_may_follow_one_another() {
    check(
        "{\"model\":\"m\",\"done\":false}\n{\"message\":{\"content\":\"a\"}}\n \"loose\" 12",
        &expect![[r#"
            {"model":"m","done":false}
            {"message":{"content":"x"}}
             "xxxxx" 11"#]],
    );
}

#[test]
fn broken_text_is_blanked_from_the_break_and_stays_broken() {
    for text in [
        r#"{"content":"a" secret}"#,
        r#"{"content" "secret"}"#,
        r#"{content:"secret"}"#,
        r#"{"a":secret}"#,
        r#"{"a":tru, "content":"secret"}"#,
        r#"{"a":"\q secret"}"#,
        r#"{"a":"\u00zz secret"}"#,
        "{\"a\":\"\tsecret\"}",
        r#"{"a":1]"secret""#,
        r#"[1,,"secret"]"#,
        r#"{"a":nullsecret}"#,
        "secret",
    ] {
        let blanked = blank(text);
        assert!(!blanked.contains("secret"), "{blanked}");
        assert!(
            serde_json::from_str::<serde_json::Value>(&blanked).is_err(),
            "{blanked}"
        );
    }
}

#[test]
fn nesting_past_the_bound_is_blanked_whole() {
    let deep = format!("{}\"secret\"", "[".repeat(300));
    let blanked = blank(&deep);
    assert!(blanked.starts_with(&"[".repeat(128)) && blanked.ends_with(&"x".repeat(180)));
}

proptest::proptest! {
    #[test]
    fn any_text_keeps_its_length_and_any_value_its_validity(text in "(\\PC|[\\x00-\\x1f\"\\\\{}\\[\\]:,0-9eu-])*") {
        let blanked = blank(&text);
        if serde_json::from_str::<serde_json::Value>(&text).is_ok() {
            proptest::prop_assert!(serde_json::from_str::<serde_json::Value>(&blanked).is_ok(), "{}", blanked);
        }
    }
}

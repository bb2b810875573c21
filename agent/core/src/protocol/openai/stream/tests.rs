//! What each shape of a streamed message tells.

use super::message;
use crate::{
    protocol::{BadMessage, ChoiceDelta, ErrorFacts, Message, RequestFacts, Usage},
    wire::sse::SseEvent,
};

fn read<'a>(name: &'a str, data: &'a str) -> Result<Message<'a>, BadMessage> {
    let event = SseEvent {
        name: name.as_bytes(),
        data: data.as_bytes(),
    };
    message(event, &RequestFacts::default())
}

fn choice(index: u32, content: bool, text: Option<&str>, tokens: Option<u32>) -> ChoiceDelta<'_> {
    ChoiceDelta {
        index,
        content,
        text: text.map(Into::into),
        tokens,
    }
}

#[test]
fn a_choice_tells_the_same_whatever_the_order_of_its_members() {
    for (json, expected) in [
        // Chat.
        (
            r#"{"index":0,"delta":{"content":"a"}}"#,
            choice(0, true, Some("a"), None),
        ),
        (
            r#"{"delta":{"content":"a"},"index":2}"#,
            choice(2, true, Some("a"), None),
        ),
        (
            r#"{"delta":{"role":"assistant","content":""}}"#,
            choice(0, false, None, None),
        ),
        (r#"{"delta":{"content":null}}"#, choice(0, false, None, None)),
        (r#"{"delta":null}"#, choice(0, false, None, None)),
        (
            r#"{"delta":{"content":"","reasoning":"r"}}"#,
            choice(0, true, Some("r"), None),
        ),
        (
            r#"{"delta":{"reasoning_content":"r","content":"a"}}"#,
            choice(0, true, Some("r"), None),
        ),
        (
            r#"{"delta":{"content":"a\n"}}"#,
            choice(0, true, Some("a\n"), None),
        ),
        (
            r#"{"delta":{"content":[{"type":"text"}]}}"#,
            choice(0, true, None, None),
        ),
        (r#"{"delta":{"refusal":"no"}}"#, choice(0, true, None, None)),
        (
            r#"{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{"}}]}}"#,
            choice(0, true, None, None),
        ),
        (
            r#"{"delta":{"tool_calls":[{"index":0,"function":{}}]}}"#,
            choice(0, false, None, None),
        ),
        (
            r#"{"delta":{"function_call":{"name":"f"}}}"#,
            choice(0, true, None, None),
        ),
        // Of two deltas the second, unless it is none; content is content wherever it stands.
        (
            r#"{"delta":{"content":"a"},"delta":{"content":"b"}}"#,
            choice(0, true, Some("b"), None),
        ),
        (
            r#"{"delta":{"content":"a"},"delta":null}"#,
            choice(0, true, Some("a"), None),
        ),
        (
            r#"{"delta":{"content":"a"},"delta":{}}"#,
            choice(0, true, None, None),
        ),
        // Completions; a delta, where there is one, is what was said.
        (r#"{"text":"t","index":1}"#, choice(1, true, Some("t"), None)),
        (r#"{"text":""}"#, choice(0, false, Some(""), None)),
        (
            r#"{"text":"t","delta":{"content":"a"}}"#,
            choice(0, true, Some("a"), None),
        ),
        (
            r#"{"delta":{"content":"a"},"text":"t"}"#,
            choice(0, true, Some("a"), None),
        ),
        (r#"{"delta":{},"text":"t"}"#, choice(0, true, None, None)),
        (r#"{"text":"t","delta":null}"#, choice(0, true, Some("t"), None)),
        // Tokens: by ids or by log probabilities, whichever are more.
        (
            r#"{"text":"t","token_ids":[1,2,3]}"#,
            choice(0, true, Some("t"), Some(3)),
        ),
        (
            r#"{"logprobs":{"content":[{},{}],"refusal":null},"token_ids":[1]}"#,
            choice(0, false, None, Some(2)),
        ),
        (
            r#"{"token_ids":[1],"logprobs":{"tokens":["a","b"]}}"#,
            choice(0, false, None, Some(2)),
        ),
        (
            r#"{"token_ids":null,"logprobs":null}"#,
            choice(0, false, None, None),
        ),
        // What is no index is the first choice's.
        (r#"{"index":-1}"#, choice(0, false, None, None)),
        (
            r#"{"index":4294967296,"unknown":{"index":[7]}}"#,
            choice(0, false, None, None),
        ),
    ] {
        let data = format!(r#"{{"choices":[{json}]}}"#);
        let message = read("", &data).unwrap_or_else(|_| panic!("not read: {json}"));
        assert_eq!(message.choices.iter().collect::<Vec<_>>(), [&expected], "{json}");
    }
}

#[test]
fn a_message_tells_who_answers_why_it_ended_and_its_totals() {
    let data = r#"{"model":"m","usage":{"prompt_tokens":7,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":4}},
        "choices":[{"finish_reason":null},{"index":1,"finish_reason":"stop"},{"index":2,"finish_reason":"length"}],
        "timings":{"prompt_n":2,"cache_n":5,"predicted_n":3},"id":"x","object":"chat.completion.chunk","created":1}"#;
    let message = read("", data).expect("a message");
    assert_eq!(message.id.as_deref(), Some("x"));
    assert_eq!(message.model.as_deref(), Some("m"));
    assert_eq!(
        message.finish_reason.as_deref(),
        Some("stop"),
        "the first that tells"
    );
    assert_eq!(
        message.choices.iter().map(|c| c.index).collect::<Vec<_>>(),
        [0, 1, 2]
    );
    let totals = |cached| Usage {
        input: Some(7),
        output: Some(3),
        cached_input: Some(cached),
        reasoning: None,
    };
    assert_eq!(message.usage, Some(totals(4)));
    assert_eq!(message.fallback_usage, Some(totals(5)));
    assert_eq!((message.error, message.done), (None, false));
}

#[test]
fn a_message_that_is_none_is_told_from_an_odd_one() {
    let error = |code, blames_request| Ok(Some(ErrorFacts { code, blames_request }));
    for (name, data, expected) in [
        ("", "{}", Ok(None)),
        (
            "",
            r#"{"choices":null,"usage":null,"error":null,"id":7}"#,
            Ok(None),
        ),
        ("", r#"{"choices":{}}"#, Ok(None)),
        (
            "",
            r#"{"error":{"code":429,"type":"rate"}}"#,
            error(Some(429), false),
        ),
        (
            "",
            r#"{"error":{"type":"BadRequestError","code":"400"}}"#,
            error(Some(400), true),
        ),
        ("", r#"{"error":"overloaded"}"#, error(None, false)),
        ("", r#"{"code":503,"object":"error"}"#, error(Some(503), false)),
        ("error", r#"{"code":503}"#, error(Some(503), false)),
        ("error", r#"{"code":503,"#, error(None, false)),
        (
            "",
            r#"{"error":{"code":429},"error":null}"#,
            error(Some(429), false),
        ),
        (
            "",
            r#"{"error":null,"error":{"code":429},"error":{"code":500}}"#,
            error(Some(429), false),
        ),
        (
            "",
            r#"{"object":"error","code":503,"code":null}"#,
            error(Some(503), false),
        ),
        ("error", "out of memory", error(None, false)),
        ("error", r#"{"id":"x","choices":[{"#, error(None, false)),
        ("", "out of memory", Err(BadMessage)),
        ("", "[]", Err(BadMessage)),
        ("", r#"{"choices":[7]}"#, Err(BadMessage)),
        ("", r#"{"choices":[{"delta":7}]}"#, Err(BadMessage)),
        ("", r#"{"choices":[{"#, Err(BadMessage)),
        ("", r#"{} {}"#, Err(BadMessage)),
        (
            "",
            r#"{"choices":[{"text":"a"}],"choices":[{"text":"a"}]}"#,
            Err(BadMessage),
        ),
        ("", r#"{"choices":[],"id":"x","choices":null}"#, Err(BadMessage)),
    ] {
        assert_eq!(read(name, data).map(|m| m.error), expected, "{name} {data}");
    }
    let cut = read("error", r#"{"id":"x","choices":[{"index":1}],"#).expect("an error");
    assert_eq!(cut.id, None, "nothing of what could not be read to its end");
    assert_eq!(cut.choices.iter().count(), 0);
    let twice = r#"{"usage":null,"usage":{"prompt_tokens":7},"usage":null,"usage":{"prompt_tokens":8}}"#;
    let usage = read("", twice).expect("a message").usage;
    assert_eq!(
        usage.and_then(|usage| usage.input),
        Some(7),
        "the first that tells"
    );
    assert!(read("", "[DONE]").expect("the end").done);
}

//! Whole conversations, as servers hold them, and what the core tells of each.

mod support;

use expect_test::{Expect, expect};
use support::*;

fn check(rows: &[Row], expected: &Expect) {
    expected.assert_eq(&render(&play(rows)));
}

#[test]
fn a_stream_as_llama_cpp_writes_it() {
    // Headers before prefill, two events in the first chunk, the terminator in two writes.
    let first = [
        r#"data: {"choices":[{"finish_reason":null,"index":0,"delta":{"role":"assistant","content":null}}],"created":1,"id":"chatcmpl-L","model":"m","object":"chat.completion.chunk"}"#,
        "\n\n",
        r#"data: {"choices":[{"finish_reason":null,"index":0,"delta":{"content":"Hel"}}],"created":1,"id":"chatcmpl-L","model":"m","object":"chat.completion.chunk"}"#,
        "\n\n",
    ]
    .concat();
    let second = r#"{"choices":[{"finish_reason":null,"index":0,"delta":{"content":"lo"}}],"created":1,"id":"chatcmpl-L","model":"m","object":"chat.completion.chunk"}"#;
    let last = r#"{"choices":[{"finish_reason":"stop","index":0,"delta":{}}],"created":1,"id":"chatcmpl-L","model":"m","object":"chat.completion.chunk","timings":{"cache_n":4,"prompt_n":16,"prompt_ms":9.5,"predicted_n":3,"predicted_ms":1.5}}"#;
    let body = chat(r#"{"messages":[{"role":"user","content":"hi"}],"model":"m","stream":true}"#);
    let (head, rest) = body.split_at(40);
    check(
        &[
            (0, In(text(head))),
            (1, In(text(rest))),
            (2, Out(stream_head())),
            (50, Out(chunk(first))),
            (60, Out(event(second))),
            (70, Advance),
            (80, Out(event(last))),
            (81, Out(chunk("data: [DONE]\n\n"))),
            (82, Out(text("0\r\n"))),
            (83, Out(text("\r\n"))),
        ],
        &expect![[r#"
            started vllm-8000 m
            tokens output +2
            tokens input +20
            tokens output +1
            finished ok openai_chat m http=200 streamed=yes id=chatcmpl-L finish=stop ttft=0.050 decode=0.010 tpot=0.005 e2e=0.083 in=20(usage) out=3(usage) cached=4 chunks=2 gaps=0.010/1
        "#]],
    );
}

#[test]
fn a_stream_as_vllm_writes_it() {
    check(
        &[
            (0, In(ask())),
            (30, Out(stream_head())),
            (30, Out(role())),
            (30, Out(word())),
            (40, Out(word())),
            (55, Out(word())),
            (60, Out(stop())),
            (60, Out(usage(38, 4))),
            (61, Out(done())),
            (61, Out(last_chunk())),
        ],
        &expect![[r#"
            started vllm-8000 m
            tokens input +38
            tokens output +4
            finished ok openai_chat m http=200 streamed=yes id=chatcmpl-1 finish=stop ttft=0.030 decode=0.025 tpot=0.008 e2e=0.061 in=38(usage) out=4(usage) chunks=3 gaps=0.010/1,0.015/1
        "#]],
    );
}

#[test]
fn running_usage_raises_the_counts_at_once() {
    let word = |n: u64| {
        delta(
            r#"{"content":"x"}"#,
            &format!(r#","usage":{{"prompt_tokens":9,"completion_tokens":{n}}}"#),
        )
    };
    check(
        &[
            (0, In(ask())),
            (10, Out(stream_head())),
            (20, Out(word(1))),
            (30, Out(word(4))),
            (31, Advance),
            (40, Out(word(5))),
            (41, Eof),
            (42, Close),
        ],
        &expect![[r#"
            started vllm-8000 m
            tokens input +9
            tokens output +4
            tokens output +1
            finished cancelled openai_chat m http=200 streamed=yes id=chatcmpl-1 ttft=0.020 decode=0.020 tpot=0.005 e2e=0.040 in=9(usage) out=5(usage) chunks=3 gaps=0.010/3,0.010/1
        "#]],
    );
}

#[test]
fn what_is_content_and_what_is_not() {
    check(
        &[
            (0, In(ask())),
            (1, Out(stream_head())),
            (2, Out(role())),
            (3, Out(chunk(": keep-alive\n\n"))),
            (4, Out(delta(r#"{"content":null,"tool_calls":[]}"#, ""))),
            (
                5,
                Out(delta(
                    r#"{"tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"","arguments":""}}]}"#,
                    "",
                )),
            ),
            (10, Out(delta(r#"{"reasoning_content":"hm"}"#, ""))),
            (20, Out(delta(r#"{"reasoning":"hm"}"#, ""))),
            (
                30,
                Out(delta(
                    r#"{"tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"f","arguments":""}}]}"#,
                    "",
                )),
            ),
            (
                40,
                Out(delta(
                    r#"{"tool_calls":[{"index":0,"function":{"arguments":"{\""}}]}"#,
                    "",
                )),
            ),
            (50, Out(delta(r#"{"refusal":"no"}"#, ""))),
            (
                60,
                Out(delta(r#"{"function_call":{"name":null,"arguments":"x"}}"#, "")),
            ),
            (70, Out(stop())),
            (80, Out(usage(5, 6))),
            (81, Out(done())),
            (81, Out(last_chunk())),
        ],
        &expect![[r#"
            started vllm-8000 m
            tokens input +5
            tokens output +6
            finished ok openai_chat m http=200 streamed=yes id=chatcmpl-1 finish=stop ttft=0.010 decode=0.050 tpot=0.010 e2e=0.081 in=5(usage) out=6(usage) chunks=6 gaps=0.010/1,0.010/1,0.010/1,0.010/1,0.010/1
        "#]],
    );
}

#[test]
fn several_tokens_in_a_chunk() {
    let three = event(
        r#"{"id":"x","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{"content":"abc"},"logprobs":{"content":[{"token":"a","logprob":-0.1},{"token":"b","logprob":-0.1},{"token":"c","logprob":-0.1}]},"finish_reason":null}]}"#,
    );
    let ids = event(
        r#"{"id":"x","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{"content":"de"},"token_ids":[5,6],"finish_reason":"length"}]}"#,
    );
    check(
        &[
            (0, In(ask())),
            (1, Out(stream_head())),
            (10, Out(word())),
            (40, Out(three)),
            (60, Out(ids)),
            (61, Out(done())),
            (61, Out(last_chunk())),
        ],
        &expect![[r#"
            started vllm-8000 m
            tokens output +6
            finished ok openai_chat m http=200 streamed=yes id=chatcmpl-1 finish=length ttft=0.010 decode=0.050 tpot=0.010 e2e=0.061 out=6(chunk) chunks=3 gaps=0.030/3,0.020/2
        "#]],
    );
}

#[test]
fn several_choices() {
    let choice = |index: u32| {
        event(&format!(
            r#"{{"id":"x","object":"chat.completion.chunk","model":"m","choices":[{{"index":{index},"delta":{{"content":"a"}},"finish_reason":null}}]}}"#
        ))
    };
    check(
        &[
            (0, In(chat(r#"{"model":"m","n":2,"stream":true}"#))),
            (1, Out(stream_head())),
            (10, Out(choice(0))),
            (11, Out(choice(1))),
            (20, Out(choice(0))),
            (21, Out(choice(1))),
            (30, Out(choice(0))),
            (31, Out(done())),
            (31, Out(last_chunk())),
        ],
        &expect![[r#"
            started vllm-8000 m
            tokens output +5
            finished ok openai_chat m http=200 streamed=yes id=x ttft=0.010 decode=0.020 tpot=0.013 e2e=0.031 out=5(chunk) chunks=5 gaps=0.010/1,0.010/1,0.010/1
        "#]],
    );
}

#[test]
fn a_document() {
    let body = r#"{"id":"chatcmpl-2","object":"chat.completion","created":1,"model":"m-2025","choices":[{"index":0,"message":{"role":"assistant","content":"{\"id\":\"no\",\"usage\":{\"prompt_tokens\":99}}"},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":38,"total_tokens":44,"completion_tokens":6,"prompt_tokens_details":{"cached_tokens":32},"completion_tokens_details":{"reasoning_tokens":2}}}"#;
    let response = json("200 OK", body);
    let (head, rest) = response.split_at(response.len() - body.len());
    check(
        &[
            (0, In(chat(r#"{"messages":[],"model":"m"}"#))),
            (90, Out(text(head))),
            (91, Out(text(rest))),
        ],
        &expect![[r#"
            started vllm-8000 m
            tokens input +38
            tokens output +6
            finished ok openai_chat m http=200 id=chatcmpl-2 finish=stop e2e=0.091 in=38(usage) out=6(usage) cached=32 reasoning=2 chunks=0
        "#]],
    );
}

#[test]
fn completions_and_their_streams() {
    let word = r#"{"id":"cmpl-1","object":"text_completion","model":"m","choices":[{"index":0,"text":"a","logprobs":null,"finish_reason":null}]}"#;
    let empty = r#"{"id":"cmpl-1","object":"text_completion","model":"m","choices":[{"index":0,"text":"","finish_reason":"length"}]}"#;
    check(
        &[
            (
                0,
                In(post(
                    "/v1/completions",
                    "",
                    r#"{"model":"m","prompt":"a","stream":true}"#,
                )),
            ),
            (5, Out(stream_head())),
            (10, Out(event(word))),
            (20, Out(event(word))),
            (30, Out(event(empty))),
            (30, Out(done())),
            (30, Out(last_chunk())),
            (
                40,
                In(post("/v1/completions", "", r#"{"model":"m","prompt":"a"}"#)),
            ),
            (
                50,
                Out(json(
                    "200 OK",
                    r#"{"id":"cmpl-2","object":"text_completion","model":"m","choices":[{"index":0,"text":"abc","finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":3}}"#,
                )),
            ),
        ],
        &expect![[r#"
            started vllm-8000 m
            tokens output +2
            finished ok openai_completions m http=200 streamed=yes id=cmpl-1 finish=length ttft=0.010 decode=0.010 tpot=0.010 e2e=0.030 out=2(chunk) chunks=2 gaps=0.010/1
            started vllm-8000 m
            tokens input +1
            tokens output +3
            finished ok openai_completions m http=200 id=cmpl-2 finish=stop e2e=0.010 in=1(usage) out=3(usage) chunks=0
        "#]],
    );
}

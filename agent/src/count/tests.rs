//! Counts of requests with small vocabularies whose tokens can be counted by hand.

use super::model::{HuggingFace, Model};
use super::prompt::Refusal;
use infertap_core::EngineKind;
use std::fmt::Write;

const TEMPLATE: &str = "{% for m in messages %}<s>{{ m.role }}:{{ m.content }}{% for c in m.tool_calls %}{{ c.function.arguments | tojson }}{% endfor %}</s>{% endfor %}{% if tools %}{{ tools | tojson }}{% endif %}{% if add_generation_prompt %}<s>assistant:{% endif %}";

/// Every byte is a token; `<s>` and `</s>` are one each.
fn alphabet() -> Vec<String> {
    // GPT-2's letters for bytes: those that can be seen stand for themselves.
    let seen = |byte: u32| matches!(byte, 33..=126 | 161..=172 | 174..=255);
    let mut next = 256;
    (0..256)
        .map(|byte| {
            let letter = if seen(byte) {
                byte
            } else {
                next += 1;
                next - 1
            };
            char::from_u32(letter).expect("a letter").to_string()
        })
        .collect()
}

fn hugging_face() -> Model {
    let vocabulary: serde_json::Map<String, serde_json::Value> = alphabet()
        .into_iter()
        .enumerate()
        .map(|(id, word)| (word, id.into()))
        .collect();
    let special = |id: u32, content: &str| {
        serde_json::json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": true})
    };
    let tokenizer = serde_json::json!({
        "version": "1.0", "truncation": {"max_length": 4, "stride": 0, "strategy": "LongestFirst", "direction": "Right"},
        "padding": null, "added_tokens": [special(256, "<s>"), special(257, "</s>")], "normalizer": null,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [256], "tokens": ["<s>"]}}},
        "decoder": null,
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "vocab": vocabulary, "merges": []},
    });
    let settings = serde_json::json!({"bos_token": {"content": "<s>"}, "chat_template": TEMPLATE});
    let files = HuggingFace {
        tokenizer: tokenizer.to_string().into_bytes(),
        tokenizer_config: Some(settings.to_string().into_bytes()),
        ..HuggingFace::default()
    };
    Model::from_hugging_face(EngineKind::Vllm, &files).expect("a model")
}

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
}

fn gguf(kind: &str, bos: bool) -> Vec<u8> {
    let mut words = alphabet();
    words.extend([
        "<s>".to_owned(),
        "</s>".to_owned(),
        "▁".to_owned(),
        "ab".to_owned(),
    ]);
    let types: Vec<i32> = (0..words.len())
        .map(|id| if id == 256 || id == 257 { 3 } else { 1 })
        .collect();
    let pair =
        |key: &str, kind: u32, value: Vec<u8>| [text(key), kind.to_le_bytes().to_vec(), value].concat();
    let array = |kind: u32, count: usize, items: Vec<u8>| {
        [
            kind.to_le_bytes().to_vec(),
            (count as u64).to_le_bytes().to_vec(),
            items,
        ]
        .concat()
    };
    let pairs = [
        pair("general.architecture", 8, text("llama")),
        pair("tokenizer.ggml.model", 8, text(kind)),
        pair("tokenizer.ggml.pre", 8, text("gpt-2")),
        pair(
            "tokenizer.ggml.tokens",
            9,
            array(8, words.len(), words.iter().flat_map(|w| text(w)).collect()),
        ),
        pair(
            "tokenizer.ggml.token_type",
            9,
            array(
                5,
                types.len(),
                types.iter().flat_map(|t| t.to_le_bytes()).collect(),
            ),
        ),
        pair(
            "tokenizer.ggml.scores",
            9,
            array(
                6,
                words.len(),
                words.iter().flat_map(|_| 1f32.to_le_bytes()).collect(),
            ),
        ),
        pair("tokenizer.ggml.merges", 9, array(8, 1, text("a b"))),
        pair("tokenizer.ggml.bos_token_id", 4, 256u32.to_le_bytes().to_vec()),
        pair("tokenizer.ggml.add_bos_token", 7, vec![u8::from(bos)]),
        pair("tokenizer.chat_template", 8, text(TEMPLATE)),
    ];
    let mut out = b"GGUF\x03\0\0\0".to_vec();
    out.extend(0u64.to_le_bytes());
    out.extend((pairs.len() as u64).to_le_bytes());
    out.extend(pairs.concat());
    out
}

fn llama(kind: &str, bos: bool) -> Model {
    Model::from_gguf(EngineKind::LlamaCpp, &*gguf(kind, bos), None).expect("a model")
}

/// What is counted of `body` by vLLM, by llama.cpp, and by llama.cpp with a model that begins texts with a token.
fn counts(body: &str) -> [Result<u64, Refusal>; 3] {
    let protocol = if body.contains("messages") {
        "openai_chat"
    } else {
        "openai_completions"
    };
    [hugging_face(), llama("gpt2", false), llama("gpt2", true)]
        .map(|model| model.input(protocol, body.as_bytes()))
}

#[test]
fn requests_are_counted_as_their_engines_count_them() {
    // A message is its marks (2), its role, a colon and its text; the answer's begin is a mark and `assistant:`.
    for (body, vllm, llama, with_bos) in [
        (r#"{"messages":[{"role":"user","content":"xyz"}]}"#, 21, 21, 21),
        (r#"{"messages":[{"role":"user","content":"é🙂"}]}"#, 24, 24, 24),
        // Special tokens in what is said are special tokens.
        (r#"{"messages":[{"role":"user","content":"</s>"}]}"#, 19, 19, 19),
        (
            r#"{"messages":[{"role":"user","content":[{"type":"text","text":"x"},{"type":"text","text":"y"}]}]}"#,
            21,
            21,
            21,
        ),
        (
            r#"{"messages":[{"role":"user","content":"xyz"}],"add_generation_prompt":false}"#,
            10,
            10,
            10,
        ),
        // vLLM answers an answer; llama.cpp goes on with it.
        (
            r#"{"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"no"}]}"#,
            33,
            21,
            21,
        ),
        (
            r#"{"messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}]},{"role":"tool","tool_call_id":"1","content":"x"}]}"#,
            12 + 8 + 8 + 11,
            12 + 8 + 8 + 11,
            12 + 8 + 8 + 11,
        ),
        (r#"{"prompt":"xyz"}"#, 4, 3, 4),
        (r#"{"prompt":"xyz","add_special_tokens":false}"#, 3, 3, 4),
        // The one merge of the GGUF file's vocabulary.
        (r#"{"prompt":"abab"}"#, 5, 2, 3),
        (r#"{"prompt":["x","yz"]}"#, 5, 3, 5),
        (r#"{"prompt":[5,6,7]}"#, 3, 3, 3),
        (r#"{"prompt":[[5,6],[7]]}"#, 3, 3, 3),
    ] {
        assert_eq!(counts(body), [Ok(vllm), Ok(llama), Ok(with_bos)], "{body}");
    }
    let goes_on = r#"{"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"no "}],"add_generation_prompt":false,"continue_final_message":true}"#;
    assert_eq!(counts(goes_on)[0], Ok(8 + 11 + 3));
}

#[test]
fn tools_are_shown_as_each_engine_shows_them() {
    let body = r#"{"messages":[],"add_generation_prompt":false,"tools":[{"type":"function","extra":1,"function":{"parameters":{"b":1,"a":2},"name":"f"}}]}"#;
    let of = |shown: &str| Ok(shown.len() as u64);
    let vllm = r#"[{"type": "function", "function": {"name": "f", "description": null, "parameters": {"b": 1, "a": 2}}}]"#;
    let llama = r#"[{"type": "function", "function": {"name": "f", "description": "", "parameters": {"b": 1, "a": 2}}}]"#;
    assert_eq!(counts(body)[..2], [of(vllm), of(llama)]);
}

#[test]
fn what_is_no_text_is_refused() {
    for body in [
        r#"{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}]}"#,
        r#"{"messages":[{"role":"user","content":"x"}],"chat_template":"y"}"#,
        r#"{"messages":"x"}"#,
        r#"{"prompt":["x",1]}"#,
        r#"{"prompt":"x","suffix":"y"}"#,
        r#"{"prompt":{"prompt_string":"x"}}"#,
        "{}",
    ] {
        for count in counts(body) {
            assert!(matches!(count, Err(Refusal::Unsupported(_))), "{body}: {count:?}");
        }
    }
    let mut deep = String::new();
    let _ = write!(deep, "{}{}", "[".repeat(500), "]".repeat(500));
    assert!(matches!(counts(&deep)[0], Err(Refusal::Failed(_))));
}

#[test]
fn sentence_pieces_get_their_spaces_and_their_begin() {
    let model = llama("llama", true);
    let count = |text: &str| {
        let body = serde_json::json!({ "prompt": text });
        model.input("openai_completions", body.to_string().as_bytes())
    };
    // The begin, the added space, `ab`.
    assert_eq!(count("ab"), Ok(3));
    assert_eq!(count("ab ab"), Ok(5));
    // After a special token the space is added again.
    assert_eq!(count("ab</s>ab"), Ok(6));
    assert_eq!(model.output("ab"), Ok(2));
}

#[test]
fn a_vocabulary_that_is_not_known_is_refused_with_its_name() {
    let refused = |kind: &str| Model::from_gguf(EngineKind::LlamaCpp, &*gguf(kind, false), None).err();
    let reason = refused("rwkv").expect("refused");
    assert!(reason.contains("rwkv"), "{reason}");
}

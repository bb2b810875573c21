//! How many tokens a text has, about, when no tokenizer can be asked: letters, signs and scripts are counted.
//!
//! Owns: the weights of the scripts, and finding the texts in a request. Refuses: vocabularies. Embedded ones would be
//! megabytes each and right only for the models that they are of; those that engines serve have their own, and where it
//! is there it is used. `docs/tokens.md` tells how far off this is, by language.
//!
//! A byte-pair vocabulary has a word for most short words of English, pieces for those of other languages, and one to
//! three tokens for a Chinese character: so tokens per word of Latin letters grow with its length, and other scripts
//! count by character.

use serde_json::Value;

/// Tokens around each message of a chat: its role and its two marks.
const PER_MESSAGE: u64 = 4;
/// Tokens before the answer.
const BEFORE_ANSWER: u64 = 3;
/// Deepest JSON that is looked through.
const MAX_DEPTH: usize = 64;

/// Which vocabulary is assumed: its size decides how many tokens a script takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// 32,000 to 64,000 words, nearly all of English: Llama 1 and 2, early Mistral and Phi, SmolLM, GPT-2.
    Small,
    /// 100,000 words and more, of many languages: Llama 3, Qwen, DeepSeek, Gemma, newer Mistral, gpt-oss.
    Large,
}

impl Family {
    /// By a model's name; large where the name tells nothing, as models of today have it.
    pub fn of(model: &str) -> Family {
        const SMALL: [&str; 14] = [
            "smollm",
            "llama-2",
            "llama2",
            "tinyllama",
            "codellama",
            "vicuna",
            "alpaca",
            "mistral-7b",
            "mixtral",
            "phi-2",
            "phi-3",
            "gpt2",
            "starcoder",
            "falcon-7b",
        ];
        let model = model.to_ascii_lowercase();
        if SMALL.iter().any(|name| model.contains(name)) {
            Family::Small
        } else {
            Family::Large
        }
    }

    const fn weights(self) -> &'static Weights {
        match self {
            Family::Small => &SMALL,
            Family::Large => &LARGE,
        }
    }
}

/// Thousandths of a token of each kind of character.
struct Weights {
    /// A word of ASCII letters.
    word: u64,
    /// Each of its letters after the fourth.
    letter: u64,
    digit: u64,
    sign: u64,
    line: u64,
    /// Letters of European languages that ASCII lacks.
    latin: u64,
    cyrillic: u64,
    /// Greek, Arabic, Hebrew.
    alphabet: u64,
    /// The scripts of India and its neighbours.
    brahmic: u64,
    han: u64,
    kana: u64,
    hangul: u64,
    /// Emoji, and all else.
    other: u64,
}

/// Fitted to the means of o200k, DeepSeek V3's and Mistral's Tekken over the texts of `docs/tokens.md`.
const LARGE: Weights = Weights {
    word: 1000,
    letter: 90,
    digit: 450,
    sign: 600,
    line: 500,
    latin: 600,
    cyrillic: 310,
    alphabet: 400,
    brahmic: 430,
    han: 680,
    kana: 520,
    hangul: 600,
    other: 1200,
};

/// Fitted to SmolLM2's over the same.
const SMALL: Weights = Weights {
    word: 1000,
    letter: 150,
    digit: 1000,
    sign: 700,
    line: 600,
    latin: 1000,
    cyrillic: 790,
    alphabet: 1000,
    brahmic: 1800,
    han: 1450,
    kana: 1200,
    hangul: 2100,
    other: 1600,
};

/// Tokens of a text.
pub fn text(family: Family, text: &str) -> u64 {
    let weights = family.weights();
    let mut thousandths = 0u64;
    let mut word = 0u64;
    for character in text.chars() {
        if character.is_ascii_alphabetic() {
            word += 1;
            thousandths += match word {
                1 => weights.word,
                2..=4 => 0,
                _ => weights.letter,
            };
            continue;
        }
        word = 0;
        thousandths += match character {
            ' ' => 0,
            '\n' | '\r' | '\t' => weights.line,
            '0'..='9' => weights.digit,
            '!'..='~' => weights.sign,
            '\u{80}'..='\u{24f}' => weights.latin,
            '\u{400}'..='\u{52f}' => weights.cyrillic,
            '\u{370}'..='\u{3ff}' | '\u{530}'..='\u{8ff}' => weights.alphabet,
            '\u{900}'..='\u{e7f}' => weights.brahmic,
            '\u{3000}'..='\u{30ff}' | '\u{ff00}'..='\u{ffef}' => weights.kana,
            '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' => weights.han,
            '\u{ac00}'..='\u{d7af}' => weights.hangul,
            other if other.is_control() => 0,
            _ => weights.other,
        };
    }
    thousandths.div_ceil(1000)
}

/// Prompt tokens of a request with this body; `None` where it holds more than text, or can't be read.
pub fn prompt(family: Family, body: &[u8]) -> Option<u64> {
    let body: Value = serde_json::from_slice(body).ok()?;
    let mut count = 0;
    if let Some(messages) = body.get("messages") {
        for message in messages.as_array()? {
            count += PER_MESSAGE + content(family, message.get("content").unwrap_or(&Value::Null))?;
            for name in ["tool_calls", "name", "reasoning", "reasoning_content"] {
                count += message.get(name).map_or(0, |value| all(family, value, 0));
            }
        }
        count += BEFORE_ANSWER + body.get("tools").map_or(0, |tools| all(family, tools, 0));
        return Some(count);
    }
    prompts(family, body.get("prompt")?, 0)
}

/// The content of a message: a text, or parts that are texts.
fn content(family: Family, value: &Value) -> Option<u64> {
    match value {
        Value::Null => Some(0),
        Value::String(one) => Some(text(family, one)),
        Value::Array(parts) => parts
            .iter()
            .map(|part| match part {
                Value::String(one) => Some(text(family, one)),
                part => part
                    .get("text")
                    .or_else(|| part.get("refusal"))
                    .and_then(Value::as_str)
                    .map(|one| text(family, one)),
            })
            .sum(),
        _ => None,
    }
}

/// A prompt that is a text, or tokens, or several.
fn prompts(family: Family, value: &Value, depth: usize) -> Option<u64> {
    match value {
        Value::String(one) => Some(text(family, one)),
        Value::Number(_) if depth > 0 => Some(1),
        Value::Array(several) if depth < 2 => several.iter().map(|one| prompts(family, one, depth + 1)).sum(),
        _ => None,
    }
}

/// Everything that is written in a value, its names and signs too.
fn all(family: Family, value: &Value, depth: usize) -> u64 {
    if depth > MAX_DEPTH {
        return 0;
    }
    match value {
        Value::Null | Value::Bool(_) => 1,
        Value::Number(number) => text(family, &number.to_string()),
        Value::String(one) => 1 + text(family, one),
        Value::Array(items) => 1 + items.iter().map(|item| all(family, item, depth + 1)).sum::<u64>(),
        Value::Object(members) => {
            1 + members
                .iter()
                .map(|(name, value)| 2 + text(family, name) + all(family, value, depth + 1))
                .sum::<u64>()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn texts_are_found_wherever_requests_have_them() {
        let words = text(Family::Large, "The quick brown fox jumps over the lazy dog.");
        assert!((9..=12).contains(&words), "{words}");
        for (body, least, most) in [
            (r#"{"prompt":"one two six"}"#, 3, 3),
            (r#"{"prompt":["one two","six"]}"#, 3, 3),
            (r#"{"prompt":[1,2,3,4]}"#, 4, 4),
            (r#"{"prompt":[[1,2],[3]]}"#, 3, 3),
            (r#"{"messages":[{"role":"user","content":"one two"}]}"#, 9, 9),
            (
                r#"{"messages":[{"role":"user","content":[{"type":"text","text":"one two"}]}]}"#,
                9,
                9,
            ),
            (
                r#"{"messages":[{"role":"user","content":"one two"}],"tools":[{"type":"function","function":{"name":"get"}}]}"#,
                15,
                30,
            ),
        ] {
            let count = prompt(Family::Large, body.as_bytes());
            assert!(
                count.is_some_and(|count| (least..=most).contains(&count)),
                "{body}: {count:?}"
            );
        }
    }

    #[test]
    fn what_is_no_text_is_not_estimated() {
        for body in [
            "",
            "{",
            "[]",
            "{}",
            r#"{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}]}"#,
            r#"{"messages":"x"}"#,
            r#"{"prompt":{"a":1}}"#,
            r#"{"prompt":[[["x"]]]}"#,
        ] {
            assert_eq!(prompt(Family::Large, body.as_bytes()), None, "{body}");
        }
    }

    #[test]
    fn scripts_take_more_tokens_in_small_vocabularies() {
        assert_eq!(Family::of("HuggingFaceTB/SmolLM2-135M"), Family::Small);
        assert_eq!(Family::of("meta-llama/Llama-3.1-8B"), Family::Large);
        for (words, large, small) in [
            ("今天天气很好", 5, 9),
            ("привет", 2, 5),
            ("🙂🙂", 3, 4),
            ("12", 1, 2),
        ] {
            assert_eq!(text(Family::Large, words), large, "{words}");
            assert_eq!(text(Family::Small, words), small, "{words}");
        }
    }

    proptest! {
        #[test]
        fn more_text_never_has_fewer_tokens(a in any::<String>(), b in any::<String>()) {
            let both = text(Family::Small, &format!("{a}{b}"));
            prop_assert!(both >= text(Family::Small, &a));
            prop_assert!(both <= text(Family::Small, &a) + text(Family::Small, &b));
        }

        #[test]
        fn any_bytes_are_harmless(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = prompt(Family::Large, &bytes);
        }
    }
}

//! A model's vocabulary, from either kind of file: how many tokens is a text?
//!
//! Owns: reading `tokenizer.json` and GGUF heads, and what is added before and after a text. Refuses: chat templates.

use super::{pre, spm::Spm};
use aho_corasick::{AhoCorasick, MatchKind};
use infertap_core::gguf::{Gguf, Value};
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{AddedToken, SplitDelimiterBehavior, Tokenizer};

/// Kinds of words in `tokenizer.ggml.token_type`: those that are found in a text before it is split.
const UNKNOWN: i64 = 2;
const CONTROL: i64 = 3;
const USER_DEFINED: i64 = 4;

/// A vocabulary.
#[derive(Debug)]
pub(super) struct Vocabulary(Kind);

#[derive(Debug)]
enum Kind {
    /// As Hugging Face's library reads it; special tokens are added by its own rules.
    HuggingFace(Box<Tokenizer>),
    /// Byte pairs of a GGUF file.
    Bpe { tokenizer: Box<Tokenizer>, added: u64 },
    /// SentencePiece words of a GGUF file.
    Spm {
        words: Spm,
        special: Option<AhoCorasick>,
        /// A space is put before the text, and before what follows a special token.
        space: bool,
        added: u64,
        begins_special: bool,
    },
}

/// Keys of a GGUF file that a vocabulary is made of.
pub(super) fn is_wanted(key: &str) -> bool {
    const WANTED: [&str; 15] = [
        "general.architecture",
        "tokenizer.chat_template",
        "tokenizer.ggml.model",
        "tokenizer.ggml.pre",
        "tokenizer.ggml.tokens",
        "tokenizer.ggml.scores",
        "tokenizer.ggml.token_type",
        "tokenizer.ggml.merges",
        "tokenizer.ggml.bos_token_id",
        "tokenizer.ggml.eos_token_id",
        "tokenizer.ggml.add_bos_token",
        "tokenizer.ggml.add_eos_token",
        "tokenizer.ggml.add_sep_token",
        "tokenizer.ggml.add_space_prefix",
        "tokenizer.ggml.remove_extra_whitespaces",
    ];
    WANTED.contains(&key)
}

impl Vocabulary {
    /// That of a `tokenizer.json`.
    ///
    /// # Errors
    /// Why it can't be used.
    pub(super) fn from_json(bytes: &[u8]) -> Result<Vocabulary, String> {
        let mut tokenizer = Tokenizer::from_bytes(bytes).map_err(|error| error.to_string())?;
        // Engines count whole prompts.
        tokenizer
            .with_truncation(None)
            .map_err(|error| error.to_string())?;
        tokenizer.with_padding(None);
        Ok(Vocabulary(Kind::HuggingFace(Box::new(tokenizer))))
    }

    /// That of a GGUF file's metadata.
    ///
    /// # Errors
    /// Why it can't be used.
    pub(super) fn from_gguf(gguf: &Gguf) -> Result<Vocabulary, String> {
        let words = gguf
            .texts("tokenizer.ggml.tokens")
            .ok_or("it has no vocabulary (tokenizer.ggml.tokens)")?;
        let special: Vec<&str> = match gguf.get("tokenizer.ggml.token_type") {
            Some(Value::Ints(kinds)) => words
                .iter()
                .zip(kinds)
                .filter(|(word, kind)| matches!(**kind, UNKNOWN | CONTROL | USER_DEFINED) && !word.is_empty())
                .map(|(word, _)| word.as_str())
                .collect(),
            _ => Vec::new(),
        };
        match gguf.text("tokenizer.ggml.model") {
            Some("gpt2") => byte_pairs(gguf, words, &special),
            Some("llama") => sentence_pieces(gguf, words, &special),
            Some(other) => Err(format!("its tokenizer {other:?} is not known here")),
            None => Err("it does not name its tokenizer (tokenizer.ggml.model)".to_owned()),
        }
    }

    /// Tokens of a text; with `whole`, those included that are added before and after a text that stands alone.
    ///
    /// # Errors
    /// The library's.
    pub(super) fn count(&self, text: &str, whole: bool) -> Result<u64, String> {
        match &self.0 {
            Kind::HuggingFace(tokenizer) => length(tokenizer, text, whole),
            Kind::Bpe { tokenizer, added } => {
                Ok(length(tokenizer, text, false)? + if whole { *added } else { 0 })
            }
            Kind::Spm {
                words,
                special,
                space,
                added,
                begins_special,
            } => {
                let mut count = if whole { *added } else { 0 };
                let mut after_special = *begins_special || !whole;
                let piece = |text: &str, after_special: bool| {
                    let mut escaped = String::with_capacity(text.len() + 3);
                    if *space && after_special {
                        escaped.push('▁');
                    }
                    escaped.push_str(&text.replace(' ', "▁"));
                    words.count(&escaped)
                };
                let mut rest = 0;
                for found in special.iter().flat_map(|special| special.find_iter(text)) {
                    if found.start() > rest {
                        count += piece(&text[rest..found.start()], after_special);
                    }
                    count += 1;
                    after_special = true;
                    rest = found.end();
                }
                if rest < text.len() {
                    count += piece(&text[rest..], after_special);
                }
                Ok(count)
            }
        }
    }
}

fn length(tokenizer: &Tokenizer, text: &str, whole: bool) -> Result<u64, String> {
    let encoding = tokenizer
        .encode_fast(text, whole)
        .map_err(|error| error.to_string())?;
    Ok(encoding.len() as u64)
}

/// How many of the tokens at a text's ends are added; `bos` and `eos`: where the file does not say.
fn added(gguf: &Gguf, bos: bool, eos: bool) -> u64 {
    let bos = gguf.bool("tokenizer.ggml.add_bos_token").unwrap_or(bos);
    let eos = gguf.bool("tokenizer.ggml.add_eos_token").unwrap_or(eos);
    u64::from(bos) + u64::from(eos)
}

/// Whether a begin-of-text token is put before each text.
pub(super) fn adds_bos(gguf: &Gguf) -> bool {
    let otherwise = match gguf.text("tokenizer.ggml.model") {
        Some("llama") => true,
        _ => pre::split(gguf.text("tokenizer.ggml.pre").unwrap_or("")).is_some_and(|split| split.add_bos),
    };
    gguf.bool("tokenizer.ggml.add_bos_token").unwrap_or(otherwise)
}

fn byte_pairs(gguf: &Gguf, words: &[String], special: &[&str]) -> Result<Vocabulary, String> {
    let name = gguf.text("tokenizer.ggml.pre").unwrap_or("");
    let split = pre::split(name).ok_or_else(|| {
        format!("its way of splitting texts, {name:?} (tokenizer.ggml.pre), is not known here")
    })?;
    let merges: Vec<(String, String)> = gguf
        .texts("tokenizer.ggml.merges")
        .ok_or("it has no merges (tokenizer.ggml.merges)")?
        .iter()
        .filter_map(|merge| {
            // The first may begin with a space, in files of old.
            let from = merge.char_indices().nth(1)?.0;
            let at = from + merge.get(from..)?.find(' ')?;
            Some((merge[..at].to_owned(), merge[at + 1..].to_owned()))
        })
        .collect();
    let bpe = BPE::builder()
        .vocab_and_merges(words.iter().cloned().zip(0..).collect::<Vocab>(), merges)
        .ignore_merges(split.ignore_merges)
        .build()
        .map_err(|error| error.to_string())?;
    let mut steps: Vec<PreTokenizerWrapper> = Vec::new();
    for expression in &split.expressions {
        let step = Split::new(
            SplitPattern::Regex(expression.clone()),
            SplitDelimiterBehavior::Isolated,
            false,
        );
        steps.push(step.map_err(|error| error.to_string())?.into());
    }
    steps.push(ByteLevel::new(false, false, false).into());
    let mut tokenizer = Tokenizer::new(bpe);
    tokenizer.with_pre_tokenizer(Some(Sequence::new(steps)));
    tokenizer
        .add_special_tokens(special.iter().map(|word| AddedToken::from(*word, true)))
        .map_err(|error| error.to_string())?;
    Ok(Vocabulary(Kind::Bpe {
        tokenizer: Box::new(tokenizer),
        added: added(gguf, split.add_bos, false),
    }))
}

fn sentence_pieces(gguf: &Gguf, words: &[String], special: &[&str]) -> Result<Vocabulary, String> {
    let Some(Value::Floats(scores)) = gguf.get("tokenizer.ggml.scores") else {
        return Err("its words have no scores (tokenizer.ggml.scores)".to_owned());
    };
    let special = AhoCorasick::builder()
        .match_kind(MatchKind::LeftmostLongest)
        .build(special)
        .map_err(|error| error.to_string())?;
    Ok(Vocabulary(Kind::Spm {
        words: Spm::new(words.iter().cloned().zip(scores.iter().copied())),
        special: (special.patterns_len() > 0).then_some(special),
        space: gguf.bool("tokenizer.ggml.add_space_prefix").unwrap_or(true),
        added: added(gguf, true, false),
        begins_special: true,
    }))
}

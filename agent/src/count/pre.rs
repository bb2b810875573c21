//! How llama.cpp splits a text before it merges bytes: `tokenizer.ggml.pre` names the way.
//!
//! Owns: the table of ways, and what goes with a name when the file does not say it. Refuses: ways that regular
//! expressions alone don't tell (Kimi K2, AFMoE, Gemma 4): their counts would be near, and nobody would know.
//!
//! The expressions are those of the models' own `tokenizer.json`, in the form in which llama.cpp (`llama-vocab.cpp`)
//! runs them where the two differ: the count must be the engine's.

/// One way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Split {
    /// Each splits further what the ones before it have left, matches and gaps alike.
    pub(super) expressions: Vec<String>,
    /// A piece that is a word of the vocabulary is that token, whatever merging would make of it.
    pub(super) ignore_merges: bool,
    /// A begin-of-text token is added, unless the file says otherwise.
    pub(super) add_bos: bool,
}

/// GPT-2's.
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)";
/// English contractions in any case.
const CONTRACTIONS: &str = r"'(?:[sS]|[tT]|[rR][eE]|[vV][eE]|[mM]|[lL][lL]|[dD])";

/// GPT-4's family: contractions, words with one leading sign, `digits`, signs with what `ends` them, lines, spaces.
fn gpt4(digits: &str, ends: &str) -> String {
    format!(
        r"{CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{digits}| ?[^\s\p{{L}}\p{{N}}]+{ends}|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
}

/// GPT-4o's family: as GPT-4's, but words also end where small letters are followed by capital ones.
fn gpt4o(digits: &str, contractions: &str) -> String {
    const WORD: &str = r"[^\r\n\p{L}\p{N}]?";
    // llama.cpp takes every letter but a to z for a capital one, and every one but A to Z for a small one.
    const CAPITAL: &str = r"[\p{L}&&[^a-z]]";
    const SMALL: &str = r"[\p{L}&&[^A-Z]]";
    format!(
        r"{WORD}{CAPITAL}*{SMALL}+{contractions}|{WORD}{CAPITAL}+{SMALL}*{contractions}|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
}

/// The way that a file names; `None`: it is not known here.
pub(super) fn split(name: &str) -> Option<Split> {
    const ONE: &str = r"\p{N}";
    const THREE: &str = r"\p{N}{1,3}";
    const LINES: &str = r"[\r\n]*";
    let known = |expressions: Vec<String>| Split {
        expressions,
        ignore_merges: false,
        add_bos: false,
    };
    let of = |expressions: &[&str]| known(expressions.iter().map(|e| (*e).to_owned()).collect());
    Some(match name {
        "" | "default" => of(&[r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"]),
        "llama3" | "llama-v3" | "llama-bpe" | "falcon3" | "falcon-h1" | "pixtral" | "midm-2.0" | "lfm2"
        | "jina-v5-nano" => Split {
            ignore_merges: true,
            add_bos: true,
            ..known(vec![gpt4(THREE, LINES)])
        },
        "dbrx" | "smaug-bpe" | "glm4" | "chatglm-bpe" => known(vec![gpt4(THREE, LINES)]),
        "qwen2" | "deepseek-r1-qwen" | "kormo" | "f2llmv2" | "stablelm2" | "hunyuan" | "megrez"
        | "solar-open" | "grok-2" => known(vec![gpt4(ONE, LINES)]),
        "qwen35" => known(vec![format!(
            r"{CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        )]),
        "minicpm5" => Split {
            ignore_merges: true,
            ..known(vec![THREE.to_owned(), gpt4(r"\p{N}+", LINES)])
        },
        "laguna" => known(vec![r"[^\n]+|[\n]+".to_owned(), gpt4(ONE, LINES)]),
        "bailingmoe" | "bailingmoe2" | "llada-moe" => known(vec![
            r"'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+".to_owned(),
        ]),
        "seed-coder" => known(vec![format!(
            r"{CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+"
        )]),
        "exaone-moe" => known(vec![format!(
            r"{CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?(?:\p{{L}}\p{{M}}*(?: \p{{L}}\p{{M}}*)*)+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"
        )]),
        "tekken" => Split {
            ignore_merges: true,
            add_bos: true,
            ..known(vec![gpt4o(ONE, "")])
        },
        "gpt-4o" | "llama4" | "kanana2" | "talkie" | "minimax-m2" => {
            known(vec![gpt4o(THREE, &format!("(?:{CONTRACTIONS})?"))])
        }
        "deepseek-v3" | "hunyuan-dense" | "hy_v4" | "joyai-llm" => of(&[
            THREE,
            "[一-龥぀-ゟ゠-ヿ]+",
            r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##,
        ]),
        "deepseek-coder" => of(&[r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-\u{d7ff}]+", ONE]),
        "falcon" => of(&[r"[\p{P}\$\+<=>\^~\|`]+", GPT2, "[0-9][0-9][0-9]"]),
        "starcoder" | "refact" | "command-r" | "smollm" | "codeshell" | "exaone" | "minerva-7b" | "mellum2" => {
            of(&[ONE, GPT2])
        }
        "gpt-2" | "phi-2" | "gigachat" | "a.x-4.0" | "mellum" | "modern-bert" | "mpt" | "olmo" | "jais"
        | "trillion" | "granite-docling" | "exaone4" => of(&[GPT2]),
        "poro-chat" | "bloom" | "gpt3-finnish" => of(&[r" ?[^(\s|.,!?…。，、।۔،)]+"]),
        "viking" => of(&[r" ?[^(\s|.,!?…。，、।۔،)]+", ONE]),
        _ => return None,
    })
}

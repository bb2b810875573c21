//! One model's way of counting: its vocabulary, its chat template, and the engine that serves it.
//!
//! Owns: reading these from the files' contents, and the counts of requests and answers. Refuses: finding files (`files`).

use super::prompt::{self, Piece, Refusal};
use super::template::Template;
use super::vocabulary::{self, Vocabulary};
use infertap_core::EngineKind;
use infertap_core::gguf::Gguf;
use minijinja::Value;
use std::io::Read;

/// See the module.
#[derive(Debug)]
pub(super) struct Model {
    pub(super) kind: EngineKind,
    vocabulary: Vocabulary,
    template: Option<Template>,
    /// For requests with tools, where the model has a template of its own for them.
    tool_template: Option<Template>,
    /// `bos_token`, `eos_token` and their like, as templates see them.
    pub(super) special: Vec<(String, Value)>,
    /// The begin-of-text token's text.
    pub(super) bos: Option<String>,
    /// The engine puts it before each text.
    pub(super) adds_bos: bool,
}

/// Files in the format of Hugging Face; absent are those that are not there.
#[derive(Debug, Default)]
pub(super) struct HuggingFace {
    pub(super) tokenizer: Vec<u8>,
    pub(super) tokenizer_config: Option<Vec<u8>>,
    /// `chat_template.jinja`, or what the command line names.
    pub(super) chat_template: Option<Vec<u8>>,
    pub(super) config: Option<Vec<u8>>,
}

/// Kinds of models that vLLM renders with code of its own, whatever their template says.
const RENDERED_BY_CODE: [&str; 5] = ["gpt_oss", "deepseek_v32", "deepseek_v4", "kimi_k3", "inkling"];

impl Model {
    /// From Hugging Face's files.
    ///
    /// # Errors
    /// Which file can't be used, and why.
    pub(super) fn from_hugging_face(kind: EngineKind, files: &HuggingFace) -> Result<Model, String> {
        let vocabulary = Vocabulary::from_json(&files.tokenizer)
            .map_err(|error| format!("tokenizer.json can't be used: {error}"))?;
        let parse = |file: &Option<Vec<u8>>, name: &str| match file {
            None => Ok(Value::UNDEFINED),
            Some(bytes) => serde_json::from_slice::<Value>(bytes)
                .map_err(|error| format!("{name} can't be read: it breaks off at line {}", error.line())),
        };
        let settings = parse(&files.tokenizer_config, "tokenizer_config.json")?;
        let config = parse(&files.config, "config.json")?;
        let model_type = attribute(&config, "model_type");
        if kind == EngineKind::Vllm
            && let Some(name) = model_type.as_ref().and_then(Value::as_str)
            && RENDERED_BY_CODE.contains(&name)
        {
            return Err(format!(
                "the engine renders prompts of {name} models with code of its own"
            ));
        }
        let mut special = Vec::new();
        for name in [
            "bos_token",
            "eos_token",
            "unk_token",
            "sep_token",
            "pad_token",
            "cls_token",
            "mask_token",
        ] {
            let token = attribute(&settings, name);
            // A text, or an object with one.
            let text = token.and_then(|token| match token.as_str() {
                Some(text) => Some(Value::from(text)),
                None => attribute(&token, "content"),
            });
            if let Some(text) = text {
                special.push((name.to_owned(), text));
            }
        }
        let (mut plain, mut with_tools) = (None, None);
        if let Some(bytes) = &files.chat_template {
            plain = Some(String::from_utf8_lossy(bytes).into_owned());
        } else if let Some(template) = attribute(&settings, "chat_template") {
            if let Some(text) = template.as_str() {
                plain = Some(text.to_owned());
            } else {
                for named in template.try_iter().into_iter().flatten() {
                    let text = |name| attribute(&named, name).and_then(|v| v.as_str().map(str::to_owned));
                    match text("name").as_deref() {
                        Some("default") => plain = text("template"),
                        Some("tool_use") => with_tools = text("template"),
                        _ => {}
                    }
                }
            }
        }
        let bos = special
            .iter()
            .find(|(name, _)| name == "bos_token")
            .and_then(|(_, text)| text.as_str().map(str::to_owned));
        Ok(Model {
            kind,
            vocabulary,
            template: parsed(plain.as_deref())?,
            tool_template: parsed(with_tools.as_deref())?,
            special,
            bos,
            adds_bos: false,
        })
    }

    /// From a GGUF file; `template`: the one that the command line names instead of the file's.
    ///
    /// # Errors
    /// Why it can't be used.
    pub(super) fn from_gguf(
        kind: EngineKind,
        input: impl Read,
        template: Option<&[u8]>,
    ) -> Result<Model, String> {
        let gguf = Gguf::read(input, vocabulary::is_wanted).map_err(|error| error.to_string())?;
        let vocabulary = Vocabulary::from_gguf(&gguf)?;
        let words = gguf.texts("tokenizer.ggml.tokens").unwrap_or_default();
        let word = |key: &str| {
            let id = usize::try_from(gguf.uint(key)?).ok()?;
            words.get(id).cloned()
        };
        let bos = word("tokenizer.ggml.bos_token_id");
        let eos = word("tokenizer.ggml.eos_token_id");
        let mut special = Vec::new();
        for (name, text) in [("bos_token", &bos), ("eos_token", &eos)] {
            special.push((name.to_owned(), Value::from(text.clone().unwrap_or_default())));
        }
        let own = template.map(String::from_utf8_lossy);
        let template = own.as_deref().or(gguf.text("tokenizer.chat_template"));
        Ok(Model {
            kind,
            vocabulary,
            template: parsed(template)?,
            tool_template: None,
            special,
            bos,
            adds_bos: vocabulary::adds_bos(&gguf),
        })
    }

    pub(super) fn template(&self, tools: bool) -> Option<&Template> {
        let with_tools = self.tool_template.as_ref().filter(|_| tools);
        with_tools.or(self.template.as_ref())
    }

    /// Prompt tokens of a request, as its engine counts them: `body` is its JSON, `protocol` the name of what it speaks.
    ///
    /// # Errors
    /// Why they can't be counted.
    pub(super) fn input(&self, protocol: &str, body: &[u8]) -> Result<u64, Refusal> {
        let body: Value = serde_json::from_slice(body).map_err(|error| {
            Refusal::Failed(format!("its body is no JSON that ends ({:?})", error.classify()))
        })?;
        let mut count = 0u64;
        for piece in prompt::pieces(protocol, &body, self)? {
            count += match piece {
                Piece::Tokens(tokens) => tokens,
                Piece::Text { text, whole } => {
                    self.vocabulary.count(&text, whole).map_err(Refusal::Failed)?
                }
            };
        }
        Ok(count)
    }

    /// Tokens of a text that was generated.
    ///
    /// # Errors
    /// The library's.
    pub(super) fn output(&self, text: &str) -> Result<u64, Refusal> {
        self.vocabulary.count(text, false).map_err(Refusal::Failed)
    }
}

fn attribute(value: &Value, name: &str) -> Option<Value> {
    if value.is_undefined() {
        return None;
    }
    let member = value.get_attr(name).ok()?;
    (!member.is_undefined() && !member.is_none()).then_some(member)
}

fn parsed(source: Option<&str>) -> Result<Option<Template>, String> {
    source
        .map(|source| {
            Template::new(source).map_err(|error| format!("the chat template can't be used: {error}"))
        })
        .transpose()
}

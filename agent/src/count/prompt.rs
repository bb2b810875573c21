//! From a request to the texts that its engine tokenizes.
//!
//! Owns: what vLLM and llama.cpp make of messages, tools and prompts before they render or tokenize them. Refuses: what
//! holds more than text (images, audio, embeddings): its tokens can't be counted from outside.
//!
//! Read from vLLM 0.32 (`renderers/`, `entrypoints/openai/`) and llama.cpp's server; held against both by
//! `cargo xtask accuracy`.

use super::model::Model;
use infertap_core::EngineKind;
use minijinja::Value;
use minijinja::value::ValueKind;
use std::fmt;

/// Why a prompt can't be counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It holds what is not counted here.
    Unsupported(&'static str),
    /// Something is not as it should be.
    Failed(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Unsupported(what) => write!(f, "it has {what}"),
            Refusal::Failed(why) => f.write_str(why),
        }
    }
}

/// What an engine tokenizes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// A text; `whole`: with the tokens that the vocabulary adds to a text that stands alone.
    Text { text: String, whole: bool },
    /// The request has tokens instead.
    Tokens(u64),
}

type Pairs = Vec<(&'static str, Value)>;

/// The texts of a request's body.
pub(super) fn pieces(protocol: &str, body: &Value, model: &Model) -> Result<Vec<Piece>, Refusal> {
    match protocol {
        "openai_chat" => chat(body, model).map(|piece| vec![piece]),
        "openai_completions" => completions(body, model),
        _ => Err(Refusal::Unsupported("a protocol that is not known here")),
    }
}

/// A member that is there and not null.
fn member(value: &Value, name: &str) -> Option<Value> {
    value
        .get_attr(name)
        .ok()
        .filter(|member| !member.is_undefined() && !member.is_none())
}

fn flag(body: &Value, name: &str) -> Option<bool> {
    member(body, name)
        .filter(|flag| flag.kind() == ValueKind::Bool)
        .map(|flag| flag.is_true())
}

fn items(value: &Value) -> Result<Vec<Value>, Refusal> {
    if value.kind() != ValueKind::Seq {
        return Err(Refusal::Unsupported("a list that is none"));
    }
    let items = value.try_iter().map_err(|error| failed(&error))?;
    Ok(items.collect())
}

fn failed(error: &minijinja::Error) -> Refusal {
    Refusal::Failed(error.kind().to_string())
}

fn completions(body: &Value, model: &Model) -> Result<Vec<Piece>, Refusal> {
    if member(body, "suffix").is_some() {
        return Err(Refusal::Unsupported("a suffix"));
    }
    if member(body, "prompt_embeds").is_some() || member(body, "truncate_prompt_tokens").is_some() {
        return Err(Refusal::Unsupported("embeddings or a truncation"));
    }
    let prompt = member(body, "prompt").ok_or(Refusal::Unsupported("no prompt"))?;
    let whole = model.kind == EngineKind::LlamaCpp || flag(body, "add_special_tokens") != Some(false);
    if prompt.kind() == ValueKind::Seq {
        let items = items(&prompt)?;
        if items.iter().all(Value::is_integer) {
            return Ok(vec![Piece::Tokens(items.len() as u64)]);
        }
        return items.iter().map(|item| one_prompt(item, whole)).collect();
    }
    one_prompt(&prompt, whole).map(|piece| vec![piece])
}

fn one_prompt(prompt: &Value, whole: bool) -> Result<Piece, Refusal> {
    if let Some(text) = prompt.as_str() {
        return Ok(Piece::Text {
            text: text.to_owned(),
            whole,
        });
    }
    let tokens = items(prompt)?;
    if tokens.iter().all(Value::is_integer) {
        return Ok(Piece::Tokens(tokens.len() as u64));
    }
    Err(Refusal::Unsupported("tokens and texts in one prompt"))
}

fn chat(body: &Value, model: &Model) -> Result<Piece, Refusal> {
    if member(body, "chat_template").is_some() {
        return Err(Refusal::Unsupported("a chat template of its own"));
    }
    if member(body, "truncate_prompt_tokens").is_some() {
        return Err(Refusal::Unsupported("a truncation"));
    }
    let messages = items(&member(body, "messages").ok_or(Refusal::Unsupported("no messages"))?)?;
    let tools = match member(body, "tools") {
        Some(tools) => Some(items(&tools)?),
        None => None,
    };
    let template = model
        .template(tools.is_some())
        .ok_or(Refusal::Unsupported("a model without a chat template"))?;
    let mut values: Vec<(String, Value)> = model.special.clone();
    let mut set = |name: &str, value: Value| values.push((name.to_owned(), value));
    set("documents", member(body, "documents").unwrap_or_else(none));
    if let Some(effort) = member(body, "reasoning_effort") {
        set("enable_thinking", Value::from(effort.as_str() != Some("none")));
        set("reasoning_effort", effort);
    }
    if let Some(more) = member(body, "chat_template_kwargs") {
        for key in more.try_iter().map_err(|error| failed(&error))? {
            if let (Some(name), Ok(value)) = (key.as_str(), more.get_item(&key)) {
                set(name, value);
            }
        }
    }
    let asks = flag(body, "add_generation_prompt").unwrap_or(true);
    let llama = model.kind == EngineKind::LlamaCpp;
    let mut rendered: Vec<Value> = Vec::with_capacity(messages.len());
    for message in &messages {
        rendered.push(Value::from_pairs(one_message(message, template, llama)?));
    }
    let tools = tools
        .map(|tools| {
            tools
                .iter()
                .map(|each| tool(each, llama))
                .collect::<Result<Vec<_>, _>>()
        })
        .transpose()?;
    set("tools", tools.map_or_else(none, Value::from));
    if llama {
        return llama_chat(&messages, rendered, asks, values, model, template);
    }
    let continues = flag(body, "continue_final_message").unwrap_or(false);
    if continues {
        mark_end(&mut rendered)?;
    }
    values.push(("messages".to_owned(), Value::from(rendered)));
    values.push(("add_generation_prompt".to_owned(), Value::from(asks)));
    let mut text = template
        .render(Value::from_pairs(values))
        .map_err(Refusal::Failed)?;
    if continues {
        cut_at_mark(&mut text)?;
    }
    Ok(Piece::Text {
        text,
        whole: flag(body, "add_special_tokens") == Some(true),
    })
}

fn none() -> Value {
    Value::from(())
}

/// What transformers puts behind the message that is to be continued.
const MARK: &str = "CONTINUE_FINAL_MESSAGE_TAG ";

fn mark_end(messages: &mut [Value]) -> Result<(), Refusal> {
    let last = messages.last_mut().ok_or(Refusal::Unsupported("no messages"))?;
    let text = last.get_attr("content").ok();
    let Some(text) = text.as_ref().and_then(Value::as_str) else {
        return Err(Refusal::Unsupported("parts that are to be continued"));
    };
    let marked = Value::from(format!("{text}{MARK}"));
    let keys = last.try_iter().map_err(|error| failed(&error))?;
    let pairs: Vec<(Value, Value)> = keys
        .map(|key| {
            let value = if key.as_str() == Some("content") {
                marked.clone()
            } else {
                last.get_item(&key).unwrap_or_default()
            };
            (key, value)
        })
        .collect();
    *last = Value::from_pairs(pairs);
    Ok(())
}

/// The text ends where the mark is; a template that trims what is said trims its space too.
fn cut_at_mark(text: &mut String) -> Result<(), Refusal> {
    let at = text
        .rfind(MARK.trim_end())
        .ok_or_else(|| Refusal::Failed("the template left the last message out".to_owned()))?;
    if text[at..].starts_with(MARK) {
        text.truncate(at);
    } else {
        text.truncate(text[..at].trim_end().len());
    }
    Ok(())
}

/// llama.cpp goes on with a last message of the assistant, and adds the begin-of-text token itself.
fn llama_chat(
    messages: &[Value],
    mut rendered: Vec<Value>,
    asks: bool,
    mut values: Vec<(String, Value)>,
    model: &Model,
    template: &super::template::Template,
) -> Result<Piece, Refusal> {
    let last = messages.last().and_then(|message| member(message, "role"));
    let mut prefill = String::new();
    if last.as_ref().and_then(Value::as_str) == Some("assistant") {
        let message = rendered.pop().ok_or(Refusal::Unsupported("no messages"))?;
        let content = message.get_attr("content").ok();
        let Some(text) = content.as_ref().and_then(Value::as_str) else {
            return Err(Refusal::Unsupported("parts that are to be continued"));
        };
        prefill.push_str(text);
    }
    values.push(("messages".to_owned(), Value::from(rendered)));
    values.push(("add_generation_prompt".to_owned(), Value::from(asks)));
    let mut text = template
        .render(Value::from_pairs(values))
        .map_err(Refusal::Failed)?;
    if model.adds_bos
        && let Some(bos) = model.bos.as_deref().filter(|bos| !bos.is_empty())
        && let Some(rest) = text.strip_prefix(bos)
    {
        text = rest.to_owned();
    }
    text.push_str(&prefill);
    Ok(Piece::Text { text, whole: true })
}

fn one_message(message: &Value, template: &super::template::Template, llama: bool) -> Result<Pairs, Refusal> {
    let role = member(message, "role").ok_or(Refusal::Unsupported("a message without a role"))?;
    let role_name = role.as_str().unwrap_or_default().to_owned();
    let parts = texts(message)?;
    let content = match (parts, template.takes_parts()) {
        (Content::Text(text), true) if !llama => Value::from(vec![text_part(&text)]),
        (Content::Text(text), _) => Value::from(text),
        (Content::Parts(parts), true) if role_name != "tool" => {
            Value::from(parts.iter().map(|text| text_part(text)).collect::<Vec<_>>())
        }
        (Content::Parts(parts), _) => Value::from(parts.join("\n")),
        (Content::Nothing, true) if !llama => Value::from(Vec::<Value>::new()),
        (Content::Nothing, _) => Value::from(""),
    };
    // llama.cpp knows a developer as a system that says something; vLLM where the template does not know one.
    let role = if role_name == "developer" && (llama || !template.knows_developers()) {
        Value::from("system")
    } else {
        role
    };
    let mut pairs: Pairs = vec![("role", role), ("content", content)];
    if role_name == "assistant" {
        if let Some(calls) = member(message, "tool_calls") {
            let calls = items(&calls)?;
            if !calls.is_empty() {
                let calls: Vec<Value> = calls
                    .iter()
                    .map(|call| tool_call(call, !llama || template.takes_arguments()))
                    .collect::<Result<_, _>>()?;
                pairs.push(("tool_calls", Value::from(calls)));
            }
        }
        let reasoning = member(message, "reasoning").or_else(|| member(message, "reasoning_content"));
        if let Some(reasoning) = reasoning {
            pairs.push(("reasoning", reasoning.clone()));
            pairs.push(("reasoning_content", reasoning));
        }
    }
    if role_name == "tool"
        && let Some(id) = member(message, "tool_call_id")
    {
        pairs.push(("tool_call_id", id));
    }
    if let Some(name) = member(message, "name").filter(|name| name.as_str().is_some()) {
        pairs.push(("name", name));
    }
    Ok(pairs)
}

enum Content {
    Nothing,
    Text(String),
    Parts(Vec<String>),
}

fn text_part(text: &str) -> Value {
    Value::from_pairs([("type", Value::from("text")), ("text", Value::from(text))])
}

/// The texts of a message's content.
fn texts(message: &Value) -> Result<Content, Refusal> {
    let Some(content) = member(message, "content") else {
        return Ok(Content::Nothing);
    };
    if let Some(text) = content.as_str() {
        return Ok(Content::Text(text.to_owned()));
    }
    let mut texts = Vec::new();
    for part in items(&content)? {
        if let Some(text) = part.as_str() {
            texts.push(text.to_owned());
            continue;
        }
        let kind = member(&part, "type");
        let name = match kind.as_ref().and_then(Value::as_str) {
            None | Some("text" | "input_text" | "output_text") => "text",
            Some("refusal") => "refusal",
            Some(_) => return Err(Refusal::Unsupported("content that is no text")),
        };
        let text = member(&part, name).ok_or(Refusal::Unsupported("a part of no known shape"))?;
        let text = text
            .as_str()
            .ok_or(Refusal::Unsupported("a part of no known shape"))?;
        texts.push(text.to_owned());
    }
    Ok(Content::Parts(texts))
}

/// A call of a tool that the assistant made; `parsed`: its arguments are a value, not a text.
fn tool_call(call: &Value, parsed: bool) -> Result<Value, Refusal> {
    let function =
        member(call, "function").ok_or(Refusal::Unsupported("a tool call that is no function's"))?;
    let arguments = match member(&function, "arguments") {
        Some(text) if parsed && text.as_str().is_some() => {
            let text = text.as_str().unwrap_or_default();
            let value = serde_json::from_str::<Value>(text).ok();
            value
                .filter(|value| value.kind() == ValueKind::Map)
                .unwrap_or_else(|| Value::from_pairs(Vec::<(Value, Value)>::new()))
        }
        Some(value) => value,
        None => Value::from_pairs(Vec::<(Value, Value)>::new()),
    };
    let function = Value::from_pairs([
        ("name", member(&function, "name").unwrap_or_default()),
        ("arguments", arguments),
    ]);
    let mut pairs: Pairs = Vec::new();
    if let Some(id) = member(call, "id") {
        pairs.push(("id", id));
    }
    pairs.push(("type", Value::from("function")));
    pairs.push(("function", function));
    Ok(Value::from_pairs(pairs))
}

/// A tool as the engine shows it to the template: the members that it knows, in its own order.
fn tool(tool: &Value, llama: bool) -> Result<Value, Refusal> {
    let function = member(tool, "function").ok_or(Refusal::Unsupported("a tool that is no function"))?;
    let mut inner: Pairs = vec![("name", member(&function, "name").unwrap_or_default())];
    for name in ["description", "parameters"] {
        match member(&function, name) {
            Some(value) => inner.push((name, value)),
            None if llama && name == "description" => inner.push((name, Value::from(""))),
            None => inner.push((name, none())),
        }
    }
    if !llama && let Some(strict) = member(&function, "strict") {
        inner.push(("strict", strict));
    }
    Ok(Value::from_pairs([
        ("type", Value::from("function")),
        ("function", Value::from_pairs(inner)),
    ]))
}

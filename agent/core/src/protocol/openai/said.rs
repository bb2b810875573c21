//! The texts of OpenAI's messages, where content is kept.
//!
//! Owns: which text is whose: prompts, answers and their streamed pieces; and whether all of it was understood. Refuses: what
//! is not text: it is named, and has its JSON for content only so that it can be told from another.
//! None of this runs where no content is kept.

use super::tree;
use crate::{
    content::{Message, Part, PartKind},
    protocol::{
        Said, SaidKind,
        lenient::{self, Number},
    },
    wire::sse::SseEvent,
};
use serde::de::{Deserialize, Deserializer, Error as _, SeqAccess, Visitor};
use serde_json::Value;
use std::{fmt, marker::PhantomData};

/// Choices of one streamed message, and calls of tools of each.
const MAX_ELEMENTS: usize = 1024;

/// The messages of a request's body; `None`: it is none.
pub(in crate::protocol) fn prompt(body: &[u8]) -> Option<Vec<Message>> {
    let body = tree::members(body, &["messages", "prompt", "suffix"])?;
    if let Some(messages) = body.get("messages") {
        return Some(messages.as_array()?.iter().map(message).collect());
    }
    let texts = match body.get("prompt")? {
        Value::Array(prompts) if prompts.iter().any(Value::is_string) => prompts.iter().map(text).collect(),
        one => vec![text(one)],
    };
    let mut messages: Vec<Message> = texts
        .into_iter()
        .map(|part| said_by("user", vec![part]))
        .collect();
    if let Some(suffix) = body.get("suffix").filter(|suffix| suffix.is_string()) {
        messages.push(said_by("suffix", vec![text(suffix)]));
    }
    Some(messages)
}

/// The messages of an answer that is one document: one a choice. Of an error there is none.
pub(in crate::protocol) fn answer(body: &[u8]) -> Option<Vec<Message>> {
    let body = tree::members(body, &["choices", "error"])?;
    let Some(choices) = body.get("choices").and_then(Value::as_array) else {
        return body.get("error").map(|_| Vec::new());
    };
    let choice = |choice: &Value| match (choice.get("message"), choice.get("text")) {
        (Some(said), _) => message(said),
        (None, Some(said)) => said_by("assistant", vec![text(said)]),
        (None, None) => said_by("assistant", Vec::new()),
    };
    Some(choices.iter().map(choice).collect())
}

fn said_by(role: &str, parts: Vec<Part>) -> Message {
    Message {
        role: role.to_owned(),
        parts,
    }
}

fn part(kind: PartKind, name: Option<&str>, content: &str) -> Part {
    Part {
        kind,
        name: name.map(str::to_owned),
        content: content.to_owned(),
    }
}

fn other(name: Option<&str>, value: &Value) -> Part {
    part(PartKind::Other, name, &value.to_string())
}

/// A text, or what stands in its place: tokens, for one.
fn text(value: &Value) -> Part {
    match value {
        Value::String(text) => part(PartKind::Text, None, text),
        Value::Array(_) => other(Some("tokens"), value),
        _ => other(None, value),
    }
}

fn message(value: &Value) -> Message {
    let string = |key: &str| {
        value
            .get(key)
            .and_then(Value::as_str)
            .filter(|text| !text.is_empty())
    };
    let role = string("role").unwrap_or("assistant");
    let spoken = if matches!(role, "tool" | "function") {
        PartKind::ToolCallResponse
    } else {
        PartKind::Text
    };
    let mut parts = Vec::new();
    if let Some(reasoning) = string("reasoning_content").or(string("reasoning")) {
        parts.push(part(PartKind::Reasoning, None, reasoning));
    }
    match value.get("content") {
        Some(Value::String(text)) => parts.push(part(spoken, string("name"), text)),
        Some(Value::Array(content)) => parts.extend(content.iter().map(|one| of_content(one, spoken))),
        None | Some(Value::Null) => {}
        Some(content) => parts.push(of_content(content, spoken)),
    }
    parts.extend(string("refusal").map(|text| part(PartKind::Text, Some("refusal"), text)));
    let calls = value.get("tool_calls").and_then(Value::as_array);
    let functions = calls
        .into_iter()
        .flatten()
        .filter_map(|call| call.get("function").or(call.get("custom")));
    for function in functions.chain(value.get("function_call")) {
        let string = |key: &str| function.get(key).and_then(Value::as_str);
        let arguments = string("arguments").or(string("input")).unwrap_or_default();
        parts.push(part(PartKind::ToolCall, string("name"), arguments));
    }
    said_by(role, parts)
}

/// One of a message's contents: a text, or something that is none.
fn of_content(value: &Value, spoken: PartKind) -> Part {
    if let Some(text) = value
        .as_str()
        .or_else(|| value.get("text").and_then(Value::as_str))
    {
        return part(spoken, None, text);
    }
    let refusal = value.get("refusal").and_then(Value::as_str);
    refusal.map_or_else(
        || other(value.get("type").and_then(Value::as_str), value),
        |text| part(PartKind::Text, Some("refusal"), text),
    )
}

/// A text, or something filled that is none.
type Piece<'a> = lenient::Said<'a>;

#[derive(serde::Deserialize)]
struct Chunk<'a> {
    #[serde(borrow, default)]
    choices: Option<AtMost<Choice<'a>>>,
}

#[derive(Default, serde::Deserialize)]
#[serde(default)]
struct Choice<'a> {
    index: Number,
    #[serde(borrow)]
    delta: Option<Delta<'a>>,
    #[serde(borrow)]
    text: Piece<'a>,
}

#[derive(Default, serde::Deserialize)]
#[serde(default)]
struct Delta<'a> {
    #[serde(borrow)]
    content: Piece<'a>,
    #[serde(borrow)]
    reasoning_content: Piece<'a>,
    #[serde(borrow)]
    reasoning: Piece<'a>,
    #[serde(borrow)]
    refusal: Piece<'a>,
    #[serde(borrow)]
    tool_calls: Option<AtMost<Call<'a>>>,
    #[serde(borrow)]
    function_call: Option<Function<'a>>,
}

#[derive(Default, serde::Deserialize)]
#[serde(default)]
struct Call<'a> {
    index: Number,
    #[serde(borrow)]
    function: Option<Function<'a>>,
    #[serde(borrow)]
    custom: Option<Function<'a>>,
}

#[derive(Default, serde::Deserialize)]
#[serde(default)]
struct Function<'a> {
    #[serde(borrow)]
    name: Piece<'a>,
    #[serde(borrow)]
    arguments: Piece<'a>,
    #[serde(borrow)]
    input: Piece<'a>,
}

/// An array that is not understood when it has more elements than a server sends in one message: each takes a hundred times the
/// room of its text.
struct AtMost<T>(Vec<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for AtMost<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct V<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for V<T> {
            type Value = AtMost<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "an array of at most {MAX_ELEMENTS}")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                let mut elements = Vec::new();
                while let Some(element) = seq.next_element()? {
                    if elements.len() >= MAX_ELEMENTS {
                        return Err(A::Error::invalid_length(elements.len() + 1, &self));
                    }
                    elements.push(element);
                }
                Ok(AtMost(elements))
            }
        }
        deserializer.deserialize_seq(V(PhantomData))
    }
}

/// The pieces of a streamed message; whether all of it was understood.
pub(in crate::protocol) fn said(event: SseEvent<'_>, out: &mut dyn FnMut(Said<'_>)) -> bool {
    let Ok(chunk) = serde_json::from_slice::<Chunk<'_>>(event.data) else {
        return matches!(event.data.trim_ascii(), b"" | b"[DONE]");
    };
    let mut understood = true;
    let number = |number: &Number| number.0.and_then(|n| u32::try_from(n).ok()).unwrap_or(0);
    for choice in chunk.choices.into_iter().flat_map(|choices| choices.0) {
        let index = number(&choice.index);
        let mut tell = |kind, piece: Piece<'_>| {
            understood &= piece.text.is_some() || !piece.filled;
            if let Some(text) = piece.text.filter(|text| !text.is_empty()) {
                out(Said {
                    choice: index,
                    kind,
                    text,
                });
            }
        };
        tell(SaidKind::Text, choice.text);
        let Some(delta) = choice.delta else { continue };
        // Some servers send reasoning by both of its names.
        let reasoning = if delta.reasoning_content.filled {
            delta.reasoning_content
        } else {
            delta.reasoning
        };
        tell(SaidKind::Reasoning, reasoning);
        tell(SaidKind::Text, delta.content);
        tell(SaidKind::Text, delta.refusal);
        let calls = delta.tool_calls.into_iter().flat_map(|calls| calls.0);
        let calls = calls.flat_map(|call| {
            let index = number(&call.index);
            [call.function, call.custom]
                .into_iter()
                .flatten()
                .map(move |function| (index, function))
        });
        for (index, function) in calls.chain(delta.function_call.map(|function| (0, function))) {
            tell(SaidKind::CallName(index), function.name);
            tell(SaidKind::CallArguments(index), function.arguments);
            tell(SaidKind::CallArguments(index), function.input);
        }
    }
    understood
}

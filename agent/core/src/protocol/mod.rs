//! Meaning: what the bytes of an exchange say about an inference request. One file a protocol.
//!
//! Owns: the trait, the registry, the facts that every protocol tells. Refuses: framing (`wire`), time (`timeline`),
//! who serves (`engine`).

mod lenient;
mod openai;
mod openai_chat;
mod openai_completions;

pub use openai_chat::OpenAiChat;
pub use openai_completions::OpenAiCompletions;

use crate::{
    content,
    wire::{json_scan::Scalar, sse::SseEvent},
};
use std::{borrow::Cow, fmt};

/// Every protocol. No request is claimed by two of them, so their order carries no meaning.
pub const PROTOCOLS: &[&dyn Protocol] = &[&OpenAiChat, &OpenAiCompletions];

/// The protocol that a request with this method and target speaks; `None` for everything that is no inference.
pub fn claiming(method: &str, target: &str) -> Option<&'static dyn Protocol> {
    PROTOCOLS
        .iter()
        .copied()
        .find(|p| p.claims(method, path_of(target)))
}

/// The path of a request target in any of its forms: query and fragment off, one trailing slash off.
pub fn path_of(target: &str) -> &str {
    let path = target.split(['?', '#']).next().unwrap_or("");
    path.strip_suffix('/').unwrap_or(path)
}

/// What one wire protocol's messages mean. Implementations are stateless: all state is in the facts.
pub trait Protocol: fmt::Debug + Sync {
    /// Its name in records, as in `openai_chat`.
    fn name(&self) -> &'static str;

    /// Whether a request with this method and [path](path_of) is an inference request of this protocol.
    fn claims(&self, method: &str, path: &str) -> bool;

    /// Whether a streamed message whose request was not seen is this protocol's.
    fn claims_message(&self, event: SseEvent<'_>) -> bool;

    /// Whether a complete response whose request was not seen is this protocol's.
    fn claims_response(&self, response: &ResponseFacts) -> bool;

    /// Paths of the request body that tell something, for [`crate::wire::json_scan::JsonScan`].
    fn request_paths(&self) -> &'static [&'static str];

    /// The scalar at a request path (an index into [`Protocol::request_paths`]).
    fn request_field(&self, path: usize, value: &Scalar<'_>, facts: &mut RequestFacts);

    /// Paths of a response that is one JSON document.
    fn response_paths(&self) -> &'static [&'static str];

    /// The scalar at a response path (an index into [`Protocol::response_paths`]).
    fn response_field(&self, path: usize, value: &Scalar<'_>, facts: &mut ResponseFacts);

    /// One message of a streamed response.
    fn message<'a>(&self, event: SseEvent<'a>, request: &RequestFacts) -> Result<Message<'a>, BadMessage>;

    /// The messages of a request's body, for content that is to be kept; `None` when it can't be read. What is not text
    /// ([`PartKind::Other`](content::PartKind::Other)) has for content what tells it from another, and is not to be kept.
    fn prompt(&self, body: &[u8]) -> Option<Vec<content::Message>>;

    /// The messages of a response that is one document, likewise.
    fn answer(&self, body: &[u8]) -> Option<Vec<content::Message>>;

    /// What one message of a streamed response says, likewise, piece by piece. Returns whether it could
    /// be read to its last piece.
    fn said(&self, event: SseEvent<'_>, out: &mut dyn FnMut(Said<'_>)) -> bool;
}

/// A piece of what a streamed response says.
#[derive(Debug, PartialEq, Eq)]
pub struct Said<'a> {
    /// Which choice says it.
    pub choice: u32,
    /// What it is a piece of.
    pub kind: SaidKind,
    /// The piece.
    pub text: Cow<'a, str>,
}

/// What a piece is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SaidKind {
    /// The answer.
    Text,
    /// What is thought before.
    Reasoning,
    /// The name of the tool that the call with this index calls.
    CallName(u32),
    /// Its arguments.
    CallArguments(u32),
}

/// A streamed message that is not what its protocol says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadMessage;

/// What a request body tells. Absent is what it did not say.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RequestFacts {
    /// Asked-for model.
    pub model: Option<String>,
    /// It asked for a stream.
    pub stream: Option<bool>,
    /// It asked for usage at the stream's end.
    pub include_usage: Option<bool>,
    /// It asked that the prompt be sent back before the output.
    pub echo: Option<bool>,
    /// Choices asked for.
    pub choices: Option<u64>,
    /// Most output tokens asked for.
    pub max_tokens: Option<u64>,
    /// End user, as the client names it. Never a label.
    pub user: Option<String>,
}

/// Totals that a response reports.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Prompt tokens, cached ones included.
    pub input: Option<u64>,
    /// Generated tokens, reasoning included.
    pub output: Option<u64>,
    /// Prompt tokens that came from the prefix cache.
    pub cached_input: Option<u64>,
    /// Generated tokens that were reasoning.
    pub reasoning: Option<u64>,
}

impl Usage {
    /// Takes over every total that `newer` knows.
    pub fn take(&mut self, newer: Usage) {
        self.input = newer.input.or(self.input);
        self.output = newer.output.or(self.output);
        self.cached_input = newer.cached_input.or(self.cached_input);
        self.reasoning = newer.reasoning.or(self.reasoning);
    }
}

/// An error object in a response.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ErrorFacts {
    /// Its code where that looks like an HTTP status.
    pub code: Option<u16>,
    /// Its type blames the request.
    pub blames_request: bool,
}

impl ErrorFacts {
    /// Whether the client is at fault: by the code, else by the type.
    pub fn is_client_error(self) -> bool {
        match self.code {
            Some(code) => (400..500).contains(&code),
            None => self.blames_request,
        }
    }
}

/// What a response tells, stream or not.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ResponseFacts {
    /// Its id.
    pub id: Option<String>,
    /// The kind of document that it says it is.
    pub object: Option<String>,
    /// The model that answered.
    pub model: Option<String>,
    /// Why the first choice that told so ended.
    pub finish_reason: Option<String>,
    /// One document with more than one choice; those of a stream are counted as they come.
    pub several_choices: bool,
    /// Totals.
    pub usage: Usage,
    /// Totals from a place that is only believed where `usage` has none.
    pub fallback_usage: Usage,
    /// It reports an error.
    pub error: Option<ErrorFacts>,
    /// A stream said that it is complete.
    pub done: bool,
}

/// What one streamed message tells.
#[derive(Debug, Default, PartialEq)]
pub struct Message<'a> {
    /// The response's id.
    pub id: Option<Cow<'a, str>>,
    /// The model that answers.
    pub model: Option<Cow<'a, str>>,
    /// Why the first choice that tells so ended.
    pub finish_reason: Option<Cow<'a, str>>,
    /// What each choice in it carries.
    pub choices: Choices<'a>,
    /// Totals so far.
    pub usage: Option<Usage>,
    /// Totals so far, believed only where there is no usage.
    pub fallback_usage: Option<Usage>,
    /// It reports an error.
    pub error: Option<ErrorFacts>,
    /// It says that the stream is complete.
    pub done: bool,
}

/// What one choice in one message carries.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChoiceDelta<'a> {
    /// Which choice.
    pub index: u32,
    /// It has generated content: text, reasoning, a tool call, a refusal.
    pub content: bool,
    /// Its text or reasoning, where that is all that it has; what calls tools is not the text that was generated.
    pub text: Option<Cow<'a, str>>,
    /// Tokens that it says it carries; `None` when it does not say.
    pub tokens: Option<u32>,
}

/// The choices of one message: nearly always one, so that one costs no allocation.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Choices<'a> {
    first: Option<ChoiceDelta<'a>>,
    more: Vec<ChoiceDelta<'a>>,
}

impl<'a> Choices<'a> {
    /// Adds one.
    pub fn push(&mut self, choice: ChoiceDelta<'a>) {
        match self.first {
            None => self.first = Some(choice),
            Some(_) => self.more.push(choice),
        }
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = &ChoiceDelta<'a>> {
        self.first.iter().chain(&self.more)
    }
}

/// Most bytes kept of a model name.
pub const MAX_NAME: usize = 128;

/// A name fit for labels and records: at most [`MAX_NAME`] bytes, cut at a character, control characters replaced.
/// `None` when nothing is left.
pub fn clean_name(name: &str) -> Option<String> {
    let name = name.trim();
    let mut end = name.len().min(MAX_NAME);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    let clean: String = name[..end]
        .chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect();
    if clean.len() <= MAX_NAME {
        return (!clean.is_empty()).then_some(clean);
    }
    // Replacements are longer than what they replace.
    clean_name(&clean)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every kind of target that servers get, and who claims it.
    const TARGETS: &[(&str, &str, Option<&str>)] = &[
        ("POST", "/v1/chat/completions", Some("openai_chat")),
        ("POST", "/chat/completions", Some("openai_chat")),
        ("POST", "/api/v1/chat/completions?beta=true", Some("openai_chat")),
        (
            "POST",
            "http://10.0.0.1:8000/v1/chat/completions",
            Some("openai_chat"),
        ),
        ("POST", "/v1/chat/completions/", Some("openai_chat")),
        ("POST", "/v1/completions", Some("openai_completions")),
        (
            "POST",
            "/llama/v1/completions?x=/chat/completions",
            Some("openai_completions"),
        ),
        ("GET", "/v1/chat/completions", None),
        ("OPTIONS", "/v1/chat/completions", None),
        ("POST", "/v1/embeddings", None),
        ("POST", "/completion", None),
        ("POST", "/completions", None),
        ("POST", "/v1/chat/completions/render", None),
        ("POST", "/xchat/completions", None),
        ("GET", "/health", None),
        ("GET", "/metrics", None),
        ("GET", "/v1/models", None),
        ("POST", "/", None),
        ("POST", "", None),
        ("OPTIONS", "*", None),
    ];

    #[test]
    fn each_target_is_claimed_by_the_one_protocol_that_it_belongs_to() {
        for (method, target, expected) in TARGETS {
            let claims: Vec<_> = PROTOCOLS
                .iter()
                .filter(|p| p.claims(method, path_of(target)))
                .map(|p| p.name())
                .collect();
            assert_eq!(
                claims,
                expected.iter().copied().collect::<Vec<_>>(),
                "{method} {target}"
            );
            assert_eq!(claiming(method, target).map(Protocol::name), *expected);
        }
    }

    #[test]
    fn each_response_is_claimed_by_the_one_protocol_that_it_belongs_to() {
        for (object, expected) in [
            ("chat.completion", Some("openai_chat")),
            ("chat.completion.chunk", Some("openai_chat")),
            ("text_completion", Some("openai_completions")),
            ("list", None),
            ("error", None),
        ] {
            let json = format!(r#"{{"id":"x","object":"{object}","choices":[]}}"#);
            let event = SseEvent {
                name: b"",
                data: json.as_bytes(),
            };
            let facts = ResponseFacts {
                object: Some(object.into()),
                ..ResponseFacts::default()
            };
            let by_message: Vec<_> = PROTOCOLS
                .iter()
                .filter(|p| p.claims_message(event))
                .map(|p| p.name())
                .collect();
            let by_facts: Vec<_> = PROTOCOLS
                .iter()
                .filter(|p| p.claims_response(&facts))
                .map(|p| p.name())
                .collect();
            let expected: Vec<_> = expected.into_iter().collect();
            assert_eq!(by_facts, expected, "{object}");
            assert_eq!(by_message, expected, "{object}");
        }
    }

    #[test]
    fn names_are_bounded_and_harmless() {
        for (name, expected) in [
            ("smollm2", Some("smollm2".to_owned())),
            ("  a b ", Some("a b".to_owned())),
            ("", None),
            ("   ", None),
            ("a\nb\u{7f}", Some("a\u{fffd}b\u{fffd}".to_owned())),
            (&"x".repeat(500), Some("x".repeat(128))),
            (&"é".repeat(100), Some("é".repeat(64))),
            (&"\u{1}".repeat(500), Some("\u{fffd}".repeat(42))),
        ] {
            assert_eq!(clean_name(name), expected);
        }
    }
}

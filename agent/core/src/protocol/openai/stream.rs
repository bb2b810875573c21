//! Streamed messages of OpenAI's chat completions and completions.
//!
//! Owns: their shape, reduced while it is parsed to what is asked of it, nearly without allocation: this is the code that
//! every token passes. Refuses: framing, and what the numbers mean.

use super::{blames_request, http_code};
use crate::{
    protocol::{
        BadMessage, ChoiceDelta, Choices, ErrorFacts, Message, RequestFacts, Usage,
        lenient::{Count, Filled, Number, Said, Text, otherwise_default},
    },
    wire::sse::SseEvent,
};
use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use std::{borrow::Cow, fmt};

/// `object` of a streamed message.
pub(in crate::protocol) fn message_is(event: SseEvent<'_>, objects: &[&str]) -> bool {
    #[derive(Deserialize)]
    struct Kind<'a> {
        #[serde(borrow, default)]
        object: Text<'a>,
    }
    serde_json::from_slice::<Kind<'_>>(event.data).is_ok_and(|kind| {
        kind.object
            .0
            .is_some_and(|object| objects.contains(&object.as_ref()))
    })
}

/// One `data:` of a stream.
pub(in crate::protocol) fn message<'a>(
    event: SseEvent<'a>,
    request: &RequestFacts,
) -> Result<Message<'a>, BadMessage> {
    let data = event.data.trim_ascii();
    if data == b"[DONE]" {
        return Ok(Message {
            done: true,
            ..Message::default()
        });
    }
    let named_error = event.name == b"error";
    // Checking the encoding once is cheaper than string by string.
    let wire: WireMessage<'a> = match std::str::from_utf8(data).map(serde_json::from_str) {
        Ok(Ok(wire)) => wire,
        // `event: error` may carry plain text.
        _ if named_error => WireMessage::default(),
        _ => return Err(BadMessage),
    };
    let error = match wire.error.0 {
        Some(error) => Some(error),
        None if named_error || wire.object.0.as_deref() == Some("error") => Some(ErrorFacts {
            code: wire.code.0.and_then(http_code),
            blames_request: false,
        }),
        None => None,
    };
    let mut message = Message {
        id: wire.id.0,
        model: wire.model.0,
        finish_reason: wire.choices.finish_reason.0,
        choices: wire.choices.deltas,
        usage: wire.usage.map(Usage::from),
        fallback_usage: wire.timings.map(Usage::from),
        error,
        done: false,
    };
    if request.echo == Some(true) {
        // The prompt comes back with its own log probabilities, which are no generated tokens.
        message.choices.forget_tokens();
    }
    Ok(message)
}

impl Choices<'_> {
    fn forget_tokens(&mut self) {
        for choice in self.first.iter_mut().chain(&mut self.more) {
            choice.tokens = None;
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WireMessage<'a> {
    #[serde(borrow)]
    id: Text<'a>,
    #[serde(borrow)]
    object: Text<'a>,
    #[serde(borrow)]
    model: Text<'a>,
    #[serde(borrow)]
    choices: WireChoices<'a>,
    usage: Option<WireUsage>,
    timings: Option<WireTimings>,
    error: WireError,
    code: Number,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WireUsage {
    prompt_tokens: Number,
    completion_tokens: Number,
    prompt_tokens_details: Option<PromptDetails>,
    completion_tokens_details: Option<CompletionDetails>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PromptDetails {
    cached_tokens: Number,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct CompletionDetails {
    reasoning_tokens: Number,
}

impl From<WireUsage> for Usage {
    fn from(wire: WireUsage) -> Usage {
        Usage {
            input: wire.prompt_tokens.0,
            output: wire.completion_tokens.0,
            cached_input: wire.prompt_tokens_details.and_then(|d| d.cached_tokens.0),
            reasoning: wire.completion_tokens_details.and_then(|d| d.reasoning_tokens.0),
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WireTimings {
    #[serde(rename = "cache_n")]
    cached: Number,
    /// Leaves out what the cache had.
    #[serde(rename = "prompt_n")]
    prompt: Number,
    #[serde(rename = "predicted_n")]
    predicted: Number,
}

impl From<WireTimings> for Usage {
    fn from(wire: WireTimings) -> Usage {
        Usage {
            input: wire
                .prompt
                .0
                .map(|n| n.saturating_add(wire.cached.0.unwrap_or(0))),
            output: wire.predicted.0,
            cached_input: wire.cached.0,
            reasoning: None,
        }
    }
}

/// `error`: an object, or a bare text; null is none.
#[derive(Debug, Default)]
struct WireError(Option<ErrorFacts>);

impl<'de> Deserialize<'de> for WireError {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = WireError;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an error")
            }
            fn visit_str<E>(self, _: &str) -> Result<WireError, E> {
                Ok(WireError(Some(ErrorFacts::default())))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<WireError, A::Error> {
                let mut facts = ErrorFacts::default();
                while let Some(key) = map.next_key::<Text<'de>>()? {
                    match key.0.as_deref() {
                        Some("code") => facts.code = map.next_value::<Number>()?.0.and_then(http_code),
                        Some("type") => {
                            facts.blames_request = map
                                .next_value::<Text<'de>>()?
                                .0
                                .is_some_and(|t| blames_request(&t));
                        }
                        _ => {
                            map.next_value::<IgnoredAny>()?;
                        }
                    }
                }
                Ok(WireError(Some(facts)))
            }
            otherwise_default!(scalar unit seq);
        }
        deserializer.deserialize_any(V)
    }
}

/// `choices`, reduced while they are read.
#[derive(Debug, Default)]
struct WireChoices<'a> {
    finish_reason: Text<'a>,
    deltas: Choices<'a>,
}

impl<'de: 'a, 'a> Deserialize<'de> for WireChoices<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = WireChoices<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("choices")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                let mut choices = WireChoices::default();
                while let Some(mut choice) = seq.next_element::<WireChoice<'de>>()? {
                    choices.deltas.push(choice.delta());
                    if choices.finish_reason.0.is_none() {
                        choices.finish_reason = choice.finish_reason;
                    }
                }
                Ok(choices)
            }
            otherwise_default!(scalar unit str map);
        }
        deserializer.deserialize_any(V)
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WireChoice<'a> {
    index: Number,
    #[serde(borrow)]
    delta: Option<WireDelta<'a>>,
    #[serde(borrow)]
    text: Said<'a>,
    #[serde(borrow)]
    finish_reason: Text<'a>,
    logprobs: Option<WireLogprobs>,
    /// vLLM's `return_token_ids`.
    token_ids: Count,
}

impl<'a> WireChoice<'a> {
    fn delta(&mut self) -> ChoiceDelta<'a> {
        let logprobs = self.logprobs.as_ref().map_or(0, WireLogprobs::tokens);
        let tokens = self.token_ids.0.max(logprobs);
        ChoiceDelta {
            index: self.index.0.and_then(|n| u32::try_from(n).ok()).unwrap_or(0),
            content: self.text.filled || self.delta.as_ref().is_some_and(|delta| delta.content),
            text: match &mut self.delta {
                Some(delta) => delta.text.take(),
                None => self.text.text.take(),
            },
            tokens: (tokens > 0).then_some(tokens),
        }
    }
}

/// `delta`, reduced while it is read: every chunk has one, and a struct of its members would be moved through each.
#[derive(Debug, Default)]
struct WireDelta<'a> {
    content: bool,
    /// The first text that is there. Nobody sends text and reasoning in one message but at the turn from one to the
    /// other, or reasoning by both of its names.
    text: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "snake_case")]
enum DeltaMember {
    Content,
    /// vLLM before 0.12, SGLang, llama.cpp, DeepSeek.
    ReasoningContent,
    /// vLLM now.
    Reasoning,
    Refusal,
    ToolCalls,
    FunctionCall,
    #[serde(other)]
    Other,
}

impl<'de: 'a, 'a> Deserialize<'de> for WireDelta<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = WireDelta<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a delta")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut delta = WireDelta::default();
                while let Some(member) = map.next_key::<DeltaMember>()? {
                    delta.content |= match member {
                        DeltaMember::Content | DeltaMember::ReasoningContent | DeltaMember::Reasoning => {
                            let said = map.next_value::<Said<'de>>()?;
                            if delta.text.is_none() {
                                delta.text = said.text.filter(|text| !text.is_empty());
                            }
                            said.filled
                        }
                        DeltaMember::Refusal => map.next_value::<Filled>()?.0,
                        DeltaMember::ToolCalls => map.next_value::<WireCalls>()?.0,
                        DeltaMember::FunctionCall => map
                            .next_value::<Option<WireFunction>>()?
                            .as_ref()
                            .is_some_and(WireFunction::has_content),
                        DeltaMember::Other => {
                            map.next_value::<IgnoredAny>()?;
                            false
                        }
                    };
                }
                Ok(delta)
            }
        }
        deserializer.deserialize_map(V)
    }
}

/// Whether any of `tool_calls` carries a name or arguments.
#[derive(Debug, Default)]
struct WireCalls(bool);

impl<'de> Deserialize<'de> for WireCalls {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Call {
            function: Option<WireFunction>,
            custom: Option<WireFunction>,
        }
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = WireCalls;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("tool calls")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<WireCalls, A::Error> {
                let mut any = false;
                while let Some(call) = seq.next_element::<Call>()? {
                    any |= [call.function, call.custom]
                        .iter()
                        .flatten()
                        .any(WireFunction::has_content);
                }
                Ok(WireCalls(any))
            }
            otherwise_default!(scalar unit str map);
        }
        deserializer.deserialize_any(V)
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WireFunction {
    name: Filled,
    arguments: Filled,
    input: Filled,
}

impl WireFunction {
    fn has_content(&self) -> bool {
        self.name.0 || self.arguments.0 || self.input.0
    }
}

/// Chat: `content` and `refusal`; completions: parallel arrays, of which `tokens` is one.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WireLogprobs {
    content: Count,
    refusal: Count,
    tokens: Count,
}

impl WireLogprobs {
    fn tokens(&self) -> u32 {
        self.content.0.saturating_add(self.refusal.0).max(self.tokens.0)
    }
}

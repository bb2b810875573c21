//! Members of streamed messages of OpenAI's protocols.
//!
//! Owns: their shapes, reduced while they are parsed to what is asked of them. Refuses: the messages that they are in.

use super::{blames_request, http_code};
use crate::protocol::{
    ErrorFacts, Usage,
    lenient::{Count, Filled, Number, Text, otherwise_default},
};
use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use std::fmt;

/// `usage`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct WireUsage {
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

/// `timings` of llama.cpp.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct WireTimings {
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
pub(super) struct WireError(pub(super) Option<ErrorFacts>);

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

/// Whether any of `tool_calls` carries a name or arguments.
#[derive(Debug, Default)]
pub(super) struct WireCalls(pub(super) bool);

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
pub(super) struct WireFunction {
    name: Filled,
    arguments: Filled,
    input: Filled,
}

impl WireFunction {
    pub(super) fn has_content(&self) -> bool {
        self.name.0 || self.arguments.0 || self.input.0
    }
}

/// Chat: `content` and `refusal`; completions: parallel arrays, of which `tokens` is one.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct WireLogprobs {
    content: Count,
    refusal: Count,
    tokens: Count,
}

impl WireLogprobs {
    pub(super) fn tokens(&self) -> u32 {
        self.content.0.saturating_add(self.refusal.0).max(self.tokens.0)
    }
}

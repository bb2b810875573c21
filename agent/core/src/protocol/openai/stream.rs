//! Streamed messages of OpenAI's chat completions and completions.
//!
//! Owns: their shape, reduced while it is parsed to what is asked of it, nearly without allocation: this is the code that
//! every token passes. Refuses: framing, and what the numbers mean.

#[cfg(test)]
mod tests;

use super::{
    http_code,
    members::{WireCalls, WireError, WireFunction, WireLogprobs, WireTimings, WireUsage},
};
use crate::{
    protocol::{
        BadMessage, ChoiceDelta, Choices, ErrorFacts, Message, RequestFacts, Usage,
        lenient::{Count, Filled, Number, Said, Text, otherwise_default},
    },
    wire::sse::SseEvent,
};
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor},
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
    let mut message = Message::default();
    let mut reading = Reading {
        message: &mut message,
        is_error: named_error,
        code: None,
        has_choices: false,
    };
    // Checking the encoding once is cheaper than string by string.
    let read = std::str::from_utf8(data).is_ok_and(|data| {
        let mut json = serde_json::Deserializer::from_str(data);
        reading.deserialize(&mut json).is_ok() && json.end().is_ok()
    });
    let Reading { is_error, code, .. } = reading;
    if !read {
        if !named_error {
            return Err(BadMessage);
        }
        // `event: error` may carry plain text.
        message = Message::default();
    }
    if is_error && message.error.is_none() {
        message.error = Some(ErrorFacts {
            code: code.filter(|_| read).and_then(http_code),
            blames_request: false,
        });
    }
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

/// A message while it is read. Its members go to where they stay: handing structs of them up through the parser would
/// cost more than reading them.
struct Reading<'m, 'a> {
    message: &'m mut Message<'a>,
    /// It says that it is an error.
    is_error: bool,
    code: Option<u64>,
    /// There were `choices`: their deltas are counted, so a second time they would be counted twice.
    has_choices: bool,
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "snake_case")]
enum MessageMember {
    Id,
    Object,
    Model,
    Choices,
    Usage,
    Timings,
    Error,
    Code,
    #[serde(other)]
    Other,
}

impl<'de> DeserializeSeed<'de> for &mut Reading<'_, 'de> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for &mut Reading<'_, 'de> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a message")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(member) = map.next_key::<MessageMember>()? {
            match member {
                MessageMember::Id => self.message.id = map.next_value::<Text<'de>>()?.0,
                MessageMember::Object => {
                    self.is_error |= map.next_value::<Text<'de>>()?.0.as_deref() == Some("error");
                }
                MessageMember::Model => self.message.model = map.next_value::<Text<'de>>()?.0,
                MessageMember::Choices => {
                    if std::mem::replace(&mut self.has_choices, true) {
                        return Err(A::Error::duplicate_field("choices"));
                    }
                    map.next_value_seed(ReadChoices(self.message))?;
                }
                // Of those that tell something the first holds, whatever comes behind it.
                MessageMember::Usage => {
                    let usage = map.next_value::<Option<WireUsage>>()?;
                    let known = self.message.usage.take();
                    self.message.usage = known.or(usage.map(Usage::from));
                }
                MessageMember::Timings => {
                    let timings = map.next_value::<Option<WireTimings>>()?;
                    let known = self.message.fallback_usage.take();
                    self.message.fallback_usage = known.or(timings.map(Usage::from));
                }
                MessageMember::Error => {
                    let error = map.next_value::<WireError>()?.0;
                    self.message.error = self.message.error.take().or(error);
                }
                MessageMember::Code => self.code = self.code.or(map.next_value::<Number>()?.0),
                MessageMember::Other => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

/// Reads `choices`.
struct ReadChoices<'m, 'a>(&'m mut Message<'a>);

impl<'de> DeserializeSeed<'de> for ReadChoices<'_, 'de> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ReadChoices<'_, 'de> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("choices")
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        loop {
            let mut choice = ChoiceDelta::default();
            let reading = ReadChoice {
                choice: &mut choice,
                finish_reason: &mut self.0.finish_reason,
            };
            if seq.next_element_seed(reading)?.is_none() {
                return Ok(());
            }
            self.0.choices.push(choice);
        }
    }
    otherwise_default!(scalar unit str map);
}

/// Reads one of `choices`.
struct ReadChoice<'m, 'a> {
    choice: &'m mut ChoiceDelta<'a>,
    /// Of the first choice that tells one.
    finish_reason: &'m mut Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "snake_case")]
enum ChoiceMember {
    Index,
    Delta,
    Text,
    FinishReason,
    Logprobs,
    /// vLLM's `return_token_ids`.
    TokenIds,
    #[serde(other)]
    Other,
}

impl<'de> DeserializeSeed<'de> for ReadChoice<'_, 'de> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for ReadChoice<'_, 'de> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a choice")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let choice = self.choice;
        let (mut tokens, mut has_delta) = (0, false);
        while let Some(member) = map.next_key::<ChoiceMember>()? {
            match member {
                ChoiceMember::Index => {
                    let index = map.next_value::<Number>()?.0;
                    choice.index = index.and_then(|n| u32::try_from(n).ok()).unwrap_or(0);
                }
                ChoiceMember::Delta => has_delta |= map.next_value_seed(ReadDelta(choice))?,
                ChoiceMember::Text => {
                    let said = map.next_value::<Said<'de>>()?;
                    choice.content |= said.filled;
                    if !has_delta {
                        choice.text = said.text;
                    }
                }
                ChoiceMember::FinishReason => {
                    let reason = map.next_value::<Text<'de>>()?.0;
                    if self.finish_reason.is_none() {
                        *self.finish_reason = reason;
                    }
                }
                ChoiceMember::Logprobs => {
                    let logprobs = map.next_value::<Option<WireLogprobs>>()?;
                    tokens = tokens.max(logprobs.as_ref().map_or(0, WireLogprobs::tokens));
                }
                ChoiceMember::TokenIds => tokens = tokens.max(map.next_value::<Count>()?.0),
                ChoiceMember::Other => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        choice.tokens = (tokens > 0).then_some(tokens);
        Ok(())
    }
}

/// Reads `delta`; tells whether there is one.
struct ReadDelta<'m, 'a>(&'m mut ChoiceDelta<'a>);

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

impl<'de> DeserializeSeed<'de> for ReadDelta<'_, 'de> {
    type Value = bool;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_option(self)
    }
}

impl<'de> Visitor<'de> for ReadDelta<'_, 'de> {
    type Value = bool;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a delta")
    }
    fn visit_none<E>(self) -> Result<bool, E> {
        Ok(false)
    }
    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_map(self)
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<bool, A::Error> {
        let choice = self.0;
        choice.text = None;
        while let Some(member) = map.next_key::<DeltaMember>()? {
            choice.content |= match member {
                // The first text that is there. Nobody sends text and reasoning in one message but at the turn from one
                // to the other, or reasoning by both of its names.
                DeltaMember::Content | DeltaMember::ReasoningContent | DeltaMember::Reasoning => {
                    let said = map.next_value::<Said<'de>>()?;
                    if choice.text.is_none() {
                        choice.text = said.text.filter(|text| !text.is_empty());
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
        Ok(true)
    }
}

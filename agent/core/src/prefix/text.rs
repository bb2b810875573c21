//! The text of a prompt, out of a request's body.
//!
//! Owns: where bodies have text, and in which order it goes into a prompt. Refuses: chat templates (what they add is the
//! same for all prompts of a shape), pictures and sound, and keeping anything after the request has ended.

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Which part of a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// The system prompt.
    System,
    /// Tools that may be called.
    Tools,
    /// What a user wrote.
    User,
    /// What the model answered before.
    Assistant,
    /// What a tool answered.
    Tool,
    /// A prompt without parts.
    Prompt,
}

impl Part {
    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Part::System => "system",
            Part::Tools => "tools",
            Part::User => "user",
            Part::Assistant => "assistant",
            Part::Tool => "tool",
            Part::Prompt => "prompt",
        }
    }

    fn of_role(role: &str) -> Part {
        match role {
            "system" | "developer" => Part::System,
            "assistant" | "model" => Part::Assistant,
            "tool" | "function" => Part::Tool,
            _ => Part::User,
        }
    }
}

/// A prompt's text: all parts one behind the other.
#[derive(Debug, Default, PartialEq)]
pub(super) struct PromptText {
    pub(super) text: String,
    /// Where each part begins, ascending.
    pub(super) parts: Vec<(usize, Part)>,
}

impl PromptText {
    /// Of a request's body; `None` where that is no JSON, or has no text.
    pub(super) fn of(body: &[u8]) -> Option<PromptText> {
        let mut body: Body = serde_json::from_slice(body).ok()?;
        let mut prompt = PromptText::default();
        for (part, texts) in [
            (Part::System, body.system.take()),
            (Part::System, body.instructions.take()),
            (Part::Tools, body.tools.take().map(|all| all.0)),
        ] {
            prompt.add(part, &texts.unwrap_or_default());
        }
        for message in body.messages.unwrap_or_default() {
            let part = Part::of_role(message.role.as_deref().unwrap_or_default());
            prompt.add(part, &message.content.unwrap_or_default());
            prompt.add(part, &message.tool_calls.map(|all| all.0).unwrap_or_default());
        }
        for texts in [body.prompt, body.input, body.inputs] {
            prompt.add(Part::Prompt, &texts.unwrap_or_default());
        }
        (!prompt.text.is_empty()).then_some(prompt)
    }

    /// The part that this byte is of.
    pub(super) fn part_at(&self, byte: usize) -> Part {
        let after = self.parts.partition_point(|(start, _)| *start <= byte);
        let part = after.checked_sub(1).and_then(|at| self.parts.get(at));
        part.map_or(Part::Prompt, |(_, part)| *part)
    }

    fn add(&mut self, part: Part, texts: &Texts) {
        if texts.0.is_empty() {
            return;
        }
        self.parts.push((self.text.len(), part));
        self.text.push_str(&texts.0);
    }
}

#[derive(Deserialize)]
struct Body {
    system: Option<Texts>,
    instructions: Option<Texts>,
    tools: Option<All>,
    messages: Option<Vec<Message>>,
    prompt: Option<Texts>,
    input: Option<Texts>,
    inputs: Option<Texts>,
}

#[derive(Deserialize)]
struct Message {
    role: Option<String>,
    content: Option<Texts>,
    tool_calls: Option<All>,
}

/// A text, or parts that hold texts.
#[derive(Debug, Default)]
struct Texts(String);

/// Everything that is written in a value, names too.
struct All(Texts);

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Texts, D::Error> {
        let mut texts = Texts::default();
        let collect = Collect {
            into: &mut texts.0,
            all: false,
        };
        collect.deserialize(deserializer)?;
        Ok(texts)
    }
}

impl<'de> Deserialize<'de> for All {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<All, D::Error> {
        let mut texts = Texts::default();
        let collect = Collect {
            into: &mut texts.0,
            all: true,
        };
        collect.deserialize(deserializer)?;
        Ok(All(texts))
    }
}

struct Collect<'a> {
    into: &'a mut String,
    all: bool,
}

impl Collect<'_> {
    fn write(self, text: &str) {
        self.into.push_str(text);
        if self.all {
            self.into.push(' ');
        }
    }
}

impl<'de> DeserializeSeed<'de> for Collect<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Collect<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        self.write(text);
        Ok(())
    }

    fn visit_bool<E>(self, value: bool) -> Result<(), E> {
        if self.all {
            self.write(if value { "true" } else { "false" });
        }
        Ok(())
    }

    fn visit_i64<E>(self, value: i64) -> Result<(), E> {
        if self.all {
            self.write(&value.to_string());
        }
        Ok(())
    }

    fn visit_u64<E>(self, value: u64) -> Result<(), E> {
        if self.all {
            self.write(&value.to_string());
        }
        Ok(())
    }

    fn visit_f64<E>(self, value: f64) -> Result<(), E> {
        if self.all {
            self.write(&value.to_string());
        }
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let Collect { into, all } = self;
        while items
            .next_element_seed(Collect {
                into: &mut *into,
                all,
            })?
            .is_some()
        {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let Collect { into, all } = self;
        while let Some(name) = members.next_key::<String>()? {
            if all {
                into.push_str(&name);
                into.push(' ');
            }
            if all || matches!(&*name, "text" | "refusal" | "content") {
                members.next_value_seed(Collect {
                    into: &mut *into,
                    all,
                })?;
            } else {
                members.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn texts_come_in_the_order_of_the_prompt() {
        use Part::{Assistant, Prompt, System, Tool, Tools, User};
        type Case<'a> = (&'a str, &'a str, &'a [(usize, Part)]);
        let cases: &[Case<'_>] = &[
            (r#"{"prompt":"one"}"#, "one", &[(0, Prompt)]),
            (r#"{"inputs":"one","parameters":{"x":1}}"#, "one", &[(0, Prompt)]),
            (r#"{"prompt":["one ","two"]}"#, "one two", &[(0, Prompt)]),
            (
                r#"{"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":null,"tool_calls":[{"id":"a","n":1}]},
                {"role":"tool","content":"4"}],"system":[{"type":"text","text":"Be kind."}]}"#,
                "Be kind.hiid a n 1 4",
                &[(0, System), (8, User), (10, Assistant), (19, Tool)],
            ),
            (
                r#"{"tools":[{"name":"get"}],"messages":[{"role":"developer","content":[{"type":"text","text":"a"},
                {"type":"image_url","image_url":{"url":"data:"}}]}]}"#,
                "name get a",
                &[(0, Tools), (9, System)],
            ),
            (
                r#"{"input":[{"role":"user","content":[{"type":"input_text","text":"a"}]}],"instructions":"b"}"#,
                "ba",
                &[(0, System), (1, Prompt)],
            ),
        ];
        for (body, text, parts) in cases {
            let prompt = PromptText::of(body.as_bytes()).expect(body);
            assert_eq!((&*prompt.text, &*prompt.parts), (*text, *parts), "{body}");
        }
        let prompt = PromptText::of(cases[3].0.as_bytes()).expect("text");
        let parts = [0, 7, 8, 9, 10, 19, 99].map(|at| prompt.part_at(at));
        assert_eq!(parts, [System, System, User, User, Assistant, Tool, Tool]);
    }

    #[test]
    fn what_has_no_text_has_none() {
        for body in [
            "",
            "{",
            "[]",
            "{}",
            r#"{"prompt":[1,2]}"#,
            r#"{"messages":"x"}"#,
            r#"{"prompt":{}}"#,
        ] {
            assert_eq!(PromptText::of(body.as_bytes()), None, "{body}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_harmless(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = PromptText::of(&bytes);
        }

        #[test]
        fn any_text_comes_back(text in ".{1,40}") {
            let body = serde_json::json!({"messages": [{"role": "user", "content": text}]}).to_string();
            prop_assert_eq!(PromptText::of(body.as_bytes()).map(|prompt| prompt.text), Some(text));
        }
    }
}

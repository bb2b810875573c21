//! What is kept of the content of one request.
//!
//! Owns: its shape, in memory and as JSON: that of OpenTelemetry's `gen_ai.input.messages` and `gen_ai.output.messages`, as
//! far as there is text. Refuses: raw text in any mode but [`Mode::Full`]; whoever makes a transcript sees to it.

use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt};

/// How much of the content of requests is kept; in order, from nothing to all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Nothing.
    #[default]
    None,
    /// A keyed digest, by which equal prompts can be told, and the length.
    Hash,
    /// The text, with what looks like personal data and credentials replaced.
    Redacted,
    /// The text as it is.
    Full,
}

impl Mode {
    /// Its name in configuration, JSON and labels.
    pub const fn as_str(self) -> &'static str {
        match self {
            Mode::None => "none",
            Mode::Hash => "hash",
            Mode::Redacted => "redacted",
            Mode::Full => "full",
        }
    }
}

/// Why one side of the content is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Absent {
    /// Part of it was not seen.
    Incomplete,
    /// It is larger than is held while a request runs.
    TooLarge,
    /// The requests under way held as much already as they may.
    NoMemory,
    /// It is in a form that is not understood.
    Unreadable,
    /// Making it failed; the raw text is never kept instead.
    Failed,
}

impl Absent {
    /// All reasons, in label order.
    pub const ALL: [Absent; 5] = [
        Absent::Incomplete,
        Absent::TooLarge,
        Absent::NoMemory,
        Absent::Unreadable,
        Absent::Failed,
    ];

    /// Its name in JSON and labels.
    pub const fn as_str(self) -> &'static str {
        match self {
            Absent::Incomplete => "incomplete",
            Absent::TooLarge => "too_large",
            Absent::NoMemory => "no_memory",
            Absent::Unreadable => "unreadable",
            Absent::Failed => "failed",
        }
    }
}

/// What a part of a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PartKind {
    /// Text.
    Text,
    /// What the model thought before it answered.
    Reasoning,
    /// A call of a tool: its name, and its arguments as text.
    ToolCall,
    /// What a tool answered.
    ToolCallResponse,
    /// Something that is not text (an image, audio): named, and not kept.
    Other,
}

impl PartKind {
    /// Its name in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            PartKind::Text => "text",
            PartKind::Reasoning => "reasoning",
            PartKind::ToolCall => "tool_call",
            PartKind::ToolCallResponse => "tool_call_response",
            PartKind::Other => "other",
        }
    }
}

/// A part of a message.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// What it is.
    #[serde(rename = "type")]
    pub kind: PartKind,
    /// The tool's name, or what kind of thing it is that is not text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its text.
    pub content: String,
}

/// A message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Who speaks: `system`, `user`, `assistant`, `tool`.
    pub role: String,
    /// What is said.
    pub parts: Vec<Part>,
}

/// The prompt, or the answer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Side {
    /// Its messages; none in mode `hash`. An answer has one a choice.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<Message>,
    /// HMAC-SHA-256 of its messages, hexadecimal, with the key of the agent's store; in mode `hash` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
    /// Bytes of its text, before anything was replaced or cut.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Text behind the limit is missing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
    /// Why there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub absent: Option<Absent>,
}

impl Side {
    /// A side that is not there.
    pub fn absent(why: Absent) -> Side {
        Side {
            absent: Some(why),
            ..Side::default()
        }
    }
}

/// What is kept of the content of one request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transcript {
    /// How it was made.
    pub mode: Mode,
    /// The prompt.
    pub input: Side,
    /// The answer.
    pub output: Side,
    /// How often what was replaced, by kind: `EMAIL`, `PHONE`, `KEY`, `CARD`, `IBAN`, `ID`, `CUSTOM:name`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub redactions: BTreeMap<String, u64>,
}

/// Never the text: what is printed for debugging ends in logs.
impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({} bytes)", self.kind.as_str(), self.content.len())
    }
}

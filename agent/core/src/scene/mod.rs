//! Scenes: what a request was for, by the operator's rules.
//!
//! Owns: the rules, their order (the first that matches decides), and waiting until that is certain. Refuses: the text
//! of a configuration file (the agent's), caps on label values (the exporter's), and keeping keys or prompts: both are
//! known by their fingerprint alone.

mod facts;
mod glob;
#[cfg(test)]
mod pods_tests;
mod rule;
#[cfg(test)]
mod tests;

pub use facts::SceneFacts;
pub use glob::glob;
pub use rule::{Field, Rule, RuleText, header_name};

use crate::protocol::clean_name;
use rule::SceneName;
use sha2::{Digest as _, Sha256};
use std::{fmt::Write as _, sync::Arc};

/// Scene of a request that no rule names.
pub const DEFAULT_SCENE: &str = "default";

/// Most rules.
pub const MAX_RULES: usize = 256;
/// Most different paths of request bodies in all rules together.
pub const MAX_BODY_PATHS: usize = 48;
/// Most different labels of pods in all rules together.
pub const MAX_POD_LABELS: usize = 16;
/// Characters at the beginning of a system prompt that make its fingerprint.
pub const PROMPT_CHARS: usize = 256;
/// Hexadecimal digits of a fingerprint that a rule must give, and that a scene named after one has.
pub const FINGERPRINT_DIGITS: usize = 12;

/// SHA-256: what is kept of an API key, and of the beginning of a system prompt.
pub fn fingerprint(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// The fingerprint of a system prompt: of its first [`PROMPT_CHARS`] characters.
pub fn prompt_fingerprint(prompt: &str) -> [u8; 32] {
    let end = prompt
        .char_indices()
        .nth(PROMPT_CHARS)
        .map_or(prompt.len(), |(at, _)| at);
    fingerprint(&prompt.as_bytes()[..end])
}

/// Lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::with_capacity(2 * bytes.len()), |mut out, byte| {
            // Writing to a String does not fail.
            let _ = write!(out, "{byte:02x}");
            out
        })
}

/// The rules, in order.
#[derive(Debug, Default, PartialEq)]
pub struct SceneRules {
    rules: Vec<Rule>,
    /// Lower-case names of the header fields that they ask for.
    headers: Vec<Box<str>>,
    /// Paths of the body that they ask for.
    body: Vec<String>,
    prompt: bool,
    /// Names of the labels of pods that they ask for.
    labels: Vec<String>,
    /// The first that asks for the client's pod.
    pods: Option<usize>,
}

/// Why rules were refused: which one (from 0), and what would be right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct BadRules {
    /// Index of the rule.
    pub rule: usize,
    /// What is wrong with it.
    pub reason: String,
}

impl SceneRules {
    /// Takes rules in their order.
    ///
    /// # Errors
    /// There are too many, they ask for too many fields of bodies, or one can never match because one before it always does.
    pub fn new(rules: Vec<Rule>) -> Result<SceneRules, BadRules> {
        let mut out = SceneRules::default();
        let mut all: Option<usize> = None;
        for (index, rule) in rules.iter().enumerate() {
            let refuse = |reason: String| Err(BadRules { rule: index, reason });
            if let Some(before) = all {
                return refuse(format!(
                    "it can never match: rule {} before it matches every request; move that one to the end",
                    before + 1
                ));
            }
            if rule.always() {
                all = Some(index);
            }
            if index == MAX_RULES {
                return refuse(format!("there are more than {MAX_RULES} rules"));
            }
            for field in rule.fields() {
                match field {
                    Field::Header(name) if !out.headers.contains(name) => out.headers.push(name.clone()),
                    Field::Body(path) if !out.body.iter().any(|known| **known == **path) => {
                        if out.body.len() == MAX_BODY_PATHS {
                            return refuse(format!(
                                "the rules ask for more than {MAX_BODY_PATHS} different fields of request bodies"
                            ));
                        }
                        out.body.push(path.to_string());
                    }
                    Field::SystemPrompt => out.prompt = true,
                    Field::ClientNamespace | Field::ClientPod | Field::ClientWorkload => {
                        out.pods.get_or_insert(index);
                    }
                    Field::ClientLabel(name) => {
                        out.pods.get_or_insert(index);
                        if !out.labels.iter().any(|known| **known == **name) {
                            if out.labels.len() == MAX_POD_LABELS {
                                return refuse(format!(
                                    "the rules ask for more than {MAX_POD_LABELS} different labels of pods"
                                ));
                            }
                            out.labels.push(name.to_string());
                        }
                    }
                    _ => {}
                }
            }
        }
        // In another order they are the same: nobody need ask for all pods again.
        out.labels.sort_unstable();
        out.rules = rules;
        Ok(out)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// Names of the labels of clients' pods that they ask for, sorted.
    pub fn pod_labels(&self) -> &[String] {
        &self.labels
    }

    /// Index of the first that asks for anything of the client's pod.
    pub fn first_by_pod(&self) -> Option<usize> {
        self.pods
    }

    /// There is none: every request is of the default scene.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// The scene of a request of which `facts` are known; `None` while what is not known yet may decide. `model` is the
    /// served model, `engine` the id of who serves it. With `all` nothing more will be known, and there is an answer.
    pub fn scene(
        &self,
        facts: &SceneFacts,
        model: Option<&str>,
        engine: Option<&str>,
        all: bool,
    ) -> Option<Arc<str>> {
        let value = |field: &Field| facts.value(self, field, model, engine, all);
        for rule in &self.rules {
            match rule.matches(&value) {
                Some(false) => continue,
                None => return None,
                Some(true) => {}
            }
            match &rule.scene {
                SceneName::Fixed(name) => return Some(name.clone()),
                SceneName::From(field) => match value(field) {
                    facts::Value::Unknown => return None,
                    facts::Value::Absent => {}
                    facts::Value::Known(value) => {
                        if let Some(name) = clean_name(&field.named(&value)) {
                            return Some(name.into());
                        }
                    }
                },
            }
        }
        Some(DEFAULT_SCENE.into())
    }
}

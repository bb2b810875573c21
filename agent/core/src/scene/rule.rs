//! One rule: what must hold of a request, and how its scene is then called.
//!
//! Owns: a rule's text and its mistakes. Refuses: the order of rules (`scene`), and finding the values (`facts`).
//!
//! Every kind of pattern that a rule gives must match; of several patterns for the same field, any.

use super::{FINGERPRINT_DIGITS, facts::Value, glob};
use crate::client::Network;
use crate::protocol::{MAX_NAME, clean_name};
use std::{borrow::Cow, sync::Arc};

/// Something of a request that a rule may ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Field {
    /// A field of its head, by lower-case name.
    Header(Box<str>),
    /// Path of its target, query off.
    Path,
    /// Host that it was sent to, in lower case, port off.
    Host,
    /// Fingerprint of its API key.
    ApiKey,
    /// A scalar of its body, by dotted path.
    Body(Box<str>),
    /// Fingerprint of the beginning of its system prompt.
    SystemPrompt,
    /// Address of who sent it.
    Client,
    /// Namespace of the pod that sent it.
    ClientNamespace,
    /// Name of that pod.
    ClientPod,
    /// Name of what that pod belongs to.
    ClientWorkload,
    /// A label of that pod, by name.
    ClientLabel(Box<str>),
    /// Id of the engine that serves it.
    Engine,
    /// Model that serves it.
    Model,
}

impl Field {
    /// A scene's name from this field's value.
    pub(super) fn named<'v>(&self, value: &'v str) -> Cow<'v, str> {
        let short = || value.get(..FINGERPRINT_DIGITS).unwrap_or(value);
        match self {
            Field::ApiKey => format!("key-{}", short()).into(),
            Field::SystemPrompt => format!("prompt-{}", short()).into(),
            _ => value.into(),
        }
    }

    /// Of `header:NAME`, `body:PATH`, `client_label:NAME`, or the name of a field without one.
    fn parse(text: &str) -> Result<Field, String> {
        Ok(match text.split_once(':').unwrap_or((text, "")) {
            ("header", name) => Field::Header(header_name(name)?),
            ("body", path) => Field::Body(body_path(path)?),
            ("path", "") => Field::Path,
            ("host", "") => Field::Host,
            ("api_key", "") => Field::ApiKey,
            ("system_prompt", "") => Field::SystemPrompt,
            ("client", "") => Field::Client,
            ("client_namespace", "") => Field::ClientNamespace,
            ("client_pod", "") => Field::ClientPod,
            ("client_workload", "") => Field::ClientWorkload,
            ("client_label", name) => Field::ClientLabel(label_name(name)?),
            ("engine", "") => Field::Engine,
            ("model", "") => Field::Model,
            _ => {
                return Err(format!(
                    "from = {text:?} is nothing that a scene can be named after: write header:NAME, body:PATH, path, host, \
                     api_key, system_prompt, client, client_namespace, client_pod, client_workload, client_label:NAME, \
                     engine or model"
                ));
            }
        })
    }
}

/// How a scene is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SceneName {
    Fixed(Arc<str>),
    From(Field),
}

/// One rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    pub(super) scene: SceneName,
    /// Each field, and the patterns of which one must match.
    when: Vec<(Field, Vec<Pattern>)>,
}

/// What a value must be.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Pattern {
    Glob(Box<str>),
    Network(Network),
}

impl Pattern {
    fn matches(&self, value: &str) -> bool {
        match self {
            Pattern::Glob(pattern) => glob(pattern, value),
            Pattern::Network(network) => value.parse().is_ok_and(|address| network.contains(address)),
        }
    }
}

/// A rule as it is written.
#[derive(Debug, Clone, Copy, Default)]
pub struct RuleText<'a> {
    /// Name of the scene.
    pub name: Option<&'a str>,
    /// Field after whose value the scene is named.
    pub from: Option<&'a str>,
    /// Fields of the head: `name=pattern`, or a name alone: it is there.
    pub header: &'a [String],
    /// Patterns of the path.
    pub path: &'a [String],
    /// Patterns of the host.
    pub host: &'a [String],
    /// Fingerprints of API keys: `sha256:` and at least [`FINGERPRINT_DIGITS`] digits.
    pub api_key: &'a [String],
    /// Fields of the body: `path=pattern`, or a path alone.
    pub body: &'a [String],
    /// Fingerprints of system prompts, as of API keys.
    pub system_prompt: &'a [String],
    /// Networks that the client is in: addresses, or addresses and lengths.
    pub client: &'a [String],
    /// Patterns of the namespace of the client's pod.
    pub client_namespace: &'a [String],
    /// Patterns of that pod's name.
    pub client_pod: &'a [String],
    /// Patterns of the name of what that pod belongs to.
    pub client_workload: &'a [String],
    /// Labels of that pod: `name=pattern`, or a name alone.
    pub client_label: &'a [String],
    /// Patterns of engine ids.
    pub engine: &'a [String],
    /// Patterns of models.
    pub model: &'a [String],
}

impl RuleText<'_> {
    /// Reads it.
    ///
    /// # Errors
    /// What is wrong, and what would be right.
    pub fn rule(&self) -> Result<Rule, String> {
        let scene = match (self.name, self.from) {
            (Some(name), None) => {
                let clean = clean_name(name).filter(|clean| *clean == name);
                SceneName::Fixed(
                    clean
                        .ok_or_else(|| {
                            format!(
                                "name = {name:?} is no name for a scene: write 1 to {MAX_NAME} bytes without control \
                                 characters or spaces around them"
                            )
                        })?
                        .into(),
                )
            }
            (None, Some(from)) => SceneName::From(Field::parse(from)?),
            (None, None) => return Err("it names no scene: give name, or from".to_owned()),
            (Some(_), Some(_)) => return Err("it has both name and from: give one of them".to_owned()),
        };
        let mut when: Vec<(Field, Vec<Pattern>)> = Vec::new();
        let mut ask =
            |field: Field, pattern: Pattern| match when.iter_mut().find(|(known, _)| *known == field) {
                Some((_, patterns)) => patterns.push(pattern),
                None => when.push((field, vec![pattern])),
            };
        for text in self.header {
            let (name, pattern) = pair(text);
            ask(Field::Header(header_name(name)?), checked("header", pattern)?);
        }
        for text in self.body {
            let (path, pattern) = pair(text);
            ask(Field::Body(body_path(path)?), checked("body", pattern)?);
        }
        for text in self.client_label {
            let (name, pattern) = pair(text);
            ask(
                Field::ClientLabel(label_name(name)?),
                checked("client_label", pattern)?,
            );
        }
        for (key, field, patterns) in [
            ("client_namespace", Field::ClientNamespace, self.client_namespace),
            ("client_pod", Field::ClientPod, self.client_pod),
            ("client_workload", Field::ClientWorkload, self.client_workload),
            ("path", Field::Path, self.path),
            ("engine", Field::Engine, self.engine),
            ("model", Field::Model, self.model),
        ] {
            for pattern in patterns {
                ask(field.clone(), checked(key, pattern)?);
            }
        }
        for pattern in self.host {
            ask(Field::Host, checked("host", &pattern.to_ascii_lowercase())?);
        }
        for (key, field, prints) in [
            ("api_key", Field::ApiKey, self.api_key),
            ("system_prompt", Field::SystemPrompt, self.system_prompt),
        ] {
            for print in prints {
                ask(field.clone(), fingerprint_pattern(key, print)?);
            }
        }
        for network in self.client {
            let network = network.parse().map_err(|reason| format!("client: {reason}"))?;
            ask(Field::Client, Pattern::Network(network));
        }
        Ok(Rule { scene, when })
    }
}

impl Rule {
    /// Every field that it asks for.
    pub(super) fn fields(&self) -> impl Iterator<Item = &Field> {
        let named = match &self.scene {
            SceneName::From(field) => Some(field),
            SceneName::Fixed(_) => None,
        };
        self.when.iter().map(|(field, _)| field).chain(named)
    }

    /// It matches every request.
    pub(super) fn always(&self) -> bool {
        self.when.is_empty() && matches!(self.scene, SceneName::Fixed(_))
    }

    /// Whether it matches; `None` while that is not certain.
    pub(super) fn matches<'v>(&self, value: &dyn Fn(&Field) -> Value<'v>) -> Option<bool> {
        let mut certain = true;
        for (field, patterns) in &self.when {
            match value(field) {
                Value::Unknown => certain = false,
                Value::Absent => return Some(false),
                Value::Known(value) => {
                    if !patterns.iter().any(|pattern| pattern.matches(&value)) {
                        return Some(false);
                    }
                }
            }
        }
        certain.then_some(true)
    }
}

/// `name=pattern`; a name alone asks for any value.
fn pair(text: &str) -> (&str, &str) {
    text.split_once('=').unwrap_or((text, "*"))
}

fn checked(key: &str, pattern: &str) -> Result<Pattern, String> {
    let pattern = pattern.trim();
    if pattern.is_empty() {
        return Err(format!("{key} has an empty pattern: write * for any value"));
    }
    Ok(Pattern::Glob(pattern.into()))
}

/// The name of a header that may be read, in lower case.
///
/// # Errors
/// It is none, or that of one with credentials.
pub fn header_name(name: &str) -> Result<Box<str>, String> {
    let name = name.trim();
    if name.is_empty() || !name.bytes().all(|b| b.is_ascii_graphic() && b != b':') {
        return Err(format!(
            "{name:?} is no name of a header: write as in header = [\"x-team=search*\"]"
        ));
    }
    let lower = name.to_ascii_lowercase();
    if crate::wire::http1::is_credential(&lower) {
        return Err(format!(
            "the header {lower} carries a credential, which is never read: match its fingerprint with api_key"
        ));
    }
    Ok(lower.into())
}

/// The name of a label of a pod: a name, or a domain, a slash and a name.
fn label_name(text: &str) -> Result<Box<str>, String> {
    let name = text.trim();
    let (domain, rest) = name
        .split_once('/')
        .map_or((None, name), |(domain, rest)| (Some(domain), rest));
    let sound = |part: &str, most: usize, more: &[u8]| {
        (1..=most).contains(&part.len())
            && part
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || more.contains(&b))
    };
    if !sound(rest, 63, b"-_.") || !domain.is_none_or(|domain| sound(domain, 253, b"-.")) {
        return Err(format!(
            "{text:?} is no name of a pod's label: write as in client_label = [\"app.kubernetes.io/name=search*\"]"
        ));
    }
    Ok(name.into())
}

fn body_path(path: &str) -> Result<Box<str>, String> {
    let path = path.trim();
    let parts = path.split('.').count();
    if path.split('.').any(str::is_empty) || parts > 8 || path.len() > 128 {
        return Err(format!(
            "{path:?} is no field of a body: write names with dots between, at most 8, as in body = [\"metadata.app=search*\"]"
        ));
    }
    Ok(path.into())
}

fn fingerprint_pattern(key: &str, text: &str) -> Result<Pattern, String> {
    let digits = text.strip_prefix("sha256:").unwrap_or("");
    let sound = (FINGERPRINT_DIGITS..=64).contains(&digits.len())
        && digits
            .bytes()
            .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    if !sound {
        // What stands here may be the key itself.
        return Err(format!(
            "{key} has a value that is no fingerprint: write \"sha256:\" and {FINGERPRINT_DIGITS} to 64 lower-case hexadecimal \
             digits, as `infertap config hash` prints them"
        ));
    }
    Ok(Pattern::Glob(format!("{digits}*").into()))
}

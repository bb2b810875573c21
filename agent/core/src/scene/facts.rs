//! What is known of one request for its scene, as it comes in.
//!
//! Owns: the fields that the rules ask for, and only those. Refuses: keeping a key or a prompt, and values longer than a
//! name may be.

use super::{Field, PROMPT_CHARS, SceneRules, hex, prompt_fingerprint};
use crate::{
    client::Client,
    pods::Pod,
    protocol::{clean_name, path_of},
    wire::{
        http1::RequestHead,
        json_scan::{JsonScan, Scalar},
    },
};
use std::borrow::Cow;

/// Where the first message of a request tells who speaks, and what is said; then prompts that stand apart.
const PROMPT_PATHS: [&str; 6] = [
    "messages.0.role",
    "messages.0.content",
    "messages.0.content.0.text",
    "system",
    "system.0.text",
    "instructions",
];

/// What a field's value is.
pub(super) enum Value<'a> {
    /// It may still come.
    Unknown,
    /// There is none.
    Absent,
    Known(Cow<'a, str>),
}

/// What is known of one request.
#[derive(Debug, Default)]
pub struct SceneFacts {
    /// In the order of the rules' names.
    headers: Vec<Option<Box<str>>>,
    path: Option<Box<str>>,
    host: Option<Box<str>>,
    api_key: Option<[u8; 32]>,
    client: Client,
    body: Body,
    scan: Option<Box<JsonScan>>,
}

/// What the body tells.
#[derive(Debug, Default)]
struct Body {
    /// In the order of the rules' paths.
    values: Vec<Option<Box<str>>>,
    /// The first message is a system prompt.
    first_is_system: Option<bool>,
    first: Option<[u8; 32]>,
    /// The prompt that stands apart.
    apart: Option<[u8; 32]>,
}

impl SceneFacts {
    /// Of a request whose head was not seen, and that `client` sent, as far as that is known.
    pub fn without_head(client: Client) -> SceneFacts {
        SceneFacts {
            client,
            ..SceneFacts::default()
        }
    }

    /// Of a request whose head is complete, and that `client` sent, as far as that is known.
    pub fn of_head(rules: &SceneRules, head: &RequestHead, client: Client) -> SceneFacts {
        let api_key = head.api_key;
        if rules.is_empty() {
            return SceneFacts {
                api_key,
                ..SceneFacts::without_head(client)
            };
        }
        let header = |name: &str| {
            let (_, value) = head.headers.iter().find(|(known, _)| known == name)?;
            clean_name(value).map(Box::from)
        };
        let host = head.headers.iter().find(|(name, _)| name == "host");
        let reads_body = !rules.body.is_empty() || rules.prompt;
        SceneFacts {
            headers: rules.headers.iter().map(|name| header(name)).collect(),
            path: clean_name(path_of(&head.target)).map(Box::from),
            host: host
                .and_then(|(_, host)| clean_name(without_port(host)).map(|h| h.to_ascii_lowercase().into())),
            api_key,
            client,
            body: Body {
                values: vec![None; rules.body.len()],
                ..Body::default()
            },
            scan: reads_body.then(|| {
                let mut paths = rules.body.clone();
                if rules.prompt {
                    paths.extend(PROMPT_PATHS.iter().map(|&path| path.to_owned()));
                }
                // A character has up to four bytes.
                Box::new(JsonScan::of_paths(&paths, 4 * PROMPT_CHARS))
            }),
        }
    }

    /// The next bytes of the body.
    pub fn feed(&mut self, bytes: &[u8]) {
        if let Some(scan) = &mut self.scan {
            let body = &mut self.body;
            scan.feed(bytes, &mut |path, value| body.take(path, &value));
        }
    }

    /// Bytes of the body are missing.
    pub fn gap(&mut self) {
        if let Some(scan) = &mut self.scan {
            scan.gap();
        }
    }

    /// The body is over, and so is its scanner.
    pub fn end(&mut self) {
        self.scan = None;
    }

    /// The fingerprint of the API key that it came with.
    pub fn api_key(&self) -> Option<&[u8; 32]> {
        self.api_key.as_ref()
    }

    /// Who sent it, as far as that is known.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Heap bytes, about.
    pub fn heap_bytes(&self) -> usize {
        let texts = self.headers.iter().chain(&self.body.values).flatten();
        let scan = self.scan.as_ref().map_or(0, |_| size_of::<JsonScan>() + 4096);
        texts.map(|text| text.len() + 16).sum::<usize>() + scan
    }

    pub(super) fn value<'a>(
        &'a self,
        rules: &SceneRules,
        field: &Field,
        model: Option<&'a str>,
        engine: Option<&'a str>,
        all: bool,
    ) -> Value<'a> {
        let now = |value: Option<Cow<'a, str>>| value.map_or(Value::Absent, Value::Known);
        let later = |value: Option<Cow<'a, str>>| match value {
            Some(value) => Value::Known(value),
            None if all => Value::Absent,
            None => Value::Unknown,
        };
        let at = |list: &'a [Option<Box<str>>], index: Option<usize>| {
            index.and_then(|index| list.get(index)?.as_deref()).map(Cow::from)
        };
        let pod = self.client.pod.as_deref();
        let of_pod = |part: fn(&Pod) -> &str| now(pod.map(|pod| part(pod).into()));
        match field {
            Field::Header(name) => now(at(
                &self.headers,
                rules.headers.iter().position(|known| known == name),
            )),
            Field::Path => now(self.path.as_deref().map(Cow::from)),
            Field::Host => now(self.host.as_deref().map(Cow::from)),
            Field::ApiKey => now(self.api_key.map(|key| hex(&key).into())),
            Field::Client => now(self.client.address.map(|client| client.to_string().into())),
            Field::ClientNamespace => of_pod(|pod| &pod.namespace),
            Field::ClientPod => of_pod(|pod| &pod.name),
            Field::ClientWorkload => now(pod.and_then(|pod| Some((*pod.workload.as_ref()?.name).into()))),
            Field::ClientLabel(name) => now(pod.and_then(|pod| pod.label(name)).map(Cow::from)),
            Field::Engine => now(engine.map(Cow::from)),
            Field::Model => later(model.map(Cow::from)),
            Field::Body(path) => later(at(
                &self.body.values,
                rules.body.iter().position(|known| **known == **path),
            )),
            Field::SystemPrompt => self.body.prompt(all),
        }
    }
}

impl Body {
    fn take(&mut self, path: usize, value: &Scalar<'_>) {
        let count = self.values.len();
        if let Some(slot) = self.values.get_mut(path) {
            // The first of several, so that it does not matter in how many pieces they came.
            if slot.is_none() {
                let text = match value {
                    Scalar::String { text, .. } => clean_name(text),
                    Scalar::Number(number) => Some(number.to_string()),
                    Scalar::Bool(on) => Some(on.to_string()),
                    Scalar::Null => None,
                };
                *slot = text.map(Box::from);
            }
            return;
        }
        let Scalar::String { text, .. } = value else {
            return;
        };
        match PROMPT_PATHS.get(path - count) {
            Some(&"messages.0.role") => {
                self.first_is_system
                    .get_or_insert(matches!(*text, "system" | "developer"));
            }
            Some(&("messages.0.content" | "messages.0.content.0.text")) => {
                self.first.get_or_insert_with(|| prompt_fingerprint(text));
            }
            Some(_) => {
                self.apart.get_or_insert_with(|| prompt_fingerprint(text));
            }
            None => {}
        }
    }

    /// The fingerprint of the system prompt.
    fn prompt(&self, all: bool) -> Value<'static> {
        let known = |print: [u8; 32]| Value::Known(hex(&print).into());
        match (self.first_is_system, self.first) {
            (Some(true), Some(first)) => known(first),
            // A prompt that stands apart may follow the messages.
            _ if all => self.apart.map_or(Value::Absent, known),
            _ => Value::Unknown,
        }
    }
}

/// A host without its port; the colons of an IPv6 address are within brackets.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) && !name.is_empty() => name,
        _ => host,
    }
}

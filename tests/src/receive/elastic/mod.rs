//! The bulk API and index templates of Elasticsearch or OpenSearch, as their documentation and source tell what they take.
//!
//! Owns: which requests and documents are refused, with which status, kind and reason, and what is there afterwards. Refuses:
//! queries, shards, everything that a node does beyond one.

mod bulk;
mod mapping;

use super::{Faults, Reply, Request, Service, lock};
use mapping::{Mapping, Problem};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Mutex;

/// What the server is.
#[derive(Debug, Clone)]
pub struct Settings {
    /// OpenSearch, which lacks some of Elasticsearch's types and parameters.
    pub opensearch: bool,
    /// `Authorization` that requests have to bring.
    pub authorization: Option<String>,
    /// Bytes of a body, as it comes (`http.max_content_length`).
    pub body: usize,
    /// An index that is not there is made.
    pub auto_create: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            opensearch: false,
            authorization: None,
            body: 100 << 20,
            auto_create: true,
        }
    }
}

/// The server.
#[derive(Debug, Default)]
pub struct Elastic {
    settings: Settings,
    faults: Faults,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    templates: BTreeMap<String, Value>,
    indices: BTreeMap<String, Index>,
    /// Items that are yet to be answered 429.
    overloaded: usize,
    /// Path and status of each answer.
    answers: Vec<(String, u16)>,
}

/// An index, or a data stream with its one index.
#[derive(Debug)]
struct Index {
    data_stream: bool,
    mapping: Mapping,
    documents: BTreeMap<String, Value>,
}

/// An error of a whole request, as both answer it.
fn failure(status: u16, (kind, reason): Problem) -> Reply {
    let cause = json!({"type": kind, "reason": reason});
    let body = json!({
        "error": {"root_cause": [cause], "type": kind, "reason": reason},
        "status": status,
    });
    Reply::json(status, &body)
}

impl Elastic {
    /// With these settings.
    pub fn new(settings: Settings) -> Elastic {
        Elastic {
            settings,
            ..Elastic::default()
        }
    }

    /// The next items, of whatever request, are answered 429.
    pub fn overload(&self, items: usize) {
        lock(&self.state).overloaded = items;
    }

    /// What an index or data stream has: documents by id.
    pub fn documents(&self, index: &str) -> BTreeMap<String, Value> {
        let state = lock(&self.state);
        let index = state.indices.get(index);
        index.map(|index| index.documents.clone()).unwrap_or_default()
    }

    /// It is a data stream; `None` where there is none of this name.
    pub fn is_data_stream(&self, index: &str) -> Option<bool> {
        lock(&self.state)
            .indices
            .get(index)
            .map(|index| index.data_stream)
    }

    /// Fields of an index, objects among them.
    pub fn fields(&self, index: &str) -> usize {
        let state = lock(&self.state);
        state.indices.get(index).map_or(0, |index| index.mapping.fields())
    }

    /// A template's version.
    pub fn template_version(&self, name: &str) -> Option<u64> {
        lock(&self.state).templates.get(name)?["version"].as_u64()
    }

    /// Path and status of its answers, faults not counted.
    pub fn answers(&self) -> Vec<(String, u16)> {
        lock(&self.state).answers.clone()
    }

    fn answer(&self, request: &Request) -> Reply {
        if self
            .settings
            .authorization
            .as_deref()
            .is_some_and(|needed| request.header("authorization") != needed)
        {
            let problem = (
                "security_exception",
                "missing authentication credentials for REST request".to_owned(),
            );
            return failure(401, problem)
                .with("WWW-Authenticate", "Basic realm=\"security\" charset=\"UTF-8\"");
        }
        if request.body.len() > self.settings.body {
            return Reply::text(413, "");
        }
        let body = match request.decoded() {
            Ok(body) => body,
            Err(reason) => return failure(400, ("illegal_argument_exception", reason)),
        };
        let path: Vec<&str> = request.path.trim_matches('/').split('/').collect();
        match (&*request.method, &*path) {
            ("GET", ["_index_template", name]) => self.template(name),
            ("PUT", ["_index_template", name]) => {
                let put = json_body(request, &body).and_then(|body| self.put_template(name, &body));
                put.map_or_else(
                    |reply| reply,
                    |()| Reply::json(200, &json!({"acknowledged": true})),
                )
            }
            ("POST" | "PUT", ["_bulk"]) => self.bulk(request, &body, None),
            ("POST" | "PUT", [index, "_bulk"]) => self.bulk(request, &body, Some(index)),
            (method, _) => {
                let reason = format!(
                    "no handler found for uri [{}] and method [{method}]",
                    request.path
                );
                Reply::json(400, &json!({"error": reason}))
            }
        }
    }

    fn template(&self, name: &str) -> Reply {
        match lock(&self.state).templates.get(name) {
            Some(template) => {
                let found = json!({"name": name, "index_template": template});
                Reply::json(200, &json!({"index_templates": [found]}))
            }
            None => failure(
                404,
                (
                    "resource_not_found_exception",
                    format!("index template matching [{name}] not found"),
                ),
            ),
        }
    }

    fn put_template(&self, name: &str, body: &Value) -> Result<(), Reply> {
        let refuse = |kind, reason: String| Err(failure(400, (kind, reason)));
        let unknown = |object: &Value, known: &[&str]| {
            let keys = object.as_object().into_iter().flatten();
            keys.map(|(key, _)| key.clone())
                .find(|key| !known.contains(&&**key))
        };
        let mut known = vec![
            "index_patterns",
            "template",
            "composed_of",
            "priority",
            "version",
            "_meta",
            "data_stream",
        ];
        let mut inner = vec!["settings", "mappings", "aliases"];
        if !self.settings.opensearch {
            known.extend([
                "allow_auto_create",
                "ignore_missing_component_templates",
                "deprecated",
            ]);
            inner.extend(["lifecycle", "data_stream_options"]);
        }
        if let Some(key) = unknown(body, &known) {
            return refuse(
                "x_content_parse_exception",
                format!("[index_template] unknown field [{key}]"),
            );
        }
        if let Some(key) = unknown(&body["template"], &inner) {
            return refuse(
                "x_content_parse_exception",
                format!("[template] unknown field [{key}]"),
            );
        }
        let patterns = patterns(body);
        if patterns.is_empty() {
            return refuse(
                "illegal_argument_exception",
                "Required [index_patterns]".to_owned(),
            );
        }
        if let Err((kind, reason)) = Mapping::of(&body["template"], self.settings.opensearch) {
            return refuse(kind, reason);
        }
        let mut state = lock(&self.state);
        let conflict = state.templates.iter().find(|(other, template)| {
            *other != name
                && template["priority"].as_u64() == body["priority"].as_u64()
                && self::patterns(template)
                    .iter()
                    .any(|pattern| patterns.contains(pattern))
        });
        if let Some((other, _)) = conflict {
            let reason = format!(
                "index template [{name}] has index patterns {patterns:?} matching patterns from existing templates [{other}]"
            );
            return refuse("illegal_argument_exception", reason);
        }
        state.templates.insert(name.to_owned(), body.clone());
        Ok(())
    }
}

impl State {
    /// The index to write to, made where it may be.
    fn index(&mut self, name: &str, settings: &Settings) -> Result<&mut Index, (u16, Problem)> {
        if !self.indices.contains_key(name) {
            if !settings.auto_create {
                return Err((
                    404,
                    ("index_not_found_exception", format!("no such index [{name}]")),
                ));
            }
            let wrong = |c: char| c.is_uppercase() || " \"*\\<|,>/?#:".contains(c);
            if name.is_empty() || name.starts_with(['_', '-', '+']) || name.chars().any(wrong) {
                return Err((
                    400,
                    (
                        "invalid_index_name_exception",
                        format!("Invalid index name [{name}]"),
                    ),
                ));
            }
            let fits = |template: &&Value| patterns(template).iter().any(|pattern| matches(pattern, name));
            let template = self.templates.values().filter(fits);
            let template = template.max_by_key(|template| template["priority"].as_u64());
            let mapping = template.map_or_else(
                || Ok(Mapping::anything()),
                |template| Mapping::of(&template["template"], settings.opensearch),
            );
            let index = Index {
                data_stream: template.is_some_and(|template| template.get("data_stream").is_some()),
                mapping: mapping.map_err(|problem| (400, problem))?,
                documents: BTreeMap::new(),
            };
            self.indices.insert(name.to_owned(), index);
        }
        self.indices.get_mut(name).ok_or_else(|| {
            let reason = format!("no such index [{name}]");
            (404, ("index_not_found_exception", reason))
        })
    }
}

impl Service for Elastic {
    fn handle(&self, request: &Request) -> Reply {
        let mut reply = self.answer(request);
        if let (Some(filter), Ok(body)) = (
            request.query.get("filter_path"),
            serde_json::from_str::<Value>(&reply.body),
        ) && reply.status < 300
        {
            let paths: Vec<Vec<&str>> = filter.split(',').map(|path| path.split('.').collect()).collect();
            let paths: Vec<&[&str]> = paths.iter().map(Vec::as_slice).collect();
            reply.body = filtered(&body, &paths).unwrap_or_else(|| json!({})).to_string();
        }
        lock(&self.state)
            .answers
            .push((request.path.clone(), reply.status));
        reply
    }

    fn faults(&self) -> &Faults {
        &self.faults
    }
}

fn json_body(request: &Request, body: &[u8]) -> Result<Value, Reply> {
    let kind = request
        .header("content-type")
        .split(';')
        .next()
        .unwrap_or_default();
    if kind != "application/json" {
        return Err(unsupported(request));
    }
    serde_json::from_slice(body)
        .map_err(|error| failure(400, ("x_content_parse_exception", error.to_string())))
}

fn unsupported(request: &Request) -> Reply {
    let reason = format!(
        "Content-Type header [{}] is not supported",
        request.header("content-type")
    );
    Reply::json(406, &json!({"error": reason, "status": 406}))
}

fn patterns(template: &Value) -> Vec<&str> {
    let patterns = template["index_patterns"].as_array().into_iter().flatten();
    patterns.filter_map(Value::as_str).collect()
}

/// The name is one of the pattern's, which may end in `*`.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(begin) => name.starts_with(begin),
        None => name == pattern,
    }
}

/// What of an answer is asked for by `filter_path`.
fn filtered(value: &Value, paths: &[&[&str]]) -> Option<Value> {
    if paths.iter().any(|path| path.is_empty()) {
        return Some(value.clone());
    }
    match value {
        Value::Object(members) => {
            let kept = members.iter().filter_map(|(name, value)| {
                let inner = paths.iter().filter(|path| path[0] == "*" || path[0] == name);
                let inner: Vec<&[&str]> = inner.map(|path| &path[1..]).collect();
                Some((name.clone(), filtered(value, &inner)?))
            });
            let kept: Map<String, Value> = kept.collect();
            (!kept.is_empty()).then_some(Value::Object(kept))
        }
        Value::Array(values) => {
            let kept: Vec<Value> = values.iter().filter_map(|value| filtered(value, paths)).collect();
            (!kept.is_empty()).then_some(Value::Array(kept))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;

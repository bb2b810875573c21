//! Loki's push endpoint, as its documentation and source tell what it takes: with the limits that it comes with.
//!
//! Owns: which requests, streams and entries are refused, with which status, and what is there afterwards. Refuses: queries, and
//! the protobuf form of the endpoint.

use super::{Faults, Reply, Request, Service, lock};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};

const SECOND: i64 = 1_000_000_000;

/// What the server takes.
#[derive(Debug, Clone)]
pub struct Limits {
    /// A tenant has to be named (`auth_enabled`).
    pub tenants: bool,
    /// Bytes of a body, decoded.
    pub body: usize,
    /// Bytes of a line.
    pub line: usize,
    /// Labels of a stream, without `service_name`.
    pub labels: usize,
    /// Bytes of a label's name.
    pub label_name: usize,
    /// Bytes of a label's value.
    pub label_value: usize,
    /// Bytes of an entry's structured metadata.
    pub metadata_bytes: usize,
    /// Pairs of an entry's structured metadata.
    pub metadata_entries: usize,
    /// Nanoseconds that an entry may be older than now.
    pub age_ns: i64,
    /// Nanoseconds that an entry may be ahead of now.
    pub ahead_ns: i64,
    /// Nanoseconds that an entry may be older than the newest of its stream.
    pub behind_ns: i64,
    /// Now, Unix time in nanoseconds; the clock's where none is given.
    pub now_ns: Option<i64>,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            tenants: false,
            body: 100 << 20,
            line: 256 << 10,
            labels: 15,
            label_name: 1024,
            label_value: 2048,
            metadata_bytes: 64 << 10,
            metadata_entries: 128,
            age_ns: 7 * 86_400 * SECOND,
            ahead_ns: 600 * SECOND,
            behind_ns: 3600 * SECOND,
            now_ns: None,
        }
    }
}

/// An entry that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Unix time, nanoseconds.
    pub at: i64,
    /// The line.
    pub line: String,
    /// Structured metadata.
    pub metadata: BTreeMap<String, String>,
}

/// Labels of a stream.
pub type Labels = BTreeMap<String, String>;

/// The server.
#[derive(Debug, Default)]
pub struct Loki {
    limits: Limits,
    faults: Faults,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    streams: BTreeMap<(String, Labels), Vec<Entry>>,
    /// Status of each answer.
    answers: Vec<u16>,
    duplicates: usize,
}

#[derive(Deserialize)]
struct Push {
    streams: Vec<Stream>,
}

#[derive(Deserialize)]
struct Stream {
    stream: Labels,
    values: Vec<Value>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Value {
    Plain(String, String),
    WithMetadata(String, String, BTreeMap<String, String>),
}

impl Loki {
    /// With these limits.
    pub fn new(limits: Limits) -> Loki {
        Loki {
            limits,
            ..Loki::default()
        }
    }

    /// What a tenant has: entries by their stream. Without tenants, theirs is `fake`.
    pub fn streams(&self, tenant: &str) -> Vec<(Labels, Vec<Entry>)> {
        let state = lock(&self.state);
        let of = state.streams.iter().filter(|((of, _), _)| of == tenant);
        of.map(|((_, labels), entries)| (labels.clone(), entries.clone()))
            .collect()
    }

    /// Statuses of its answers, faults not counted.
    pub fn answers(&self) -> Vec<u16> {
        lock(&self.state).answers.clone()
    }

    /// Entries that came again and were left out.
    pub fn duplicates(&self) -> usize {
        lock(&self.state).duplicates
    }

    fn answer(&self, request: &Request) -> Result<(), Reply> {
        if request.path != "/loki/api/v1/push" {
            return Err(Reply::text(404, "404 page not found\n"));
        }
        if request.method != "POST" {
            return Err(Reply::text(405, ""));
        }
        let tenant = match request.header("x-scope-orgid") {
            _ if !self.limits.tenants => "fake",
            "" => return Err(Reply::text(401, "no org id\n")),
            tenant => tenant,
        };
        let kind = request.header("content-type");
        if kind.split(';').next().map(str::trim) != Some("application/json") {
            // Anything else is taken for snappy-compressed protobuf, which JSON is not.
            return Err(Reply::text(400, "snappy: corrupt input\n"));
        }
        let body = request.decoded().map_err(|error| Reply::text(400, error))?;
        if body.len() > self.limits.body {
            let (size, limit) = (body.len(), self.limits.body);
            return Err(Reply::text(
                413,
                format!("request body too large: {size} bytes, limit: {limit} bytes\n"),
            ));
        }
        let push: Push =
            serde_json::from_slice(&body).map_err(|error| Reply::text(400, error.to_string()))?;
        let mut parsed = Vec::new();
        for stream in push.streams {
            // Labels that are none spoil the whole request, and so does a time.
            if let Some(name) = stream.stream.keys().find(|name| !is_name(name)) {
                return Err(Reply::text(
                    400,
                    format!("couldn't parse labels: unexpected character in {name:?}\n"),
                ));
            }
            let entries: Result<Vec<Entry>, Reply> = stream.values.into_iter().map(entry).collect();
            parsed.push((stream.stream, entries?));
        }
        self.push(tenant, parsed)
    }

    /// Takes what may be taken; the first reason for what may not.
    fn push(&self, tenant: &str, streams: Vec<(Labels, Vec<Entry>)>) -> Result<(), Reply> {
        if streams.is_empty() {
            return Err(Reply::text(
                422,
                "error at least one valid stream is required for ingestion",
            ));
        }
        let mut problems = Vec::new();
        let mut state = lock(&self.state);
        for (mut labels, entries) in streams {
            labels.retain(|_, value| !value.is_empty());
            if let Err(problem) = self.check_labels(&labels) {
                problems.push(problem);
                continue;
            }
            let name = format!("{labels:?}");
            let (good, bad): (Vec<_>, Vec<_>) = entries
                .into_iter()
                .map(|entry| self.check_entry(&name, &entry).map(|()| entry))
                .partition(Result::is_ok);
            problems.extend(bad.into_iter().filter_map(Result::err));
            let total = good.len();
            let mut ignored = Vec::new();
            let state = &mut *state;
            let there = state.streams.entry((tenant.to_owned(), labels)).or_default();
            for entry in good.into_iter().filter_map(Result::ok) {
                let newest = there.iter().map(|entry| entry.at).max();
                if newest.is_some_and(|newest| entry.at < newest - self.limits.behind_ns) {
                    ignored.push(entry.at);
                } else if there
                    .iter()
                    .any(|old| (old.at, &old.line) == (entry.at, &entry.line))
                {
                    state.duplicates += 1;
                } else {
                    there.push(entry);
                }
            }
            if !ignored.is_empty() {
                let count = ignored.len();
                problems.push(format!(
                    "entry with timestamp {} ignored, reason: 'entry too far behind', total ignored: {count} out of {total} for stream: {name}",
                    ignored[0]
                ));
            }
        }
        if problems.is_empty() {
            Ok(())
        } else {
            Err(Reply::text(400, problems.join("\n")))
        }
    }

    fn check_labels(&self, labels: &Labels) -> Result<(), String> {
        let limits = &self.limits;
        if labels.is_empty() {
            return Err("error at least one label pair is required per stream".to_owned());
        }
        let count = labels.keys().filter(|name| *name != "service_name").count();
        if count > limits.labels {
            let limit = limits.labels;
            return Err(format!(
                "entry for stream '{labels:?}' has {count} label names; limit {limit}"
            ));
        }
        for (name, value) in labels {
            if name.len() > limits.label_name {
                return Err(format!("stream has label name too long: '{name}'"));
            }
            if value.len() > limits.label_value {
                return Err(format!("stream has label value too long: '{value}'"));
            }
        }
        Ok(())
    }

    fn check_entry(&self, stream: &str, entry: &Entry) -> Result<(), String> {
        let limits = &self.limits;
        let now = limits.now_ns.unwrap_or_else(|| {
            let since = SystemTime::now().duration_since(UNIX_EPOCH);
            since.map_or(0, |since| since.as_nanos() as i64)
        });
        if entry.at < now - limits.age_ns {
            return Err(format!(
                "entry for stream '{stream}' has timestamp too old: {}",
                entry.at
            ));
        }
        if entry.at > now + limits.ahead_ns {
            return Err(format!(
                "entry for stream '{stream}' has timestamp too new: {}",
                entry.at
            ));
        }
        if entry.line.len() > limits.line {
            let (limit, length) = (limits.line, entry.line.len());
            return Err(format!(
                "Max entry size '{limit}' bytes exceeded for stream '{stream}' while adding an entry with length '{length}' bytes"
            ));
        }
        let pairs = entry.metadata.iter();
        let bytes: usize = pairs.map(|(name, value)| name.len() + value.len()).sum();
        if bytes > limits.metadata_bytes {
            return Err(format!(
                "stream '{stream}' has structured metadata too large: '{bytes}' bytes"
            ));
        }
        if entry.metadata.len() > limits.metadata_entries {
            let count = entry.metadata.len();
            return Err(format!(
                "stream '{stream}' has too many structured metadata labels: '{count}'"
            ));
        }
        Ok(())
    }
}

impl Service for Loki {
    fn handle(&self, request: &Request) -> Reply {
        let reply = match self.answer(request) {
            Ok(()) => Reply::text(204, ""),
            Err(reply) => reply,
        };
        lock(&self.state).answers.push(reply.status);
        reply
    }

    fn faults(&self) -> &Faults {
        &self.faults
    }
}

fn is_name(name: &str) -> bool {
    let mut characters = name.chars();
    characters
        .next()
        .is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && characters.all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn entry(value: Value) -> Result<Entry, Reply> {
    let (at, line, metadata) = match value {
        Value::Plain(at, line) => (at, line, BTreeMap::new()),
        Value::WithMetadata(at, line, metadata) => (at, line, metadata),
    };
    let Ok(nanos) = at.parse() else {
        return Err(Reply::text(
            400,
            format!("strconv.ParseInt: parsing {at:?}: invalid syntax\n"),
        ));
    };
    Ok(Entry {
        at: nanos,
        line,
        metadata,
    })
}

#[cfg(test)]
mod tests;

//! Loki's push API: a batch of records as streams of lines.
//!
//! Owns: which few labels a stream has, what stands in structured metadata, how entries are ordered, what an answer says.
//! Refuses: labels of which there is one a request: every combination of values is a stream, and Loki pays for each.

use super::line::{LEAST, line};
use super::{HttpAnswer, HttpDestination, HttpRequest, Verdict};
use crate::config::Size;
use crate::destination_section;
use crate::export::MetricsConfig;
use crate::export::metrics::{Capper, lock};
use crate::store::tables::record::KeptRecord;
use reqwest::Method;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// Where entries are sent to.
const PATH: &str = "/loki/api/v1/push";
/// Labels that every record brings; no configured one may have their names.
const OWN_LABELS: [&str; 4] = ["engine", "model", "scene", "status"];
/// Labels that Loki takes at most, as it comes.
const MAX_LABELS: usize = 15;
/// Longest value of a label, bytes, as Loki comes.
const MAX_LABEL_VALUE: usize = 2048;
/// Longest name of a label, bytes, as Loki comes.
const MAX_LABEL_NAME: usize = 1024;
/// Longest id in structured metadata, bytes: what is longer identifies nothing, and comes from outside.
const MAX_ID: usize = 256;
/// Configured labels that do not add to the number: the one that Loki itself may add, and the one that is counted in any case.
const UNCOUNTED: [&str; 2] = ["service_name", "host"];
const NANOS_PER_MILLI: i64 = 1_000_000;

destination_section! {
    /// Kept records as log lines to Loki. Their labels are engine, model, scene and status, under the caps of [metrics], and those
    /// given here; what identifies one request is in structured metadata. Read again on SIGHUP and when the file
    /// changes. See docs/logs.md.
    pub struct LokiSection {
        /// Labels that all entries have. `host` is the host's name unless it is given here.
        pub labels: BTreeMap<String, String> = BTreeMap::from([("service_name".to_owned(), "infertap".to_owned())]),
        /// Longest line; 32KiB to 16MiB, and not above Loki's max_line_size. A longer one loses its content, then its long fields.
        pub max_line: Size = Size::bytes(256 << 10),
    }
}

impl LokiSection {
    /// What is out of its range: key, and why and what would be right.
    pub fn invalid(&self) -> Vec<(String, String)> {
        let mut out = self.link().invalid("loki");
        for (name, reason) in invalid_labels(&self.labels) {
            out.push(("loki.labels".to_owned(), format!("{name:?}: {reason}")));
        }
        if !(Size::bytes(LEAST)..=Size::bytes(16 << 20)).contains(&self.max_line) {
            let reason = format!("{} is not within 32KiB to 16MiB", self.max_line);
            out.push(("loki.max_line".to_owned(), reason));
        }
        out
    }
}

/// Loki, as a destination.
#[derive(Debug)]
pub struct Loki {
    fixed: BTreeMap<String, String>,
    cappers: Arc<Mutex<Cappers>>,
    max_line: usize,
}

/// The values that labels have had. They outlive a change of the section: Loki has their streams still.
#[derive(Debug)]
pub(super) struct Cappers {
    engines: Capper,
    models: Capper,
    scenes: Capper,
}

impl Cappers {
    /// None yet, under these caps.
    pub(super) fn new(metrics: &MetricsConfig) -> Cappers {
        Cappers {
            engines: Capper::new(metrics.max_engines),
            models: Capper::new(metrics.max_models),
            scenes: Capper::new(metrics.max_scenes),
        }
    }
}

impl Default for Cappers {
    fn default() -> Cappers {
        Cappers::new(&MetricsConfig::default())
    }
}

#[derive(Serialize)]
struct Push<'a> {
    streams: Vec<Stream<'a>>,
}

#[derive(Serialize)]
struct Stream<'a> {
    stream: &'a BTreeMap<String, String>,
    values: Vec<(String, &'a str, &'a BTreeMap<&'static str, String>)>,
}

struct Entry {
    at: i64,
    line: String,
    metadata: BTreeMap<&'static str, String>,
}

impl Loki {
    /// As configured, from this host.
    pub fn new(config: &LokiSection, metrics: &MetricsConfig, host: Option<&str>) -> Loki {
        Loki::under(config, Arc::new(Mutex::new(Cappers::new(metrics))), host)
    }

    /// The same under caps that others before it may have had.
    pub(super) fn under(config: &LokiSection, cappers: Arc<Mutex<Cappers>>, host: Option<&str>) -> Loki {
        let mut fixed = config.labels.clone();
        if let Some(host) = host.filter(|host| why_invalid("host", host).is_none()) {
            fixed.entry("host".to_owned()).or_insert_with(|| host.to_owned());
        }
        Loki {
            fixed,
            cappers,
            max_line: usize::try_from(config.max_line.get()).unwrap_or(usize::MAX),
        }
    }

    /// The body of one request. The same record always has the same labels, time and line, so that Loki knows one that it was
    /// sent before.
    fn body(&self, records: &[Arc<KeptRecord>]) -> serde_json::Result<Vec<u8>> {
        let mut streams: BTreeMap<BTreeMap<String, String>, Vec<Entry>> = BTreeMap::new();
        for kept in records {
            streams.entry(self.labels(kept)).or_default().push(Entry {
                at: timestamp(kept),
                line: line(kept, self.max_line)?,
                metadata: metadata(kept),
            });
        }
        for entries in streams.values_mut() {
            entries.sort_by_key(|entry| entry.at);
        }
        let streams = streams.iter().map(|(stream, entries)| {
            let values = entries.iter();
            Stream {
                stream,
                values: values
                    .map(|entry| (entry.at.to_string(), entry.line.as_str(), &entry.metadata))
                    .collect(),
            }
        });
        serde_json::to_vec(&Push {
            streams: streams.collect(),
        })
    }

    fn labels(&self, kept: &KeptRecord) -> BTreeMap<String, String> {
        let record = &kept.record;
        let own = {
            let mut cappers = lock(&self.cappers);
            [
                cappers.engines.admit(&record.engine).value,
                cappers.models.admit(&record.model).value,
                cappers.scenes.admit(&record.scene).value,
                record.status.as_str().into(),
            ]
        };
        let mut labels = self.fixed.clone();
        let own = OWN_LABELS.iter().zip(own);
        labels.extend(own.map(|(name, value)| ((*name).to_owned(), value.to_string())));
        labels
    }
}

impl HttpDestination for Loki {
    fn name(&self) -> &'static str {
        "loki"
    }

    fn encode(&self, records: &[Arc<KeptRecord>]) -> HttpRequest {
        HttpRequest {
            method: Method::POST,
            path: PATH.to_owned(),
            content_type: "application/json",
            headers: Vec::new(),
            // Records are plain data: this does not fail.
            body: self.body(records).unwrap_or_default(),
        }
    }

    /// Loki takes what it can of a batch and answers 400 for the rest without saying which. What it took it knows when it comes
    /// again, so halves are sent until each record has an answer of its own.
    fn judge(&self, records: usize, answer: &HttpAnswer) -> Verdict {
        let reason = answer.told();
        match answer.status {
            200..=299 => Verdict::ACCEPTED,
            413 => Verdict::TooLarge { reason },
            400 | 422 if records > 1 => Verdict::TooLarge { reason },
            400 | 422 => Verdict::Refused { reason },
            // A tenant, a token, an address, a limit of the moment; or it may be about a record.
            _ => answer.retry(),
        }
    }
}

/// Why Loki would refuse such configured labels: the name, and why; at most one reason for each.
fn invalid_labels(labels: &BTreeMap<String, String>) -> Vec<(String, String)> {
    let mut out: Vec<(String, String)> = labels
        .iter()
        .filter_map(|(name, value)| Some((name.clone(), why_invalid(name, value)?)))
        .collect();
    // With `host`, which is there in any case.
    let counted = labels
        .keys()
        .filter(|name| !UNCOUNTED.contains(&name.as_str()))
        .count()
        + OWN_LABELS.len()
        + 1;
    if counted > MAX_LABELS {
        let reason = format!(
            "{counted} labels with those of the records ({}); Loki takes {MAX_LABELS}",
            OWN_LABELS.join(", ")
        );
        out.push((String::new(), reason));
    }
    out
}

fn why_invalid(name: &str, value: &str) -> Option<String> {
    let mut characters = name.chars();
    let first = characters
        .next()
        .is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
    if !first || !characters.all(|c| c.is_ascii_alphanumeric() || c == '_') || name.starts_with("__") {
        return Some(
            "no label's name: letters, digits and _, no digit first, and not __, which are Loki's".to_owned(),
        );
    }
    if OWN_LABELS.contains(&name) {
        return Some("a label that comes from the records".to_owned());
    }
    if name.len() > MAX_LABEL_NAME {
        return Some(format!("a name of {} bytes, above {MAX_LABEL_NAME}", name.len()));
    }
    if value.is_empty() {
        return Some("an empty value, which is the same as no label".to_owned());
    }
    (value.len() > MAX_LABEL_VALUE)
        .then(|| format!("a value of {} bytes, above {MAX_LABEL_VALUE}", value.len()))
}

/// Unix time of the request's end in nanoseconds. Ends are known to the millisecond; the rest is made of the id, so that two
/// entries of one stream rarely share a time and one entry always has the same.
fn timestamp(kept: &KeptRecord) -> i64 {
    let id = u64::from_str_radix(&kept.record.id, 16).unwrap_or(0);
    let within = i64::try_from(id % NANOS_PER_MILLI as u64).unwrap_or(0);
    kept.ended_unix_ms
        .saturating_mul(NANOS_PER_MILLI)
        .saturating_add(within)
}

/// What finds one request, which no label may hold.
fn metadata(kept: &KeptRecord) -> BTreeMap<&'static str, String> {
    let record = &kept.record;
    let ids = [
        ("trace_id", Some(&record.trace_id)),
        ("span_id", Some(&record.id)),
        ("response_id", record.response_id.as_ref()),
    ];
    ids.into_iter()
        .filter_map(|(name, id)| {
            Some((
                name,
                id.filter(|id| !id.is_empty() && id.len() <= MAX_ID)?.clone(),
            ))
        })
        .collect()
}

#[cfg(test)]
mod tests;

//! The bulk API of Elasticsearch and OpenSearch: a batch of records as actions, and what is answered to each.
//!
//! Owns: the body, judging an answer item by item. Refuses: the documents (`document`) and HTTP. Every document is created under
//! the id of its record, so that one which is sent twice is there once.

use super::document::{TEMPLATE_VERSION, document, template};
use super::{Fault, HttpAnswer, HttpDestination, HttpRequest, Verdict};
use crate::destination_section;
use crate::export::metrics::lock;
use crate::store::tables::record::KeptRecord;
use reqwest::Method;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};

/// What of an answer is asked for: the rest is much and of no use.
const FILTER: &str = "filter_path=items.*.status,items.*.error.type,items.*.error.reason";
/// Longest document, bytes. A search engine takes far longer ones, but nobody reads them.
const MAX_DOCUMENT: usize = 4 << 20;
/// Longest reason that is passed on, bytes.
const MAX_REASON: usize = 300;

destination_section! {
    /// Kept records as documents to Elasticsearch or OpenSearch, by the bulk API. Their fields are those of the Elastic Common
    /// Schema where it has one; see docs/logs.md. Read again on SIGHUP and when the file changes. An API key is the content of a file: "ApiKey ..." for the header Authorization, in
    /// header_files.
    pub struct ElasticsearchSection {
        /// Data stream, or index, that documents are created in.
        pub index: String = "logs-infertap-default".to_owned(),
        /// Whether that is a data stream, as both make it of a template, or an index.
        pub data_stream: bool = true,
        /// Whether the agent puts the index template when it starts and when this section changes, unless one of the same or a newer
        /// version is there. With false somebody else does: deploy/elasticsearch has it.
        pub template: bool = true,
    }
}

impl ElasticsearchSection {
    /// What is out of its range: key, and why and what would be right.
    pub fn invalid(&self) -> Vec<(String, String)> {
        let mut out = self.link().invalid("elasticsearch");
        if let Some(reason) = invalid_index(&self.index) {
            out.push((
                "elasticsearch.index".to_owned(),
                format!("{:?} {reason}", self.index),
            ));
        }
        out
    }
}

/// Elasticsearch or OpenSearch, as a destination.
#[derive(Debug)]
pub struct Elasticsearch {
    index: String,
    data_stream: bool,
    host: Option<String>,
    setup: Mutex<Setup>,
}

/// What is yet to be done before the first batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Setup {
    /// To ask for the template that is there.
    Ask,
    /// To put ours.
    Put,
    Done,
}

impl Elasticsearch {
    /// As configured, from this host.
    pub fn new(config: &ElasticsearchSection, host: Option<&str>) -> Elasticsearch {
        Elasticsearch {
            index: config.index.clone(),
            data_stream: config.data_stream,
            host: host.map(ToOwned::to_owned),
            setup: Mutex::new(if config.template { Setup::Ask } else { Setup::Done }),
        }
    }

    fn request(method: Method, path: String, body: Vec<u8>) -> HttpRequest {
        HttpRequest {
            method,
            path,
            content_type: "application/json",
            headers: Vec::new(),
            body,
        }
    }

    fn template_path(&self) -> String {
        format!("/_index_template/infertap-{}", self.index)
    }
}

impl HttpDestination for Elasticsearch {
    fn name(&self) -> &'static str {
        "elasticsearch"
    }

    fn encode(&self, records: &[Arc<KeptRecord>]) -> HttpRequest {
        // Records are plain data: this does not fail.
        let body = body(records, self.host.as_deref()).unwrap_or_default();
        HttpRequest {
            content_type: "application/x-ndjson",
            ..Self::request(Method::POST, format!("/{}/_bulk?{FILTER}", self.index), body)
        }
    }

    fn judge(&self, records: usize, answer: &HttpAnswer) -> Verdict {
        let reason = answer.told();
        match answer.status {
            // What was taken of it answers 409 the next time. What answers so long to one document is none of the bulk API, or about a
            // document that is never taken.
            200..=299 if answer.cut => Verdict::TooLarge {
                reason: format!("HTTP {}: the answer is longer than 4 MiB", answer.status),
            },
            200..=299 => judge(records, &answer.body),
            413 => Verdict::TooLarge { reason },
            400 if records > 1 => Verdict::TooLarge { reason },
            400 => Verdict::Refused { reason },
            // Credentials, an address, a limit of the moment; or it may be about a document.
            _ => answer.retry(),
        }
    }

    fn setup(&self) -> Option<HttpRequest> {
        match *lock(&self.setup) {
            Setup::Ask => {
                let path = self.template_path() + "?filter_path=index_templates.index_template.version";
                Some(Self::request(Method::GET, path, Vec::new()))
            }
            Setup::Put => {
                let body = template(&self.index, self.data_stream).to_string();
                Some(Self::request(
                    Method::PUT,
                    self.template_path(),
                    body.into_bytes(),
                ))
            }
            Setup::Done => None,
        }
    }

    fn judge_setup(&self, answer: &HttpAnswer) -> Verdict {
        let mut setup = lock(&self.setup);
        let next = match (*setup, answer.status) {
            (Setup::Ask, 404) => Setup::Put,
            (Setup::Ask, 200..=299) => {
                if version(&answer.body).is_some_and(|there| there >= TEMPLATE_VERSION) {
                    Setup::Done
                } else {
                    Setup::Put
                }
            }
            (Setup::Put, 200..=299) => Setup::Done,
            _ => {
                return Verdict::Retry {
                    reason: format!(
                        "the index template {} can't be set up (with elasticsearch.template = false the agent leaves that to others): {}",
                        self.template_path(),
                        answer.told()
                    ),
                    after: answer.retry_after(),
                    fault: Fault::Destination,
                };
            }
        };
        *setup = next;
        Verdict::ACCEPTED
    }
}

/// The version of the template that is there, where it has one.
fn version(body: &[u8]) -> Option<u64> {
    let body: Value = serde_json::from_slice(body).ok()?;
    body.pointer("/index_templates/0/index_template/version")?
        .as_u64()
}

/// The body of one request to `/INDEX/_bulk`.
fn body(records: &[Arc<KeptRecord>], host: Option<&str>) -> serde_json::Result<Vec<u8>> {
    let mut out = Vec::new();
    for kept in records {
        serde_json::to_writer(&mut out, &json!({"create": {"_id": kept.record.id}}))?;
        out.push(b'\n');
        serde_json::to_writer(&mut out, &document(kept, host, MAX_DOCUMENT)?)?;
        out.push(b'\n');
    }
    Ok(out)
}

#[derive(Deserialize)]
struct Answer {
    items: Vec<Item>,
}

#[derive(Deserialize)]
struct Item {
    create: Created,
}

#[derive(Deserialize)]
struct Created {
    status: u16,
    error: Option<Failure>,
}

#[derive(Deserialize)]
struct Failure {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    reason: Option<String>,
}

impl Failure {
    fn text(&self) -> String {
        let reason = self.reason.as_deref().unwrap_or_default();
        let text = format!("{}: {reason}", self.kind);
        text.chars().take(MAX_REASON).collect()
    }
}

/// What an answer with status 200 says.
fn judge(records: usize, body: &[u8]) -> Verdict {
    let Ok(answer) = serde_json::from_slice::<Answer>(body) else {
        return Verdict::unclear("the answer is none of the bulk API: is something else at this address?");
    };
    if answer.items.len() != records {
        // What was taken answers 409 the next time.
        return Verdict::unclear(format!(
            "the answer is about {} documents of {records}",
            answer.items.len()
        ));
    }
    let (mut rejected, mut again) = (0, Vec::new());
    let (mut reason, mut wait) = (None, None);
    let mut fault = Fault::Load;
    for (position, item) in answer.items.iter().enumerate() {
        let told = || {
            let error = item.create.error.as_ref();
            error.map_or_else(|| format!("status {}", item.create.status), Failure::text)
        };
        match item.create.status {
            // 409: it is there already, by an attempt whose answer was lost.
            200..=299 | 409 => {}
            // A right, or the index, is missing or blocked, which an operator mends; it has too much to do; or it fails.
            401 | 403 | 404 | 429 | 500.. => {
                wait.get_or_insert_with(told);
                again.push(position);
                if !matches!(item.create.status, 401 | 403 | 404 | 429 | 503) {
                    fault = Fault::Unclear;
                }
            }
            _ => {
                reason.get_or_insert_with(told);
                rejected += 1;
            }
        }
    }
    match wait {
        Some(wait) => Verdict::Partly {
            again,
            rejected,
            reason: match reason {
                Some(reason) => format!("{wait}; {rejected} are lost: {reason}"),
                None => wait,
            },
            after: None,
            fault,
        },
        None => Verdict::Accepted { rejected, reason },
    }
}

/// Why no data stream and no index can have this name; `None` where one can.
fn invalid_index(name: &str) -> Option<&'static str> {
    let forbidden =
        |c: char| c.is_uppercase() || c.is_control() || c.is_whitespace() || "\\/*?\"<>|,#:%&".contains(c);
    if name.is_empty() || name.len() > 200 {
        return Some("not 1 to 200 bytes long");
    }
    if name.chars().any(forbidden) {
        return Some(
            "has a character that no index may have: letters are small, and of others use - _ and .",
        );
    }
    if name.starts_with(['-', '_', '+', '.']) {
        return Some("begins with one of - _ + .");
    }
    None
}

#[cfg(test)]
mod tests;

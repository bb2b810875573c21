//! Asking the Kubernetes API server.
//!
//! Owns: requests, their credentials, which are read for each of them, and what refusals mean. Refuses: what to ask.

use super::Reason;
use crate::ship::{Current, LinkConfig, http_client, parse_endpoint, with_causes};
use reqwest::{Client, Response, Url};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

/// Time until an answer begins, and the longest silence within one that tells all at once.
pub(super) const SILENCE: Duration = Duration::from_secs(30);
/// Bytes of a refusal that are read.
const REFUSAL_LIMIT: usize = 16 << 10;
/// Characters of the server's own words that are told.
const WORDS: usize = 300;

/// Why something was not told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) reason: Reason,
    /// For people.
    pub(super) told: String,
    /// How long the server wants not to be asked.
    pub(super) wait: Option<Duration>,
}

impl Failure {
    pub(super) fn new(reason: Reason, told: impl Into<String>) -> Failure {
        Failure {
            reason,
            told: told.into(),
            wait: None,
        }
    }

    /// By a status code and what the server says of it.
    pub(super) fn of_status(code: u16, words: &str) -> Failure {
        let mut words: String = words.chars().filter(|c| !c.is_control()).take(WORDS).collect();
        if words.is_empty() {
            words = format!("status {code}");
        }
        let (reason, told) = match code {
            401 => (
                Reason::Unauthorized,
                format!("it does not accept the token of the service account: {words}"),
            ),
            403 => (
                Reason::Forbidden,
                format!(
                    "the service account lacks the right to list and watch pods: give it a role with resources [pods] and verbs \
                     [list, watch], as in deploy/kubernetes/overlays/pods: {words}"
                ),
            ),
            410 => (
                Reason::Expired,
                format!("what was watched from is too old: {words}"),
            ),
            429 => (Reason::Throttled, format!("it has too much to do: {words}")),
            _ => (Reason::Status, format!("it answers with status {code}: {words}")),
        };
        Failure::new(reason, told)
    }

    pub(super) fn of_error(error: reqwest::Error) -> Failure {
        // Not the URL, which is in the configuration.
        Failure::new(Reason::Connection, with_causes(&error.without_url()))
    }

    pub(super) fn silent() -> Failure {
        Failure::new(
            Reason::Timeout,
            format!("it told nothing for {} s", SILENCE.as_secs()),
        )
    }
}

/// The API server.
#[derive(Debug)]
pub(super) struct Api {
    /// Under the name of its certificate.
    endpoint: Url,
    /// As it is configured.
    plain: Url,
    current: Current<Client>,
}

impl Api {
    /// Nothing is opened or read yet.
    ///
    /// # Errors
    /// The endpoint is no URL that can be used.
    pub(super) fn new(link: LinkConfig) -> Result<Api, String> {
        let plain = parse_endpoint(&link.endpoint)?;
        let mut endpoint = plain.clone();
        if !link.server_name.is_empty() {
            // One that is no host is refused when the configuration is read.
            let _ = endpoint.set_host(Some(&link.server_name));
        }
        Ok(Api {
            endpoint,
            plain,
            current: Current::new(Arc::new(link)),
        })
    }

    /// Asks for the pods of one namespace, or of all.
    pub(super) async fn pods(
        &self,
        namespace: Option<&str>,
        query: &[(&str, &str)],
    ) -> Result<Response, Failure> {
        let mut url = self.endpoint.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(["api", "v1"]);
            if let Some(namespace) = namespace {
                path.extend(["namespaces", namespace]);
            }
            path.push("pods");
        }
        url.query_pairs_mut().extend_pairs(query);
        let plain = self.plain.clone();
        let (client, headers) = self
            .current
            .get(move |link| http_client(link, &plain))
            .await
            .map_err(|why| Failure::new(Reason::Credentials, why))?;
        let asked = client.get(url).headers(headers).send();
        let answer = tokio::time::timeout(SILENCE, asked).await;
        let answer = answer
            .map_err(|_| Failure::silent())?
            .map_err(Failure::of_error)?;
        if answer.status().is_success() {
            return Ok(answer);
        }
        Err(refusal(answer).await)
    }
}

/// What a refusal says.
async fn refusal(mut answer: Response) -> Failure {
    let code = answer.status().as_u16();
    let wait = answer.headers().get(reqwest::header::RETRY_AFTER);
    let wait = wait
        .and_then(|value| value.to_str().ok()?.parse().ok())
        .map(Duration::from_secs);
    let mut body = Vec::new();
    let read = async {
        while let Ok(Some(chunk)) = answer.chunk().await {
            let room = REFUSAL_LIMIT - body.len();
            body.extend_from_slice(&chunk[..chunk.len().min(room)]);
            if body.len() == REFUSAL_LIMIT {
                break;
            }
        }
    };
    // What came until then is told.
    let _ = tokio::time::timeout(SILENCE, read).await;
    let mut failure = Failure::of_status(code, &super::events::words(&body));
    if matches!(failure.reason, Reason::Throttled | Reason::Status) {
        failure.wait = wait;
    }
    failure
}

/// `label in (a, b)` and namespaces, for the log.
pub(super) fn scope(namespace: Option<&str>, selector: &str) -> String {
    let mut text = namespace.map_or_else(|| "all namespaces".to_owned(), |name| format!("namespace {name}"));
    if !selector.is_empty() {
        // Writing to a String does not fail.
        let _ = write!(text, " with {selector}");
    }
    text
}

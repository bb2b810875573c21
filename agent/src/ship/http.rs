//! Destinations that speak HTTP.
//!
//! Owns: what such a destination has to say (the trait), sending by one client each, credentials and certificates that
//! are rotated, compression, bounds of an answer. Refuses: redirects, which would carry credentials elsewhere; proxies from
//! the environment; and secrets in what is logged, whoever repeats them.

use super::answer::{HttpAnswer, forget, forgotten};
use super::current::Current;
use super::link::endpoint;
use super::{Destination, LinkConfig, Verdict, tls, with_causes};
use crate::store::tables::record::KeptRecord;
use bytes::Bytes;
use reqwest::header::{CONTENT_ENCODING, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Method, Url};
use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// Bytes of an answer that are read.
const ANSWER_LIMIT: usize = 4 << 20;
/// How long a connection that nobody uses is kept.
const IDLE: Duration = Duration::from_mins(1);

/// A request, but for what all requests to a destination have.
#[derive(Debug, Clone, PartialEq)]
pub struct HttpRequest {
    /// Method.
    pub method: Method,
    /// Path behind the endpoint's, with a query where there is one: `/v1/traces`.
    pub path: String,
    /// Content type.
    pub content_type: &'static str,
    /// More headers.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Body, not compressed.
    pub body: Vec<u8>,
}

/// A destination that speaks HTTP: sent to by the house, when it is wrapped in [`Http`].
pub trait HttpDestination: Send + Sync + 'static {
    /// As [`Destination::name`].
    fn name(&self) -> &'static str;

    /// As [`Destination::encode`].
    fn encode(&self, records: &[Arc<KeptRecord>]) -> HttpRequest;

    /// What an answer means for a batch of so many records.
    fn judge(&self, records: usize, answer: &HttpAnswer) -> Verdict {
        let _ = records;
        answer.verdict()
    }

    /// What has to be sent before the first batch; asked for again after each that was accepted, until there is nothing more.
    fn setup(&self) -> Option<HttpRequest> {
        None
    }

    /// What the answer to that means: batches follow once it is [`Verdict::Accepted`]. [`Verdict::Refused`] is tried again
    /// like [`Verdict::Retry`]: no record is lost for it.
    fn judge_setup(&self, answer: &HttpAnswer) -> Verdict {
        answer.verdict()
    }
}

/// The house's way of sending to an [`HttpDestination`].
pub struct Http<D> {
    destination: D,
    link: Arc<LinkConfig>,
    endpoint: Url,
    current: Current<Client>,
    is_set_up: AtomicBool,
}

impl<D> std::fmt::Debug for Http<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Http")
            .field("endpoint", &self.endpoint.as_str())
            .finish_non_exhaustive()
    }
}

/// A batch of an [`HttpDestination`], ready to be sent.
#[derive(Debug)]
pub struct Prepared {
    request: HttpRequest,
    body: Bytes,
    compressed: bool,
    records: usize,
}

impl<D: HttpDestination> Http<D> {
    /// Nothing is opened or read yet.
    ///
    /// # Errors
    /// The endpoint is no URL that can be used.
    pub fn new(destination: D, link: &LinkConfig) -> Result<Http<D>, String> {
        let endpoint = endpoint(&link.endpoint)?;
        let link = Arc::new(link.clone());
        Ok(Http {
            endpoint,
            current: Current::new(Arc::clone(&link)),
            link,
            destination,
            is_set_up: AtomicBool::new(false),
        })
    }

    fn prepare(&self, mut request: HttpRequest, records: usize) -> Prepared {
        let plain = std::mem::take(&mut request.body);
        let compressed = self.link.gzip && !plain.is_empty();
        let body = if compressed { gzip(&plain) } else { plain };
        Prepared {
            request,
            body: body.into(),
            compressed,
            records,
        }
    }

    /// The answer, and the headers that are not to be told.
    async fn exchange(&self, prepared: &Prepared) -> Result<(HttpAnswer, HeaderMap), Verdict> {
        let (mut client, mut secrets) = self.current().await.map_err(Verdict::retry)?;
        let mut answer = self.once(&client, prepared, &secrets).await?;
        if matches!(answer.status, 401 | 403) {
            // They may just have been rotated.
            let (again, newer) = self.current().await.map_err(Verdict::retry)?;
            if newer != secrets {
                (client, secrets) = (again, newer);
                answer = self.once(&client, prepared, &secrets).await?;
            }
        }
        Ok((answer, secrets))
    }

    /// The client for the files as they are, and the headers that all requests have.
    async fn current(&self) -> Result<(Client, HeaderMap), String> {
        let url = self.endpoint.clone();
        self.current.get(move |link| client(link, &url)).await
    }

    async fn once(
        &self,
        client: &Client,
        prepared: &Prepared,
        common: &HeaderMap,
    ) -> Result<HttpAnswer, Verdict> {
        let request = &prepared.request;
        let url = join(&self.endpoint, &request.path, &self.link.server_name);
        let mut headers = common.clone();
        if let Ok(host) = HeaderValue::from_str(&authority(&self.endpoint)) {
            headers.insert(HOST, host);
        }
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(request.content_type));
        if prepared.compressed {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        for (name, value) in &request.headers {
            headers.insert(name, value.clone());
        }
        let mut response = client
            .request(request.method.clone(), url)
            .headers(headers)
            .body(prepared.body.clone())
            .send()
            .await
            .map_err(failed)?;
        let (mut body, mut cut) = (Vec::new(), false);
        while let Some(chunk) = response.chunk().await.map_err(failed)? {
            let room = ANSWER_LIMIT - body.len();
            body.extend_from_slice(&chunk[..chunk.len().min(room)]);
            cut = chunk.len() > room;
            if cut {
                break;
            }
        }
        let mut answer = HttpAnswer {
            status: response.status().as_u16(),
            headers: std::mem::take(response.headers_mut()),
            body,
            cut,
        };
        forget(&mut answer.body, common);
        Ok(answer)
    }
}

impl<D: HttpDestination> Destination for Http<D> {
    type Payload = Prepared;

    fn name(&self) -> &'static str {
        self.destination.name()
    }

    fn encode(&self, records: &[Arc<KeptRecord>]) -> Prepared {
        self.prepare(self.destination.encode(records), records.len())
    }

    async fn send(&self, payload: &Prepared) -> Verdict {
        if !self.is_set_up.load(Relaxed) {
            while let Some(setup) = self.destination.setup() {
                let verdict = match self.exchange(&self.prepare(setup, 0)).await {
                    Ok((answer, secrets)) => forgotten(self.destination.judge_setup(&answer), &secrets),
                    Err(verdict) => verdict,
                };
                match verdict {
                    Verdict::Accepted { .. } => {}
                    Verdict::Retry { .. } => return verdict,
                    other => return Verdict::retry(other.reason().unwrap_or("refused").to_owned()),
                }
            }
            self.is_set_up.store(true, Relaxed);
        }
        match self.exchange(payload).await {
            Ok((answer, secrets)) => forgotten(self.destination.judge(payload.records, &answer), &secrets),
            Err(verdict) => verdict,
        }
    }
}

/// A client for this destination. May block.
///
/// # Errors
/// A certificate or key can't be used.
pub(crate) fn client(link: &LinkConfig, endpoint: &Url) -> Result<Client, String> {
    let mut builder = Client::builder()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .http1_only()
        .referer(false)
        .pool_idle_timeout(IDLE)
        .pool_max_idle_per_host(1)
        .user_agent(concat!("infertap/", env!("CARGO_PKG_VERSION")));
    builder = if endpoint.scheme() == "https" {
        builder.tls_backend_preconfigured(tls::client(link)?)
    } else {
        // Never used; without one the client would look for a default of the process.
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let unused = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(rustls::RootCertStore::empty())
            .with_no_client_auth();
        builder.tls_backend_preconfigured(unused)
    };
    if let (false, Some(host)) = (link.server_name.is_empty(), endpoint.host_str()) {
        let host = host.trim_matches(['[', ']']).to_owned();
        builder = builder.dns_resolver(Named { host });
    }
    builder.build().map_err(told)
}

/// Resolves every name to the addresses of the endpoint's host: the URL has the certificate's name instead.
struct Named {
    host: String,
}

impl reqwest::dns::Resolve for Named {
    fn resolve(&self, _name: reqwest::dns::Name) -> reqwest::dns::Resolving {
        let host = self.host.clone();
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((host, 0)).await?.collect();
            Ok(Box::new(found.into_iter()) as reqwest::dns::Addrs)
        })
    }
}

/// The endpoint with this path behind its own, unless it ends with that already.
fn join(endpoint: &Url, path: &str, server_name: &str) -> Url {
    let mut url = endpoint.clone();
    let (path, query) = path
        .split_once('?')
        .map_or((path, None), |(path, query)| (path, Some(query)));
    let base = endpoint.path().trim_end_matches('/');
    if base.ends_with(path) {
        url.set_path(base);
    } else {
        url.set_path(&format!("{base}{path}"));
    }
    url.set_query(query);
    if !server_name.is_empty() {
        // One that is no host is refused when the configuration is read.
        let _ = url.set_host(Some(server_name));
    }
    url
}

/// Host, and port where it is not the scheme's.
fn authority(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port()
        .map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

/// What is told of an error: not the URL, which is in the configuration.
fn told(error: reqwest::Error) -> String {
    with_causes(&error.without_url())
}

/// What it means that there is no answer: nobody is there, or the request ended somebody.
fn failed(error: reqwest::Error) -> Verdict {
    if error.is_connect() || error.is_builder() {
        Verdict::retry(told(error))
    } else {
        Verdict::unclear(told(error))
    }
}

pub(super) fn gzip(plain: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    // Writing to memory does not fail.
    let _ = encoder.write_all(plain);
    encoder.finish().unwrap_or_default()
}

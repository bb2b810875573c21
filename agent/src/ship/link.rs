//! How a destination is reached: keys that all of them share in the configuration, and the credentials.
//!
//! Owns: these keys, their checks, and reading credentials for each attempt, so that a token may be rotated under the
//! agent. Refuses: secrets in the configuration, which is printed and logged: they are in files.

use super::{Limits, file};
use crate::config::{Size, Span};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use reqwest::Url;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A file with a secret is not larger.
const SECRET_LIMIT: u64 = 64 << 10;
/// Words in names of headers whose values are secrets.
const SECRET_WORDS: [&str; 9] = [
    "auth",
    "cookie",
    "token",
    "secret",
    "password",
    "key",
    "credential",
    // Those of vendors that are named otherwise.
    "dsn",
    "honeycombteam",
];

/// See the module. Empty paths and strings: not given.
#[derive(Clone, PartialEq)]
pub struct LinkConfig {
    /// Base URL.
    pub endpoint: String,
    /// Headers of each request.
    pub headers: BTreeMap<String, String>,
    /// Headers whose values are in files.
    pub header_files: BTreeMap<String, PathBuf>,
    /// File with a token.
    pub bearer_token_file: PathBuf,
    /// File with `user:password`.
    pub basic_auth_file: PathBuf,
    /// Certificates of the authorities that are believed.
    pub ca_file: PathBuf,
    /// Our certificate.
    pub cert_file: PathBuf,
    /// Its key.
    pub key_file: PathBuf,
    /// Name in the destination's certificate.
    pub server_name: String,
    /// Compress.
    pub gzip: bool,
    /// Of an attempt.
    pub timeout: Span,
    /// See [`Limits`].
    pub batch_records: u64,
    /// See [`Limits`].
    pub batch_bytes: Size,
    /// See [`Limits`].
    pub batch_wait: Span,
    /// See [`Limits`].
    pub queue_records: u64,
    /// See [`Limits`].
    pub queue_bytes: Size,
    /// See [`Limits`]; 0: none.
    pub max_age: Span,
}

impl std::fmt::Debug for LinkConfig {
    /// Without values of headers, which may stand in the place of their files by mistake.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LinkConfig")
            .field("endpoint", &self.endpoint)
            .field("headers", &self.headers.keys())
            .field("header_files", &self.header_files.keys())
            .finish_non_exhaustive()
    }
}

/// Declares the section of a destination: its own keys, and those that all have, which `link()` gives.
#[macro_export]
macro_rules! destination_section {
    (
        $(#[doc = $section_doc:literal])+
        $vis:vis struct $section:ident { $($own:tt)* }
    ) => {
        $crate::config_section! {
            $(#[doc = $section_doc])+
            $vis struct $section {
                /// Base URL, http:// or https://, without credentials; "": nothing is sent.
                pub endpoint: String = String::new(),
                $($own)*
                /// Headers of each request, as in { "X-Scope-OrgID" = "team-a" }. None with secrets: those are in header_files. Their
                /// values are not printed or logged all the same.
                pub headers: $crate::ship::Headers = $crate::ship::Headers::default(),
                /// Headers whose values are the content of files, as in { "X-Api-Key" = "/etc/infertap/key" }. These files and
                /// the two below are read for each attempt, so that their content may change while the agent runs.
                pub header_files: std::collections::BTreeMap<String, std::path::PathBuf> = std::collections::BTreeMap::new(),
                /// File with a token that is sent as Authorization: Bearer.
                pub bearer_token_file: std::path::PathBuf = std::path::PathBuf::new(),
                /// File with USER:PASSWORD, which are sent as Authorization: Basic.
                pub basic_auth_file: std::path::PathBuf = std::path::PathBuf::new(),
                /// File (PEM) with the authorities that are believed instead of the system's.
                pub ca_file: std::path::PathBuf = std::path::PathBuf::new(),
                /// File (PEM) with the certificate by which the agent identifies itself, and those between it and an authority.
                pub cert_file: std::path::PathBuf = std::path::PathBuf::new(),
                /// File (PEM) with the key of cert_file. All these files are read again when they change.
                pub key_file: std::path::PathBuf = std::path::PathBuf::new(),
                /// Name that the destination's certificate is for, where it is not the endpoint's host.
                pub server_name: String = String::new(),
                /// Whether requests are compressed with gzip.
                pub gzip: bool = true,
                /// Time that one attempt may take; 100ms to 5m.
                pub timeout: $crate::config::Span = $crate::config::Span::seconds(10),
                /// Records in a batch; 1 to 10000. What the destination calls too large is halved.
                pub batch_records: u64 = 256,
                /// Size of its records in memory; 64KiB to 64MiB.
                pub batch_bytes: $crate::config::Size = $crate::config::Size::bytes(1 << 20),
                /// How long a record waits for others to go with it; 0s to 5m.
                pub batch_wait: $crate::config::Span = $crate::config::Span::seconds(5),
                /// Records that wait in memory for a destination that is slow or away; 1 to 1000000. When there are more,
                /// the oldest are dropped, which infertap_export_records_total{outcome="queue_full"} counts.
                pub queue_records: u64 = 20_000,
                /// The same by their size in memory; 1MiB to 4GiB.
                pub queue_bytes: $crate::config::Size = $crate::config::Size::bytes(32 << 20),
                /// Records that have waited so long are dropped; 0s: they wait for as long as the queue holds them.
                pub max_age: $crate::config::Span = $crate::config::Span::seconds(0),
            }
        }

        impl $section {
            /// How it is reached.
            $vis fn link(&self) -> $crate::ship::LinkConfig {
                $crate::ship::LinkConfig {
                    endpoint: self.endpoint.clone(),
                    headers: std::collections::BTreeMap::clone(&self.headers),
                    header_files: self.header_files.clone(),
                    bearer_token_file: self.bearer_token_file.clone(),
                    basic_auth_file: self.basic_auth_file.clone(),
                    ca_file: self.ca_file.clone(),
                    cert_file: self.cert_file.clone(),
                    key_file: self.key_file.clone(),
                    server_name: self.server_name.clone(),
                    gzip: self.gzip,
                    timeout: self.timeout,
                    batch_records: self.batch_records,
                    batch_bytes: self.batch_bytes,
                    batch_wait: self.batch_wait,
                    queue_records: self.queue_records,
                    queue_bytes: self.queue_bytes,
                    max_age: self.max_age,
                }
            }
        }
    };
}

impl LinkConfig {
    /// Something is sent.
    pub fn on(&self) -> bool {
        !self.endpoint.is_empty()
    }

    /// Bounds of its queue.
    pub fn limits(&self) -> Limits {
        let size = |size: Size| usize::try_from(size.get()).unwrap_or(usize::MAX);
        let count = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
        Limits {
            queue_records: count(self.queue_records),
            queue_bytes: size(self.queue_bytes),
            batch_records: count(self.batch_records),
            batch_bytes: size(self.batch_bytes),
            batch_wait: self.batch_wait.duration(),
            max_age: Some(self.max_age.duration()).filter(|age| !age.is_zero()),
        }
    }

    /// What is wrong with it: key of this section, and why and what would be right.
    pub fn invalid(&self, section: &str) -> Vec<(String, String)> {
        let mut out = Vec::new();
        let mut fail = |key: &str, reason: String| out.push((format!("{section}.{key}"), reason));
        if self.on()
            && let Err(reason) = endpoint(&self.endpoint)
        {
            fail("endpoint", reason);
        }
        for (name, value) in &self.headers {
            let plain = name.to_lowercase().replace(['-', '_'], "");
            if name.parse::<HeaderName>().is_err() {
                fail("headers", format!("{name:?} is no name of a header"));
            } else if SECRET_WORDS.iter().any(|word| plain.contains(word)) {
                // Not the value: this goes to the log.
                fail(
                    "headers",
                    format!(
                        "the value of {name} is a secret: put it into a file, and name that in {section}.header_files"
                    ),
                );
            } else if HeaderValue::from_str(value).is_err() {
                fail("headers", format!("the value of {name} is no value of a header"));
            }
        }
        for name in self.header_files.keys() {
            if name.parse::<HeaderName>().is_err() {
                fail("header_files", format!("{name:?} is no name of a header"));
            }
        }
        let files = [
            ("bearer_token_file", &self.bearer_token_file),
            ("basic_auth_file", &self.basic_auth_file),
            ("ca_file", &self.ca_file),
            ("cert_file", &self.cert_file),
            ("key_file", &self.key_file),
        ];
        let of_headers = self.header_files.values().map(|file| ("header_files", file));
        for (key, file) in files.into_iter().chain(of_headers) {
            if !file.is_absolute() && (given(file).is_some() || key == "header_files") {
                // Not what is there: it may be the secret itself, and this goes to the log.
                fail(
                    key,
                    "it is no absolute path of a file: put the secret into a file, and name that here, from / on".to_owned(),
                );
            }
        }
        if given(&self.bearer_token_file).is_some() && given(&self.basic_auth_file).is_some() {
            fail(
                "basic_auth_file",
                "a bearer token is given too: give one of them".to_owned(),
            );
        }
        if given(&self.cert_file).is_some() != given(&self.key_file).is_some() {
            fail(
                "key_file",
                format!("{section}.cert_file and {section}.key_file go together"),
            );
        }
        // An address would be connected to, instead of the endpoint's host.
        let named = |name: &str| {
            Url::parse("https://a")
                .is_ok_and(|mut url| url.set_host(Some(name)).is_ok() && url.domain().is_some())
        };
        if !self.server_name.is_empty() && !named(&self.server_name) {
            fail(
                "server_name",
                format!(
                    "{:?} is no name of a host: an address goes into the endpoint",
                    self.server_name
                ),
            );
        }
        let mut range = |key: &str, ok: bool, value: String, range: &str| {
            if !ok {
                fail(key, format!("{value} is not within {range}"));
            }
        };
        let (timeout, wait) = (self.timeout, self.batch_wait);
        let minutes = Span::seconds(300);
        range(
            "timeout",
            (Span::millis(100)..=minutes).contains(&timeout),
            timeout.to_string(),
            "100ms to 5m",
        );
        range("batch_wait", wait <= minutes, wait.to_string(), "0s to 5m");
        let (batch, queue) = (self.batch_records, self.queue_records);
        range(
            "batch_records",
            (1..=10_000).contains(&batch),
            batch.to_string(),
            "1 to 10000",
        );
        range(
            "queue_records",
            (1..=1_000_000).contains(&queue),
            queue.to_string(),
            "1 to 1000000",
        );
        let sizes = |least: u64, most: u64| Size::bytes(least)..=Size::bytes(most);
        let (batch, queue) = (self.batch_bytes, self.queue_bytes);
        range(
            "batch_bytes",
            sizes(64 << 10, 64 << 20).contains(&batch),
            batch.to_string(),
            "64KiB to 64MiB",
        );
        range(
            "queue_bytes",
            sizes(1 << 20, 4 << 30).contains(&queue),
            queue.to_string(),
            "1MiB to 4GiB",
        );
        out
    }

    /// The headers of an attempt, credentials included: their files are read now. May block.
    ///
    /// # Errors
    /// A file can't be read, or holds nothing that a header may.
    pub fn request_headers(&self) -> Result<HeaderMap, String> {
        let mut headers = HeaderMap::new();
        for (name, value) in &self.headers {
            if let (Ok(name), Ok(mut value)) = (name.parse::<HeaderName>(), HeaderValue::from_str(value)) {
                // Any may be a credential, whatever its name.
                value.set_sensitive(true);
                headers.insert(name, value);
            }
        }
        for (name, file) in &self.header_files {
            if let Ok(name) = name.parse::<HeaderName>() {
                headers.insert(name, sensitive(file, &secret(file)?)?);
            }
        }
        if let Some(file) = given(&self.bearer_token_file) {
            let value = format!("Bearer {}", secret(file)?);
            headers.insert(AUTHORIZATION, sensitive(file, &value)?);
        }
        if let Some(file) = given(&self.basic_auth_file) {
            let pair = secret(file)?;
            if !pair.contains(':') {
                return Err(format!("{} is not USER:PASSWORD", file.display()));
            }
            let value = format!("Basic {}", BASE64_STANDARD.encode(pair));
            headers.insert(AUTHORIZATION, sensitive(file, &value)?);
        }
        Ok(headers)
    }

    /// The time of an attempt.
    pub fn attempt(&self) -> Duration {
        self.timeout.duration()
    }
}

/// The path, where one is given.
pub(super) fn given(path: &Path) -> Option<&Path> {
    (!path.as_os_str().is_empty()).then_some(path)
}

/// A base URL. What is told of a wrong one does not have it: it may hold a password.
pub(crate) fn endpoint(text: &str) -> Result<Url, String> {
    let url = Url::parse(text)
        .map_err(|error| format!("it is no URL ({error}): write one as in https://collector:4318"))?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err(
            "it has credentials, which would be printed and logged: put them into a file, and name that in basic_auth_file"
                .to_owned(),
        );
    }
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err("it does not begin with http:// or https:// and a host".to_owned());
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("it has a query or a fragment: give the base URL alone".to_owned());
    }
    Ok(url)
}

fn secret(path: &Path) -> Result<String, String> {
    let bytes = file::read(path, SECRET_LIMIT)?;
    let text = String::from_utf8(bytes).map_err(|_| format!("{} is no text", path.display()))?;
    match text.trim() {
        "" => Err(format!("{} is empty", path.display())),
        text => Ok(text.to_owned()),
    }
}

fn sensitive(file: &Path, text: &str) -> Result<HeaderValue, String> {
    let mut value = HeaderValue::from_str(text)
        .map_err(|_| format!("{} has what no header may: more than one line?", file.display()))?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests;

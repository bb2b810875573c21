//! Lines of a watch, and the rest of a list: what the API server tells beside pods themselves.
//!
//! Owns: cutting a stream into lines within bounds, and the meaning of a line. Refuses: asking for one.

use super::Reason;
use super::api::Failure;
use super::items::MAX_ITEM;
use super::state::PodDocument;
use serde::Deserialize;

/// One line.
#[derive(Debug)]
pub(super) enum Told {
    /// A pod is there, or has changed.
    Present(Box<PodDocument>),
    /// A pod was deleted, or is no longer one of those that are asked for.
    Gone(Box<PodDocument>),
    /// All changes up to this state of the cluster were told.
    Bookmark(String),
}

#[derive(Deserialize)]
struct Kind {
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Deserialize)]
struct Object<T> {
    object: T,
}

#[derive(Debug, Default, Deserialize)]
struct Status {
    #[serde(default)]
    code: u16,
    #[serde(default)]
    message: String,
}

/// What a list tells beside its items.
#[derive(Debug, Deserialize)]
pub(super) struct List {
    pub(super) metadata: ListMetadata,
}

/// See [`List`].
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ListMetadata {
    /// The state of the cluster that it shows.
    #[serde(default)]
    pub(super) resource_version: String,
    /// Where its next page is; empty on the last.
    #[serde(default, rename = "continue")]
    pub(super) next: String,
}

/// The server's own words in a refusal.
pub(super) fn words(body: &[u8]) -> String {
    match serde_json::from_slice::<Status>(body) {
        Ok(status) if !status.message.is_empty() => status.message,
        _ => String::from_utf8_lossy(body).into_owned(),
    }
}

impl Told {
    /// Reads a line.
    ///
    /// # Errors
    /// It tells of an error, or nothing that is known.
    pub(super) fn read(line: &[u8]) -> Result<Told, Failure> {
        let malformed = |why: String| {
            Failure::new(
                Reason::Malformed,
                format!("a line of its watch is not one: {why}"),
            )
        };
        let wrong = |error: serde_json::Error| malformed(error.to_string());
        let kind: Kind = serde_json::from_slice(line).map_err(wrong)?;
        let pod = || {
            let found: Object<PodDocument> = serde_json::from_slice(line).map_err(wrong)?;
            Ok(Box::new(found.object))
        };
        match kind.kind.as_str() {
            "ADDED" | "MODIFIED" => pod().map(Told::Present),
            "DELETED" => pod().map(Told::Gone),
            "BOOKMARK" => Ok(Told::Bookmark(pod()?.version().to_owned())),
            "ERROR" => {
                let status: Object<Status> = serde_json::from_slice(line).map_err(wrong)?;
                Err(Failure::of_status(status.object.code, &status.object.message))
            }
            other => Err(malformed(format!("its type is {other:?}"))),
        }
    }
}

/// A stream, in lines.
#[derive(Debug, Default)]
pub(super) struct Lines {
    line: Vec<u8>,
    skipping: bool,
}

impl Lines {
    /// The next piece; `take` gets each line that is complete, or `None` for one that is too long. What `take` refuses ends it.
    pub(super) fn feed<E>(
        &mut self,
        mut bytes: &[u8],
        take: &mut dyn FnMut(Option<&[u8]>) -> Result<(), E>,
    ) -> Result<(), E> {
        while let Some(end) = memchr::memchr(b'\n', bytes) {
            self.keep(&bytes[..end]);
            bytes = &bytes[end + 1..];
            let line = std::mem::take(&mut self.line);
            if std::mem::take(&mut self.skipping) {
                take(None)?;
            } else if !line.trim_ascii().is_empty() {
                take(Some(&line))?;
            }
        }
        self.keep(bytes);
        Ok(())
    }

    fn keep(&mut self, bytes: &[u8]) {
        if self.skipping || self.line.len() + bytes.len() > MAX_ITEM {
            self.skipping = true;
            self.line = Vec::new();
        } else {
            self.line.extend_from_slice(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(line: &str) -> String {
        match Told::read(line.as_bytes()) {
            Ok(Told::Present(pod)) => format!("present {:?}", pod.names()),
            Ok(Told::Gone(pod)) => format!("gone {:?}", pod.names()),
            Ok(Told::Bookmark(version)) => format!("bookmark {version}"),
            Err(failure) => failure.reason.as_str().to_owned(),
        }
    }

    #[test]
    fn lines_mean_what_the_protocol_says() {
        for (line, expected) in [
            (
                r#"{"type":"ADDED","object":{"metadata":{"namespace":"n","name":"p"}}}"#,
                r#"present ("n", "p")"#,
            ),
            (
                r#"{"object":{"metadata":{"namespace":"n","name":"p"},"spec":null},"type":"MODIFIED"}"#,
                r#"present ("n", "p")"#,
            ),
            (
                r#"{"type":"DELETED","object":{"metadata":{"namespace":"n","name":"p"}}}"#,
                r#"gone ("n", "p")"#,
            ),
            (
                r#"{"type":"BOOKMARK","object":{"kind":"Pod","metadata":{"resourceVersion":"7"},"spec":{"containers":null},"status":{}}}"#,
                "bookmark 7",
            ),
            (
                r#"{"type":"ERROR","object":{"kind":"Status","code":410,"message":"too old resource version: 1 (7)"}}"#,
                "expired",
            ),
            (
                r#"{"type":"ERROR","object":{"kind":"Status","code":500}}"#,
                "status",
            ),
            (r#"{"type":"OTHER","object":{}}"#, "malformed"),
            (r#"{"type":"ADDED","object":[]}"#, "malformed"),
            (r#"{"type":"ADDED"}"#, "malformed"),
            ("{", "malformed"),
        ] {
            assert_eq!(told(line), expected, "{line}");
        }
    }

    #[test]
    fn a_stream_is_cut_into_lines_within_bounds() {
        let text = format!("a\r\n\nbc\n{}\nd\ntorn", "x".repeat(MAX_ITEM + 1));
        for piece in [1 << 16, 7_777_777, text.len()] {
            let (mut lines, mut found) = (Lines::default(), Vec::new());
            for piece in text.as_bytes().chunks(piece) {
                let taken: Result<(), ()> = lines.feed(piece, &mut |line| {
                    found.push(line.map_or("too long".to_owned(), |line| {
                        String::from_utf8_lossy(line).trim().to_owned()
                    }));
                    Ok(())
                });
                taken.unwrap();
            }
            assert_eq!(found, ["a", "bc", "too long", "d"], "{piece}");
        }
    }
}

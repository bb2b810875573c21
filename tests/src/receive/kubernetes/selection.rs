//! Which pods a request is about.
//!
//! Owns: paths, selectors, and their mistakes. Refuses: pages and versions (`kubernetes`).

use crate::receive::Request;
use anyhow::Result;
use serde_json::Value;

/// What of all pods is asked for.
pub(super) struct Selection {
    namespace: Option<String>,
    /// A path in a pod, and the value that it must not have.
    fields: Vec<(&'static str, String)>,
    labels: Vec<(String, String)>,
}

impl Selection {
    pub(super) fn of(request: &Request) -> Result<Selection, (u16, String)> {
        let namespace = match request.path.split('/').collect::<Vec<_>>()[..] {
            ["", "api", "v1", "pods"] => None,
            ["", "api", "v1", "namespaces", name, "pods"] => Some(name.to_owned()),
            _ => return Err((404, "the server could not find the requested resource".to_owned())),
        };
        let text = |name: &str| request.query.get(name).map_or("", String::as_str);
        let mut fields = Vec::new();
        for part in text("fieldSelector").split(',').filter(|part| !part.is_empty()) {
            match part.split_once("!=") {
                Some(("status.phase", value)) => fields.push(("/status/phase", value.to_owned())),
                _ => return Err((400, format!("field label not supported: {part}"))),
            }
        }
        let labels = text("labelSelector").split(',').filter(|part| !part.is_empty());
        let labels = labels.map(|part| part.split_once('=').map(|(a, b)| (a.to_owned(), b.to_owned())));
        let Some(labels) = labels.collect() else {
            return Err((400, "unable to parse requirement".to_owned()));
        };
        Ok(Selection {
            namespace,
            fields,
            labels,
        })
    }

    pub(super) fn has(&self, pod: &Value) -> bool {
        let text = |pointer: &str| pod.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        self.namespace
            .as_ref()
            .is_none_or(|name| text("/metadata/namespace") == name)
            && self.fields.iter().all(|(pointer, not)| text(pointer) != not)
            && self
                .labels
                .iter()
                .all(|(name, value)| pod["metadata"]["labels"][name] == value.as_str())
    }
}

/// Percent-decoded; what can't be stays.
pub(super) fn decoded(text: &str) -> String {
    let (bytes, mut out, mut at) = (text.as_bytes(), Vec::new(), 0);
    while let Some(&byte) = bytes.get(at) {
        let hex = text.get(at + 1..at + 3).filter(|_| byte == b'%');
        let code = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok());
        out.push(code.unwrap_or(if byte == b'+' { b' ' } else { byte }));
        at += if code.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&out).into_owned()
}

//! `[otlp]`: where traces go.
//!
//! Owns: the section and its checks. Refuses: what all destinations share (`ship::link`).

use crate::destination_section;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How OTLP is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OtlpProtocol {
    /// gRPC, over HTTP/2.
    Grpc,
    /// Protobuf in HTTP POST.
    Http,
}

destination_section! {
    /// Where traces of kept requests go: an OpenTelemetry collector, Tempo, Jaeger, or another receiver of OTLP. Which requests
    /// are kept, [records] decides. Read again on SIGHUP and when the file changes. See docs/export.md.
    pub struct OtlpConfig {
        /// "http" (protobuf in HTTP POST to endpoint + /v1/traces; port 4318 mostly) or "grpc" (port 4317 mostly).
        pub protocol: OtlpProtocol = OtlpProtocol::Http,
        /// Resource attribute service.name of the spans; "": the engine's id, as in vllm-8000.
        pub service_name: String = String::new(),
        /// More resource attributes, as in { "deployment.environment.name" = "production" }.
        pub attributes: BTreeMap<String, String> = BTreeMap::new(),
    }
}

/// Attributes that are the exporter's own.
const OWN: [&str; 3] = ["service.name", "service.instance.id", "host.name"];

impl OtlpConfig {
    /// What is wrong with it: key, and why and what would be right.
    pub fn invalid(&self) -> Vec<(String, String)> {
        let mut out = self.link().invalid("otlp");
        for name in self.attributes.keys() {
            if name.is_empty() || OWN.contains(&name.as_str()) {
                let reason = format!("{name:?} can't be set here: it is empty, or the agent's own");
                out.push(("otlp.attributes".to_owned(), reason));
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_attributes_are_refused() {
        let mut section = OtlpConfig::default();
        assert_eq!(section.invalid(), []);
        section.attributes.insert("host.name".to_owned(), "x".to_owned());
        section.endpoint = "nowhere".to_owned();
        let keys: Vec<String> = section.invalid().into_iter().map(|(key, _)| key).collect();
        assert_eq!(keys, ["otlp.endpoint", "otlp.attributes"]);
    }
}

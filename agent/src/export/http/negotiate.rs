//! `Accept` → exposition format.
//!
//! Owns: the choice. Refuses: failing a scrape: what can't be satisfied gets the classic text, as every exporter does.

use crate::export::metrics::Format;

/// Most media ranges that are looked at.
const MAX_RANGES: usize = 32;

/// The format that `accept` likes best; OpenMetrics only where it is named, and it wins a tie.
pub(super) fn negotiate(accept: &str) -> Format {
    let (mut text, mut open) = (0.0_f32, 0.0_f32);
    for range in accept.split(',').take(MAX_RANGES) {
        let mut parts = range.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default().to_ascii_lowercase();
        let (mut quality, mut version) = (1.0_f32, None);
        for (name, value) in parts.filter_map(|parameter| parameter.split_once('=')) {
            let value = value.trim().trim_matches('"');
            match name.trim().to_ascii_lowercase().as_str() {
                "q" => {
                    quality = value
                        .parse()
                        .ok()
                        .filter(|q| (0.0..=1.0).contains(q))
                        .unwrap_or(0.0);
                }
                "version" => version = Some(value),
                _ => {}
            }
        }
        match media.as_str() {
            "application/openmetrics-text" if version.is_none_or(|v| v == "1.0.0") => {
                open = open.max(quality);
            }
            "text/plain" | "text/*" | "*/*" => text = text.max(quality),
            _ => {}
        }
    }
    if open > 0.0 && open >= text {
        Format::OpenMetrics
    } else {
        Format::Text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_clients_send() {
        use Format::{OpenMetrics, Text};
        for (accept, expected) in [
            ("", Text),
            ("*/*", Text),
            ("text/html,application/xhtml+xml,*/*;q=0.8", Text),
            ("application/openmetrics-text", OpenMetrics),
            ("Application/OpenMetrics-Text; Version=\"1.0.0\"", OpenMetrics),
            // Prometheus 2.42.
            (
                "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
                OpenMetrics,
            ),
            // Prometheus 3.
            (
                "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,text/plain;version=0.0.4;q=0.2,*/*;q=0.1",
                OpenMetrics,
            ),
            // Prometheus with native histograms asks for protobuf first, which is not offered here.
            (
                "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited,application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.5",
                OpenMetrics,
            ),
            (
                "text/plain;version=0.0.4,application/openmetrics-text;q=0.5",
                Text,
            ),
            ("text/plain;q=0.5,application/openmetrics-text;q=0.5", OpenMetrics),
            ("application/openmetrics-text;version=0.0.1", Text),
            ("application/openmetrics-text;q=0", Text),
            ("application/openmetrics-text;q=nonsense,text/plain;q=0.1", Text),
            ("application/openmetrics-text;q=7,*/*;q=0.1", Text),
            ("application/json", Text),
            (";;;,,=;q", Text),
        ] {
            assert_eq!(negotiate(accept), expected, "{accept}");
        }
    }
}

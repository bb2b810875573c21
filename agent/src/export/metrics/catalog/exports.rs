//! The metrics of what sends records out.
//!
//! Owns: their words. Refuses: values (`ship`'s).

use super::{Definition, Kind};

catalog! {
    /// How destinations of records are doing.
    pub(crate) const EXPORTS;
    EXPORT_RECORDS: Counter "infertap_export_records_total" ["exporter", "outcome"]
        "Kept records that are done with, by what became of them: sent, or lost because the destination rejected them alone (rejected), refused their batch (refused) or found them too large even alone (too_large), because the queue was full (queue_full), because they had waited for max_age (expired), or because the agent ended (shutdown)."
        source "The queue of each destination. exporter is the section of the configuration, as in otlp."
        absent "For destinations that are not configured; then all outcomes are there, from 0.";
    EXPORT_QUEUE_RECORDS: Gauge "infertap_export_queue_records" ["exporter"]
        "Records that wait to be sent, those included that are being tried."
        source "The queue of each destination."
        absent "For destinations that are not configured.";
    EXPORT_QUEUE_BYTES: Gauge "infertap_export_queue_bytes" ["exporter"]
        "Memory that the records take which wait to be sent, estimated."
        source "The queue of each destination. Destinations share the memory of a record."
        absent "For destinations that are not configured.";
    EXPORT_LAST_SUCCESS: Gauge "infertap_export_last_success_timestamp_seconds" ["exporter"]
        "When the destination last took a batch, Unix time."
        source "The answer of the destination."
        absent "Before the first that it took.";
}

//! The metrics of content that is kept.
//!
//! Owns: their words. Refuses: values (`content`).

use super::{Definition, Kind};

catalog! {
    /// What became of the content of records that were kept.
    pub(crate) const CONTENT;
    CONTENT_TOTAL: Counter "infertap_content_total" ["side", "outcome"]
        "Prompts (side input) and answers (output) of kept records whose scene keeps content, by what became of them: kept, incomplete (part was not seen), too_large (above content.request_bytes), no_memory (content.memory was in use), unreadable, or failed. Only kept ones are in the record; raw text never stands in for the others."
        source "Making the content of a record."
        absent "While no scene keeps content.";
    CONTENT_REDACTIONS: Counter "infertap_content_redactions_total" ["kind"]
        "What mode redacted has replaced, by kind; custom is all of content.pattern."
        source "The redactor."
        absent "While no scene keeps content.";
}

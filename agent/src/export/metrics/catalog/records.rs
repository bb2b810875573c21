//! The metric of request records.
//!
//! Owns: its words. Refuses: values (the core's `sampling`).

use super::{Definition, Kind};

catalog! {
    /// Which requests keep their record.
    pub(crate) const RECORDS;
    RECORDS_TOTAL: Counter "infertap_records_total" ["rule", "decision"]
        "Requests that ended, by the rules that they matched: slow_ttft, slow_itl, slow_e2e, client_error, server_error, timeout, cancelled, near_context_limit, over_budget, interference, or head where none of these applies. decision is kept, capped (the rule had kept as many in the last minute as it may; another one may have kept the record), or dropped (head alone: not within the share that is kept)."
        source "The record of each request against [records]."
        absent "Without a store and without a destination.";
}

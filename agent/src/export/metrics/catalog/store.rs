//! The metrics of the embedded store.
//!
//! Owns: their words. Refuses: values (the store's).

use super::{Definition, Kind};

catalog! {
    /// How the store is doing.
    pub(crate) const STORE;
    STORE_UP: Gauge "infertap_store_up" []
        "Whether what should outlive the agent is kept: 1 while the store can be written, 0 when it can not."
        source "The store; /readyz tells what is amiss."
        absent "With store.path = \"\".";
    STORE_WRITES: Counter "infertap_store_writes_total" []
        "Writes that were committed to the store."
        source "The store."
        absent "With store.path = \"\".";
    STORE_LOST: Counter "infertap_store_lost_total" ["reason"]
        "Writes that the store has lost. reason is queue_full (the disk is slower than what is to be written) or failed (it is full or broken). Totals that were lost so are written again later."
        source "The store."
        absent "With store.path = \"\".";
    STORE_BYTES: Gauge "infertap_store_bytes" []
        "Size of the store's file and its write-ahead log."
        source "The file system, at scrape time."
        absent "With store.path = \"\"; where there is no such file.";
}

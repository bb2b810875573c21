//! Which requests an exemplar may point to.
//!
//! Owns: the rule. Refuses: which records are kept (the core's `sampling`). An exemplar is a promise that its trace can be looked
//! up, so where records are kept, the trace of a request whose record was not is no exemplar.

/// The requests, among those that end in one call, whose traces can be looked up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Traces {
    /// Nobody knows: no records are kept here, and whoever sent the trace id may keep the trace.
    Any,
    /// Those whose records were kept, by [`Finished::id`](infertap_core::observation::Finished::id).
    Of(Vec<u64>),
}

impl Traces {
    /// Whether this request's may be pointed to.
    pub(crate) fn has(&self, id: u64) -> bool {
        match self {
            Traces::Any => true,
            Traces::Of(ids) => ids.contains(&id),
        }
    }
}

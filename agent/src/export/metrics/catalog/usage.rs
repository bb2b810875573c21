//! The metrics beside the usage ledger.
//!
//! Owns: their words. Refuses: values (the core's `ledger`).

use super::{Definition, Kind};

catalog! {
    /// Of context limits, and of the ledger itself.
    pub(crate) const USAGE;
    NEAR_CONTEXT_LIMIT: Counter "llm_near_context_limit_total" ["model", "scene"]
        "Requests whose input and output tokens together came near the model's context limit: 90 %, unless usage.near_context_limit says otherwise."
        source "The tokens of the request's record; the limit as configured ([[context_limit]]), else as llm_context_limit_tokens tells."
        absent "Until a request ends for which a limit and tokens are known.";
    CONTEXT_LIMIT: Gauge "llm_context_limit_tokens" ["engine", "source"]
        "Tokens, input and output together, that a request to an engine may have. source is command_line (options or environment variables), or files (what the model was made for: config.json, or the head of a GGUF file)."
        source "The engine's command line and the files that it names."
        absent "For engines of which neither is known; when the engine is gone. Limits that are configured are not told here.";
    USAGE_OVERFLOW: Counter "infertap_usage_overflow_total" []
        "Observations that /api/v1/cost tells as other: there were more combinations of model, scene and client in 15 minutes or a day than usage.max_keys, or a name was too long."
        source "The usage ledger."
        absent "Never.";
}

//! The metrics of prompts that begin like prompts before them.
//!
//! Owns: their words. Refuses: values (the core's prefix advisor).

use super::{Definition, Kind};

catalog! {
    /// Of prefixes, by model and scene.
    pub(crate) const PREFIXES;
    PREFIX_COMPARED: Counter "llm_prefix_compared_tokens_total" ["model", "scene"]
        "Prompt tokens that were compared with prompts before them."
        source "The tokens that the engine is given, where its messages tell them; else the text of requests. docs/prefix.md tells how. Told a second late."
        absent "With prefix.enabled = false; until the first request whose prompt tokens are known.";
    PREFIX_SHAREABLE: Counter "llm_prefix_shareable_tokens_total" ["model", "scene"]
        "Those of llm_prefix_compared_tokens_total that a prefix cache could have had, if it forgot nothing."
        source "As llm_prefix_compared_tokens_total; whole blocks of the engine's size, as far as its hits show it."
        absent "As llm_prefix_compared_tokens_total.";
    PREFIX_HIT_OF_SCENE: Counter "llm_prefix_hit_tokens_total" ["model", "scene"]
        "Those of llm_prefix_compared_tokens_total that the engine took from its prefix cache."
        source "The engine's messages, or the response's usage."
        absent "Where the engine tells of no request.";
    PREFIX_LOST: Counter "llm_prefix_lost_tokens_total" ["model", "scene"]
        "Prompt tokens that a prefix cache could have had and the engine computed: it forgot them, has no cache, or another engine core has them."
        source "What could be shared less what was hit, request by request."
        absent "As llm_prefix_hit_tokens_total.";
    PREFIX_BREAKS: Counter "llm_prefix_breaks_total" ["model", "scene", "class"]
        "Requests whose prompt differs from one before it though at least 16 tokens after that are the same again. class is what differs: timestamp, random_id, number, or text."
        source "The text of requests: keyed hashes of its first 2048 words are kept, in memory."
        absent "For a class, until its first request.";
    PREFIX_BROKEN: Counter "llm_prefix_broken_tokens_total" ["model", "scene", "class"]
        "Prompt tokens behind such a difference that are the same again and that nothing can share because of it; about."
        source "As llm_prefix_breaks_total: the share of the text that they are."
        absent "As llm_prefix_breaks_total.";
}

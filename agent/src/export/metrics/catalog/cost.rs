//! The metrics of what requests cost.
//!
//! Owns: their words. Refuses: prices and values (the core's `money`).

use super::{Definition, Kind};

catalog! {
    /// Of money.
    pub(crate) const MONEY;
    COST: Counter "llm_cost_total" ["model", "scene", "currency", "direction", "basis"]
        "Money that requests cost, in units of the currency. basis is tokens: by the price book; or gpu: what their time on GPUs costs. Never sum both. direction is input (prompt tokens that were computed), cached_input (those from the prefix cache), output, or reasoning; with basis gpu input (prompts were read), output (tokens were generated), or unattributed (GPUs' time that is no request's: model unknown, scene unattributed)."
        source "Tokens times their price, or GPUs' time by a price an hour (docs/cost.md). Output is added as it streams; the rest when the request's counts are final."
        absent "Without [[price]] in the configuration, or for basis gpu [gpu_price]; for models that have no price (llm_unpriced_tokens_total counts their tokens); for a direction, until its first token.";
    COST_SAVED: Counter "llm_cost_saved_total" ["model", "scene", "currency"]
        "Money that the discount for cached prompt tokens saved, in units of the currency: input's price less cached_input's."
        source "As llm_cost_total."
        absent "As llm_cost_total; where no cached tokens are told.";
    UNPRICED_TOKENS: Counter "llm_unpriced_tokens_total" ["model", "scene", "direction"]
        "Tokens for whose model the price book has no price: they are in no llm_cost_total. direction is input or output."
        source "As llm_input_tokens_total and llm_output_tokens_total."
        absent "Without [[price]] in the configuration; for models that have a price.";
}

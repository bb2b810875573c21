//! The metrics of budgets.
//!
//! Owns: their words. Refuses: values (the core's `budget`).

use super::{Definition, Kind};

catalog! {
    /// How budgets stand.
    pub(crate) const BUDGETS;
    TOKEN_BUDGET_LIMIT: Gauge "llm_token_budget_limit" ["budget", "scene"]
        "Tokens that a budget has in a period. scene is the budget's pattern of scenes."
        source "The configuration, [[budget]]."
        absent "For budgets that are not in tokens; without [[budget]].";
    TOKEN_BUDGET_USED: Gauge "llm_token_budget_used" ["budget", "scene"]
        "Tokens of a budget that are used in the current period: input and output of the scenes and models that it covers, as they stream."
        source "What llm_input_tokens_total and llm_output_tokens_total count. Kept over restarts in the store."
        absent "As llm_token_budget_limit.";
    COST_BUDGET_LIMIT: Gauge "llm_cost_budget_limit" ["budget", "scene", "currency"]
        "Money that a budget has in a period. scene is the budget's pattern of scenes."
        source "The configuration, [[budget]]."
        absent "For budgets that are not in money; without [[budget]].";
    COST_BUDGET_USED: Gauge "llm_cost_budget_used" ["budget", "scene", "currency"]
        "Money of a budget that is used in the current period by the scenes and models that it covers, as their responses stream."
        source "What requests are charged in this currency, by the budget's basis: the price of tokens or of GPU time. Kept over restarts in the store."
        absent "As llm_cost_budget_limit.";
    BUDGET_RATIO: Gauge "llm_budget_used_ratio" ["budget", "scene"]
        "Used share of a budget in the current period; above 1 when more is used than there was."
        source "Used by limit."
        absent "Without [[budget]].";
    BUDGET_EXHAUSTION: Gauge "llm_budget_exhaustion_timestamp_seconds" ["budget", "scene"]
        "When a budget was used up in the current period, or will be at the rate of now, Unix time: docs/cost.md tells how."
        source "The higher of the rates of this period and of the last hours."
        absent "Where the budget lasts until its period ends; in the first five minutes of measuring.";
    BUDGET_EVENTS: Counter "llm_budget_events_total" ["budget", "threshold"]
        "Times that a threshold of a budget, a share of its limit, was reached: once a period, also over restarts."
        source "The configuration's thresholds against the used share."
        absent "Without [[budget]].";
}

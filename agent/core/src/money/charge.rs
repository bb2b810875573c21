//! What is told of money: charges as they come, and a request's whole cost.
//!
//! Owns: the words, and their form in a record. Refuses: prices (`price`), and when a charge is due (`stage`).

use super::amount::{Amount, Currency};
use crate::{RequestRecord, observation::Labels};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// What a price is of. `basis` label of `llm_cost_total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// Of tokens: what an API with the price book would have charged.
    Tokens,
    /// Of GPUs' time: what the hardware costs.
    Gpu,
}

impl Basis {
    /// Both.
    pub const ALL: [Basis; 2] = [Basis::Tokens, Basis::Gpu];

    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Basis::Tokens => "tokens",
            Basis::Gpu => "gpu",
        }
    }
}

/// What a charge is for. `direction` label of `llm_cost_total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChargeKind {
    /// Prompt tokens that were computed; of GPUs, the time in which prompts were read.
    Input,
    /// Prompt tokens from the prefix cache.
    CachedInput,
    /// Generated tokens; of GPUs, the time in which they were generated.
    Output,
    /// Generated tokens that were reasoning.
    Reasoning,
    /// Time of GPUs that is no request's.
    Unattributed,
}

impl ChargeKind {
    /// Every kind, in declaration order.
    pub const ALL: [ChargeKind; 5] = [
        ChargeKind::Input,
        ChargeKind::CachedInput,
        ChargeKind::Output,
        ChargeKind::Reasoning,
        ChargeKind::Unattributed,
    ];

    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            ChargeKind::Input => "input",
            ChargeKind::CachedInput => "cached_input",
            ChargeKind::Output => "output",
            ChargeKind::Reasoning => "reasoning",
            ChargeKind::Unattributed => "unattributed",
        }
    }
}

/// Money that was spent since it was last told. Charges only add: the sum of a request's is what it has cost so far, and
/// at its end its record's [`Cost`], or more where the record has fewer output tokens than were seen to stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Charge {
    /// The request, as [`Finished::id`](crate::observation::Finished::id); absent with [`Basis::Gpu`].
    pub request: Option<u64>,
    /// Whose.
    pub labels: Labels,
    /// Who sent the request, where that is known.
    pub client: Option<IpAddr>,
    /// By which price.
    pub basis: Basis,
    /// What it is in.
    pub currency: Currency,
    /// What for.
    pub kind: ChargeKind,
    /// How much.
    pub amount: Amount,
    /// For how many tokens that were not charged before; 0 with [`Basis::Gpu`], and where tokens that were charged as
    /// output turned out to be dearer reasoning.
    pub tokens: u64,
    /// How much more it would have been without the discount for cached tokens.
    pub saved: Amount,
}

/// A request's whole cost, by the price of its tokens. Parts of which the tokens are not known are absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    /// What it is in.
    pub currency: Currency,
    /// The sum of the known parts.
    pub total: Amount,
    /// Prompt tokens that were computed: all, where nothing is known of cached ones.
    pub input: Option<Amount>,
    /// Prompt tokens from the prefix cache.
    pub cached_input: Option<Amount>,
    /// Generated tokens: all, where nothing is known of reasoning.
    pub output: Option<Amount>,
    /// Generated tokens that were reasoning.
    pub reasoning: Option<Amount>,
    /// How much more it would have been without the discount for cached tokens.
    pub saved: Option<Amount>,
}

/// A record's tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) input: Option<u64>,
    pub(super) cached_input: Option<u64>,
    pub(super) output: Option<u64>,
    pub(super) reasoning: Option<u64>,
}

impl Counts {
    pub(super) fn of(record: &RequestRecord) -> Counts {
        Counts {
            input: record.input_tokens,
            cached_input: record.cached_input_tokens,
            output: record.output_tokens,
            reasoning: record.reasoning_tokens,
        }
    }

    /// None is known.
    pub(super) fn is_empty(self) -> bool {
        self == Counts::default()
    }

    /// Tokens that each price is of: computed, cached, generated, reasoning. Cached ones are among the input's, reasoning
    /// among the output's.
    pub(super) fn apart(self) -> [Option<u64>; 4] {
        let within =
            |part: Option<u64>, all: Option<u64>| part.map(|part| all.map_or(part, |all| part.min(all)));
        let rest = |all: Option<u64>, part: Option<u64>| all.map(|all| all - part.unwrap_or(0));
        let cached = within(self.cached_input, self.input);
        let reasoning = within(self.reasoning, self.output);
        [
            rest(self.input, cached),
            cached,
            rest(self.output, reasoning),
            reasoning,
        ]
    }
}

/// What the tokens of a request cost.
#[derive(Debug, Clone, Copy)]
pub(super) struct Parts {
    pub(super) input: Option<Amount>,
    pub(super) cached_input: Option<Amount>,
    pub(super) output: Option<Amount>,
    pub(super) reasoning: Option<Amount>,
    pub(super) saved: Option<Amount>,
}

impl Parts {
    pub(super) fn cost(self, currency: Currency) -> Cost {
        let parts = [self.input, self.cached_input, self.output, self.reasoning];
        Cost {
            currency,
            total: parts.into_iter().flatten().sum(),
            input: self.input,
            cached_input: self.cached_input,
            output: self.output,
            reasoning: self.reasoning,
            saved: self.saved,
        }
    }
}

//! What was used: requests, tokens and money of one key in one span of time.
//!
//! Owns: the sums, and that sums of sums are the same whatever the order. Refuses: deciding whose they are. What no
//! request told is absent, not zero.

use crate::money::{Amount, Basis, Cost, Currency};
use serde::{Deserialize, Serialize};

/// Currencies and bases that one key may have; further ones are counted as overflow.
pub const MAX_MONEY: usize = 16;

/// Money that was spent, in one currency on one basis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spent {
    /// Currency.
    pub currency: Currency,
    /// What it is the price of.
    pub basis: Basis,
    /// How much.
    pub amount: Amount,
    /// How much more it would have been without the discount for cached tokens.
    pub saved: Amount,
}

impl Spent {
    /// What a request's tokens cost.
    pub fn of(cost: &Cost) -> Spent {
        Spent {
            currency: cost.currency,
            basis: Basis::Tokens,
            amount: cost.total,
            saved: cost.saved.unwrap_or_default(),
        }
    }
}

/// Requests, tokens and money.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// Requests that ended, however.
    pub requests: u64,
    /// Those of them that ended without a complete answer: refused, failed, broken off, timed out. Those that were not
    /// fully seen are not among them.
    pub failed: u64,
    /// Prompt tokens, counted as soon as they are known.
    pub input_tokens: u64,
    /// Those of them that came from the prefix cache; absent where no request told.
    pub cached_input_tokens: Option<u64>,
    /// Generated tokens, counted while they stream.
    pub output_tokens: u64,
    /// Those of them that were reasoning; absent where no request told.
    pub reasoning_tokens: Option<u64>,
    /// Requests that came near the model's context limit; absent where no limit is known.
    pub near_context_limit: Option<u64>,
    /// Money, by currency and basis; empty without prices.
    pub cost: Vec<Spent>,
}

impl Usage {
    /// Input and output tokens.
    pub fn tokens(&self) -> u64 {
        self.input_tokens.saturating_add(self.output_tokens)
    }

    /// Input tokens for each output token; absent where there were none.
    pub fn input_output_ratio(&self) -> Option<f64> {
        (self.output_tokens > 0).then(|| self.input_tokens as f64 / self.output_tokens as f64)
    }

    /// Money in this currency, on this basis.
    pub fn spent(&self, currency: Currency, basis: Basis) -> Option<&Spent> {
        self.cost
            .iter()
            .find(|spent| (spent.currency, spent.basis) == (currency, basis))
    }

    /// Adds what more was used. `false`: some money was of more currencies than one key may have.
    pub fn add(&mut self, more: &Usage) -> bool {
        add(&mut self.requests, more.requests);
        add(&mut self.failed, more.failed);
        add(&mut self.input_tokens, more.input_tokens);
        add(&mut self.output_tokens, more.output_tokens);
        add_known(&mut self.cached_input_tokens, more.cached_input_tokens);
        add_known(&mut self.reasoning_tokens, more.reasoning_tokens);
        add_known(&mut self.near_context_limit, more.near_context_limit);
        let mut kept = true;
        for spent in &more.cost {
            kept &= self.spend(spent);
        }
        kept
    }

    /// Adds money. `false`: there are too many currencies.
    pub fn spend(&mut self, more: &Spent) -> bool {
        let key = |spent: &Spent| (spent.currency, spent.basis);
        match self.cost.binary_search_by_key(&key(more), key) {
            Ok(at) => {
                let spent = &mut self.cost[at];
                spent.amount += more.amount;
                spent.saved += more.saved;
            }
            Err(_) if self.cost.len() >= MAX_MONEY => return false,
            Err(at) => self.cost.insert(at, *more),
        }
        true
    }
}

fn add(sum: &mut u64, more: u64) {
    *sum = sum.saturating_add(more);
}

fn add_known(sum: &mut Option<u64>, more: Option<u64>) {
    if let Some(more) = more {
        *sum = Some(sum.unwrap_or(0).saturating_add(more));
    }
}

//! The heaviest requests: those with most tokens, and those that cost most.
//!
//! Owns: a few of each, exactly the heaviest of all that were given. Refuses: content, which records do not have either.

use super::usage::Spent;
use crate::RequestRecord;
use crate::money::Amount;
use serde::{Deserialize, Serialize};
use std::{cmp::Ordering, sync::Arc};

/// Requests that are kept in each order, in each bucket.
pub const MAX_HEAVY: usize = 32;

/// A request, as far as it matters here.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Heavy {
    /// Unix time at which it ended, seconds.
    pub ended: u64,
    /// Its record's id.
    pub id: String,
    /// Its trace id.
    pub trace_id: String,
    /// Engine instance id.
    pub engine: Arc<str>,
    /// Served model.
    pub model: Arc<str>,
    /// Scene.
    pub scene: Arc<str>,
    /// Client's address, where it is known.
    pub client: Option<Arc<str>>,
    /// Prompt tokens.
    pub input_tokens: Option<u64>,
    /// Generated tokens.
    pub output_tokens: Option<u64>,
    /// What it cost.
    pub cost: Vec<Spent>,
}

impl Heavy {
    /// What of a record matters here; `ended`: Unix time, seconds.
    pub fn of(ended: u64, record: &RequestRecord) -> Heavy {
        Heavy {
            ended,
            id: record.id.clone(),
            trace_id: record.trace_id.clone(),
            engine: Arc::clone(&record.engine),
            model: Arc::clone(&record.model),
            scene: Arc::clone(&record.scene),
            client: record.client.map(|address| address.to_string().into()),
            input_tokens: record.input_tokens,
            output_tokens: record.output_tokens,
            cost: record.cost.iter().map(Spent::of).collect(),
        }
    }

    /// Input and output tokens, as far as they are known.
    pub fn tokens(&self) -> u64 {
        let known = |tokens: Option<u64>| tokens.unwrap_or(0);
        known(self.input_tokens).saturating_add(known(self.output_tokens))
    }

    /// The largest amount that it cost. Amounts in several currencies can't be compared; a node that has several gets
    /// the order of their numbers.
    fn most(&self) -> Amount {
        let amounts = self.cost.iter().map(|spent| spent.amount);
        amounts.max().unwrap_or_default()
    }
}

/// What makes a request heavy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Input and output tokens.
    Tokens,
    /// Money.
    Cost,
}

impl Order {
    /// Both.
    pub const ALL: [Order; 2] = [Order::Tokens, Order::Cost];

    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Order::Tokens => "tokens",
            Order::Cost => "cost",
        }
    }

    /// The order of this name.
    pub fn named(name: &str) -> Option<Order> {
        Order::ALL.into_iter().find(|order| order.as_str() == name)
    }

    /// The heavier first; of two as heavy, the later.
    fn compare(self, a: &Heavy, b: &Heavy) -> Ordering {
        let heavier = match self {
            Order::Tokens => b.tokens().cmp(&a.tokens()),
            Order::Cost => b.most().cmp(&a.most()),
        };
        heavier.then(b.ended.cmp(&a.ended)).then(b.id.cmp(&a.id))
    }

    fn counts(self, heavy: &Heavy) -> bool {
        match self {
            Order::Tokens => heavy.tokens() > 0,
            Order::Cost => !heavy.most().is_zero(),
        }
    }
}

/// The heaviest of one bucket, or of several.
#[derive(Debug, Clone, Default)]
pub(super) struct Heaviest {
    /// By [`Order::ALL`].
    kept: [Vec<Arc<Heavy>>; 2],
}

impl Heaviest {
    /// Takes a request.
    pub(super) fn push(&mut self, heavy: &Arc<Heavy>) {
        for (order, kept) in Order::ALL.into_iter().zip(&mut self.kept) {
            if !order.counts(heavy) {
                continue;
            }
            let at = kept.partition_point(|other| order.compare(other, heavy).is_lt());
            if at < MAX_HEAVY {
                kept.insert(at, Arc::clone(heavy));
                kept.truncate(MAX_HEAVY);
            }
        }
    }

    /// Those of this order, the heaviest first.
    pub(super) fn by(&self, order: Order) -> &[Arc<Heavy>] {
        &self.kept[order as usize]
    }
}

/// The heaviest of several lists, the heaviest first.
pub(super) fn merge<'a>(
    order: Order,
    lists: impl Iterator<Item = &'a Heaviest>,
    admits: &dyn Fn(&Heavy) -> bool,
    limit: usize,
) -> Vec<Arc<Heavy>> {
    let all = lists.flat_map(|list| list.by(order));
    let mut all: Vec<Arc<Heavy>> = all.filter(|heavy| admits(heavy)).cloned().collect();
    all.sort_by(|a, b| order.compare(a, b));
    all.truncate(limit);
    all
}

//! What growth comes from: the last hours against those before them.
//!
//! Owns: the shares of scenes, models and clients in it, and whether each made more requests or larger ones. Refuses:
//! guessing: where a client's requests of either time are not known, neither is said.
//!
//! Tokens are requests times tokens a request. Their growth is split so that the two parts add up to it: a change of the
//! number counts with the mean of both sizes, a change of the size with the mean of both numbers.

use super::key::By;
use super::report::{Window, sums};
use super::top::{Heavy, Order};
use super::usage::Usage;
use super::{BUCKET, HOURS, Ledger};
use crate::money::{Basis, Currency};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Requests that are named.
const REQUESTS: usize = 10;

/// A number then and now.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// In the earlier window.
    pub before: f64,
    /// In the later one.
    pub now: f64,
    /// Now less before.
    pub growth: f64,
    /// Growth as a part of what was before; absent where that was nothing.
    pub ratio: Option<f64>,
}

impl Change {
    fn new(before: f64, now: f64) -> Change {
        let growth = now - before;
        Change {
            before,
            now,
            growth,
            ratio: (before > 0.0).then(|| growth / before),
        }
    }
}

/// Money then and now, in one currency on one basis.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MoneyChange {
    /// Currency.
    pub currency: Currency,
    /// What it is the price of.
    pub basis: Basis,
    /// How much.
    #[serde(flatten)]
    pub change: Change,
}

/// What most of a change of tokens is due to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Because {
    /// There were more requests.
    MoreRequests,
    /// Requests had more tokens.
    LargerRequests,
    /// There were fewer requests.
    FewerRequests,
    /// Requests had fewer tokens.
    SmallerRequests,
}

impl Because {
    /// In words.
    pub const fn as_str(self) -> &'static str {
        match self {
            Because::MoreRequests => "more requests",
            Because::LargerRequests => "larger requests",
            Because::FewerRequests => "fewer requests",
            Because::SmallerRequests => "smaller requests",
        }
    }
}

/// What one scene, model or client has to do with the growth.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Contribution {
    /// Scene, model or client.
    pub by: By,
    /// Which.
    pub name: String,
    /// Its tokens.
    pub tokens: Change,
    /// Its part of all growth of tokens: 1 is all of it, less than 0 is against it. Absent where nothing grew.
    pub share: Option<f64>,
    /// Its requests.
    pub requests: Change,
    /// Tokens that grew because there were more requests; absent where no request ended in either window.
    pub by_requests: Option<f64>,
    /// Tokens that grew because requests were larger.
    pub by_size: Option<f64>,
    /// The larger part, in the direction of its growth.
    pub because: Option<Because>,
    /// Its money.
    pub cost: Vec<MoneyChange>,
}

/// Growth of usage and what it comes from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Growth {
    /// The earlier window.
    pub before: Window,
    /// The later one: it ends with the last bucket that is over.
    pub now: Window,
    /// Both windows were observed from their beginning; where not, growth may be that of what was observed.
    pub complete: bool,
    /// All tokens.
    pub tokens: Change,
    /// All requests.
    pub requests: Change,
    /// All money.
    pub cost: Vec<MoneyChange>,
    /// Who it comes from, by scene, model and client: in each, those first that moved most in the direction of the whole.
    pub contributions: Vec<Contribution>,
    /// The heaviest requests of the later window whose scene and model grew.
    pub heaviest: Vec<Arc<Heavy>>,
}

impl Ledger {
    /// The last `hours` hours (1 to 24) against as many before them; of each dimension the `limit` largest contributions.
    pub fn growth(&self, now: u64, hours: u64, limit: usize) -> Growth {
        let length = (hours * 3600).clamp(BUCKET, HOURS / 2);
        let to = self.hours.start(now);
        let middle = to.saturating_sub(length);
        let later = Window { from: middle, to };
        let earlier = Window {
            from: middle.saturating_sub(length),
            to: middle,
        };
        let mut contributions = Vec::new();
        // Names that grew, by scene and by model.
        let mut grown = [BTreeSet::new(), BTreeSet::new()];
        let mut totals = (Usage::default(), Usage::default());
        for by in By::ALL {
            let (before, before_total) = sums(&self.hours, earlier, by);
            let (after, after_total) = sums(&self.hours, later, by);
            let whole = after_total.tokens() as f64 - before_total.tokens() as f64;
            let names: BTreeSet<&str> = before.keys().chain(after.keys()).copied().collect();
            let nothing = Usage::default();
            let of = |name: &str| {
                let (before, after) = (before.get(name), after.get(name));
                contribution(
                    by,
                    name,
                    before.unwrap_or(&nothing),
                    after.unwrap_or(&nothing),
                    whole,
                )
            };
            let mut all: Vec<Contribution> = names.into_iter().map(of).collect();
            let direction = if whole < 0.0 { -1.0 } else { 1.0 };
            let moved = |one: &Contribution| direction * one.tokens.growth;
            all.sort_by(|a, b| moved(b).total_cmp(&moved(a)).then_with(|| a.name.cmp(&b.name)));
            if let Some(grown) = grown.get_mut(by as usize) {
                let names = all.iter().filter(|one| one.tokens.growth > 0.0);
                *grown = names.map(|one| one.name.clone()).collect();
            }
            all.truncate(limit);
            contributions.extend(all);
            totals = (before_total, after_total);
        }
        let (before, after) = totals;
        let [scenes, models] = &grown;
        let explains = |heavy: &Heavy| scenes.contains(&*heavy.scene) && models.contains(&*heavy.model);
        Growth {
            before: earlier,
            now: later,
            complete: self.since.is_some_and(|since| since <= earlier.from),
            tokens: Change::new(before.tokens() as f64, after.tokens() as f64),
            requests: Change::new(before.requests as f64, after.requests as f64),
            cost: money(&before, &after),
            contributions,
            heaviest: self.heaviest_of(later, Order::Tokens, &explains, REQUESTS),
        }
    }
}

fn contribution(by: By, name: &str, before: &Usage, now: &Usage, whole: f64) -> Contribution {
    let tokens = Change::new(before.tokens() as f64, now.tokens() as f64);
    let requests = Change::new(before.requests as f64, now.requests as f64);
    let parts = parts(tokens, requests);
    let because = parts
        .filter(|_| tokens.growth != 0.0)
        .map(|(by_requests, by_size)| {
            let more = tokens.growth > 0.0;
            let number = if more {
                by_requests >= by_size
            } else {
                by_requests <= by_size
            };
            match (more, number) {
                (true, true) => Because::MoreRequests,
                (true, false) => Because::LargerRequests,
                (false, true) => Because::FewerRequests,
                (false, false) => Because::SmallerRequests,
            }
        });
    Contribution {
        by,
        name: name.to_owned(),
        share: (whole != 0.0).then(|| tokens.growth / whole),
        by_requests: parts.map(|parts| parts.0),
        by_size: parts.map(|parts| parts.1),
        because,
        cost: money(before, now),
        tokens,
        requests,
    }
}

/// Growth of tokens by the number of requests and by their size. Where one window has no request, its requests are taken
/// to be of the other's size: it is all by number.
fn parts(tokens: Change, requests: Change) -> Option<(f64, f64)> {
    let size = |tokens: f64, requests: f64| (requests > 0.0).then(|| tokens / requests);
    let before = size(tokens.before, requests.before);
    let now = size(tokens.now, requests.now);
    let (before, now) = (before.or(now)?, now.or(before)?);
    let by_requests = requests.growth * f64::midpoint(before, now);
    Some((by_requests, tokens.growth - by_requests))
}

/// Every currency and basis that either has.
fn money(before: &Usage, now: &Usage) -> Vec<MoneyChange> {
    let all = before.cost.iter().chain(&now.cost);
    let names: BTreeSet<(Currency, Basis)> = all.map(|spent| (spent.currency, spent.basis)).collect();
    let change = |(currency, basis): (Currency, Basis)| {
        let amount = |usage: &Usage| {
            usage
                .spent(currency, basis)
                .map_or(0.0, |spent| spent.amount.units())
        };
        MoneyChange {
            currency,
            basis,
            change: Change::new(amount(before), amount(now)),
        }
    };
    names.into_iter().map(change).collect()
}

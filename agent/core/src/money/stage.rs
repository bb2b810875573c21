//! Between the pipeline and who exports: charges for the tokens that were told.
//!
//! Owns: which price a request keeps, and what of its cost was charged while it streamed. Refuses: prices (`price`).
//!
//! Output is charged as it streams, so that a long answer is seen to cost while it lasts and a broken one is paid for;
//! the rest when the record is told, which waits until its counts are final. A request keeps the price that its model had
//! when its first tokens were told: a price that changes in between neither takes a charge back nor adds one.

use super::{
    amount::Amount,
    charge::{Basis, Charge, ChargeKind, Counts},
    gpu::GpuPrice,
    price::{Day, Price, PriceBook},
};
use crate::{
    Observation,
    observation::{Finished, Labels, TokenDirection},
};
use std::{
    collections::{HashMap, hash_map::Entry},
    net::IpAddr,
    sync::Arc,
};

/// Models whose price is kept at hand; past it they are looked up anew.
const MAX_KNOWN: usize = 4096;

/// A request of which tokens were told. Each is forgotten with its `Finished`, so there are no more than requests that the
/// pipeline holds.
#[derive(Debug)]
struct Open {
    /// Absent: its tokens have none.
    price: Option<Arc<Price>>,
    /// What was charged for output so far, and for how many tokens.
    output: Amount,
    tokens: u64,
}

/// The stage: observations in, the same with charges and costs out.
#[derive(Debug, Default)]
pub struct Money {
    book: Arc<PriceBook>,
    gpu: Option<GpuPrice>,
    day: Day,
    /// Model → its price on `day`.
    known: HashMap<Arc<str>, Option<Arc<Price>>>,
    open: HashMap<u64, Open>,
    charges: Vec<Observation>,
}

impl Money {
    /// A stage with these prices. With none it does nothing.
    pub fn new(book: Arc<PriceBook>) -> Money {
        Money {
            book,
            ..Money::default()
        }
    }

    /// Other prices from now on. Requests of which tokens were told keep theirs.
    pub fn set_prices(&mut self, book: Arc<PriceBook>) {
        self.book = book;
        self.known.clear();
    }

    /// What GPUs cost from now on; nothing is known of that without.
    pub fn set_gpu_price(&mut self, price: Option<GpuPrice>) {
        self.gpu = price;
    }

    /// Requests whose price is kept.
    pub fn open_requests(&self) -> usize {
        self.open.len()
    }

    /// Adds the charges for what was observed, and fills the costs of records. `unix_ms`: now, milliseconds since 1970.
    pub fn apply(&mut self, unix_ms: u64, observations: &mut Vec<Observation>) {
        if self.book.is_empty() && self.open.is_empty() && self.gpu.is_none() {
            return;
        }
        let day = Day::of_unix_ms(unix_ms);
        if day != self.day {
            self.day = day;
            self.known.clear();
        }
        for observation in observations.iter_mut() {
            match observation {
                Observation::Tokens {
                    request,
                    labels,
                    client,
                    direction,
                    count,
                } => self.tokens(*request, (&*labels, *client), *direction, *count),
                Observation::Finished(finished) => self.finished(finished),
                Observation::Gpu(share) => {
                    let charge = self.gpu.and_then(|price| price.charge(share));
                    self.charges
                        .extend(charge.map(|charge| Observation::Charge(Box::new(charge))));
                }
                _ => {}
            }
        }
        observations.append(&mut self.charges);
    }

    fn price(&mut self, model: &Arc<str>) -> Option<Arc<Price>> {
        if let Some(known) = self.known.get(model) {
            return known.clone();
        }
        if self.known.len() >= MAX_KNOWN {
            self.known.clear();
        }
        let price = self.book.price(model, self.day).cloned();
        self.known.insert(Arc::clone(model), price.clone());
        price
    }

    fn tokens(
        &mut self,
        request: u64,
        (labels, client): (&Labels, Option<IpAddr>),
        direction: TokenDirection,
        count: u64,
    ) {
        if !self.open.contains_key(&request) {
            // Without prices nothing is missed: only who asks for prices is told what has none.
            if self.book.is_empty() {
                return;
            }
            let open = Open {
                price: self.price(&labels.model),
                output: Amount::ZERO,
                tokens: 0,
            };
            self.open.insert(request, open);
        }
        let Entry::Occupied(mut open) = self.open.entry(request) else {
            return;
        };
        let open = open.get_mut();
        match (&open.price, direction) {
            (None, direction) => self.charges.push(Observation::Unpriced {
                labels: labels.clone(),
                direction,
                count,
            }),
            (Some(price), TokenDirection::Output) => {
                let amount = price.output.times(count);
                open.output += amount;
                open.tokens = open.tokens.saturating_add(count);
                self.charges.push(Observation::Charge(Box::new(Charge {
                    request: Some(request),
                    labels: labels.clone(),
                    client,
                    basis: Basis::Tokens,
                    currency: price.currency,
                    kind: ChargeKind::Output,
                    amount,
                    tokens: count,
                    saved: Amount::ZERO,
                })));
            }
            // Which of them are cached is known at the end.
            (Some(_), TokenDirection::Input) => {}
        }
    }

    fn finished(&mut self, finished: &mut Finished) {
        let counts = Counts::of(&finished.record);
        let open = match self.open.remove(&finished.id) {
            Some(open) => open,
            None if counts.is_empty() || self.book.is_empty() => return,
            None => Open {
                price: self.price(&finished.labels.model),
                output: Amount::ZERO,
                tokens: 0,
            },
        };
        let Some(price) = &open.price else { return };
        let parts = price.parts(counts);
        if !counts.is_empty() {
            finished.record.cost = Some(parts.cost(price.currency));
        }
        let [computed, cached, plain, reasoning] = counts.apart();
        let mut rest = |kind, amount: Option<Amount>, tokens: Option<u64>, charged: (Amount, u64)| {
            let (whole, all) = (amount.unwrap_or_default(), tokens.unwrap_or(0));
            let (amount, tokens) = (whole.minus(charged.0), all.saturating_sub(charged.1));
            if tokens > 0 || !amount.is_zero() {
                let saved = match kind {
                    ChargeKind::CachedInput => parts.saved.unwrap_or_default(),
                    _ => Amount::ZERO,
                };
                self.charges.push(Observation::Charge(Box::new(Charge {
                    request: Some(finished.id),
                    labels: finished.labels.clone(),
                    client: finished.record.client,
                    basis: Basis::Tokens,
                    currency: price.currency,
                    kind,
                    amount,
                    tokens,
                    saved,
                })));
            }
            // What was charged beyond it is of the next part.
            (charged.0.minus(whole), charged.1.saturating_sub(all))
        };
        let none = (Amount::ZERO, 0);
        rest(ChargeKind::Input, parts.input, computed, none);
        rest(ChargeKind::CachedInput, parts.cached_input, cached, none);
        let beyond = rest(
            ChargeKind::Output,
            parts.output,
            plain,
            (open.output, open.tokens),
        );
        rest(ChargeKind::Reasoning, parts.reasoning, reasoning, beyond);
    }
}

//! The price book: what tokens of a model cost, and from which day on.
//!
//! Owns: which price is a model's on a day. Refuses: the text of a configuration file (the agent's), counting tokens.

use super::{
    amount::{Currency, Rate},
    charge::{Counts, Parts},
};
use crate::scene::glob;
use std::{str::FromStr, sync::Arc};

/// Most prices in a book.
pub const MAX_PRICES: usize = 1024;
/// Longest pattern of models, bytes.
const MAX_PATTERN: usize = 256;

/// A day in UTC, by how many came since 1970-01-01.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Day(u32);

/// No date.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no date: write it as in \"2026-01-31\"")]
pub struct BadDate(String);

impl Day {
    /// That of so many milliseconds since 1970.
    pub fn of_unix_ms(unix_ms: u64) -> Day {
        Day(u32::try_from(unix_ms / 86_400_000).unwrap_or(u32::MAX))
    }
}

impl FromStr for Day {
    type Err = BadDate;

    fn from_str(text: &str) -> Result<Day, BadDate> {
        let bad = || BadDate(text.chars().take(32).collect());
        let bytes = text.as_bytes();
        if bytes.len() != 10 || bytes[4] != b'-' || bytes[7] != b'-' {
            return Err(bad());
        }
        let number = |from: usize, to: usize| -> Option<u32> {
            let digits = text.get(from..to)?;
            digits
                .bytes()
                .all(|byte| byte.is_ascii_digit())
                .then(|| digits.parse().ok())?
        };
        let (Some(year), Some(month), Some(day)) = (number(0, 4), number(5, 7), number(8, 10)) else {
            return Err(bad());
        };
        let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let lengths = [31, 28 + u32::from(leap), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        let Some(length) = (month as usize)
            .checked_sub(1)
            .and_then(|month| lengths.get(month))
        else {
            return Err(bad());
        };
        if year < 1970 || !(1..=*length).contains(&day) {
            return Err(bad());
        }
        let before = |year: u32| {
            let years = year - 1;
            years * 365 + years / 4 - years / 100 + years / 400
        };
        let months: u32 = lengths[..month as usize - 1].iter().sum();
        Ok(Day(before(year) - before(1970) + months + day - 1))
    }
}

/// What tokens of some models cost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Price {
    /// Served models: a pattern, in which `*` stands for any characters and `?` for one.
    pub model: String,
    /// What it is in.
    pub currency: Currency,
    /// A prompt token that was computed.
    pub input: Rate,
    /// A prompt token from the prefix cache.
    pub cached_input: Rate,
    /// A generated token.
    pub output: Rate,
    /// A generated token of reasoning.
    pub reasoning: Rate,
    /// From when on, 00:00 UTC; always when absent.
    pub valid_from: Option<Day>,
}

/// A price as it is written, units of the currency a million tokens.
#[derive(Debug, Clone, Copy, Default)]
pub struct PriceText<'a> {
    /// [`Price::model`].
    pub model: &'a str,
    /// The code.
    pub currency: &'a str,
    /// Must be given.
    pub input: Option<f64>,
    /// Absent: as `input`.
    pub cached_input: Option<f64>,
    /// Must be given.
    pub output: Option<f64>,
    /// Absent: as `output`.
    pub reasoning: Option<f64>,
    /// A date, as in `2026-01-31`.
    pub valid_from: Option<&'a str>,
}

impl PriceText<'_> {
    /// The price.
    ///
    /// # Errors
    /// What is wrong with it, and what would be right.
    pub fn price(&self) -> Result<Price, String> {
        if self.model.is_empty() || self.model.len() > MAX_PATTERN {
            return Err(format!(
                "model is missing or longer than {MAX_PATTERN} bytes: name a served model or a pattern, as in \"llama-*\""
            ));
        }
        if self.currency.is_empty() {
            return Err("currency is missing: write its code, as in \"USD\"".to_owned());
        }
        let rate = |name: &str, units: f64| {
            Rate::per_million(units)
                .map_err(|reason| format!("{name}: {reason}, units of the currency a million tokens"))
        };
        let must = |name: &str, units: Option<f64>| match units {
            Some(units) => rate(name, units),
            None => Err(format!(
                "{name} is missing: write what a million tokens cost; 0 where they are free"
            )),
        };
        let (input, output) = (must("input", self.input)?, must("output", self.output)?);
        let or = |name, units: Option<f64>, other| units.map_or(Ok(other), |units| rate(name, units));
        let cached_input = or("cached_input", self.cached_input, input)?;
        if cached_input > input {
            return Err("cached_input is more than input: the cache is a discount".to_owned());
        }
        Ok(Price {
            model: self.model.to_owned(),
            currency: self
                .currency
                .parse()
                .map_err(|error| format!("currency: {error}"))?,
            input,
            cached_input,
            output,
            reasoning: or("reasoning", self.reasoning, output)?,
            valid_from: match self.valid_from {
                Some(text) => Some(text.parse().map_err(|error| format!("valid_from: {error}"))?),
                None => None,
            },
        })
    }
}

impl Price {
    /// What tokens cost, each kind apart.
    pub(super) fn parts(&self, counts: Counts) -> Parts {
        let [computed, cached, plain, reasoning] = counts.apart();
        Parts {
            input: computed.map(|tokens| self.input.times(tokens)),
            cached_input: cached.map(|tokens| self.cached_input.times(tokens)),
            output: plain.map(|tokens| self.output.times(tokens)),
            reasoning: reasoning.map(|tokens| self.reasoning.times(tokens)),
            saved: cached.map(|tokens| self.input.times(tokens).minus(self.cached_input.times(tokens))),
        }
    }
}

/// Prices of one pattern, the latest first.
#[derive(Debug, PartialEq)]
struct Group {
    prices: Vec<Arc<Price>>,
}

/// The prices, in order.
#[derive(Debug, Default, PartialEq)]
pub struct PriceBook {
    groups: Vec<Group>,
}

/// Why a book was refused: which price (from 0), and what would be right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct BadPrices {
    /// Index of the price.
    pub price: usize,
    /// What is wrong with it.
    pub reason: String,
}

impl PriceBook {
    /// Takes prices in their order.
    ///
    /// # Errors
    /// There are too many, two are for the same pattern from the same day on, or one can never be a model's because one
    /// before it always is.
    pub fn new(prices: Vec<Price>) -> Result<PriceBook, BadPrices> {
        let mut book = PriceBook::default();
        let mut always: Vec<(usize, String)> = Vec::new();
        for (index, price) in prices.into_iter().enumerate() {
            let refuse = |reason: String| Err(BadPrices { price: index, reason });
            if index == MAX_PRICES {
                return refuse(format!("there are more than {MAX_PRICES} prices"));
            }
            let covers = |pattern: &str| {
                // A pattern read as text: what a star of it stands for is only what another star takes.
                pattern != price.model && !pattern.contains('?') && glob(pattern, &price.model)
            };
            if let Some((before, pattern)) = always.iter().find(|(_, pattern)| covers(pattern)) {
                return refuse(format!(
                    "it can never be a model's: price {} before it, for {pattern:?}, is of every model that {:?} names; move \
                     that one behind it",
                    before + 1,
                    price.model
                ));
            }
            if price.valid_from.is_none() {
                always.push((index, price.model.clone()));
            }
            let known = book
                .groups
                .iter_mut()
                .find(|group| group.prices.iter().any(|other| other.model == price.model));
            let group = if let Some(group) = known {
                group
            } else {
                book.groups.push(Group { prices: Vec::new() });
                let Some(group) = book.groups.last_mut() else {
                    continue;
                };
                group
            };
            if group
                .prices
                .iter()
                .any(|other| other.valid_from == price.valid_from)
            {
                return refuse(format!(
                    "a price for {:?} from the same day on is before it: give this one another valid_from, or remove one",
                    price.model
                ));
            }
            // An absent day is before all others.
            let place = group
                .prices
                .partition_point(|other| other.valid_from > price.valid_from);
            group.prices.insert(place, Arc::new(price));
        }
        Ok(book)
    }

    /// There is none: nothing is priced.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// The price of a model on a day: of the first pattern that matches and has one by then, the latest.
    pub fn price(&self, model: &str, day: Day) -> Option<&Arc<Price>> {
        let matching = self.groups.iter().filter(|group| {
            let pattern = group.prices.first().map(|price| &*price.model);
            pattern.is_some_and(|pattern| glob(pattern, model))
        });
        matching
            .flat_map(|group| &group.prices)
            .find(|price| price.valid_from.is_none_or(|from| from <= day))
    }
}

//! `[[price]]`: the price book.
//!
//! Owns: the section, and the places of its mistakes. Refuses: which price is a model's, and what requests cost (the
//! core's `money`).

use crate::config_section;
use infertap_core::money::{PriceBook, PriceText};

config_section! {
    /// What tokens of a model cost. Of the first pattern that names the model, the price with the latest valid_from that
    /// has come holds; a request keeps the price that it began with. With no price at all nothing is priced; with some,
    /// llm_unpriced_tokens_total counts the tokens of models that have none. Prices are read again on SIGHUP and when the
    /// file changes. See docs/cost.md.
    pub struct PriceConfig {
        /// Served models: a name or a pattern, in which * stands for any characters and ? for one.
        pub model: String = String::new(),
        /// Code of the currency: three upper-case letters, as in "USD".
        pub currency: String = String::new(),
        /// A million prompt tokens, in units of the currency, with six decimals at most; as all prices are.
        pub input: Option<f64> = None,
        /// A million prompt tokens that came from the prefix cache. Without it, as input.
        pub cached_input: Option<f64> = None,
        /// A million generated tokens.
        pub output: Option<f64> = None,
        /// A million generated tokens of reasoning. Without it, as output.
        pub reasoning: Option<f64> = None,
        /// The day from which on it holds, 00:00 UTC, as in "2026-01-31". Without it, always.
        pub valid_from: Option<String> = None,
    }
}

impl PriceConfig {
    /// What the sample file shows.
    pub const EXAMPLE: &'static str = "model = \"llama-*\"\ncurrency = \"USD\"\ninput = 0.6\ncached_input = 0.06\noutput = 2.4\nvalid_from = \"2026-01-01\"\n";

    fn text(&self) -> PriceText<'_> {
        PriceText {
            model: &self.model,
            currency: &self.currency,
            input: self.input,
            cached_input: self.cached_input,
            output: self.output,
            reasoning: self.reasoning,
            valid_from: self.valid_from.as_deref(),
        }
    }
}

/// The book, for the core.
///
/// # Errors
/// Every price that is refused: its key, and why and what would be right.
pub(super) fn book(prices: &[PriceConfig]) -> Result<PriceBook, Vec<(String, String)>> {
    let key = |index: usize| format!("price[{index}]");
    let (mut book, mut bad) = (Vec::new(), Vec::new());
    for (index, price) in prices.iter().enumerate() {
        match price.text().price() {
            Ok(price) => book.push(price),
            Err(reason) => bad.push((key(index), reason)),
        }
    }
    if !bad.is_empty() {
        return Err(bad);
    }
    PriceBook::new(book).map_err(|error| vec![(key(error.price), error.reason)])
}

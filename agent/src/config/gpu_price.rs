//! `[gpu_price]`: what GPUs cost.
//!
//! Owns: the section, and its mistakes. Refuses: whose a GPU's time was (the core's).

use crate::config_section;
use infertap_core::money::{Currency, GpuPrice};

config_section! {
    /// What a GPU of this host costs, so that it can be set beside what its tokens would have cost: llm_cost_total with the
    /// basis "gpu". Read again on SIGHUP and when the file changes. See docs/cost.md.
    pub struct GpuPriceSection {
        /// An hour of one GPU (of one instance, where GPUs are cut into MIG instances), in units of the currency, with six
        /// decimals at most; 0: not known.
        pub per_hour: f64 = 0.0,
        /// Code of the currency: three upper-case letters.
        pub currency: String = "USD".to_owned(),
    }
}

impl GpuPriceSection {
    /// The price; none where it is 0.
    ///
    /// # Errors
    /// The key, and what would be right.
    pub(super) fn price(&self) -> Result<Option<GpuPrice>, (String, String)> {
        let bad = |key: &str, reason: String| (format!("gpu_price.{key}"), reason);
        let currency: Currency = self
            .currency
            .parse()
            .map_err(|error| bad("currency", format!("{error}")))?;
        let price = GpuPrice::per_hour(currency, self.per_hour).map_err(|reason| bad("per_hour", reason))?;
        Ok((self.per_hour > 0.0).then_some(price))
    }
}

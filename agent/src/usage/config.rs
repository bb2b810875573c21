//! `[usage]` and `[[context_limit]]`: what the ledger keeps, and how much models hold.
//!
//! Owns: the sections and their ranges. Refuses: limits that are found (`discover`).

use crate::config::Span;
use crate::config_section;
use infertap_core::ledger::{ContextLimits, LedgerConfig};

config_section! {
    /// Who used how much, when: what `infertap cost` and /api/v1/cost tell. See docs/cost.md.
    pub struct UsageConfig {
        /// Combinations of model, scene and client that one span of time (15 minutes, or a day) tells apart; 10 to 10000.
        /// What comes past them is told as "other".
        pub max_keys: usize = 1000,
        /// How long daily usage is kept; 2d to 400d. Within the last two days usage is kept by 15 minutes.
        pub retention: Span = Span::seconds(90 * 86_400),
        /// Part of the model's context limit from which on a request counts in llm_near_context_limit_total; 0.1 to 1.
        pub near_context_limit: f64 = 0.9,
    }
}

impl UsageConfig {
    /// What is out of its range: key, and why and what would be right.
    pub fn invalid(&self) -> Vec<(String, String)> {
        let mut out = Vec::new();
        let mut require = |ok: bool, key: &str, reason: String| {
            if !ok {
                out.push((format!("usage.{key}"), reason));
            }
        };
        let keys = self.max_keys;
        require(
            (10..=10_000).contains(&keys),
            "max_keys",
            format!("{keys} is not within 10 to 10000"),
        );
        let retention = self.retention;
        require(
            (2..=400).contains(&self.days()),
            "retention",
            format!("{retention} is not within 2d to 400d"),
        );
        let near = self.near_context_limit;
        require(
            (0.1..=1.0).contains(&near),
            "near_context_limit",
            format!("{near} is not within 0.1 to 1"),
        );
        out
    }

    fn days(&self) -> u64 {
        self.retention.duration().as_secs().div_ceil(86_400)
    }

    /// The ledger's bounds.
    pub fn ledger(&self) -> LedgerConfig {
        LedgerConfig {
            max_keys: self.max_keys,
            days: self.days(),
        }
    }

    /// The limits that are configured.
    pub fn limits(&self, configured: &[ContextLimitConfig]) -> ContextLimits {
        let configured = configured
            .iter()
            .map(|limit| (limit.model.clone(), limit.tokens))
            .collect();
        ContextLimits::new(configured, self.near_context_limit)
    }
}

/// Most rules.
const MAX_RULES: usize = 1000;

config_section! {
    /// How many tokens, input and output together, a request to a model may have. Without one, the engine's command line or
    /// the model's files tell, where they can be read. The first that matches a model decides.
    pub struct ContextLimitConfig {
        /// Pattern of served names; * stands for any characters and ? for one.
        pub model: String = String::new(),
        /// Most tokens of a request, input and output together.
        pub tokens: u64 = 0,
    }
}

impl ContextLimitConfig {
    /// What the sample file shows.
    pub const EXAMPLE: &'static str = "model = \"llama-3.1-*\"\ntokens = 131072\n";

    /// What is wrong with the rules: key, and why and what would be right.
    pub fn invalid(rules: &[ContextLimitConfig]) -> Vec<(String, String)> {
        let mut out = Vec::new();
        if rules.len() > MAX_RULES {
            out.push((
                format!("context_limit[{MAX_RULES}]"),
                format!("there are more than {MAX_RULES} rules; use patterns"),
            ));
        }
        for (index, rule) in rules.iter().enumerate() {
            let reason = match rule {
                rule if rule.model.is_empty() => {
                    "give the model's name or a pattern, as in model = \"llama-*\""
                }
                rule if rule.tokens == 0 => "give the limit, as in tokens = 131072",
                _ => continue,
            };
            out.push((format!("context_limit[{index}]"), reason.to_owned()));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_out_of_range_is_named() {
        assert_eq!(UsageConfig::default().invalid(), []);
        assert_eq!(UsageConfig::default().ledger(), LedgerConfig::default());
        let wrong = UsageConfig {
            max_keys: 1,
            retention: Span::seconds(3600),
            near_context_limit: 90.0,
        };
        let keys: Vec<String> = wrong.invalid().into_iter().map(|(key, _)| key).collect();
        assert_eq!(
            keys,
            ["usage.max_keys", "usage.retention", "usage.near_context_limit"]
        );
        let rule = |model: &str, tokens| ContextLimitConfig {
            model: model.to_owned(),
            tokens,
        };
        let rules = [rule("a-*", 10), rule("", 10), rule("b", 0)];
        let keys: Vec<String> = ContextLimitConfig::invalid(&rules)
            .into_iter()
            .map(|(key, _)| key)
            .collect();
        assert_eq!(keys, ["context_limit[1]", "context_limit[2]"]);
        let limits = UsageConfig::default().limits(&rules);
        assert_eq!(limits.of("e", "a-1").map(|limit| limit.tokens), Some(10));
    }
}

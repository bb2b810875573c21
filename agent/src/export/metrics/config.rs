//! `[metrics]`: caps on label values and histogram buckets.
//!
//! Owns: the section, its defaults and the ranges of its keys. Refuses: reading files (the agent's `config`).

use crate::config_section;

/// Most buckets that one histogram may have, `+Inf` not counted.
const MAX_BUCKETS: usize = 64;

/// Most values that one label may be allowed to have.
const MAX_CAP: usize = 10_000;

const PHASE: &[f64] = &[
    0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0,
];
const PER_TOKEN: &[f64] = &[
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.5,
];
const WHOLE: &[f64] = &[
    0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0,
];
const FIRST_TOKEN: &[f64] = &[
    0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 30.0, 60.0,
];
const TOKENIZER: &[f64] = &[
    0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0,
];
const TOKENS: &[f64] = &[
    1.0,
    4.0,
    16.0,
    64.0,
    256.0,
    1024.0,
    4096.0,
    16_384.0,
    65_536.0,
    262_144.0,
    1_048_576.0,
];

const STEP: &[f64] = &[
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];
const BATCH: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0];

config_section! {
    /// Labels and histogram buckets of /metrics. A label has a hard cap on its values, which bounds the number of
    /// series; past it a value becomes "other", which infertap_label_overflow_total counts. Buckets are given by their
    /// upper bounds, ascending, 1 to 64 of them; +Inf is added.
    pub struct MetricsConfig {
        /// Distinct values that the model label may take, 1 to 10000; further ones become "other".
        pub max_models: usize = 100,
        /// Distinct values that the scene label may take, 1 to 10000; further ones become "other".
        pub max_scenes: usize = 50,
        /// Distinct values that the engine label may take at one time, 1 to 10000; further ones become "other".
        pub max_engines: usize = 64,
        /// Buckets of llm_ttft_seconds, seconds.
        pub ttft_buckets: Vec<f64> = FIRST_TOKEN.to_vec(),
        /// Buckets of llm_tpot_seconds, seconds.
        pub tpot_buckets: Vec<f64> = PER_TOKEN.to_vec(),
        /// Buckets of llm_itl_seconds, seconds.
        pub itl_buckets: Vec<f64> = PER_TOKEN.to_vec(),
        /// Buckets of llm_e2e_latency_seconds, seconds.
        pub e2e_latency_buckets: Vec<f64> = WHOLE.to_vec(),
        /// Buckets of llm_queue_seconds, seconds.
        pub queue_buckets: Vec<f64> = PHASE.to_vec(),
        /// Buckets of llm_prefill_seconds, seconds.
        pub prefill_buckets: Vec<f64> = PHASE.to_vec(),
        /// Buckets of llm_decode_seconds, seconds.
        pub decode_buckets: Vec<f64> = WHOLE.to_vec(),
        /// Buckets of llm_tokenize_seconds, seconds.
        pub tokenize_buckets: Vec<f64> = TOKENIZER.to_vec(),
        /// Buckets of llm_request_input_tokens and llm_request_output_tokens, tokens.
        pub request_tokens_buckets: Vec<f64> = TOKENS.to_vec(),
        /// Buckets of llm_engine_step_seconds, seconds.
        pub engine_step_buckets: Vec<f64> = STEP.to_vec(),
        /// Buckets of llm_batch_size, requests.
        pub batch_size_buckets: Vec<f64> = BATCH.to_vec(),
    }
}

impl MetricsConfig {
    /// What is out of its range: key, and why and what would be right.
    pub fn invalid(&self) -> Vec<(String, String)> {
        let caps = [
            ("max_models", self.max_models),
            ("max_scenes", self.max_scenes),
            ("max_engines", self.max_engines),
        ];
        let caps = caps
            .into_iter()
            .filter(|(_, cap)| !(1..=MAX_CAP).contains(cap))
            .map(|(name, cap)| (name, format!("{cap} is not within 1 to {MAX_CAP}")));
        let buckets = self
            .buckets()
            .into_iter()
            .filter_map(|(name, bounds)| Some((name, check(bounds).err()?)));
        caps.chain(buckets)
            .map(|(name, reason)| (format!("metrics.{name}"), reason))
            .collect()
    }

    /// Every list of buckets, by key.
    pub(super) fn buckets(&self) -> [(&'static str, &[f64]); 11] {
        [
            ("ttft_buckets", &self.ttft_buckets),
            ("tpot_buckets", &self.tpot_buckets),
            ("itl_buckets", &self.itl_buckets),
            ("e2e_latency_buckets", &self.e2e_latency_buckets),
            ("queue_buckets", &self.queue_buckets),
            ("prefill_buckets", &self.prefill_buckets),
            ("decode_buckets", &self.decode_buckets),
            ("tokenize_buckets", &self.tokenize_buckets),
            ("request_tokens_buckets", &self.request_tokens_buckets),
            ("engine_step_buckets", &self.engine_step_buckets),
            ("batch_size_buckets", &self.batch_size_buckets),
        ]
    }
}

fn check(bounds: &[f64]) -> Result<(), String> {
    if bounds.is_empty() || bounds.len() > MAX_BUCKETS {
        return Err(format!(
            "{} buckets; give 1 to {MAX_BUCKETS} upper bounds",
            bounds.len()
        ));
    }
    if let Some(bad) = bounds.iter().find(|bound| !bound.is_finite()) {
        return Err(format!(
            "{bad} is no upper bound; give finite numbers (+Inf is added)"
        ));
    }
    if let Some([low, high]) = bounds.array_windows().find(|[low, high]| low >= high) {
        return Err(format!(
            "{low} is followed by {high}; give ascending upper bounds"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_valid_and_every_list_of_buckets_is_checked() {
        let mut config = MetricsConfig::default();
        assert_eq!(config.invalid(), []);
        let fields = toml::Table::try_from(&config).expect("serializes");
        let lists = fields.values().filter(|value| value.is_array()).count();
        assert_eq!(config.buckets().len(), lists);
        config.max_models = 0;
        config.request_tokens_buckets.clear();
        let keys: Vec<String> = config.invalid().into_iter().map(|(key, _)| key).collect();
        assert_eq!(keys, ["metrics.max_models", "metrics.request_tokens_buckets"]);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let long = format!("ttft_buckets = {:?}", (0..65).map(f64::from).collect::<Vec<_>>());
        for (text, expected) in [
            ("ttft_buckets = []", "0 buckets; give 1 to 64 upper bounds"),
            (&long, "65 buckets; give 1 to 64 upper bounds"),
            (
                "itl_buckets = [1.0, inf]",
                "inf is no upper bound; give finite numbers (+Inf is added)",
            ),
            (
                "itl_buckets = [nan]",
                "NaN is no upper bound; give finite numbers (+Inf is added)",
            ),
            (
                "request_tokens_buckets = [1, 4, 4]",
                "4 is followed by 4; give ascending upper bounds",
            ),
            ("max_models = 0", "0 is not within 1 to 10000"),
            ("max_engines = 10001", "10001 is not within 1 to 10000"),
        ] {
            let config: MetricsConfig = toml::from_str(text).expect("parses");
            let key = format!("metrics.{}", text.split(' ').next().expect("a key"));
            assert_eq!(config.invalid(), [(key, expected.to_owned())]);
        }
    }
}

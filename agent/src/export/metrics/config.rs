//! `[metrics]`: caps on label values and histogram buckets.
//!
//! Owns: the section, its defaults and its checks. Refuses: reading files (the agent's `config`).

use serde::{Deserialize, Serialize};

/// Most buckets that one histogram may have, `+Inf` not counted.
pub(super) const MAX_BUCKETS: usize = 64;

/// Most values that one label may be allowed to have.
pub(super) const MAX_CAP: usize = 10_000;

/// Section `[metrics.max_label_values]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LabelCaps {
    /// Distinct `model` values; further models are counted as `other`. 1 to 10000.
    pub model: usize,
    /// Distinct `scene` values; further scenes are counted as `other`. 1 to 10000.
    pub scene: usize,
    /// Distinct `engine` values at one time; further engines are counted as `other`. 1 to 10000.
    pub engine: usize,
}

impl Default for LabelCaps {
    fn default() -> Self {
        LabelCaps {
            model: 100,
            scene: 50,
            engine: 64,
        }
    }
}

/// Upper bounds of histogram buckets: ascending, finite, 1 to 64 of them; `+Inf` is added. Seconds, or tokens.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Buckets {
    /// Time to first token, seconds: `llm_ttft_seconds`.
    pub ttft: Vec<f64>,
    /// Time per output token, seconds: `llm_tpot_seconds`.
    pub tpot: Vec<f64>,
    /// Gap between tokens, seconds: `llm_itl_seconds`.
    pub itl: Vec<f64>,
    /// End to end, seconds: `llm_e2e_latency_seconds`.
    pub e2e: Vec<f64>,
    /// Wait for the scheduler, seconds: `llm_queue_seconds`.
    pub queue: Vec<f64>,
    /// Prompt processing, seconds: `llm_prefill_seconds`.
    pub prefill: Vec<f64>,
    /// Generation, seconds: `llm_decode_seconds`.
    pub decode: Vec<f64>,
    /// Tokenizer, seconds: `llm_tokenize_seconds`.
    pub tokenize: Vec<f64>,
    /// Tokens per request: `llm_request_input_tokens` and `llm_request_output_tokens`.
    pub tokens: Vec<f64>,
}

impl Default for Buckets {
    fn default() -> Self {
        let per_token = vec![
            0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.5,
        ];
        let phase = vec![
            0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0,
        ];
        let whole = vec![
            0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0,
        ];
        Buckets {
            ttft: vec![
                0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 30.0, 60.0,
            ],
            tpot: per_token.clone(),
            itl: per_token,
            e2e: whole.clone(),
            queue: phase.clone(),
            prefill: phase,
            decode: whole,
            tokenize: vec![
                0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0,
            ],
            tokens: (0..=10).map(|power| f64::from(4_u32.pow(power))).collect(),
        }
    }
}

/// Section `[metrics]`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MetricsConfig {
    /// Hard caps on label values, which bound the number of series. Past a cap a value becomes `other`, counted by
    /// `infertap_label_overflow_total`.
    pub max_label_values: LabelCaps,
    /// Histogram buckets.
    pub buckets: Buckets,
}

/// Why a section is refused. The message names the key and says what it may be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {problem}")]
pub struct ConfigError {
    /// The key, dotted, as in `metrics.buckets.ttft`.
    pub key: String,
    /// What is wrong with it and what it may be.
    pub problem: String,
}

impl MetricsConfig {
    /// Checks what types can't: ranges and order.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let LabelCaps { model, scene, engine } = self.max_label_values;
        for (label, cap) in [("model", model), ("scene", scene), ("engine", engine)] {
            if !(1..=MAX_CAP).contains(&cap) {
                return Err(ConfigError {
                    key: format!("metrics.max_label_values.{label}"),
                    problem: format!("{cap} is out of range; choose 1 to {MAX_CAP}"),
                });
            }
        }
        for (name, bounds) in self.buckets.named() {
            check(bounds).map_err(|problem| ConfigError {
                key: format!("metrics.buckets.{name}"),
                problem,
            })?;
        }
        Ok(())
    }
}

impl Buckets {
    fn named(&self) -> [(&'static str, &[f64]); 9] {
        [
            ("ttft", &self.ttft),
            ("tpot", &self.tpot),
            ("itl", &self.itl),
            ("e2e", &self.e2e),
            ("queue", &self.queue),
            ("prefill", &self.prefill),
            ("decode", &self.decode),
            ("tokenize", &self.tokenize),
            ("tokens", &self.tokens),
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
    fn the_defaults_are_valid_and_survive_toml() {
        let config = MetricsConfig::default();
        config.validate().expect("valid");
        let text = toml::to_string(&config).expect("serializes");
        assert_eq!(toml::from_str::<MetricsConfig>(&text).expect("parses"), config);
        assert_eq!(toml::from_str::<MetricsConfig>("").expect("all optional"), config);
        assert_eq!(config.buckets.tokens.last(), Some(&1_048_576.0));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let long = format!("buckets.ttft = {:?}", (0..65).map(f64::from).collect::<Vec<_>>());
        for (text, expected) in [
            (
                "buckets.ttft = []",
                "metrics.buckets.ttft: 0 buckets; give 1 to 64 upper bounds",
            ),
            (
                &long,
                "metrics.buckets.ttft: 65 buckets; give 1 to 64 upper bounds",
            ),
            (
                "buckets.itl = [1.0, inf]",
                "metrics.buckets.itl: inf is no upper bound; give finite numbers (+Inf is added)",
            ),
            (
                "buckets.itl = [nan]",
                "metrics.buckets.itl: NaN is no upper bound; give finite numbers (+Inf is added)",
            ),
            (
                "buckets.tokens = [1.0, 4.0, 4.0]",
                "metrics.buckets.tokens: 4 is followed by 4; give ascending upper bounds",
            ),
            (
                "max_label_values.model = 0",
                "metrics.max_label_values.model: 0 is out of range; choose 1 to 10000",
            ),
            (
                "max_label_values.engine = 10001",
                "metrics.max_label_values.engine: 10001 is out of range; choose 1 to 10000",
            ),
        ] {
            let config: MetricsConfig = toml::from_str(text).expect("parses");
            assert_eq!(config.validate().unwrap_err().to_string(), expected);
        }
        let error = toml::from_str::<MetricsConfig>("buckets.tftf = [1.0]").unwrap_err();
        assert!(error.to_string().contains("unknown field `tftf`"), "{error}");
    }
}

//! Ranges: what a type cannot say about a value.
//!
//! Owns: the checks of each key's range. Refuses: types and names, which are checked before.

use super::{Config, Size, Span};

/// A value out of its range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invalid {
    /// The key, as in `capture.ring_bytes`.
    pub key: String,
    /// Why, and what would be right.
    pub reason: String,
}

/// Collects what is out of range.
pub(super) fn validate(config: &Config) -> Vec<Invalid> {
    let mut out = Vec::new();
    let mut require = |ok: bool, key: &str, reason: String| {
        if !ok {
            out.push(Invalid {
                key: key.to_owned(),
                reason,
            });
        }
    };
    let in_range = |value: usize, min: usize, max: usize| (min..=max).contains(&value);

    let ring = config.capture.ring_bytes;
    let (least, most) = (Size::bytes(64 << 10), Size::bytes(1 << 30));
    require(
        ring.get().is_power_of_two() && (least..=most).contains(&ring),
        "capture.ring_bytes",
        format!("{ring} is no power of two from {least} to {most}"),
    );
    let connections = config.capture.max_connections;
    require(
        in_range(connections, 64, 1_000_000),
        "capture.max_connections",
        format!("{connections} is not within 64 to 1000000"),
    );
    let idle = config.capture.idle_timeout;
    require(
        (Span::seconds(1)..=Span::seconds(86_400)).contains(&idle),
        "capture.idle_timeout",
        format!("{idle} is not within 1s to 1d"),
    );

    let level = &config.log.level;
    if let Err(error) = level.parse::<tracing_subscriber::EnvFilter>() {
        require(
            false,
            "log.level",
            format!("{level:?} is no level and no filter: {error}"),
        );
    }
    let sections = [
        config.server.invalid(),
        config.discover.invalid(),
        config.gpu.invalid(),
        config.diagnosis.invalid(),
        config.client.proxies().err().unwrap_or_default(),
        config.kubernetes.invalid(),
        config.trace.header().err().unwrap_or_default(),
        super::scene::rules(&config.scene).err().unwrap_or_default(),
        crate::budget::budgets(&config.budget).err().unwrap_or_default(),
        super::price::book(&config.price).err().unwrap_or_default(),
        config.gpu_price.price().err().into_iter().collect(),
        config.pressure.invalid(),
        config.tokens.invalid(),
        config.store.invalid(),
        config.usage.invalid(),
        crate::usage::ContextLimitConfig::invalid(&config.context_limit),
        config.prefix.invalid(),
        config.records.invalid(),
        config.otlp.invalid(),
        config.content.invalid(),
        config.loki.invalid(),
        config.elasticsearch.invalid(),
        config.json_lines.invalid(),
        config.metrics.invalid(),
    ];
    for (key, reason) in sections.into_iter().flatten() {
        require(false, &key, reason);
    }
    out
}

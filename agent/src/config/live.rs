//! What takes effect while the agent runs.
//!
//! Owns: the list of sections that may change under it. Refuses: reading again (`run`'s).

use super::Config;
use toml::Table;

/// Sections that take effect at once; all others at the next start.
pub const LIVE: &[&str] = &[
    "client",
    "scene",
    "trace",
    "budget",
    "price",
    "gpu_price",
    "records",
    "content",
    "otlp",
    "loki",
    "elasticsearch",
    "json_lines",
];

impl Config {
    /// Sections in which `new` differs and which take effect at the next start only.
    pub fn needs_restart(&self, new: &Config) -> Vec<String> {
        let (Ok(old), Ok(new)) = (Table::try_from(self), Table::try_from(new)) else {
            return Vec::new();
        };
        let changed = new.iter().filter(|(name, value)| old.get(*name) != Some(*value));
        changed
            .map(|(name, _)| name.clone())
            .filter(|name| !LIVE.contains(&name.as_str()))
            .collect()
    }

    /// Takes over the sections that take effect at once.
    pub fn take_live(&mut self, new: &Config) {
        self.client.clone_from(&new.client);
        self.trace.clone_from(&new.trace);
        self.scene.clone_from(&new.scene);
        self.budget.clone_from(&new.budget);
        self.price.clone_from(&new.price);
        self.gpu_price.clone_from(&new.gpu_price);
        self.records.clone_from(&new.records);
        self.content.clone_from(&new.content);
        self.otlp.clone_from(&new.otlp);
        self.loki.clone_from(&new.loki);
        self.elasticsearch.clone_from(&new.elasticsearch);
        self.json_lines.clone_from(&new.json_lines);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{PriceConfig, SECTIONS, SceneConfig};

    #[test]
    fn what_cannot_change_while_the_agent_runs_is_named() {
        assert!(LIVE.iter().all(|live| SECTIONS.iter().any(|s| s.name == *live)));
        let (mut old, mut new) = (Config::default(), Config::default());
        new.scene.push(SceneConfig::default());
        new.client.trusted_proxies.push("10.0.0.0/8".to_owned());
        new.price.push(PriceConfig::default());
        new.gpu_price.per_hour = 2.0;
        new.records.head_rate = 0.5;
        new.trace.header = Some("x-correlation-id".to_owned());
        new.otlp.endpoint = "http://127.0.0.1:4318".to_owned();
        new.loki.endpoint = "http://127.0.0.1:3100".to_owned();
        new.elasticsearch.endpoint = "http://127.0.0.1:9200".to_owned();
        new.json_lines.path = "stdout".to_owned();
        new.metrics.max_scenes = 7;
        assert_eq!(old.needs_restart(&new), ["metrics"]);
        old.take_live(&new);
        assert_eq!(
            (&old.scene, &old.price, &old.gpu_price),
            (&new.scene, &new.price, &new.gpu_price)
        );
        assert_eq!(old.needs_restart(&new), ["metrics"], "it is still not in effect");
        new.metrics = old.metrics.clone();
        assert_eq!(old, new);
    }
}

//! The sections of the configuration that destinations are made of.
//!
//! Owns: which there are, making one of each, and following the configuration when it changes. Refuses: their workers (`outlets`).

use super::otlp::{self, OtlpConfig};
use super::outlets::{Outlets, Planned};
use super::{Elasticsearch, ElasticsearchSection, Http, JsonLines, JsonLinesSection, Loki, LokiSection};
use crate::config::Config;
use anyhow::{Context as _, anyhow};
use std::sync::Arc;

/// One of them.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Section {
    Otlp(Box<OtlpConfig>),
    Loki(Box<LokiSection>),
    Elasticsearch(Box<ElasticsearchSection>),
    JsonLines(Box<JsonLinesSection>),
}

impl Section {
    fn all(config: &Config) -> [Section; 4] {
        [
            Section::Otlp(Box::new(config.otlp.clone())),
            Section::Loki(Box::new(config.loki.clone())),
            Section::Elasticsearch(Box::new(config.elasticsearch.clone())),
            Section::JsonLines(Box::new(config.json_lines.clone())),
        ]
    }

    fn name(&self) -> &'static str {
        match self {
            Section::Otlp(_) => "otlp",
            Section::Loki(_) => "loki",
            Section::Elasticsearch(_) => "elasticsearch",
            Section::JsonLines(_) => "json_lines",
        }
    }

    fn on(&self) -> bool {
        match self {
            Section::Otlp(section) => section.link().on(),
            Section::Loki(section) => section.link().on(),
            Section::Elasticsearch(section) => section.link().on(),
            Section::JsonLines(section) => section.on(),
        }
    }

    fn plan(&self, outlets: &Outlets) -> anyhow::Result<Planned> {
        let refused = |reason: String| anyhow!("{}.endpoint: {reason}", self.name());
        let host = Some(&*outlets.host);
        Ok(match self {
            Section::Otlp(section) => otlp::plan(section, &outlets.host).map_err(refused)?,
            Section::Loki(section) => {
                let link = section.link();
                let loki = Http::new(Loki::under(section, Arc::clone(&outlets.caps), host), &link)
                    .map_err(refused)?;
                Planned::new(loki, link.limits(), link.attempt())
            }
            Section::Elasticsearch(section) => {
                let link = section.link();
                let elastic = Http::new(Elasticsearch::new(section, host), &link).map_err(refused)?;
                Planned::new(elastic, link.limits(), link.attempt())
            }
            Section::JsonLines(section) => {
                let lines =
                    JsonLines::new(section).context("json_lines: no thread can be started to write them")?;
                Planned::new(lines, section.limits(), section.attempt())
            }
        })
    }
}

impl Outlets {
    /// Whether something that is sent to now is not sent to any more by this configuration: what has yet to be offered to it must be
    /// before [`Outlets::configure`].
    pub fn loses(&self, config: &Config) -> bool {
        let mut sections = Section::all(config).into_iter();
        sections.any(|section| !section.on() && self.section(section.name()).is_some())
    }

    /// Sends to what is configured from here on: what is as before goes on untouched, what has changed gets a new worker, what is
    /// no longer there ends. To be called within a tokio runtime.
    ///
    /// # Errors
    /// A destination can't be used as it is configured: then all stay as they are.
    pub fn configure(&self, config: &Config) -> anyhow::Result<()> {
        let (mut put, mut remove) = (Vec::new(), Vec::new());
        for section in Section::all(config) {
            let now = self.section(section.name());
            if !section.on() {
                remove.extend(now.map(|section| section.name()));
            } else if now.as_ref() != Some(&section) {
                let planned = section.plan(self)?;
                put.push((section, planned));
            }
        }
        for name in remove {
            tracing::info!("{name}: no more records are sent there");
            self.remove(name);
        }
        for (section, planned) in put {
            tracing::info!("{}: records are sent as it is configured now", section.name());
            self.put(Some(section), planned);
        }
        Ok(())
    }
}

//! How many tokens a model can hold: its context limit.
//!
//! Owns: which limit counts when several are told, and when a request is near it. Refuses: reading command lines and
//! files (the agent's `discover`).

use crate::scene::glob;
use serde::Serialize;
use std::{collections::HashMap, sync::Arc};

/// Engines whose limits are kept; discovery knows fewer.
const MAX_ENGINES: usize = 4096;

/// Where a limit comes from, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitSource {
    /// The operator's configuration.
    Config,
    /// The engine's command line or environment.
    CommandLine,
    /// The model's files: what it was made for, which an engine may exceed or cut.
    Files,
}

/// A limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ContextLimit {
    /// Input and output tokens of one request.
    pub tokens: u64,
    /// Where it comes from.
    pub source: LimitSource,
}

/// The limits that are known.
#[derive(Debug, Clone)]
pub struct ContextLimits {
    /// Patterns of model names and their limit; the first that matches counts.
    configured: Vec<(String, u64)>,
    /// By engine.
    told: HashMap<Arc<str>, ContextLimit>,
    /// Part of a limit from which a request is near it.
    near: f64,
}

impl Default for ContextLimits {
    fn default() -> ContextLimits {
        ContextLimits::new(Vec::new(), 0.9)
    }
}

impl ContextLimits {
    /// Limits by patterns of model names, and the part of a limit (0 to 1) from which a request is near it.
    pub fn new(configured: Vec<(String, u64)>, near: f64) -> ContextLimits {
        ContextLimits {
            configured,
            told: HashMap::new(),
            near,
        }
    }

    /// An engine's limit is known, or no longer.
    pub fn engine(&mut self, engine: &Arc<str>, limit: Option<ContextLimit>) {
        match limit.filter(|limit| limit.tokens > 0) {
            Some(limit) if self.told.len() < MAX_ENGINES || self.told.contains_key(engine) => {
                self.told.insert(Arc::clone(engine), limit);
            }
            Some(_) => {}
            None => drop(self.told.remove(engine)),
        }
    }

    /// That of a model on an engine.
    pub fn of(&self, engine: &str, model: &str) -> Option<ContextLimit> {
        let configured = self.configured.iter().find(|(pattern, _)| glob(pattern, model));
        match configured {
            Some((_, tokens)) => Some(ContextLimit {
                tokens: *tokens,
                source: LimitSource::Config,
            }),
            None => self.told.get(engine).copied(),
        }
    }

    /// Whether so many tokens are near the limit.
    pub fn is_near(&self, tokens: u64, limit: ContextLimit) -> bool {
        tokens as f64 >= self.near * limit.tokens as f64
    }
}

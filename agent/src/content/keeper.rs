//! What is kept of the content of requests while the agent runs.
//!
//! Owns: what is configured now, having content made soon, and counting what became of it. Refuses: making it on the thread
//! that asks.

use super::key::KeyFile;
use super::maker::Maker;
use super::{ContentConfig, KeptContent};
use crate::export::metrics::{ContentCounts, Metrics, lock};
use infertap_core::content::{ContentRules, Mode, Transcript, transcript};
use infertap_core::observation::Finished;
use infertap_core::redact::Redactor;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// What is kept of content. All methods take `&self` and may be called from any thread.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    now: Mutex<Option<Arc<Making>>>,
    key: Arc<KeyFile>,
    counts: Mutex<Option<Arc<ContentCounts>>>,
    maker: Maker,
}

/// How it is made.
#[derive(Debug)]
struct Making {
    rules: ContentRules,
    redactor: Redactor,
}

impl Contents {
    /// The key of hashes is kept beside this store.
    pub(crate) fn beside(&self, store: &Path) {
        self.key.beside(store);
    }

    /// Keeps what this section says from here on. Where it is invalid, which that of no loaded configuration is, nothing. It
    /// compiles the operator's patterns, which may take long: not to be called where records of the ring wait.
    pub(crate) fn configure(&self, config: &ContentConfig, metrics: &Metrics) {
        let rules = config.rules();
        let making = rules.any().then(|| config.redactor().ok()).flatten();
        if making.is_some() {
            self.maker.begin();
            lock(&self.counts).get_or_insert_with(|| Arc::new(metrics.content_begin()));
        }
        *lock(&self.now) = making.map(|redactor| Arc::new(Making { rules, redactor }));
    }

    /// What is kept of a request that has ended.
    pub(crate) fn of(&self, finished: &Finished) -> Option<KeptContent> {
        let heard = Arc::clone(finished.content.as_ref()?);
        let making = Arc::clone(lock(&self.now).as_ref()?);
        let scene = &finished.labels.scene;
        let keep = heard.keep(scene, making.rules.of(scene));
        if keep.mode == Mode::None {
            return None;
        }
        let raw = heard.bytes();
        let (key, counts) = (Arc::clone(&self.key), lock(&self.counts).clone());
        let make = move || {
            let key = match keep.mode {
                Mode::Hash => key.get(),
                _ => infertap_core::content::HashKey([0; 32]),
            };
            transcript(&heard, keep, &making.redactor, &key)
        };
        let told = move |made: &Transcript| {
            if let Some(counts) = counts {
                counts.made(made);
            }
        };
        Some(KeptContent::new(keep.mode, raw, make, told))
    }

    /// Has this made soon, whoever reads it and whenever.
    pub(crate) fn make_soon(&self, content: &KeptContent) {
        self.maker.soon(content);
    }
}

//! What a destination is sent to with: a client made of its files, and again when these change.
//!
//! Owns: reading credentials for every attempt, by one reader at a time. Refuses: waiting for a file with a lock that others
//! need: one on a server that is gone blocks a single thread, and attempts are given up beside it.

use super::LinkConfig;
use super::tls::{self, Stamp};
use crate::export::metrics::lock;
use reqwest::header::HeaderMap;
use std::sync::{Arc, Mutex};

/// See the module.
#[derive(Debug)]
pub(crate) struct Current<T> {
    link: Arc<LinkConfig>,
    reader: Arc<tokio::sync::Mutex<()>>,
    made: Arc<Mutex<Option<(Stamp, T)>>>,
}

impl<T: Clone + Send + 'static> Current<T> {
    pub(crate) fn new(link: Arc<LinkConfig>) -> Current<T> {
        Current {
            link,
            reader: Arc::default(),
            made: Arc::new(Mutex::new(None)),
        }
    }

    /// The client for the files as they are, and the headers that all requests have. `make` may block.
    ///
    /// # Errors
    /// A file can't be used.
    pub(crate) async fn get(
        &self,
        make: impl FnOnce(&LinkConfig) -> Result<T, String> + Send + 'static,
    ) -> Result<(T, HeaderMap), String> {
        let reader = Arc::clone(&self.reader).lock_owned().await;
        let (link, made) = (Arc::clone(&self.link), Arc::clone(&self.made));
        let read = move || {
            // Until it has read, even when nobody waits for it any longer.
            let _reader = reader;
            let headers = link.request_headers()?;
            let stamp = tls::stamp(&link);
            let there = lock(&made)
                .as_ref()
                .filter(|(of, _)| *of == stamp)
                .map(|(_, client)| client.clone());
            if let Some(client) = there {
                return Ok((client, headers));
            }
            let client = make(&link)?;
            *lock(&made) = Some((stamp, client.clone()));
            Ok((client, headers))
        };
        tokio::task::spawn_blocking(read)
            .await
            .map_err(|error| format!("reading its files failed: {error}"))?
    }

    /// The next attempt has a new one, with connections of its own.
    pub(crate) fn forget(&self) {
        *lock(&self.made) = None;
    }
}

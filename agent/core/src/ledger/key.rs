//! Whose usage it was: model, scene and client.
//!
//! Owns: keys, and the dimensions that usage can be told by. Refuses: finding out who a client is.

use crate::observation::Labels;
use serde::{Deserialize, Serialize};
use std::{net::IpAddr, sync::Arc};

/// What the values past a cap become.
pub const OTHER: &str = "other";

/// What usage of an unknown client is told as.
pub const UNKNOWN: &str = "unknown";

/// Longest name that is kept, bytes; a longer one is [`OTHER`].
const MAX_NAME: usize = 256;

/// Model, scene and client.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// Served model.
    pub model: Arc<str>,
    /// Scene.
    pub scene: Arc<str>,
    /// Client's address; absent where it is not known.
    pub client: Option<Arc<str>>,
}

impl Key {
    /// That of a request with these labels, from a client.
    pub fn new(labels: &Labels, client: Option<IpAddr>) -> Key {
        Key {
            model: Arc::clone(&labels.model),
            scene: Arc::clone(&labels.scene),
            client: client.map(|address| address.to_string().into()),
        }
    }

    /// Its value of a dimension.
    pub fn get(&self, by: By) -> &str {
        match by {
            By::Model => &self.model,
            By::Scene => &self.scene,
            By::Client => self.client.as_deref().unwrap_or(UNKNOWN),
        }
    }

    /// Without names that are too long to keep. `true`: there was one.
    pub(super) fn short(self) -> (Key, bool) {
        let long = |name: &str| name.len() > MAX_NAME;
        let client = self.client.as_deref().is_some_and(long);
        if !long(&self.model) && !long(&self.scene) && !client {
            return (self, false);
        }
        let cut = |name: Arc<str>| if long(&name) { OTHER.into() } else { name };
        let key = Key {
            model: cut(self.model),
            scene: cut(self.scene),
            client: self.client.map(cut),
        };
        (key, true)
    }
}

/// A dimension that usage is told by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// By scene.
    Scene,
    /// By model.
    Model,
    /// By client.
    Client,
}

impl By {
    /// Every dimension.
    pub const ALL: [By; 3] = [By::Scene, By::Model, By::Client];

    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            By::Scene => "scene",
            By::Model => "model",
            By::Client => "client",
        }
    }

    /// The dimension of this name.
    pub fn named(name: &str) -> Option<By> {
        By::ALL.into_iter().find(|by| by.as_str() == name)
    }
}

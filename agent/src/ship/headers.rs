//! Headers of a configuration.
//!
//! Owns: that their values are not printed by chance: any may be a credential, whatever its name. Refuses: which may be there (`link`).

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::{Deref, DerefMut};

/// Values of headers by their names. `Debug` has the names alone.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Headers(BTreeMap<String, String>);

impl Deref for Headers {
    type Target = BTreeMap<String, String>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for Headers {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    #[test]
    fn sections_tell_no_values_of_headers() {
        let mut config = Config::default();
        let (name, value) = (|| "X-Scope-OrgID".to_owned(), || "hunter2".to_owned());
        config.otlp.headers.insert(name(), value());
        config.loki.headers.insert(name(), value());
        config.elasticsearch.headers.insert(name(), value());
        let (otlp, loki, elastic) = (&config.otlp, &config.loki, &config.elasticsearch);
        let links = [otlp.link(), loki.link(), elastic.link()];
        let told = format!("{otlp:?} {loki:?} {elastic:?} {links:?}");
        assert!(told.contains("X-Scope-OrgID"), "{told}");
        assert!(!told.contains("hunter2"), "{told}");
    }
}

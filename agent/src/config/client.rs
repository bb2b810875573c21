//! `[client]`: whose word is taken for who sent a request.
//!
//! Owns: the section and its mistakes. Refuses: finding the client (the core's `client`).

use crate::config_section;
use infertap_core::client::{DEFAULT_HEADER, MAX_NETWORKS, Network, Proxies};

config_section! {
    /// Who sent a request: the address at the other end of its connection, or behind it the one that a trusted proxy names.
    /// Addresses are in records and may be asked for by scene rules; they are no labels. Read again on SIGHUP and when the
    /// file changes. See docs/clients.md.
    pub struct ClientSection {
        /// Networks of the proxies that are believed, as in ["10.0.0.0/8", "2001:db8::/32"]. The client is then the nearest
        /// hop that is in none of them. Anybody can write the header, so list only proxies that set it or add to it.
        pub trusted_proxies: Vec<String> = Vec::new(),
        /// Header in which they name their client: "forwarded" (RFC 7239), or one with a list of addresses, as
        /// "x-forwarded-for", or with one address. Only this one is read.
        pub header: String = DEFAULT_HEADER.to_owned(),
    }
}

impl ClientSection {
    /// What the core is told.
    ///
    /// # Errors
    /// Every value that is refused: its key, and why and what would be right.
    pub(super) fn proxies(&self) -> Result<Proxies, Vec<(String, String)>> {
        let mut bad = Vec::new();
        let mut refuse = |key: &str, reason: String| bad.push((format!("client.{key}"), reason));
        if self.trusted_proxies.len() > MAX_NETWORKS {
            refuse(
                "trusted_proxies",
                format!("has more than {MAX_NETWORKS} networks"),
            );
        }
        let networks = self.trusted_proxies.iter().take(MAX_NETWORKS);
        let networks = networks.filter_map(|text| match text.parse::<Network>() {
            Ok(network) => Some(network),
            Err(reason) => {
                refuse("trusted_proxies", reason);
                None
            }
        });
        let networks = networks.collect();
        if let Err(reason) = infertap_core::scene::header_name(&self.header) {
            refuse("header", reason);
        }
        if bad.is_empty() {
            Ok(Proxies::new(networks, &self.header))
        } else {
            Err(bad)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_meant_is_refused_with_its_key() {
        assert_eq!(ClientSection::default().proxies(), Ok(Proxies::default()));
        for (proxies, header, key, reason) in [
            (
                vec!["10.0.0.1/8"],
                "forwarded",
                "client.trusted_proxies",
                "write 10.0.0.0/8",
            ),
            (
                vec!["10.0.0.0/8", "proxy"],
                "forwarded",
                "client.trusted_proxies",
                "is no network",
            ),
            (
                vec!["0.0.0.0/0"; MAX_NETWORKS + 1],
                "forwarded",
                "client.trusted_proxies",
                "more than",
            ),
            (vec![], "", "client.header", "is no name of a header"),
            (vec![], "x client", "client.header", "is no name of a header"),
            (vec![], "Cookie", "client.header", "carries a credential"),
        ] {
            let section = ClientSection {
                trusted_proxies: proxies.into_iter().map(str::to_owned).collect(),
                header: header.to_owned(),
            };
            let bad = section.proxies().unwrap_err();
            assert_eq!(bad.len(), 1, "{bad:?}");
            assert_eq!(bad[0].0, key);
            assert!(bad[0].1.contains(reason), "{bad:?}");
        }
    }
}

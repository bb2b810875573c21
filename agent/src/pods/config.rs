//! `[kubernetes]`: whether the API server is asked for pods, and for which.
//!
//! Owns: the section, its mistakes, and where the API server is. Refuses: asking it.

use crate::config::Span;
use crate::config_section;
use crate::ship::LinkConfig;
use infertap_core::pods::DEFAULT_MAX_PODS;
use std::path::PathBuf;

/// Most namespaces: each is a watch of its own.
const MAX_NAMESPACES: usize = 64;
/// Where Kubernetes puts what a pod identifies itself with.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

config_section! {
    /// Which pod has which address, asked from the Kubernetes API server: records then name the client's pod, and scene
    /// rules may ask for it. Needs the right to list and watch pods. Each agent holds one watch (or one a namespace) and is
    /// told of every change of a pod; see docs/clients.md for what that costs the API server.
    pub struct KubernetesSection {
        /// Whether pods are asked for.
        pub enabled: bool = false,
        /// Base URL of the API server; "": the one that Kubernetes names to its pods (KUBERNETES_SERVICE_HOST).
        pub endpoint: String = String::new(),
        /// File with the token of the service account, read for each request; "": none is sent.
        pub bearer_token_file: PathBuf = PathBuf::from(format!("{ACCOUNT}/token")),
        /// File (PEM) with the authorities that are believed; "": the system's.
        pub ca_file: PathBuf = PathBuf::from(format!("{ACCOUNT}/ca.crt")),
        /// Name that the API server's certificate is for, where it is not the endpoint's host.
        pub server_name: String = String::new(),
        /// Namespaces whose pods are asked for, at most 64; []: all. With names, the right is needed in these alone.
        pub namespaces: Vec<String> = Vec::new(),
        /// Label selector of the pods that are asked for, as in "app in (search, chat)"; "": all.
        pub label_selector: String = String::new(),
        /// Pods that are known at once, 1 to 1000000; further ones are not, which infertap_kubernetes_pods_refused_total
        /// counts.
        pub max_pods: usize = DEFAULT_MAX_PODS,
    }
}

impl KubernetesSection {
    /// What is wrong with it: key, and why and what would be right.
    pub fn invalid(&self) -> Vec<(String, String)> {
        let mut out = Vec::new();
        if !self.enabled {
            return out;
        }
        let link = self.link_to(if self.endpoint.is_empty() {
            "https://in.cluster"
        } else {
            &self.endpoint
        });
        out.extend(link.invalid("kubernetes"));
        let mut fail = |key: &str, reason: String| out.push((format!("kubernetes.{key}"), reason));
        if self.namespaces.len() > MAX_NAMESPACES {
            fail(
                "namespaces",
                format!("has more than {MAX_NAMESPACES} names: leave it empty for all, and bound max_pods"),
            );
        }
        for (index, name) in self.namespaces.iter().enumerate() {
            let sound = (1..=63).contains(&name.len())
                && name
                    .bytes()
                    .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
            if !sound {
                fail("namespaces", format!("{name:?} is no name of a namespace"));
            } else if self.namespaces[..index].contains(name) {
                fail("namespaces", format!("{name:?} is there twice"));
            }
        }
        if self.label_selector.len() > 4096 || self.label_selector.chars().any(char::is_control) {
            fail(
                "label_selector",
                "is no label selector: write as in \"app in (search, chat)\"".to_owned(),
            );
        }
        if !(1..=1_000_000).contains(&self.max_pods) {
            fail(
                "max_pods",
                format!("{} is not within 1 to 1000000", self.max_pods),
            );
        }
        out
    }

    /// How the API server is reached. `env` gives variables of the environment.
    ///
    /// # Errors
    /// No endpoint is given, and this is no pod of Kubernetes.
    pub fn link(&self, env: impl Fn(&str) -> Option<String>) -> Result<LinkConfig, String> {
        if !self.endpoint.is_empty() {
            return Ok(self.link_to(&self.endpoint));
        }
        let (Some(host), Some(port)) = (env("KUBERNETES_SERVICE_HOST"), env("KUBERNETES_SERVICE_PORT"))
        else {
            return Err(
                "this is no pod of Kubernetes (KUBERNETES_SERVICE_HOST is not set): give kubernetes.endpoint"
                    .to_owned(),
            );
        };
        let host = if host.contains(':') {
            format!("[{host}]")
        } else {
            host
        };
        Ok(self.link_to(&format!("https://{host}:{port}")))
    }

    fn link_to(&self, endpoint: &str) -> LinkConfig {
        use crate::config::Size;
        LinkConfig {
            endpoint: endpoint.to_owned(),
            headers: std::collections::BTreeMap::new(),
            header_files: std::collections::BTreeMap::new(),
            bearer_token_file: self.bearer_token_file.clone(),
            basic_auth_file: PathBuf::new(),
            ca_file: self.ca_file.clone(),
            cert_file: PathBuf::new(),
            key_file: PathBuf::new(),
            server_name: self.server_name.clone(),
            gzip: false,
            timeout: Span::seconds(30),
            // Of queues, which this has none of.
            batch_records: 1,
            batch_bytes: Size::bytes(1 << 20),
            batch_wait: Span::seconds(0),
            queue_records: 1,
            queue_bytes: Size::bytes(1 << 20),
            max_age: Span::seconds(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_meant_is_refused_with_its_key() {
        let good = KubernetesSection {
            enabled: true,
            ..KubernetesSection::default()
        };
        assert_eq!(good.invalid(), []);
        assert_eq!(
            KubernetesSection {
                max_pods: 0,
                ..KubernetesSection::default()
            }
            .invalid(),
            [],
            "it is off"
        );
        let list = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let many: Vec<String> = (0..=MAX_NAMESPACES).map(|n| format!("n{n}")).collect();
        for (section, key, reason) in [
            (
                KubernetesSection {
                    endpoint: "api:6443".into(),
                    ..good.clone()
                },
                "endpoint",
                "http",
            ),
            (
                KubernetesSection {
                    bearer_token_file: "token".into(),
                    ..good.clone()
                },
                "bearer_token_file",
                "absolute",
            ),
            (
                KubernetesSection {
                    namespaces: list(&["A"]),
                    ..good.clone()
                },
                "namespaces",
                "no name of a namespace",
            ),
            (
                KubernetesSection {
                    namespaces: list(&["a/b"]),
                    ..good.clone()
                },
                "namespaces",
                "no name of a namespace",
            ),
            (
                KubernetesSection {
                    namespaces: list(&["a", "a"]),
                    ..good.clone()
                },
                "namespaces",
                "twice",
            ),
            (
                KubernetesSection {
                    namespaces: many,
                    ..good.clone()
                },
                "namespaces",
                "more than 64",
            ),
            (
                KubernetesSection {
                    label_selector: "a\n".into(),
                    ..good.clone()
                },
                "label_selector",
                "as in",
            ),
            (
                KubernetesSection {
                    max_pods: 0,
                    ..good.clone()
                },
                "max_pods",
                "not within",
            ),
        ] {
            let bad = section.invalid();
            assert_eq!(bad.len(), 1, "{bad:?}");
            assert_eq!(bad[0].0, format!("kubernetes.{key}"));
            assert!(bad[0].1.contains(reason), "{bad:?}");
        }
    }

    #[test]
    fn the_api_server_is_where_kubernetes_says_unless_it_is_named() {
        let section = KubernetesSection::default();
        let of = |host: &'static str| {
            move |name: &str| match name {
                "KUBERNETES_SERVICE_HOST" => Some(host.to_owned()),
                _ => Some("443".to_owned()),
            }
        };
        assert_eq!(
            section.link(of("10.96.0.1")).unwrap().endpoint,
            "https://10.96.0.1:443"
        );
        assert_eq!(
            section.link(of("fd00::1")).unwrap().endpoint,
            "https://[fd00::1]:443"
        );
        assert!(
            section
                .link(|_| None)
                .unwrap_err()
                .contains("kubernetes.endpoint")
        );
        let named = KubernetesSection {
            endpoint: "http://127.0.0.1:8001".to_owned(),
            ..section
        };
        assert_eq!(named.link(|_| None).unwrap().endpoint, "http://127.0.0.1:8001");
    }
}

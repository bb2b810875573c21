//! Whether pods can be asked for.
//!
//! Owns: the trial and its verdict. Refuses: asking (`pods`).

use super::judge::{check, works};
use super::{Check, Verdict};
use crate::config::Config;
use std::time::Duration;

/// For the whole trial.
const TRIAL: Duration = Duration::from_secs(10);

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KubernetesFacts {
    /// Pods are not asked for, though a rule asks for them: what to do.
    Wanted(String),
    /// They can be asked for, or why not.
    Asked(Result<String, String>),
}

impl KubernetesFacts {
    /// `None` where nobody wants to know pods.
    pub(super) fn gather(config: &Config) -> Option<KubernetesFacts> {
        if !config.kubernetes.enabled {
            return config.pods_wanted().map(KubernetesFacts::Wanted);
        }
        let link = config.kubernetes.link(|name| std::env::var(name).ok());
        let asked = link.and_then(|link| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.map_err(|error| error.to_string())?;
            let trial = crate::pods::try_once(&config.kubernetes, link);
            let ended = runtime.block_on(async { tokio::time::timeout(TRIAL, trial).await });
            runtime.shutdown_background();
            ended.unwrap_or_else(|_| Err(format!("it did not answer within {} s", TRIAL.as_secs())))
        });
        Some(KubernetesFacts::Asked(asked))
    }
}

pub(super) fn judge(facts: Option<&KubernetesFacts>) -> Option<Check> {
    let (why, advice) = match facts? {
        KubernetesFacts::Asked(Ok(how)) => return Some(works("kubernetes", how.clone())),
        KubernetesFacts::Asked(Err(why)) => (
            why,
            "no request has a pod until then, and scene rules that ask for one do not match; see docs/clients.md",
        ),
        KubernetesFacts::Wanted(why) => (why, "set kubernetes.enabled; see docs/clients.md"),
    };
    Some(check("kubernetes", Verdict::Degraded, why.clone(), Some(advice)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::SceneConfig;

    #[test]
    fn who_wants_pods_is_told_when_there_are_none() {
        let mut config = Config::default();
        assert_eq!(KubernetesFacts::gather(&config), None);
        config.scene.push(SceneConfig {
            name: Some("batch".to_owned()),
            client_pod: vec!["batch-*".to_owned()],
            ..SceneConfig::default()
        });
        let told = judge(KubernetesFacts::gather(&config).as_ref()).expect("a check");
        assert_eq!(told.verdict, Verdict::Degraded);
        assert!(told.why.contains("scene[0]"), "{told:?}");
        config.kubernetes.enabled = true;
        // Nobody listens on port 1.
        config.kubernetes.endpoint = "http://127.0.0.1:1".to_owned();
        config.kubernetes.bearer_token_file = std::path::PathBuf::new();
        let told = judge(KubernetesFacts::gather(&config).as_ref()).expect("a check");
        assert_eq!(told.verdict, Verdict::Degraded);
        assert!(told.why.starts_with("all namespaces: "), "{told:?}");
    }
}

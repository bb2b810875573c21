//! `[[scene]]`: the rules by which a request gets its scene.
//!
//! Owns: the section, and the places of its mistakes. Refuses: what a rule means and which one decides (the core's
//! `scene`).

use crate::config_section;
use infertap_core::scene::{Rule, RuleText, SceneRules, fingerprint, hex, prompt_fingerprint};

config_section! {
    /// A rule that gives requests their scene: the business purpose, which is a label of the metrics. The first rule that
    /// matches decides; without one a request is of the scene "default". Every kind of pattern that is given must match;
    /// of several patterns for the same field, any. In patterns, * stands for any characters and ? for one. Rules are read
    /// again on SIGHUP and when the file changes. See docs/cost.md.
    pub struct SceneConfig {
        /// Name of the scene. Either this or from.
        pub name: Option<String> = None,
        /// Name the scene after a value of the request: "header:NAME", "body:PATH", "path", "host", "api_key",
        /// "system_prompt", "client", "client_namespace", "client_pod", "client_workload", "client_label:NAME", "engine" or
        /// "model". Where there is no such value, the next rule is tried. Distinct scenes are capped by metrics.max_scenes.
        pub from: Option<String> = None,
        /// Header fields, as in "x-team=search*", or a name alone: any value. Headers that carry credentials are not read.
        pub header: Vec<String> = Vec::new(),
        /// Paths of the request target, without the query.
        pub path: Vec<String> = Vec::new(),
        /// Hosts that the request was sent to, without the port.
        pub host: Vec<String> = Vec::new(),
        /// Fingerprints of API keys, as `infertap config hash api-key` prints them. Keys themselves are not kept.
        pub api_key: Vec<String> = Vec::new(),
        /// Fields of the request body, as in "metadata.app=chat*", or a path alone: any value.
        pub body: Vec<String> = Vec::new(),
        /// Fingerprints of system prompts (of their first 256 characters), as `infertap config hash system-prompt` prints
        /// them.
        pub system_prompt: Vec<String> = Vec::new(),
        /// Networks that the client is in, as in "10.0.0.0/8" or "2001:db8::/32": see [client].
        pub client: Vec<String> = Vec::new(),
        /// Namespaces of the client's pod. This and the next three need [kubernetes]: a pod that is not known matches nothing.
        pub client_namespace: Vec<String> = Vec::new(),
        /// Names of the client's pod, as in "batch-*".
        pub client_pod: Vec<String> = Vec::new(),
        /// Names of what the client's pod belongs to: its Deployment, StatefulSet, Job…
        pub client_workload: Vec<String> = Vec::new(),
        /// Labels of the client's pod, as in "app.kubernetes.io/part-of=shop*", or a name alone: any value.
        pub client_label: Vec<String> = Vec::new(),
        /// Ids of engines, as in "vllm-8000".
        pub engine: Vec<String> = Vec::new(),
        /// Models, as served: the name that requests ask for.
        pub model: Vec<String> = Vec::new(),
    }
}

impl SceneConfig {
    /// What the sample file shows.
    pub const EXAMPLE: &'static str =
        "name = \"search\"\nheader = [\"x-team=search*\"]\nmodel = [\"llama-*\"]\n";

    fn rule(&self) -> Result<Rule, String> {
        RuleText {
            name: self.name.as_deref(),
            from: self.from.as_deref(),
            header: &self.header,
            path: &self.path,
            host: &self.host,
            api_key: &self.api_key,
            body: &self.body,
            system_prompt: &self.system_prompt,
            client: &self.client,
            client_namespace: &self.client_namespace,
            client_pod: &self.client_pod,
            client_workload: &self.client_workload,
            client_label: &self.client_label,
            engine: &self.engine,
            model: &self.model,
        }
        .rule()
    }
}

/// The rules, for the core.
///
/// # Errors
/// Every rule that is refused: its key, and why and what would be right.
pub(super) fn rules(scenes: &[SceneConfig]) -> Result<SceneRules, Vec<(String, String)>> {
    let key = |index: usize| format!("scene[{index}]");
    let (mut rules, mut bad) = (Vec::new(), Vec::new());
    for (index, scene) in scenes.iter().enumerate() {
        match scene.rule() {
            Ok(rule) => rules.push(rule),
            Err(reason) => bad.push((key(index), reason)),
        }
    }
    if !bad.is_empty() {
        return Err(bad);
    }
    SceneRules::new(rules).map_err(|error| vec![(key(error.rule), error.reason)])
}

/// What a fingerprint can be of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Hashed {
    /// An API key, without the word "Bearer".
    ApiKey,
    /// A system prompt.
    SystemPrompt,
}

/// The fingerprint of `text`, less one line end, as a rule takes it.
pub fn hash(what: Hashed, text: &[u8]) -> String {
    let text = text.strip_suffix(b"\n").unwrap_or(text);
    let print = match what {
        Hashed::ApiKey => fingerprint(text.trim_ascii()),
        Hashed::SystemPrompt => prompt_fingerprint(&String::from_utf8_lossy(text)),
    };
    format!("sha256:{}", hex(&print))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_are_those_that_other_tools_make() {
        // printf %s sk-1 | sha256sum
        let key = "sha256:0f2c10bf3d128c719c6bfa4ecbae94b7fceebaea6e4438fef38a90e5acc326f3";
        let made = hash(Hashed::ApiKey, b"sk-1\n");
        assert_eq!(made, key);
        assert_eq!(made, hash(Hashed::SystemPrompt, b"sk-1"));
        let long = "\u{4f60}".repeat(300);
        assert_eq!(
            hash(Hashed::SystemPrompt, long.as_bytes()),
            hash(Hashed::SystemPrompt, "\u{4f60}".repeat(256).as_bytes()),
            "characters, not bytes"
        );
    }
}

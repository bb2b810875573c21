//! `[tokens]`: how tokens are counted where nobody tells.
//!
//! Owns: the section, its ranges, and the check of files that the operator names. Refuses: finding others.

use super::files;
use crate::config::{Size, Span};
use crate::config_section;
use infertap_core::EngineKind;

config_section! {
    /// How tokens are counted where neither the engine nor the response tells (docs/tokens.md).
    pub struct TokensConfig {
        /// Count with the model's own tokenizer, found through the engine's files. What requests say is kept in memory until
        /// they end, and dropped. With false, input tokens that nobody tells stay absent and output tokens are counted in
        /// chunks.
        pub tokenizer: bool = true,
        /// Tokenizers for models whose files are not found or are others, as "MODEL=PATH": the model's served name, and a
        /// tokenizer.json, its folder, or a GGUF file, as the agent sees it.
        pub files: Vec<String> = Vec::new(),
        /// Requests that wait to be counted at once, 1 to 10000; further ones are estimated.
        pub queue: usize = 256,
        /// How long the record of a request waits for its count before an estimate stands in; 100ms to 30s.
        pub wait: Span = Span::seconds(2),
        /// Most that is kept of one request, 64KiB to 64MiB; the tokens of a larger one are absent where nobody tells them.
        pub request_bytes: Size = Size::bytes(4 << 20),
        /// Most that is kept of all requests together, 1MiB to 1GiB.
        pub memory: Size = Size::bytes(64 << 20),
    }
}

impl TokensConfig {
    /// What is out of its range: key, and why and what would be right.
    pub fn invalid(&self) -> Vec<(String, String)> {
        let mut out = Vec::new();
        let mut require = |ok: bool, key: &str, reason: String| {
            if !ok {
                out.push((format!("tokens.{key}"), reason));
            }
        };
        let queue = self.queue;
        require(
            (1..=10_000).contains(&queue),
            "queue",
            format!("{queue} is not within 1 to 10000"),
        );
        let wait = self.wait;
        let millis = wait.duration().as_millis();
        require(
            (100..=30_000).contains(&millis),
            "wait",
            format!("{wait} is not within 100ms to 30s"),
        );
        for (key, size, least, most) in [
            ("request_bytes", self.request_bytes, 64 << 10, 64 << 20),
            ("memory", self.memory, 1 << 20, 1 << 30),
        ] {
            let (least, most) = (Size::bytes(least), Size::bytes(most));
            require(
                (least..=most).contains(&size),
                key,
                format!("{size} is not within {least} to {most}"),
            );
        }
        for entry in &self.files {
            let reason = match entry.split_once('=') {
                Some((model, path)) if !model.is_empty() && path.starts_with('/') => {
                    // Any kind of engine will do: what is asked is whether the file can be read.
                    match files::named(path, EngineKind::Generic, &|_| false) {
                        Ok(Err(found)) => found.model.err(),
                        Ok(Ok(_)) => None,
                        Err(reason) => Some(reason),
                    }
                }
                _ => Some(format!("{entry:?} is not MODEL=/PATH")),
            };
            if let Some(reason) = reason {
                require(false, "files", reason);
            }
        }
        out
    }

    /// The file that the operator names for a model.
    pub(super) fn file_of(&self, model: &str) -> Option<&str> {
        self.files.iter().find_map(|entry| {
            let (name, path) = entry.split_once('=')?;
            (name == model).then_some(path)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_not_be_used_is_refused_with_its_reason() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name).display().to_string();
        std::fs::write(path("tokenizer.json"), "{\"version\":\"1.0\"}").expect("a file");
        std::fs::write(path("a.gguf"), "GGUF but no more").expect("a file");
        let refused = |entry: String| {
            let config = TokensConfig {
                files: vec![entry],
                ..TokensConfig::default()
            };
            let [(key, reason)] = &config.invalid()[..] else {
                panic!("{:?}", config.invalid());
            };
            assert_eq!(key, "tokens.files");
            reason.clone()
        };
        assert!(refused("m".to_owned()).contains("is not MODEL=/PATH"));
        assert!(refused(format!("m={}", path("nothing.gguf"))).contains("can't be read"));
        assert!(refused(format!("m={}", path("a.gguf"))).contains("can't be used"));
        let json = refused(format!("m={}", path("tokenizer.json")));
        assert!(json.contains("tokenizer.json can't be used"), "{json}");
        assert!(refused(format!("m={}", path("empty"))).contains("no tokenizer.json"));
        assert_eq!(TokensConfig::default().invalid(), []);
        let out_of_range = TokensConfig {
            queue: 0,
            wait: Span::seconds(60),
            ..TokensConfig::default()
        };
        assert_eq!(out_of_range.invalid().len(), 2);
    }
}

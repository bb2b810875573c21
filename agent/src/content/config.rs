//! `[content]`: of which requests what is kept of prompts and answers.
//!
//! Owns: the sections, their ranges and the places of their mistakes. Refuses: what the modes do (the core's `content`) and
//! what is redacted (the core's `redact`).

use crate::config::Size;
use crate::config_section;
use infertap_core::content::{ContentRules, HeardLimits, Keep, Mode};
use infertap_core::redact::{Custom, Redactor};

config_section! {
    /// What is kept of prompts and answers in the records of requests ([records]), and so leaves the agent with them. By
    /// default nothing. Headers are never kept, whatever is chosen here. Read again on SIGHUP and when the file changes,
    /// for the requests that begin then. See docs/content.md.
    pub struct ContentConfig {
        /// "none", "hash" (a keyed digest, by which equal prompts can be told, and the length), "redacted" (the text, with
        /// e-mail addresses, telephone numbers, keys and tokens, card, account and identity numbers replaced) or "full".
        pub mode: ContentMode = ContentMode::None,
        /// Bytes of text that are kept of a prompt, and as many of its answer: their beginning; 256B to 1MiB.
        pub max_bytes: Size = Size::bytes(32 << 10),
        /// Largest request body and largest answer of which anything is kept; 4KiB to 16MiB.
        pub request_bytes: Size = Size::bytes(2 << 20),
        /// Memory for what requests under way have said; 1MiB to 4GiB. Of requests that find none free, nothing is kept.
        pub memory: Size = Size::bytes(64 << 20),
        /// Other modes for some scenes.
        pub scene: Vec<ContentScene> = Vec::new(),
        /// What is redacted beside what is built in.
        pub pattern: Vec<ContentPattern> = Vec::new(),
    }
}

config_section! {
    /// Another mode for some scenes. The first whose name fits decides.
    pub struct ContentScene {
        /// The scene, or a pattern of scenes: * stands for any characters and ? for one.
        pub name: String = String::new(),
        /// As content.mode.
        pub mode: ContentMode = ContentMode::None,
        /// As content.max_bytes, which holds where this is not given.
        pub max_bytes: Option<Size> = None,
    }
}

config_section! {
    /// Something of the operator's own that mode "redacted" replaces, by [CUSTOM:name].
    pub struct ContentPattern {
        /// Its name: lower-case letters, digits, - and _; at most 32 of them.
        pub name: String = String::new(),
        /// A regular expression in the syntax of https://docs.rs/regex, at most 1024 bytes. It sees the text as people do: with
        /// escapes like \n and full-width letters undone.
        pub regex: String = String::new(),
    }
}

/// How much of the content is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum ContentMode {
    /// Nothing.
    None,
    /// A keyed digest and the length.
    Hash,
    /// The text, redacted.
    Redacted,
    /// The text.
    Full,
}

impl From<ContentMode> for Mode {
    fn from(mode: ContentMode) -> Mode {
        match mode {
            ContentMode::None => Mode::None,
            ContentMode::Hash => Mode::Hash,
            ContentMode::Redacted => Mode::Redacted,
            ContentMode::Full => Mode::Full,
        }
    }
}

/// Most rules for scenes.
const MAX_SCENES: usize = 256;

impl ContentScene {
    /// What the sample file shows.
    pub const EXAMPLE: &'static str = "name = \"search*\"\nmode = \"redacted\"\nmax_bytes = \"8KiB\"\n";
}

impl ContentPattern {
    /// What the sample file shows.
    pub const EXAMPLE: &'static str = "name = \"employee\"\nregex = \"EMP-[0-9]{6}\"\n";
}

impl ContentConfig {
    /// What is out of its range: key, and why and what would be right.
    pub fn invalid(&self) -> Vec<(String, String)> {
        let mut out = self.redactor().err().unwrap_or_default();
        let mut within = |key: String, size: Size, least: u64, most: u64| {
            let (least, most) = (Size::bytes(least), Size::bytes(most));
            if !(least..=most).contains(&size) {
                out.push((key, format!("{size} is not within {least} to {most}")));
            }
        };
        within("content.max_bytes".to_owned(), self.max_bytes, 256, 1 << 20);
        within(
            "content.request_bytes".to_owned(),
            self.request_bytes,
            4 << 10,
            16 << 20,
        );
        within("content.memory".to_owned(), self.memory, 1 << 20, 4 << 30);
        for (index, scene) in self.scene.iter().enumerate() {
            let key = format!("content.scene[{index}]");
            if let Some(size) = scene.max_bytes {
                within(key, size, 256, 1 << 20);
            }
        }
        for (index, scene) in self.scene.iter().enumerate() {
            let mut fail = |reason: String| out.push((format!("content.scene[{index}]"), reason));
            if scene.name.trim().is_empty() {
                fail("it has no name: give the scene, or a pattern like \"search*\"".to_owned());
            }
            if index == MAX_SCENES {
                fail(format!("there are more than {MAX_SCENES} of them"));
            }
        }
        out
    }

    /// Of which scenes what is kept, for the core.
    pub fn rules(&self) -> ContentRules {
        let keep = |mode: ContentMode, size: Size| Keep {
            mode: mode.into(),
            max_bytes: usize::try_from(size.get()).unwrap_or(usize::MAX),
        };
        let scene = |scene: &ContentScene| {
            let size = scene.max_bytes.unwrap_or(self.max_bytes);
            (scene.name.as_str().into(), keep(scene.mode, size))
        };
        ContentRules {
            scenes: self.scene.iter().map(scene).collect(),
            others: keep(self.mode, self.max_bytes),
        }
    }

    /// How much may be held of requests under way.
    pub fn limits(&self) -> HeardLimits {
        let size = |size: Size| usize::try_from(size.get()).unwrap_or(usize::MAX);
        HeardLimits {
            one: size(self.request_bytes),
            all: size(self.memory),
        }
    }

    /// The redactor, with the operator's patterns.
    ///
    /// # Errors
    /// Every pattern that is refused: its key, and why and what would be right.
    pub fn redactor(&self) -> Result<Redactor, Vec<(String, String)>> {
        let (mut custom, mut bad) = (Custom::default(), Vec::new());
        for (index, pattern) in self.pattern.iter().enumerate() {
            if let Err(error) = custom.add(&pattern.name, &pattern.regex) {
                bad.push((format!("content.pattern[{index}]"), error.to_string()));
            }
        }
        if bad.is_empty() {
            Ok(Redactor::new(custom))
        } else {
            Err(bad)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_kept_unless_it_is_asked_for() {
        let section = ContentConfig::default();
        assert_eq!(section.invalid(), []);
        assert!(!section.rules().any());
        assert_eq!(
            section.limits(),
            infertap_core::PipelineConfig::default().content_limits
        );
    }

    #[test]
    fn mistakes_are_told_with_their_place() {
        let pattern = |name: &str, regex: &str| ContentPattern {
            name: name.to_owned(),
            regex: regex.to_owned(),
        };
        let section = ContentConfig {
            max_bytes: Size::bytes(1),
            scene: vec![ContentScene::default()],
            pattern: vec![
                pattern("ok", "EMP-[0-9]+"),
                pattern("ok", "x"),
                pattern("A b", "x"),
                pattern("open", "(x"),
                pattern("all", "x*"),
                pattern("large", "(a{1000}){1000}"),
                pattern("back", r"(a)\1"),
            ],
            ..ContentConfig::default()
        };
        let told = section.invalid();
        let keys: Vec<&str> = told.iter().map(|(key, _)| &**key).collect();
        let mut expected: Vec<String> = (1..7).map(|n| format!("content.pattern[{n}]")).collect();
        expected.extend(["content.max_bytes", "content.scene[0]"].map(str::to_owned));
        assert_eq!(keys, expected);
        assert!(told[2].1.contains("no regular expression"), "{}", told[2].1);
        assert!(told[3].1.contains("matches nothing at all"), "{}", told[3].1);
    }

    #[test]
    fn scenes_have_modes_of_their_own() {
        let section = ContentConfig {
            mode: ContentMode::Hash,
            scene: vec![ContentScene {
                name: "support-*".to_owned(),
                mode: ContentMode::Full,
                max_bytes: Some(Size::bytes(512)),
            }],
            ..ContentConfig::default()
        };
        let rules = section.rules();
        assert_eq!(rules.of("support-de").mode, Mode::Full);
        assert_eq!(rules.of("support-de").max_bytes, 512);
        assert_eq!(rules.of("search").mode, Mode::Hash);
    }
}

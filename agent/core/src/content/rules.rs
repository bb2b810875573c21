//! Of which scenes what is kept.
//!
//! Owns: the order of rules: the first whose pattern names the scene decides, else the default does. Refuses: a
//! configuration's text (the agent's).

use super::Mode;
use crate::scene::glob;

/// What is kept of one request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Keep {
    /// In which form.
    pub mode: Mode,
    /// Bytes of text that are kept of each side; what is behind them is missing.
    pub max_bytes: usize,
}

impl Keep {
    /// What both allow.
    #[must_use]
    pub fn both(self, other: Keep) -> Keep {
        Keep {
            mode: self.mode.min(other.mode),
            max_bytes: self.max_bytes.min(other.max_bytes),
        }
    }
}

/// Of which scenes what is kept. The default is nothing of any.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ContentRules {
    /// Patterns of scenes (`*` and `?`), in order.
    pub scenes: Vec<(Box<str>, Keep)>,
    /// For all others.
    pub others: Keep,
}

impl ContentRules {
    /// What is kept of requests of a scene.
    pub fn of(&self, scene: &str) -> Keep {
        let rule = self.scenes.iter().find(|(pattern, _)| glob(pattern, scene));
        rule.map_or(self.others, |(_, keep)| *keep)
    }

    /// Something is kept of some scene.
    pub fn any(&self) -> bool {
        let mut all = self.scenes.iter().map(|(_, keep)| keep).chain([&self.others]);
        all.any(|keep| keep.mode != Mode::None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_pattern_decides() {
        let keep = |mode| Keep { mode, max_bytes: 1 };
        let rules = ContentRules {
            scenes: vec![
                ("search-private".into(), keep(Mode::None)),
                ("search*".into(), keep(Mode::Redacted)),
            ],
            others: keep(Mode::Hash),
        };
        for (scene, mode) in [
            ("search", Mode::Redacted),
            ("search-private", Mode::None),
            ("chat", Mode::Hash),
        ] {
            assert_eq!(rules.of(scene), keep(mode), "{scene}");
        }
        assert!(rules.any() && !ContentRules::default().any());
        assert_eq!(ContentRules::default().of("any").mode, Mode::None);
    }
}

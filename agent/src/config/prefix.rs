//! `[prefix]`: whether prompts are compared, and how much memory that may take.
//!
//! Owns: the section and its range. Refuses: the comparison (the core's `prefix`).

use super::Size;
use crate::config_section;
use infertap_core::{PrefixConfig, prefix::Seed};

config_section! {
    /// How much of the prompts begins like prompts before them, what the engine's cache made of that, and what keeps it
    /// from more (docs/prefix.md).
    pub struct PrefixSection {
        /// Compare prompts. Keyed hashes of them are kept in memory, never their text.
        pub enabled: bool = true,
        /// Memory for the hashes of blocks, 1MiB to 1GiB; 128 bytes for each 16 tokens that are remembered.
        pub memory: Size = Size::bytes(32 << 20),
    }
}

impl PrefixSection {
    /// What is out of its range: key, and why and what would be right.
    pub fn invalid(&self) -> Vec<(String, String)> {
        let (least, most) = (Size::bytes(1 << 20), Size::bytes(1 << 30));
        if (least..=most).contains(&self.memory) {
            return Vec::new();
        }
        let reason = format!("{} is not within {least} to {most}", self.memory);
        vec![("prefix.memory".to_owned(), reason)]
    }

    /// For the core; hashes are keyed with `seed`.
    pub(crate) fn core(&self, seed: Seed) -> PrefixConfig {
        PrefixConfig {
            enabled: self.enabled,
            max_bytes: usize::try_from(self.memory.get()).unwrap_or(usize::MAX),
            seed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_has_its_range() {
        let mut section = PrefixSection::default();
        assert_eq!(section.invalid(), []);
        let core = section.core(Seed([1, 2]));
        let bytes = PrefixConfig::default().max_bytes;
        assert_eq!(
            (core.enabled, core.max_bytes, core.seed),
            (true, bytes, Seed([1, 2]))
        );
        section.memory = Size::bytes((1 << 20) - 1);
        assert_eq!(section.invalid().len(), 1);
    }
}

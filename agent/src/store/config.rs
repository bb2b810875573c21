//! `[store]`: where the store is.
//!
//! Owns: the section and its check. Refuses: looking at the file.

use crate::config_section;
use std::path::{Path, PathBuf};

config_section! {
    /// What outlives the agent: how much of the budgets is used, what requests have cost, and the records that
    /// [records] keeps.
    pub struct StoreConfig {
        /// The file, a SQLite database; it and its folder are made where there are none. Two agents can't share one. With ""
        /// nothing is kept: budgets begin anew with each start.
        pub path: PathBuf = PathBuf::from("/var/lib/infertap/infertap.db"),
    }
}

impl StoreConfig {
    /// The file; `None` where nothing is to be kept.
    pub fn file(&self) -> Option<&Path> {
        (!self.path.as_os_str().is_empty()).then_some(&*self.path)
    }

    /// What is out of its range: key, and why and what would be right.
    pub fn invalid(&self) -> Vec<(String, String)> {
        match self.file() {
            Some(file) if !file.is_absolute() || file.file_name().is_none() => vec![(
                "store.path".to_owned(),
                format!(
                    "{} is no absolute path of a file, as in /var/lib/infertap/infertap.db; \"\" keeps nothing",
                    file.display()
                ),
            )],
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_absolute_or_empty() {
        let refused = |path: &str| !StoreConfig { path: path.into() }.invalid().is_empty();
        assert!(!refused("/a/b.db") && !refused(""));
        assert!(refused("b.db") && refused("/") && refused("/a/.."));
        assert_eq!(StoreConfig { path: "".into() }.file(), None);
    }
}

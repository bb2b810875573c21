//! Which release of SGLang puts which field where in its tagged arrays.
//!
//! Owns: the table (`layouts.json`, from SGLang's released struct definitions). Refuses: reading messages (`tagged`).
//!
//! Within one struct no two releases have the same number of fields, so the number tells the layout.

use serde::Deserialize;
use std::sync::LazyLock;

#[derive(Debug, Default, Deserialize)]
pub(super) struct Tables {
    #[serde(rename = "TokenizedGenerateReqInput")]
    pub(super) request: Vec<Layout>,
    #[serde(rename = "BatchTokenIDOutput")]
    pub(super) ids: Vec<Layout>,
    #[serde(rename = "BatchStrOutput")]
    pub(super) texts: Vec<Layout>,
}

/// One struct's fields, in order, from one release on.
#[derive(Debug, Deserialize)]
pub(super) struct Layout {
    #[cfg(test)]
    pub(super) from: String,
    pub(super) fields: Vec<String>,
}

/// A file that does not parse leaves no layout: a test sees that it does.
static TABLES: LazyLock<Tables> =
    LazyLock::new(|| serde_json::from_str(include_str!("layouts.json")).unwrap_or_default());

pub(super) fn tables() -> &'static Tables {
    &TABLES
}

/// The layout with this many fields. A later release may have appended to the newest.
pub(super) fn of(layouts: &'static [Layout], count: u32) -> Option<&'static Layout> {
    let count = count as usize;
    let own = layouts.iter().find(|layout| layout.fields.len() == count);
    let newest = layouts
        .last()
        .filter(|_| layouts.iter().all(|layout| layout.fields.len() < count));
    own.or(newest)
}

//! Names of sections, keys and environment variables, and what was probably meant by a wrong one.
//!
//! Owns: the lookup in [`SECTIONS`] and the suggestions. Refuses: values.

use super::{ENV_PREFIX, SECTIONS, SectionInfo};

/// The variable that overrides a key.
pub(super) fn env_name(key: &str) -> String {
    format!("{ENV_PREFIX}{}", key.to_ascii_uppercase().replace('.', "_"))
}

pub(super) fn section(name: &str) -> Option<&'static SectionInfo> {
    SECTIONS.iter().find(|section| section.name == name)
}

/// Every key outside lists, and every list.
pub(super) fn keys() -> impl Iterator<Item = String> {
    SECTIONS.iter().flat_map(|section| {
        let list = section.list.then(|| section.name.to_owned());
        let keys = section
            .keys
            .iter()
            .filter(|_| !section.list)
            .map(|key| format!("{}.{}", section.name, key.name));
        // A list is its own section, not also a key of the section that it is in.
        list.into_iter()
            .chain(keys.filter(|key| self::section(key).is_none()))
    })
}

/// Why `key` is not known, or `None` where it is.
pub(super) fn unknown_key(key: &str) -> Option<String> {
    let (parent, name) = key.rsplit_once('.').unwrap_or(("", key));
    if keys().any(|known| known == key) || section(key).is_some() {
        return None;
    }
    if let Some(section) = section(parent) {
        if section.keys.iter().any(|known| known.name == name) {
            return None;
        }
        let hint = nearest(name, section.keys.iter().map(|key| key.name.to_owned()))
            .map(|near| format!("did you mean {near}?"))
            .or_else(|| elsewhere(name))
            .unwrap_or_else(|| {
                let names: Vec<_> = section.keys.iter().map(|key| key.name).collect();
                format!("[{parent}] has {}", names.join(", "))
            });
        return Some(format!("unknown key {name} in [{parent}]: {hint}"));
    }
    let hint = elsewhere(name)
        .or_else(|| {
            nearest(key, SECTIONS.iter().map(|s| s.name.to_owned()))
                .map(|near| format!("did you mean [{near}]?"))
        })
        .unwrap_or_else(|| {
            let names: Vec<_> = SECTIONS
                .iter()
                .map(|section| format!("[{}]", section.name))
                .collect();
            format!("the sections are {}", names.join(", "))
        });
    Some(if parent.is_empty() {
        format!("unknown section or key {key}: {hint}")
    } else {
        format!("unknown section [{parent}]: {hint}")
    })
}

/// A key of the same name in another section.
fn elsewhere(name: &str) -> Option<String> {
    SECTIONS
        .iter()
        .find(|section| section.keys.iter().any(|key| key.name == name))
        .map(|section| format!("did you mean {name} in [{}]?", section.name))
}

/// The candidate that was most likely meant, if any is near.
pub(super) fn nearest(name: &str, candidates: impl Iterator<Item = String>) -> Option<String> {
    // Edit distance for slips of the finger, the weight of a common beginning for names that were cut short.
    candidates
        .map(|candidate| {
            let distance = strsim::normalized_damerau_levenshtein(name, &candidate);
            let beginning = strsim::jaro_winkler(name, &candidate);
            let score = if distance >= 0.5 || beginning >= 0.85 {
                distance.max(beginning)
            } else {
                0.0
            };
            (score, candidate)
        })
        .filter(|(score, _)| *score > 0.0)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

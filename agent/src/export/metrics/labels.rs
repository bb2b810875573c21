//! Hard caps on label values: the first values up to the cap keep their names, later ones become `other`.
//!
//! Owns: admission, and what a value may look like. Refuses: counting overflows (the caller does). Values come from
//! traffic, so they are hostile: any length, any character, any number of them.

use std::{collections::HashSet, sync::Arc};

/// What values past the cap become.
pub const OTHER: &str = "other";

/// What the empty value becomes: an empty label is the same as none to Prometheus.
pub const UNKNOWN: &str = "unknown";

/// Longest value, in bytes, that keeps its name.
pub(super) const MAX_VALUE_BYTES: usize = 256;

/// Admits at most `cap` distinct values.
#[derive(Debug)]
pub struct Capper {
    cap: usize,
    values: HashSet<Arc<str>>,
    other: Arc<str>,
    unknown: Arc<str>,
}

/// The answer of [`Capper::admit`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admitted {
    /// The label value to use.
    pub value: Arc<str>,
    /// The value asked for was replaced by [`OTHER`].
    pub overflow: bool,
}

impl Capper {
    /// A capper of `cap` values. [`OTHER`] and [`UNKNOWN`] come on top of them.
    pub fn new(cap: usize) -> Capper {
        Capper {
            cap,
            values: HashSet::new(),
            other: OTHER.into(),
            unknown: UNKNOWN.into(),
        }
    }

    /// The label value for `raw`: itself (control characters replaced by `_`) while there is room, else [`OTHER`].
    pub fn admit(&mut self, raw: &Arc<str>) -> Admitted {
        let kept = |value: &Arc<str>| Admitted {
            value: Arc::clone(value),
            overflow: false,
        };
        if let Some(known) = self.values.get(raw) {
            return kept(known);
        }
        match &**raw {
            "" | UNKNOWN => return kept(&self.unknown),
            OTHER => return kept(&self.other),
            _ => {}
        }
        if raw.len() > MAX_VALUE_BYTES {
            return self.overflow();
        }
        let clean = clean(raw);
        if let Some(known) = self.values.get(&clean) {
            return kept(known);
        }
        if self.values.len() >= self.cap {
            return self.overflow();
        }
        self.values.insert(Arc::clone(&clean));
        kept(&clean)
    }

    /// The label value of `raw` if it has a place; admits nothing.
    pub fn get(&self, raw: &str) -> Option<Arc<str>> {
        let known = self.values.get(raw);
        known
            .or_else(|| self.values.get(&*clean(&Arc::from(raw))))
            .cloned()
    }

    /// Gives the place of `value`, as [`Capper::admit`] returned it, to others. Only for labels of gauges, whose series
    /// end with what they describe; a counter's value must keep its place.
    pub fn release(&mut self, value: &str) {
        self.values.remove(value);
    }

    /// Values that have a place.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// No value has a place.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    fn overflow(&self) -> Admitted {
        Admitted {
            value: Arc::clone(&self.other),
            overflow: true,
        }
    }
}

/// `raw` without control characters, which some parsers take for line ends.
fn clean(raw: &Arc<str>) -> Arc<str> {
    if raw.chars().any(char::is_control) {
        raw.chars().map(underscored).collect::<String>().into()
    } else {
        Arc::clone(raw)
    }
}

/// A label value that is not capped (it only describes a capped one): bounded and without control characters.
pub(crate) fn descriptive(raw: &str) -> String {
    raw.chars().take(MAX_VALUE_BYTES / 4).map(underscored).collect()
}

/// A label value of a device: bounded and without control characters.
pub(super) fn clean_value(raw: &str) -> String {
    raw.chars().take(MAX_VALUE_BYTES).map(underscored).collect()
}

fn underscored(c: char) -> char {
    if c.is_control() { '_' } else { c }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn admit(capper: &mut Capper, raw: &str) -> (String, bool) {
        let admitted = capper.admit(&Arc::from(raw));
        (admitted.value.to_string(), admitted.overflow)
    }

    #[test]
    fn ten_thousand_values_become_the_cap_and_other() {
        let mut capper = Capper::new(100);
        let mut values = HashSet::new();
        let mut overflows = 0;
        for i in 0..10_000 {
            let (value, overflow) = admit(&mut capper, &format!("model-{i}"));
            values.insert(value);
            overflows += usize::from(overflow);
        }
        assert_eq!(values.len(), 101);
        assert!(values.contains(OTHER));
        assert_eq!(overflows, 9_900);
        assert_eq!(
            admit(&mut capper, "model-7"),
            ("model-7".into(), false),
            "the first ones keep their names"
        );
    }

    #[test]
    fn odd_values() {
        let long = "m".repeat(MAX_VALUE_BYTES + 1);
        let fits = "m".repeat(MAX_VALUE_BYTES);
        for (raw, value, overflow) in [
            ("", UNKNOWN, false),
            (UNKNOWN, UNKNOWN, false),
            (OTHER, OTHER, false),
            ("a\nb\0c", "a_b_c", false),
            ("Qwen/Qwen3-8B:\"x\"", "Qwen/Qwen3-8B:\"x\"", false),
            (&long, OTHER, true),
            (&fits, &fits, false),
        ] {
            assert_eq!(
                admit(&mut Capper::new(1), raw),
                (value.to_owned(), overflow),
                "{raw:?}"
            );
        }
        let mut none = Capper::new(0);
        assert_eq!(admit(&mut none, "a"), (OTHER.into(), true));
        assert_eq!(
            admit(&mut none, ""),
            (UNKNOWN.into(), false),
            "unknown needs no place"
        );
    }

    #[test]
    fn a_released_place_is_given_again() {
        let mut capper = Capper::new(1);
        assert_eq!(admit(&mut capper, "a"), ("a".into(), false));
        assert_eq!(admit(&mut capper, "b"), (OTHER.into(), true));
        capper.release("a");
        assert_eq!(admit(&mut capper, "b"), ("b".into(), false));
    }

    proptest! {
        #[test]
        fn never_more_than_the_cap_and_always_the_same_answer(
            cap in 0_usize..8,
            raws in proptest::collection::vec("[a-f\\x00-\\x02]{0,2}", 0..200),
        ) {
            let mut capper = Capper::new(cap);
            let first: Vec<Admitted> = raws.iter().map(|raw| capper.admit(&Arc::from(raw.as_str()))).collect();
            let again: Vec<Admitted> = raws.iter().map(|raw| capper.admit(&Arc::from(raw.as_str()))).collect();
            prop_assert!(capper.len() <= cap);
            let distinct: HashSet<_> = first.iter().map(|a| a.value.clone()).collect();
            prop_assert!(distinct.len() <= cap + 2);
            for (a, b) in first.iter().zip(&again) {
                prop_assert_eq!(&a.value, &b.value);
                prop_assert!(!a.value.chars().any(char::is_control));
            }
        }
    }
}

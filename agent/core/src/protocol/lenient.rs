//! Deserialisers that take what servers really send: `null`, missing, another type than documented.
//!
//! Owns: values reduced while they are parsed to what is asked of them (is there text, how many elements), without
//! allocation. Refuses: meaning. A wrong type reads as absent, so that one odd field costs only itself.

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::{borrow::Cow, fmt};

/// Implements the visitor methods of every JSON kind that a type does not care for.
macro_rules! otherwise_default {
    ($($kind:ident)*) => { $(otherwise_default!(@ $kind);)* };
    (@ scalar) => {
        fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> { Ok(Default::default()) }
        fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> { Ok(Default::default()) }
        fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> { Ok(Default::default()) }
        fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> { Ok(Default::default()) }
    };
    (@ unit) => {
        fn visit_unit<E>(self) -> Result<Self::Value, E> { Ok(Default::default()) }
    };
    (@ str) => {
        fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> { Ok(Default::default()) }
    };
    (@ seq) => {
        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
            while seq.next_element::<IgnoredAny>()?.is_some() {}
            Ok(Default::default())
        }
    };
    (@ map) => {
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            Ok(Default::default())
        }
    };
}
pub(super) use otherwise_default;

macro_rules! expecting {
    ($what:literal) => {
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str($what)
        }
    };
}

/// A string, borrowed where it has no escapes.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Text<'a>(pub(super) Option<Cow<'a, str>>);

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = Text<'de>;
            expecting!("a string");
            fn visit_borrowed_str<E>(self, s: &'de str) -> Result<Self::Value, E> {
                Ok(Text(Some(Cow::Borrowed(s))))
            }
            fn visit_str<E>(self, s: &str) -> Result<Self::Value, E> {
                Ok(Text(Some(Cow::Owned(s.to_owned()))))
            }
            otherwise_default!(scalar unit seq map);
        }
        deserializer.deserialize_any(V)
    }
}

/// A string, array or object with something in it.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Filled(pub(super) bool);

impl<'de> Deserialize<'de> for Filled {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = Filled;
            expecting!("anything");
            fn visit_str<E>(self, s: &str) -> Result<Filled, E> {
                Ok(Filled(!s.is_empty()))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Filled, A::Error> {
                Ok(Filled(drain(seq)? > 0))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Filled, A::Error> {
                let mut filled = false;
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
                    filled = true;
                }
                Ok(Filled(filled))
            }
            otherwise_default!(scalar unit);
        }
        deserializer.deserialize_any(V)
    }
}

/// [`Filled`], with its text where it is a string.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Said<'a> {
    pub(super) filled: bool,
    pub(super) text: Option<Cow<'a, str>>,
}

impl<'de: 'a, 'a> Deserialize<'de> for Said<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = Said<'de>;
            expecting!("anything");
            fn visit_borrowed_str<E>(self, s: &'de str) -> Result<Self::Value, E> {
                Ok(Said {
                    filled: !s.is_empty(),
                    text: Some(Cow::Borrowed(s)),
                })
            }
            fn visit_str<E>(self, s: &str) -> Result<Self::Value, E> {
                Ok(Said {
                    filled: !s.is_empty(),
                    text: Some(Cow::Owned(s.to_owned())),
                })
            }
            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Self::Value, A::Error> {
                Ok(Said {
                    filled: drain(seq)? > 0,
                    text: None,
                })
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut filled = false;
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
                    filled = true;
                }
                Ok(Said { filled, text: None })
            }
            otherwise_default!(scalar unit);
        }
        deserializer.deserialize_any(V)
    }
}

/// How many elements an array has.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Count(pub(super) u32);

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = Count;
            expecting!("an array");
            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Count, A::Error> {
                drain(seq).map(Count)
            }
            otherwise_default!(scalar unit str map);
        }
        deserializer.deserialize_any(V)
    }
}

fn drain<'de, A: SeqAccess<'de>>(mut seq: A) -> Result<u32, A::Error> {
    let mut count = 0u32;
    while seq.next_element::<IgnoredAny>()?.is_some() {
        count = count.saturating_add(1);
    }
    Ok(count)
}

/// A whole number that is not negative, in digits or as a number in a string.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Number(pub(super) Option<u64>);

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = Number;
            expecting!("a number");
            fn visit_u64<E>(self, n: u64) -> Result<Number, E> {
                Ok(Number(Some(n)))
            }
            fn visit_i64<E>(self, n: i64) -> Result<Number, E> {
                Ok(Number(u64::try_from(n).ok()))
            }
            fn visit_f64<E>(self, n: f64) -> Result<Number, E> {
                Ok(Number(whole(n)))
            }
            fn visit_bool<E>(self, _: bool) -> Result<Number, E> {
                Ok(Number(None))
            }
            fn visit_str<E>(self, s: &str) -> Result<Number, E> {
                Ok(Number(s.parse().ok()))
            }
            otherwise_default!(unit seq map);
        }
        deserializer.deserialize_any(V)
    }
}

/// `n` as a count, when it is one. The limit keeps to what a float tells apart.
pub(super) fn whole(n: f64) -> Option<u64> {
    (n >= 0.0 && n <= (1u64 << 53) as f64 && n.fract() == 0.0).then_some(n as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_types_read_as_absent_and_never_as_errors() {
        for (json, text, filled, count, number) in [
            ("null", false, false, 0, None),
            ("true", false, false, 0, None),
            ("12", false, false, 0, Some(12)),
            ("-12", false, false, 0, None),
            ("1.0", false, false, 0, Some(1)),
            ("1.5", false, false, 0, None),
            ("1e300", false, false, 0, None),
            (r#""""#, true, false, 0, None),
            (r#""7""#, true, true, 0, Some(7)),
            (r#""a\n""#, true, true, 0, None),
            ("[]", false, false, 0, None),
            ("[1,[2],{}]", false, true, 3, None),
            ("{}", false, false, 0, None),
            (r#"{"a":{"b":[1]}}"#, false, true, 0, None),
        ] {
            assert_eq!(
                serde_json::from_str::<Text<'_>>(json).unwrap().0.is_some(),
                text,
                "{json}"
            );
            assert_eq!(serde_json::from_str::<Filled>(json).unwrap().0, filled, "{json}");
            assert_eq!(serde_json::from_str::<Count>(json).unwrap().0, count, "{json}");
            assert_eq!(serde_json::from_str::<Number>(json).unwrap().0, number, "{json}");
        }
    }

    #[test]
    fn plain_strings_are_borrowed() {
        let json = r#"["plain","esc\"aped"]"#;
        let texts: Vec<Text<'_>> = serde_json::from_str(json).unwrap();
        assert!(matches!(texts[0].0, Some(Cow::Borrowed("plain"))));
        assert!(matches!(&texts[1].0, Some(Cow::Owned(s)) if s == "esc\"aped"));
    }
}

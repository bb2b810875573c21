//! A body as a tree, where its content is kept: only the members that are asked for, and of bounded size.
//!
//! Owns: what a body may cost in memory, whatever it says. Refuses: meaning.
//!
//! A tree of JSON takes many times the room of its text: two bytes of `1,` become thirty-two. So values are counted, and
//! a run of numbers (a prompt may be an array of tokens) becomes one that stands for it.

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};
use std::{cell::Cell, fmt};

/// Values of one body. A conversation has about ten a message.
const MAX_VALUES: usize = 64 * 1024;

/// The members of a body that go by these names; `None`: it is no object, not JSON, or has too many values.
pub(super) fn members(body: &[u8], names: &[&str]) -> Option<Map<String, Value>> {
    let left = Cell::new(MAX_VALUES);
    let mut json = serde_json::Deserializer::from_slice(body);
    let members = json.deserialize_map(Members { names, left: &left }).ok()?;
    json.end().ok()?;
    Some(members)
}

struct Members<'a> {
    names: &'a [&'a str],
    left: &'a Cell<usize>,
}

impl<'de> Visitor<'de> for Members<'_> {
    type Value = Map<String, Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Map::new();
        while let Some(name) = map.next_key::<String>()? {
            if self.names.contains(&&*name) {
                members.insert(name, map.next_value_seed(Bounded(self.left))?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(members)
    }
}

/// Any value, which takes one of those that are left.
#[derive(Clone, Copy)]
struct Bounded<'a>(&'a Cell<usize>);

impl Bounded<'_> {
    fn take<E: serde::de::Error>(self) -> Result<(), E> {
        let left = self.0.get().checked_sub(1);
        self.0
            .set(left.ok_or_else(|| E::custom("more values than are held"))?);
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Bounded<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Bounded<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<Value, E> {
        self.take().map(|()| Value::Null)
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<Value, E> {
        self.take().map(|()| value.into())
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Value, E> {
        self.take().map(|()| value.into())
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Value, E> {
        self.take().map(|()| value.into())
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        self.take().map(|()| value.into())
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Value, E> {
        self.take().map(|()| value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        self.take()?;
        let mut values = Vec::new();
        let mut run = Run::default();
        while let Some(value) = seq.next_element_seed(self)? {
            if !value.is_number() {
                values.extend(run.end());
                values.push(value);
            } else if run.add(&value) > 1 {
                // Not kept, so that it takes nothing.
                self.0.set(self.0.get() + 1);
            }
        }
        values.extend(run.end());
        Ok(values.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        self.take()?;
        let mut members = Map::new();
        while let Some(name) = map.next_key()? {
            members.insert(name, map.next_value_seed(self)?);
        }
        Ok(members.into())
    }
}

/// Numbers that follow each other.
#[derive(Default)]
struct Run {
    length: u64,
    digest: Sha256,
}

impl Run {
    /// How many there are with this one.
    fn add(&mut self, number: &Value) -> u64 {
        self.length += 1;
        self.digest.update(number.to_string());
        self.digest.update(b",");
        self.length
    }

    /// What stands for them: equal runs have equal ones.
    fn end(&mut self) -> Option<Value> {
        if self.length == 0 {
            return None;
        }
        let digest = std::mem::take(self).digest.finalize();
        Some(u64::from_le_bytes(*digest.first_chunk()?).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_what_is_asked_for_is_read() {
        let body = br#"{"a":{"b":[null,true,-1.5,"x"]},"other":[[]],"c":1}"#;
        let read = members(body, &["a", "c", "none"]).expect("JSON");
        assert_eq!(read["a"]["b"][0], json!(null));
        assert_eq!(
            (&read["a"]["b"][1], &read["a"]["b"][3]),
            (&json!(true), &json!("x"))
        );
        assert_eq!((read.len(), &read["c"]), (2, &json!(1)));
        for bad in ["", "[]", "7", "{", "{\"a\":1}x", "{\"a\":\"\\ud800\"}"] {
            assert_eq!(members(bad.as_bytes(), &["a"]), None, "{bad}");
        }
        let deep = format!("{{\"a\":{}", "[".repeat(100_000));
        assert_eq!(members(deep.as_bytes(), &["a"]), None);
    }

    #[test]
    fn values_are_bounded_and_runs_of_numbers_cost_one() {
        let body = |value: &str, times: usize| {
            let values = vec![value; times].join(",");
            members(format!("{{\"a\":[{values}]}}").as_bytes(), &["a"])
        };
        let many = body("17", 1_000_000).expect("tokens");
        assert_eq!(many["a"].as_array().map(Vec::len), Some(1));
        assert_ne!(many, body("17", 999_999).expect("tokens"));
        assert_eq!(
            body("17,\"x\",17", 1).expect("JSON")["a"]
                .as_array()
                .map(Vec::len),
            Some(3)
        );
        for value in ["\"\"", "null", "[]", "{}", "{\"a\":1}", "1,\"\""] {
            assert!(body(value, 1000).is_some(), "{value}");
            assert_eq!(body(value, MAX_VALUES), None, "{value}");
        }
    }
}

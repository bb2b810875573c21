//! The JSON scanner: any split gives the same scalars; what `serde_json` accepts is complete and holds the same ones.
#![no_main]

use infertap_core::wire::json_scan::{JsonScan, Scalar};
use infertap_core_fuzz::{Op, options, split, whole};
use libfuzzer_sys::fuzz_target;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

const PATHS: &[&str] = &[
    "model",
    "a",
    "a.b",
    "a.*.b",
    "*",
    "*.a",
    "*.*",
    "choices.*.delta.content",
    "usage.prompt_tokens",
    "stream",
];

#[derive(Debug, Clone, PartialEq)]
enum Node {
    Null,
    Bool(bool),
    Number(f64),
    String(String),
    Array(Vec<Node>),
    /// In order, doubles included.
    Object(Vec<(String, Node)>),
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Node, D::Error> {
        struct Builder;
        impl<'de> Visitor<'de> for Builder {
            type Value = Node;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("JSON")
            }
            fn visit_unit<E>(self) -> Result<Node, E> {
                Ok(Node::Null)
            }
            fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
                Ok(Node::Bool(value))
            }
            #[expect(clippy::cast_precision_loss, reason = "what the scanner does too")]
            fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
                Ok(Node::Number(value as f64))
            }
            #[expect(clippy::cast_precision_loss, reason = "what the scanner does too")]
            fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
                Ok(Node::Number(value as f64))
            }
            fn visit_f64<E>(self, value: f64) -> Result<Node, E> {
                Ok(Node::Number(value))
            }
            fn visit_str<E>(self, value: &str) -> Result<Node, E> {
                Ok(Node::String(value.to_owned()))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Node, A::Error> {
                let mut array = Vec::new();
                while let Some(item) = items.next_element()? {
                    array.push(item);
                }
                Ok(Node::Array(array))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Node, A::Error> {
                let mut object = Vec::new();
                while let Some(field) = fields.next_entry()? {
                    object.push(field);
                }
                Ok(Node::Object(object))
            }
        }
        deserializer.deserialize_any(Builder)
    }
}

type Found = Vec<(usize, Node, bool)>;

fn owned(scalar: &Scalar<'_>) -> (Node, bool) {
    match scalar {
        Scalar::String { text, truncated } => (Node::String((*text).to_owned()), *truncated),
        Scalar::Number(n) => (Node::Number(*n), false),
        Scalar::Bool(b) => (Node::Bool(*b), false),
        Scalar::Null => (Node::Null, false),
    }
}

fn run(limit: usize, ops: &[Op<'_>]) -> (Found, bool, bool) {
    let mut scan = JsonScan::with_limit(PATHS, limit);
    let mut found = Vec::new();
    for op in ops {
        match *op {
            Op::Feed(bytes) => scan.feed(bytes, &mut |index, scalar| {
                let (node, truncated) = owned(&scalar);
                if let Node::String(text) = &node {
                    // A byte that is no UTF-8 becomes a character of three.
                    assert!(text.len() <= limit * 3);
                }
                found.push((index, node, truncated));
            }),
            Op::Gap(_) => scan.gap(),
        }
    }
    assert!(!(scan.failed() && scan.complete()));
    (found, scan.complete(), scan.failed())
}

fn walk<'a>(node: &'a Node, at: &mut Vec<Option<&'a str>>, limit: usize, found: &mut Found) {
    match node {
        Node::Array(items) => {
            for item in items {
                at.push(None);
                walk(item, at, limit, found);
                at.pop();
            }
        }
        Node::Object(fields) => {
            for (key, item) in fields {
                at.push(Some(key));
                walk(item, at, limit, found);
                at.pop();
            }
        }
        scalar => {
            for (index, path) in PATHS.iter().enumerate() {
                let parts = path.split('.').map(|part| (part != "*").then_some(part));
                if !parts.eq(at.iter().copied()) {
                    continue;
                }
                found.push(match scalar {
                    Node::String(text) => {
                        let mut end = text.len().min(limit);
                        while !text.is_char_boundary(end) {
                            end -= 1;
                        }
                        (index, Node::String(text[..end].to_owned()), text.len() > limit)
                    }
                    other => (index, other.clone(), false),
                });
            }
        }
    }
}

/// `serde_json` reads a float to within one unit in the last place unless asked for more.
fn close(a: &Node, b: &Node) -> bool {
    match (a, b) {
        (Node::Number(a), Node::Number(b)) => a == b || (a - b).abs() <= a.abs() * 1e-15,
        _ => a == b,
    }
}

/// Whether a number is longer than what the scanner reports.
fn has_long_number(text: &[u8]) -> bool {
    text.split(|b| !matches!(b, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E'))
        .any(|run| run.len() > 128)
}

fuzz_target!(|input: &[u8]| {
    let Some((limit, seed, text)) = options(input) else {
        return;
    };
    let limit = usize::from(limit);
    let ops = whole(text);
    let result = run(limit, &ops);
    assert_eq!(result, run(limit, &split(&ops, seed)));
    if ops.iter().any(|op| matches!(op, Op::Gap(_))) || has_long_number(text) {
        return;
    }
    if let Ok(node) = serde_json::from_slice::<Node>(text) {
        let mut expected = Vec::new();
        walk(&node, &mut Vec::new(), limit, &mut expected);
        let (found, complete, _) = result;
        assert!(complete, "a valid text was not complete");
        assert_eq!(found.len(), expected.len(), "{found:?} {expected:?}");
        for (found, expected) in found.iter().zip(&expected) {
            assert!(
                found.0 == expected.0 && found.2 == expected.2 && close(&found.1, &expected.1),
                "{found:?} {expected:?}"
            );
        }
    }
});

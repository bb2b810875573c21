//! One record as a log line: compact JSON, under a limit.
//!
//! Owns: what such a line leaves out. Refuses: where it goes.

use crate::store::tables::record::KeptRecord;
use serde_json::{Map, Value};

/// JSON of a field, bytes, from which on it may be left out. All that a record has is then far below [`LEAST`].
const LONG: usize = 256;
/// Limit, bytes, under which every record can be brought.
pub(super) const LEAST: u64 = 32 << 10;

/// The record's fields by their own names. What is not known is left out, and so are the gaps between tokens: there are as many as
/// tokens, and the store has them.
///
/// # Errors
/// Never in practice: a record is plain data.
pub(super) fn fields(kept: &KeptRecord) -> serde_json::Result<Map<String, Value>> {
    let Value::Object(mut fields) = serde_json::to_value(kept)? else {
        return Ok(Map::new());
    };
    fields.remove("token_gaps");
    fields.remove("token_gaps_from_ns");
    drop_absent(&mut fields);
    Ok(fields)
}

/// Shortens the fields until they are at most `max` bytes of JSON: first without what was said in the request, then without
/// whatever is long. `omitted` names what is missing.
pub(super) fn shorten(fields: &mut Map<String, Value>, max: usize) {
    let mut omitted = Vec::new();
    let mut left = length(fields);
    if left > max && fields.remove("content").is_some() {
        omitted.push("content".to_owned());
        left = length(fields);
    }
    if left > max {
        let long = |value: &Value| value.to_string().len() > LONG;
        omitted.extend(
            fields
                .iter()
                .filter(|(_, value)| long(value))
                .map(|(name, _)| name.clone()),
        );
        fields.retain(|_, value| !long(value));
    }
    if !omitted.is_empty() {
        fields.insert("omitted".to_owned(), omitted.into());
    }
}

/// The record in one line of at most `max` bytes, its end not among them.
///
/// # Errors
/// Never in practice: a record is plain data.
pub(super) fn line(kept: &KeptRecord, max: usize) -> serde_json::Result<String> {
    let mut fields = fields(kept)?;
    shorten(&mut fields, max);
    serde_json::to_string(&fields)
}

fn length(fields: &Map<String, Value>) -> usize {
    struct Count(usize);
    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // Counting does not fail, and a map of JSON values is JSON.
    let _ = serde_json::to_writer(&mut count, fields);
    count.0
}

/// Removes `null` members, at any depth, and objects and lists that are then empty.
fn drop_absent(fields: &mut Map<String, Value>) {
    fields.retain(|_, value| match value {
        Value::Null => false,
        Value::Object(inner) => {
            drop_absent(inner);
            !inner.is_empty()
        }
        Value::Array(values) => !values.is_empty(),
        _ => true,
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ship::samples::kept;
    use serde_json::json;

    #[test]
    fn a_line_is_compact_json_without_gaps_and_without_what_is_not_known() {
        let kept = kept(7);
        let line = line(&kept, 1 << 20).expect("plain data");
        assert!(!line.contains('\n') && !line.contains("null"), "{line}");
        let read: Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(read["id"], "0000000000000007");
        assert_eq!(read["ended_unix_ms"], 1_780_000_000_007_i64);
        assert_eq!(read["rules"], json!(["slow_e2e"]));
        for absent in ["token_gaps", "token_gaps_from_ns", "incomplete", "omitted"] {
            assert_eq!(read.get(absent), None, "{absent}");
        }
        assert_eq!(kept.token_gaps.len(), 3);
    }

    #[test]
    fn what_is_too_long_loses_its_content_then_whatever_is_long_and_says_so() {
        let plain = fields(&kept(7)).expect("plain data");
        let room = length(&plain) + 100;
        let with = |name: &str, bytes: usize, max: usize| {
            let mut fields = plain.clone();
            fields.insert("content".into(), json!({"prompt": "short"}));
            fields.insert(name.into(), "x".repeat(bytes).into());
            shorten(&mut fields, max);
            fields
        };
        let whole = with("model", 5000, usize::MAX);
        assert_eq!(
            (whole.get("omitted"), whole.contains_key("content")),
            (None, true)
        );
        let cut = with("content", 5000, room);
        assert_eq!(cut["omitted"], json!(["content"]));
        assert_eq!(cut["model"], plain["model"]);
        let cut = with("model", 5000, room);
        assert_eq!(cut["omitted"], json!(["content", "model"]));
        assert_eq!((cut.get("model"), cut.get("id")), (None, plain.get("id")));
        assert!(length(&cut) <= room);
    }

    #[test]
    fn any_record_comes_below_the_least_limit() {
        let mut kept = kept(7);
        let long = "\u{1}".repeat(100_000);
        let record = &mut kept.record;
        (record.model, record.engine, record.scene) =
            (long.as_str().into(), long.as_str().into(), long.as_str().into());
        (record.protocol, record.response_id) = (long.clone(), Some(long.clone()));
        (record.finish_reason, record.incomplete) = (Some(long.clone()), vec![long.clone()]);
        kept.rules = vec![long];
        let line = line(&kept, LEAST as usize).expect("plain data");
        assert!(line.len() < LEAST as usize / 4, "{}", line.len());
        assert!(
            line.contains(r#""trace_id":"4bf92f3577b34da60000000000000007""#),
            "{line}"
        );
    }
}

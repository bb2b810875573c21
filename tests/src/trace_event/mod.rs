//! Whether a file is in the trace-event format, and whether what it says can be drawn.
//!
//! Owns: the schema, made from the format's description and not from what is written here, and what a schema can't say:
//! that slices nest, names are there, arrows have two ends. Refuses: whether it is true.

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

const SCHEMA: &str = include_str!("schema.json");

/// Process and lane.
type Lane = (u64, u64);

/// What is in a trace.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Content {
    /// How many events of each phase.
    pub phases: BTreeMap<String, usize>,
    /// Names of the processes.
    pub processes: BTreeSet<String>,
    /// Names of counters, with the process in front: `GPU 0: power`.
    pub counters: BTreeSet<String>,
}

/// Checks a file.
///
/// # Errors
/// Every way in which it is not of the format, or the first in which it can't be drawn.
pub fn check(json: &[u8]) -> Result<Content> {
    let trace: Value = serde_json::from_slice(json).context("not JSON")?;
    let schema: Value = serde_json::from_str(SCHEMA).context("the schema is not JSON")?;
    let validator = jsonschema::validator_for(&schema).context("the schema is none")?;
    let errors: Vec<String> = validator
        .iter_errors(&trace)
        .take(20)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    ensure!(
        errors.is_empty(),
        "not the trace-event format:\n{}",
        errors.join("\n")
    );
    let events = trace["traceEvents"].as_array().context("no events")?;
    let mut content = Content::default();
    let mut named: BTreeMap<u64, String> = BTreeMap::new();
    let mut lanes: BTreeSet<Lane> = BTreeSet::new();
    for event in events {
        *content.phases.entry(text(event, "ph").to_owned()).or_default() += 1;
        let once = match text(event, "name") {
            "process_name" if event["ph"] == "M" => {
                let name = event["args"]["name"].as_str().unwrap_or_default();
                content.processes.insert(name.to_owned());
                named.insert(number(event, "pid"), name.to_owned()).is_none()
            }
            "thread_name" if event["ph"] == "M" => lanes.insert(lane(event)),
            _ => true,
        };
        ensure!(once, "named twice: {event}");
    }
    for event in events {
        let name = named
            .get(&number(event, "pid"))
            .with_context(|| format!("its process has no name: {event}"))?;
        if !event["tid"].is_null() {
            ensure!(lanes.contains(&lane(event)), "its lane has no name: {event}");
        }
        if event["ph"] == "C" {
            content
                .counters
                .insert(format!("{name}: {}", text(event, "name")));
        }
    }
    nesting(events)?;
    arrows(events)?;
    Ok(content)
}

/// Slices of one lane nest or do not touch.
fn nesting(events: &[Value]) -> Result<()> {
    for (lane, mut slices) in slices(events) {
        slices.sort_by_key(|(from, to)| (*from, std::cmp::Reverse(*to)));
        let mut open: Vec<u64> = Vec::new();
        for (from, to) in slices {
            while open.last().is_some_and(|end| *end <= from) {
                open.pop();
            }
            if let Some(end) = open.last()
                && to > *end
            {
                bail!(
                    "a slice of lane {lane:?}, {from} to {to}, leaves the one around it, which ends at {end}"
                );
            }
            open.push(to);
        }
    }
    Ok(())
}

/// An arrow has a beginning and an end, in this order, each in a slice.
fn arrows(events: &[Value]) -> Result<()> {
    let slices = slices(events);
    let within = |event: &Value| {
        let at = number(event, "ts");
        let of_lane = slices.get(&lane(event)).map(Vec::as_slice).unwrap_or_default();
        of_lane.iter().any(|(from, to)| (*from..=*to).contains(&at))
    };
    let mut begun: BTreeMap<String, u64> = BTreeMap::new();
    for event in events.iter().filter(|event| event["ph"] == "s") {
        ensure!(within(event), "in no slice: {event}");
        let id = event["id"].to_string();
        ensure!(
            begun.insert(id, number(event, "ts")).is_none(),
            "begins twice: {event}"
        );
    }
    for event in events.iter().filter(|event| event["ph"] == "f") {
        ensure!(within(event), "in no slice: {event}");
        let from = begun
            .remove(&event["id"].to_string())
            .with_context(|| format!("an end without a beginning: {event}"))?;
        ensure!(from <= number(event, "ts"), "ends before it begins: {event}");
    }
    ensure!(begun.is_empty(), "beginnings without an end: {begun:?}");
    Ok(())
}

/// Beginnings and ends of slices, by lane.
fn slices(events: &[Value]) -> BTreeMap<Lane, Vec<(u64, u64)>> {
    let mut out: BTreeMap<Lane, Vec<(u64, u64)>> = BTreeMap::new();
    for event in events.iter().filter(|event| event["ph"] == "X") {
        let from = number(event, "ts");
        let slice = (from, from + number(event, "dur"));
        out.entry(lane(event)).or_default().push(slice);
    }
    out
}

fn lane(event: &Value) -> Lane {
    (number(event, "pid"), number(event, "tid"))
}

/// Whole: the format allows fractions, and whoever writes some must compare them otherwise than this does.
fn number(event: &Value, key: &str) -> u64 {
    event[key].as_u64().unwrap_or_default()
}

fn text<'a>(event: &'a Value, key: &str) -> &'a str {
    event[key].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A good trace with one more event.
    fn with(event: Value) -> Vec<u8> {
        let mut events = vec![
            json!({"name": "process_name", "ph": "M", "ts": 0, "pid": 1, "args": {"name": "engine"}}),
            json!({"name": "thread_name", "ph": "M", "ts": 0, "pid": 1, "tid": 2, "args": {"name": "requests"}}),
            json!({"name": "r", "ph": "X", "ts": 10, "dur": 10, "pid": 1, "tid": 2}),
            json!({"name": "running", "ph": "C", "ts": 10, "pid": 1, "args": {"n": 1}}),
            json!({"name": "for", "cat": "c", "ph": "s", "ts": 10, "pid": 1, "tid": 2, "id": 1}),
            json!({"name": "for", "cat": "c", "ph": "f", "bp": "e", "ts": 20, "pid": 1, "tid": 2, "id": 1}),
        ];
        if !event.is_null() {
            events.push(event);
        }
        json!({"traceEvents": events, "displayTimeUnit": "ms"})
            .to_string()
            .into_bytes()
    }

    #[test]
    fn a_good_trace_is_one() {
        let content = check(&with(Value::Null)).expect("good");
        assert_eq!(content.phases["X"], 1);
        assert!(content.counters.contains("engine: running"), "{content:?}");
    }

    #[test]
    fn what_is_wrong_is_found() {
        for (event, told) in [
            (
                json!({"name": "r", "ph": "X", "ts": 1, "pid": 1, "tid": 2}),
                "\"dur\" is a required property",
            ),
            (
                json!({"name": "r", "ph": "X", "ts": -1, "dur": 1, "pid": 1, "tid": 2}),
                "/ts",
            ),
            (
                json!({"name": "r", "ph": "X", "ts": "1", "dur": 1, "pid": 1, "tid": 2}),
                "/ts",
            ),
            (json!({"name": "r", "ph": "Q", "ts": 1, "pid": 1}), "/ph"),
            (
                json!({"name": "r", "ph": "i", "ts": 1, "pid": 1, "tid": 2, "s": "x"}),
                "/s",
            ),
            (
                json!({"name": "r", "ph": "i", "ts": 1, "pid": 1, "s": "t"}),
                "\"tid\" is a required property",
            ),
            (
                json!({"name": "c", "ph": "C", "ts": 1, "pid": 1, "args": {"n": "1"}}),
                "/args/n",
            ),
            (
                json!({"name": "c", "ph": "C", "ts": 1, "pid": 1, "args": {}}),
                "/args",
            ),
            (
                json!({"name": "c", "ph": "C", "ts": 1, "pid": 1}),
                "\"args\" is a required property",
            ),
            (
                json!({"name": "r", "ph": "X", "ts": 1, "dur": 1, "pid": 1, "tid": 2, "cname": "mauve"}),
                "/cname",
            ),
            (
                json!({"name": "thread_nam", "ph": "M", "ts": 0, "pid": 1, "args": {"name": "x"}}),
                "oneOf",
            ),
            (
                json!({"name": "r", "ph": "X", "ts": 1, "dur": 1, "pid": 1, "tid": 2, "end": 2}),
                "end",
            ),
            (
                json!({"name": "r", "ph": "X", "ts": 15, "dur": 10, "pid": 1, "tid": 2}),
                "leaves the one around it",
            ),
            (
                json!({"name": "r", "ph": "X", "ts": 1, "dur": 1, "pid": 1, "tid": 3}),
                "its lane has no name",
            ),
            (
                json!({"name": "r", "ph": "X", "ts": 1, "dur": 1, "pid": 2, "tid": 2}),
                "its process has no name",
            ),
            (
                json!({"name": "for", "cat": "c", "ph": "s", "ts": 12, "pid": 1, "tid": 2, "id": 2}),
                "without an end",
            ),
            (
                json!({"name": "for", "cat": "c", "ph": "f", "ts": 12, "pid": 1, "tid": 2, "id": 2}),
                "without a beginning",
            ),
            (
                json!({"name": "for", "cat": "c", "ph": "s", "ts": 99, "pid": 1, "tid": 2, "id": 2}),
                "in no slice",
            ),
        ] {
            let error = check(&with(event.clone()))
                .expect_err(&event.to_string())
                .to_string();
            assert!(error.contains(told), "{event}: {error}");
        }
    }
}

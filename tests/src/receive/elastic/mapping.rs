//! Mappings of Elasticsearch and OpenSearch: which documents fit them.
//!
//! Owns: types, objects, dynamic fields and their limit. Refuses: searching.

use serde_json::{Map, Value};
use std::net::IpAddr;

/// Types that both know, of those that anything here needs.
const COMMON: [&str; 14] = [
    "keyword", "text", "date", "long", "integer", "short", "byte", "double", "float", "boolean", "ip",
    "object", "nested", "binary",
];
/// Types that Elasticsearch alone knows in all versions that are looked at.
const ELASTIC_ONLY: [&str; 3] = ["constant_keyword", "flattened", "wildcard"];
/// Longest term that Lucene takes, bytes.
const MAX_TERM: usize = 32_766;

/// The mapping of an index.
#[derive(Debug, Clone)]
pub(super) struct Mapping {
    properties: Map<String, Value>,
    dynamic: bool,
    limit: usize,
}

/// What speaks against a document or a mapping: kind and reason.
pub(super) type Problem = (&'static str, String);

impl Mapping {
    /// Of an index without a template.
    pub(super) fn anything() -> Mapping {
        Mapping {
            properties: Map::new(),
            dynamic: true,
            limit: 1000,
        }
    }

    /// Of a template's `template`.
    pub(super) fn of(template: &Value, opensearch: bool) -> Result<Mapping, Problem> {
        let mappings = &template["mappings"];
        let properties = mappings["properties"].as_object().cloned().unwrap_or_default();
        check_types(&properties, opensearch)?;
        let limit = template.pointer("/settings/index/mapping/total_fields/limit");
        let mapping = Mapping {
            dynamic: !matches!(&mappings["dynamic"], Value::Bool(false)) && mappings["dynamic"] != "false",
            limit: limit.and_then(Value::as_u64).unwrap_or(1000) as usize,
            properties,
        };
        let count = count(&mapping.properties);
        if count > mapping.limit {
            let limit = mapping.limit;
            return Err((
                "illegal_argument_exception",
                format!("Limit of total fields [{limit}] has been exceeded"),
            ));
        }
        Ok(mapping)
    }

    /// Fields, objects among them.
    pub(super) fn fields(&self) -> usize {
        count(&self.properties)
    }

    /// Takes a document; new fields are then part of the mapping.
    pub(super) fn take(&mut self, document: &Map<String, Value>) -> Result<(), Problem> {
        let mut properties = self.properties.clone();
        merge(&mut properties, document, self.dynamic, "")?;
        let added = count(&properties) - self.fields();
        if added > 0 && count(&properties) > self.limit {
            let limit = self.limit;
            return Err((
                "document_parsing_exception",
                format!(
                    "failed to parse: Limit of total fields [{limit}] has been exceeded while adding new fields [{added}]"
                ),
            ));
        }
        self.properties = properties;
        Ok(())
    }
}

fn check_types(properties: &Map<String, Value>, opensearch: bool) -> Result<(), Problem> {
    for (name, field) in properties {
        if let Some(kind) = field["type"].as_str() {
            if !COMMON.contains(&kind) && (opensearch || !ELASTIC_ONLY.contains(&kind)) {
                return Err((
                    "mapper_parsing_exception",
                    format!("No handler for type [{kind}] declared on field [{name}]"),
                ));
            }
        } else if !field["properties"].is_object() {
            return Err((
                "mapper_parsing_exception",
                format!("No type specified for field [{name}]"),
            ));
        }
        if let Some(inner) = field["properties"].as_object() {
            check_types(inner, opensearch)?;
        }
    }
    Ok(())
}

fn count(properties: &Map<String, Value>) -> usize {
    let inner = |field: &Value| field["properties"].as_object().map_or(0, count);
    properties.values().map(|field| 1 + inner(field)).sum()
}

fn merge(
    properties: &mut Map<String, Value>,
    document: &Map<String, Value>,
    dynamic: bool,
    path: &str,
) -> Result<(), Problem> {
    for (name, value) in document {
        let path = if path.is_empty() {
            name.clone()
        } else {
            format!("{path}.{name}")
        };
        if value.is_null() {
            continue;
        }
        if !properties.contains_key(name) {
            if !dynamic {
                continue;
            }
            properties.insert(name.clone(), guessed(value));
        }
        let field = &mut properties[name];
        if field["enabled"] == false {
            continue;
        }
        let values = value
            .as_array()
            .map_or_else(|| vec![value], |values| values.iter().collect());
        for value in values {
            match (field.get_mut("properties").and_then(Value::as_object_mut), value) {
                (Some(inner), Value::Object(object)) => merge(inner, object, dynamic, &path)?,
                (Some(_), _) => {
                    return Err((
                        "document_parsing_exception",
                        format!(
                            "object mapping for [{path}] tried to parse field [{name}] as object, but found a concrete value"
                        ),
                    ));
                }
                (None, value) => {
                    let kind = field["type"].as_str().unwrap_or("object");
                    check(kind, value, field.get("ignore_above").is_some()).map_err(|why| {
                        (
                            "document_parsing_exception",
                            format!("failed to parse field [{path}] of type [{kind}]: {why}"),
                        )
                    })?;
                }
            }
        }
    }
    Ok(())
}

/// The mapping that a value makes where fields are added as they come.
fn guessed(value: &Value) -> Value {
    let of = |kind: &str| serde_json::json!({"type": kind});
    match value {
        Value::Object(_) => serde_json::json!({"properties": {}}),
        Value::Array(values) => values.first().map_or_else(|| of("text"), guessed),
        Value::Bool(_) => of("boolean"),
        Value::Number(number) if number.is_f64() => of("float"),
        Value::Number(_) => of("long"),
        _ => of("text"),
    }
}

fn check(kind: &str, value: &Value, bounded: bool) -> Result<(), String> {
    let text = match value {
        Value::Object(_) => return Err("Can't get text on a START_OBJECT".to_owned()),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let ok = match kind {
        "keyword" => bounded || text.len() <= MAX_TERM,
        "long" | "integer" | "short" | "byte" => text.parse::<f64>().is_ok(),
        "double" | "float" => text.parse::<f64>().is_ok_and(f64::is_finite),
        "boolean" => ["true", "false", ""].contains(&&*text),
        "ip" => value.is_string() && text.parse::<IpAddr>().is_ok(),
        "date" => value.as_i64().is_some() || (value.is_string() && is_date(&text)),
        _ => true,
    };
    if ok {
        return Ok(());
    }
    Err(match kind {
        "keyword" => format!(
            "Document contains at least one immense term of {} bytes",
            text.len()
        ),
        "date" => format!(
            "failed to parse date field [{text}] with format [strict_date_optional_time||epoch_millis]"
        ),
        _ => format!("For input string: \"{text}\""),
    })
}

/// `2026-05-28T20:26:40.007Z` and what it may lack.
fn is_date(text: &str) -> bool {
    let (day, time) = text
        .split_once('T')
        .map_or((text, None), |(day, time)| (day, Some(time)));
    let numbers = |text: &str, by: char, lengths: &[usize]| {
        let parts: Vec<&str> = text.split(by).collect();
        parts.len() == lengths.len()
            && parts
                .iter()
                .zip(lengths)
                .all(|(part, length)| part.len() == *length && part.bytes().all(|b| b.is_ascii_digit()))
    };
    let time_ok = |time: &str| {
        let time = time.strip_suffix('Z').unwrap_or(time);
        let (whole, part) = time.split_once('.').unwrap_or((time, "0"));
        numbers(whole, ':', &[2, 2, 2])
            && (1..=9).contains(&part.len())
            && part.bytes().all(|b| b.is_ascii_digit())
    };
    numbers(day, '-', &[4, 2, 2]) && time.is_none_or(time_ok)
}

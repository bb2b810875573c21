//! The file layer: TOML text → keys and values with their lines.
//!
//! Owns: the form of the file (text, tables, lists, names). Refuses: the types of values, which are checked where all
//! layers meet.

use super::layers::Entry;
use super::names::{section, unknown_key};
use super::problem::{Origin, Problem};
use std::path::Path;
use toml::de::{DeTable, DeValue};
use toml::{Spanned, Table, Value};

/// A file larger than this is no configuration.
const FILE_LIMIT: u64 = 4 * 1024 * 1024;

/// Every known key of the file, with its line; every mistake in the form of the file goes to `problems`.
pub(super) fn file_layer(path: &Path, problems: &mut Vec<Problem>) -> Vec<Entry> {
    let at = |line| Origin::File {
        path: path.to_owned(),
        line,
    };
    let mut fail = |line, message| {
        problems.push(Problem {
            origin: at(line),
            message,
        });
    };
    let text = match crate::discover::host::read_bounded(path, FILE_LIMIT + 1) {
        Ok(bytes) if bytes.len() as u64 > FILE_LIMIT => {
            fail(
                0,
                format!("the file is larger than {FILE_LIMIT} bytes: is it a configuration?"),
            );
            return Vec::new();
        }
        Ok(bytes) => match String::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => {
                let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
                fail(1 + newlines(valid), "the file is not UTF-8 text here".into());
                return Vec::new();
            }
        },
        Err(error) => {
            fail(
                0,
                format!(
                    "cannot be read: {error}; name another file with --config, or make one with `infertap config print`"
                ),
            );
            return Vec::new();
        }
    };
    let line_of = |offset: usize| 1 + newlines(&text.as_bytes()[..offset.min(text.len())]);
    let (spans, values) = match (DeTable::parse(&text), text.parse::<Table>()) {
        (Ok(spans), Ok(values)) => (spans.into_inner(), values),
        (Err(error), _) | (_, Err(error)) => {
            fail(
                error.span().map_or(0, |span| line_of(span.start)),
                error.message().to_owned(),
            );
            return Vec::new();
        }
    };
    let mut entries = Vec::new();
    walk(
        &spans,
        &values,
        "",
        &line_of,
        &mut fail,
        &mut |key, value, line, items| {
            let items = items.into_iter().map(at).collect();
            entries.push(Entry {
                key,
                value,
                origin: at(line),
                items,
            });
        },
    );
    entries
}

/// Goes through the tables of a document: each known key is given to `found`, each unknown one to `fail`.
fn walk(
    spans: &DeTable<'_>,
    values: &Table,
    prefix: &str,
    line_of: &dyn Fn(usize) -> usize,
    fail: &mut dyn FnMut(usize, String),
    found: &mut dyn FnMut(String, Value, usize, Vec<usize>),
) {
    for (name, span) in spans {
        let line = line_of(name.span().start);
        let key = if prefix.is_empty() {
            name.get_ref().to_string()
        } else {
            format!("{prefix}.{}", name.get_ref())
        };
        let Some(value) = values.get(name.get_ref().as_ref()) else {
            continue;
        };
        match section(&key) {
            Some(section) if section.list => {
                if let Some(items) = list_items(span, &key, line_of, fail) {
                    found(key, value.clone(), line, items);
                }
            }
            Some(_) => match (span.get_ref(), value) {
                (DeValue::Table(spans), Value::Table(values)) => {
                    walk(spans, values, &key, line_of, fail, found);
                }
                _ => fail(
                    line,
                    format!("{key} is a section: write it as [{key}] with its keys on the lines below"),
                ),
            },
            None => match unknown_key(&key) {
                Some(message) => fail(line, message),
                None => found(key, value.clone(), line, Vec::new()),
            },
        }
    }
}

/// Checks the tables of a list one by one, so that each mistake has its own line; their lines when there was none.
fn list_items(
    list: &Spanned<DeValue<'_>>,
    key: &str,
    line_of: &dyn Fn(usize) -> usize,
    fail: &mut dyn FnMut(usize, String),
) -> Option<Vec<usize>> {
    let Some(items) = list.get_ref().as_array() else {
        fail(
            line_of(list.span().start),
            format!("{key} is a list: write each one as [[{key}]]"),
        );
        return None;
    };
    let mut sound = true;
    let mut lines = Vec::new();
    for item in items {
        lines.push(line_of(item.span().start));
        let Some(table) = item.get_ref().as_table() else {
            fail(
                line_of(item.span().start),
                format!("{key} is a list of tables: write each one as [[{key}]]"),
            );
            sound = false;
            continue;
        };
        for name in table.keys() {
            if let Some(message) = unknown_key(&format!("{key}.{}", name.get_ref())) {
                fail(line_of(name.span().start), message);
                sound = false;
            }
        }
    }
    sound.then_some(lines)
}

fn newlines(bytes: &[u8]) -> usize {
    memchr::memchr_iter(b'\n', bytes).count()
}

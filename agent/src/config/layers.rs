//! The layers of a configuration: defaults, then the file, then the environment, then flags.
//!
//! Owns: reading each layer, naming its mistakes with their place, and the origin of each effective value. Refuses:
//! ranges (`validate`) and printing.

use super::names::{env_name, keys, nearest, section, unknown_key};
use super::problem::{Origin, Problem, Problems};
use super::{Config, DEFAULT_FILE, ENV_PREFIX, SECTIONS, validate::validate};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use toml::de::{DeTable, DeValue};
use toml::{Spanned, Table, Value};

/// A file larger than this is no configuration.
const FILE_LIMIT: u64 = 4 * 1024 * 1024;

/// A key set by a flag.
#[derive(Debug, Clone, PartialEq)]
pub struct Override {
    /// The key, as in `server.listen`.
    pub key: String,
    /// Its value.
    pub value: Value,
    /// The flag, as in `--listen`.
    pub flag: String,
}

/// An effective configuration, and where it comes from.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The values.
    pub config: Config,
    /// Where each key that is not at its default was set.
    pub origins: BTreeMap<String, Origin>,
    /// The file that was read.
    pub file: Option<PathBuf>,
}

impl Loaded {
    /// Where `key` was set.
    pub fn origin(&self, key: &str) -> Origin {
        self.origins.get(key).cloned().unwrap_or(Origin::Default)
    }
}

/// One value of one layer.
struct Entry {
    key: String,
    value: Value,
    origin: Origin,
}

/// Reads all layers. Without `file`, [`DEFAULT_FILE`] is read where it exists.
///
/// # Errors
/// Every mistake found in any layer.
pub fn load(
    file: Option<&Path>,
    env: impl IntoIterator<Item = (String, String)>,
    flags: Vec<Override>,
) -> Result<Loaded, Problems> {
    let default = Path::new(DEFAULT_FILE);
    let file = file.or_else(|| default.exists().then_some(default));
    let mut problems = Vec::new();
    let mut entries = match file {
        Some(path) => file_layer(path, &mut problems),
        None => Vec::new(),
    };
    entries.extend(env_layer(env, &mut problems));
    for Override { key, value, flag } in flags {
        let origin = Origin::Flag(flag);
        match unknown_key(&key) {
            Some(message) => problems.push(Problem { origin, message }),
            None => entries.push(Entry { key, value, origin }),
        }
    }
    finish(entries, problems, file)
}

/// Checks one file by itself.
///
/// # Errors
/// Every mistake found in it.
pub fn check_file(path: &Path) -> Result<Loaded, Problems> {
    let mut problems = Vec::new();
    let entries = file_layer(path, &mut problems);
    finish(entries, problems, Some(path))
}

fn finish(entries: Vec<Entry>, mut problems: Vec<Problem>, file: Option<&Path>) -> Result<Loaded, Problems> {
    let mut merged = Table::new();
    let mut origins = BTreeMap::new();
    for Entry { key, value, origin } in entries {
        match try_key(&key, &value) {
            Ok(()) => {
                put(&mut merged, &key, value);
                origins.insert(key, origin);
            }
            Err(message) => problems.push(Problem { origin, message }),
        }
    }
    let config = Config::deserialize(merged).unwrap_or_else(|error| {
        problems.push(Problem {
            origin: file.map_or(Origin::Default, |path| Origin::File {
                path: path.to_owned(),
                line: 0,
            }),
            message: error.message().to_owned(),
        });
        Config::default()
    });
    for invalid in validate(&config) {
        let origin = origins.get(&invalid.key).cloned().unwrap_or(Origin::Default);
        problems.push(Problem {
            origin,
            message: format!("{}: {}", invalid.key, invalid.reason),
        });
    }
    if problems.is_empty() {
        Ok(Loaded {
            config,
            origins,
            file: file.map(Path::to_owned),
        })
    } else {
        Err(Problems(problems))
    }
}

fn file_layer(path: &Path, problems: &mut Vec<Problem>) -> Vec<Entry> {
    let at = |line| Origin::File {
        path: path.to_owned(),
        line,
    };
    let mut fail = |line, message| {
        problems.push(Problem {
            origin: at(line),
            message,
        })
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
                fail(
                    1 + valid.iter().filter(|b| **b == b'\n').count(),
                    "the file is not UTF-8 text here".into(),
                );
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
    let line_of = |offset: usize| {
        1 + text.as_bytes()[..offset.min(text.len())]
            .iter()
            .filter(|b| **b == b'\n')
            .count()
    };
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
        &mut |key, value, line| {
            entries.push(Entry {
                key,
                value,
                origin: at(line),
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
    found: &mut dyn FnMut(String, Value, usize),
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
                if list_items(span, &key, line_of, fail) {
                    found(key, value.clone(), line);
                }
            }
            Some(_) => match (span.get_ref(), value) {
                (DeValue::Table(spans), Value::Table(values)) => {
                    walk(spans, values, &key, line_of, fail, found)
                }
                _ => fail(
                    line,
                    format!("{key} is a section: write it as [{key}] with its keys on the lines below"),
                ),
            },
            None => match unknown_key(&key) {
                Some(message) => fail(line, message),
                None => found(key, value.clone(), line),
            },
        }
    }
}

/// Checks the tables of a list one by one, so that each mistake has its own line; `false` when there was any.
fn list_items(
    list: &Spanned<DeValue<'_>>,
    key: &str,
    line_of: &dyn Fn(usize) -> usize,
    fail: &mut dyn FnMut(usize, String),
) -> bool {
    let Some(items) = list.get_ref().as_array() else {
        fail(
            line_of(list.span().start),
            format!("{key} is a list: write each one as [[{key}]]"),
        );
        return false;
    };
    let mut sound = true;
    for item in items.iter() {
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
    sound
}

fn env_layer(env: impl IntoIterator<Item = (String, String)>, problems: &mut Vec<Problem>) -> Vec<Entry> {
    let mut variables: Vec<_> = env
        .into_iter()
        .filter(|(name, _)| name.starts_with(ENV_PREFIX))
        .collect();
    variables.sort();
    let mut entries = Vec::new();
    for (name, text) in variables {
        let origin = Origin::Env(name.clone());
        if let Some(key) = keys().find(|key| env_name(key) == name) {
            let value = text_value(&key, &text);
            entries.push(Entry { key, value, origin });
        } else if let Some(section) = SECTIONS
            .iter()
            .find(|s| name.starts_with(&format!("{}_", env_name(s.name))))
        {
            // Other variables with the prefix are not ours: a Kubernetes service named infertap makes several.
            let nearest = nearest(
                &name,
                section
                    .keys
                    .iter()
                    .map(|key| env_name(&format!("{}.{}", section.name, key.name))),
            );
            let hint = nearest.map_or_else(String::new, |nearest| format!(": did you mean {nearest}?"));
            problems.push(Problem {
                origin,
                message: format!("no key has this name{hint}"),
            });
        }
    }
    entries
}

/// Text is taken for what the key can be: itself, a TOML value, or a list separated by commas.
pub fn text_value(key: &str, text: &str) -> Value {
    let whole = Value::String(text.to_owned());
    let parsed = format!("v = {text}")
        .parse::<Table>()
        .ok()
        .and_then(|mut table| table.remove("v"));
    let parts = || text.split(',').map(str::trim).filter(|part| !part.is_empty());
    let numbers: Option<Vec<Value>> = parts()
        .map(|part| {
            part.parse::<i64>()
                .map(Value::Integer)
                .or_else(|_| part.parse::<f64>().map(Value::Float))
                .ok()
        })
        .collect();
    let words = Value::Array(parts().map(|part| Value::String(part.to_owned())).collect());
    [
        Some(whole.clone()),
        parsed,
        numbers.map(Value::Array),
        Some(words),
    ]
    .into_iter()
    .flatten()
    .find(|value| try_key(key, value).is_ok())
    .unwrap_or(whole)
}

/// Whether `value` has the type of `key`; if not, why.
fn try_key(key: &str, value: &Value) -> Result<(), String> {
    let mut table = Table::new();
    put(&mut table, key, value.clone());
    Config::deserialize(table)
        .map(drop)
        .map_err(|error| format!("{key}: {}", error.message()))
}

fn put(table: &mut Table, key: &str, value: Value) {
    match key.split_once('.') {
        None => drop(table.insert(key.to_owned(), value)),
        Some((section, rest)) => {
            let inner = table.entry(section).or_insert_with(|| Value::Table(Table::new()));
            if let Value::Table(inner) = inner {
                put(inner, rest, value);
            }
        }
    }
}

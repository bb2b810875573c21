//! The layers of a configuration: defaults, then the file, then the environment, then flags.
//!
//! Owns: reading each layer, naming its mistakes with their place, and the origin of each effective value. Refuses:
//! ranges (`validate`) and printing.

use super::file::file_layer;
use super::names::{env_name, keys, nearest, unknown_key};
use super::print::{is_headers, names_secret_files};
use super::problem::{Origin, Problem, Problems};
use super::validate::{Invalid, validate};
use super::{Config, DEFAULT_FILE, ENV_PREFIX, SECTIONS};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use toml::{Table, Value};

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
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) value: Value,
    pub(super) origin: Origin,
    /// For a list of tables in a file: where each is.
    pub(super) items: Vec<Origin>,
}

impl Entry {
    fn new(key: String, value: Value, origin: Origin) -> Entry {
        Entry {
            key,
            value,
            origin,
            items: Vec::new(),
        }
    }
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
            None => entries.push(Entry::new(key, value, origin)),
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
    // Where each table of a list is, as `discover.rule[0]`.
    let mut places = BTreeMap::new();
    for Entry {
        key,
        value,
        origin,
        items,
    } in entries
    {
        let before = problems.len();
        match value
            .as_array()
            .filter(|list| list.len() == items.len() && !items.is_empty())
        {
            Some(list) => {
                for (index, (item, origin)) in list.iter().zip(items).enumerate() {
                    if let Err(message) = try_key(&key, &Value::Array(vec![item.clone()])) {
                        problems.push(Problem {
                            origin: origin.clone(),
                            message,
                        });
                    }
                    places.insert(format!("{key}[{index}]"), origin);
                }
            }
            None => {
                if let Err(message) = try_key(&key, &value) {
                    problems.push(Problem {
                        origin: origin.clone(),
                        message,
                    });
                }
            }
        }
        if problems.len() == before {
            put(&mut merged, &key, value);
            origins.insert(key, origin);
        }
    }
    let config = Config::deserialize(merged).unwrap_or_else(|error| {
        let origin = file.map_or(Origin::Default, |path| Origin::File {
            path: path.to_owned(),
            line: 0,
        });
        problems.push(Problem {
            origin,
            message: error.message().to_owned(),
        });
        Config::default()
    });
    for Invalid { key, reason } in validate(&config) {
        let plain = key.split('[').next().unwrap_or(&key);
        let origin = places
            .get(&key)
            .or_else(|| origins.get(plain))
            .cloned()
            .unwrap_or(Origin::Default);
        problems.push(Problem {
            origin,
            message: format!("{plain}: {reason}"),
        });
    }
    if problems.is_empty() {
        return Ok(Loaded {
            config,
            origins,
            file: file.map(Path::to_owned),
        });
    }
    // As the reader goes through the layers: down the file, then the environment, then the flags.
    problems.sort_by_key(|problem| match &problem.origin {
        Origin::Default => (0, 0),
        Origin::File { line, .. } => (1, *line),
        Origin::Env(_) => (2, 0),
        Origin::Flag(_) => (3, 0),
    });
    Err(Problems(problems))
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
            entries.push(Entry::new(key, value, origin));
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
    Config::deserialize(table).map(drop).map_err(|error| {
        if is_headers(key) {
            // The deserialiser repeats the value, which may be a credential.
            return format!("{key}: expected names with texts, as in {{ \"X-Scope-OrgID\" = \"team-a\" }}");
        }
        if names_secret_files(key) {
            // A credential by mistake.
            return format!("{key}: expected absolute paths of files, as in \"/etc/infertap/key\"; in header_files by names of headers");
        }
        format!("{key}: {}", in_words(error.message()))
    })
}

/// The deserialiser's message without the names of Rust's types.
fn in_words(message: &str) -> String {
    const WORDS: [(&str, &str); 8] = [
        ("expected u16", "expected a whole number from 0 to 65535"),
        ("expected u32", "expected a whole number from 0 to 4294967295"),
        ("expected u64", "expected a whole number, 0 or more"),
        ("expected usize", "expected a whole number, 0 or more"),
        ("expected f64", "expected a number"),
        ("expected a sequence", "expected a list, as in [1, 2]"),
        (
            "invalid socket address syntax",
            "write an address and a port, as in \"127.0.0.1:9464\" or \"[::]:9464\"",
        ),
        ("expected a boolean", "expected true or false"),
    ];
    WORDS
        .iter()
        .fold(message.to_owned(), |text, (from, to)| text.replace(from, to))
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

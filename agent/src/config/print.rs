//! Writing a configuration with the documentation of each key: the sample file, the reference, and what is in effect.
//!
//! Owns: the layout. Refuses: the words, which are the doc comments of the keys.

use super::layers::Loaded;
use super::names::env_name;
use super::{Config, SECTIONS, SectionInfo};
use std::fmt::Write as _;
use toml::{Table, Value};

/// What is printed in the place of a secret.
const MASK: &str = "***";
/// Widest comment line.
const WIDTH: usize = 100;

/// The sample file: every key with its documentation, at its default.
pub fn sample() -> String {
    let mut out = String::from(
        "# Configuration of infertap: every key, at its default. Keys may be left out.\n\
         # An environment variable named INFERTAP_SECTION_KEY overrides a key (INFERTAP_SERVER_LISTEN), a flag overrides both.\n\
         # `infertap config check FILE` checks a file, `infertap config print` shows what is in effect and where it comes from.\n",
    );
    write_toml(&mut out, &Config::default(), &|_| None);
    out
}

/// The effective configuration: every key with its documentation and its origin.
pub fn effective(loaded: &Loaded) -> String {
    let mut out = String::new();
    write_toml(&mut out, &loaded.config, &|key| {
        Some(loaded.origin(key).to_string())
    });
    out.trim_start().to_owned()
}

fn write_toml(out: &mut String, config: &Config, origin: &dyn Fn(&str) -> Option<String>) {
    // Writing to a String does not fail.
    let values = Table::try_from(config).unwrap_or_default();
    for section in SECTIONS {
        let _ = writeln!(out);
        comment(out, &paragraph(section.doc));
        if section.list {
            write_list(out, section, lookup(&values, section.name), origin);
            continue;
        }
        let _ = writeln!(out, "[{}]", section.name);
        for key in section.keys {
            let path = format!("{}.{}", section.name, key.name);
            let Some(value) = lookup(&values, &path).filter(|_| !is_list(&path)) else {
                continue;
            };
            comment(out, &paragraph(key.doc));
            if let Some(origin) = origin(&path) {
                let _ = writeln!(out, "# ({origin})");
            }
            match masked(&path, value) {
                Some(masked) => {
                    let _ = writeln!(out, "# (the values are not printed)\n{} = {masked}", key.name);
                }
                None => {
                    let _ = writeln!(out, "{} = {value}", key.name);
                }
            }
        }
    }
}

/// Headers of destinations without their values, any of which may be a credential, whatever its name; `None` for all else.
fn masked(path: &str, value: &Value) -> Option<Value> {
    let headers = value.as_table().filter(|table| !table.is_empty())?;
    let masked = headers
        .keys()
        .map(|name| (name.clone(), Value::String(MASK.to_owned())));
    is_headers(path).then(|| Value::Table(masked.collect()))
}

/// The key holds headers that are sent to a destination.
pub(super) fn is_headers(path: &str) -> bool {
    path.split_once('.').is_some_and(|(_, key)| key == "headers")
}

/// The key names files with secrets, and may have the secrets themselves by mistake.
pub(super) fn names_secret_files(path: &str) -> bool {
    const KEYS: [&str; 3] = ["header_files", "bearer_token_file", "basic_auth_file"];
    path.split_once('.').is_some_and(|(_, key)| KEYS.contains(&key))
}

fn write_list(
    out: &mut String,
    section: &SectionInfo,
    value: Option<&Value>,
    origin: &dyn Fn(&str) -> Option<String>,
) {
    for key in section.keys {
        comment(out, &format!("{}: {}", key.name, paragraph(key.doc)));
    }
    let items = value.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    if items.is_empty() {
        let _ = writeln!(out, "#\n# [[{}]]", section.name);
        for line in section.example.lines() {
            let _ = writeln!(out, "# {line}");
        }
    }
    if let (false, Some(origin)) = (items.is_empty(), origin(section.name)) {
        let _ = writeln!(out, "# ({origin})");
    }
    for item in items.iter().filter_map(Value::as_table) {
        let _ = writeln!(out, "[[{}]]", section.name);
        for (name, value) in item {
            let _ = writeln!(out, "{name} = {value}");
        }
    }
}

/// The reference for the documentation, as Markdown.
pub fn reference() -> String {
    let mut out = String::from(
        "# Configuration\n\n\
         infertap reads a TOML file: the one named with `--config` (or in `INFERTAP_CONFIG`), else\n\
         `/etc/infertap/infertap.toml` where that exists. Every key may be left out. Layers, each overriding the ones before:\n\n\
         1. defaults\n2. the file\n3. environment variables\n4. flags\n\n\
         The environment variable of a key is `INFERTAP_`, the section, `_` and the key, in capitals. A list is written\n\
         with commas (`INFERTAP_DISCOVER_PORTS=8000,8001`) or as TOML. The flag `--set section.key=value` sets any key.\n\n\
         Unknown keys, wrong types and values out of range are refused, with their place. `infertap config check FILE`\n\
         checks a file; `infertap config print` shows what is in effect, and where each value comes from.\n\
         `deploy/infertap.toml` is a file with every key at its default.\n",
    );
    let values = Table::try_from(Config::default()).unwrap_or_default();
    for section in SECTIONS {
        let title = if section.list {
            format!("[[{}]]", section.name)
        } else {
            format!("[{}]", section.name)
        };
        let _ = writeln!(out, "\n## `{title}`\n\n{}\n", paragraph(section.doc));
        if section.list {
            out.push_str("| key | meaning |\n|---|---|\n");
        } else {
            out.push_str("| key | default | environment variable | meaning |\n|---|---|---|---|\n");
        }
        for key in section.keys {
            let path = format!("{}.{}", section.name, key.name);
            let doc = paragraph(key.doc).replace('|', "\\|");
            if section.list {
                let _ = writeln!(out, "| `{}` | {doc} |", key.name);
            } else if let Some(value) = lookup(&values, &path).filter(|_| !is_list(&path)) {
                let _ = writeln!(
                    out,
                    "| `{}` | `{value}` | `{}` | {doc} |",
                    key.name,
                    env_name(&path)
                );
            }
        }
        if section.list {
            let _ = writeln!(out, "\n```toml\n{title}\n{}\n```", section.example.trim_end());
        }
    }
    out
}

fn is_list(path: &str) -> bool {
    SECTIONS
        .iter()
        .any(|section| section.list && section.name == path)
}

fn lookup<'t>(table: &'t Table, path: &str) -> Option<&'t Value> {
    match path.split_once('.') {
        None => table.get(path),
        Some((section, rest)) => lookup(table.get(section)?.as_table()?, rest),
    }
}

fn paragraph(lines: &[&str]) -> String {
    lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ")
}

/// Writes text as comment lines of at most [`WIDTH`] characters.
fn comment(out: &mut String, text: &str) {
    let mut line = String::from("#");
    for word in text.split_whitespace() {
        if line.chars().count() + 1 + word.chars().count() > WIDTH {
            let _ = writeln!(out, "{line}");
            line = String::from("#");
        }
        line.push(' ');
        line.push_str(word);
    }
    let _ = writeln!(out, "{line}");
}

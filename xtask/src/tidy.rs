//! `cargo xtask tidy`: what a reviewer should not have to look for.
//!
//! Owns: formatting, lints, file length, file headers, dependency licences. Refuses: fixing anything.

use crate::sh;
use anyhow::{Context, Result, bail};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Lines that a file may have before it should be split, tests in it included.
const MAX_LINES: usize = 420;

/// Licences that the product may link to. `deny.toml` holds the same list for `cargo deny`.
const LICENSES: &[&str] = &[
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "MPL-2.0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Check what a reviewer should not have to look for.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Leave out clippy, which compiles everything
    #[arg(long)]
    no_clippy: bool,
}

/// Entry of the command.
pub(crate) fn run(args: &Args) -> Result<()> {
    let mut problems = Vec::new();
    let mut check = |name: &str, result: Result<()>| match result {
        Ok(()) => println!("tidy: {name}: ok"),
        Err(error) => {
            println!("tidy: {name}: FAILED");
            problems.push(format!("{name}: {error:#}"));
        }
    };
    check(
        "formatting",
        sh::run(sh::cargo().args(["fmt", "--all", "--check"])),
    );
    check("files", check_files());
    check("licences", check_licenses());
    if let Some(version) = sh::probe(
        sh::cargo()
            .args(["deny", "--version"])
            .stderr(std::process::Stdio::null()),
    ) {
        // Advisories need a database from the network, so they are left to the operator's own CI.
        check(
            &version,
            sh::run(sh::cargo().args(["deny", "check", "licenses", "bans", "sources"])),
        );
    }
    if !args.no_clippy {
        let mut clippy = sh::cargo();
        clippy.args([
            "clippy",
            "--workspace",
            "--all-targets",
            "--quiet",
            "--",
            "-D",
            "warnings",
        ]);
        check("clippy", sh::run(&mut clippy));
    }
    if problems.is_empty() {
        Ok(())
    } else {
        bail!("not tidy:\n  {}", problems.join("\n  "))
    }
}

fn check_files() -> Result<()> {
    let mut files = Vec::new();
    for folder in ["agent", "ebpf", "tests", "xtask"] {
        collect(&sh::root().join(folder), &mut files)?;
    }
    files.sort();
    let mut problems = Vec::new();
    for file in &files {
        let text = fs::read_to_string(file).with_context(|| format!("can't read {}", file.display()))?;
        let name = file.strip_prefix(sh::root()).unwrap_or(file).display();
        problems.extend(
            problems_of(&text)
                .into_iter()
                .map(|problem| format!("{name}: {problem}")),
        );
    }
    if problems.is_empty() {
        Ok(())
    } else {
        bail!("\n    {}", problems.join("\n    "))
    }
}

/// What is wrong with one Rust source text.
fn problems_of(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let lines = text.lines().count();
    if lines > MAX_LINES {
        problems.push(format!(
            "{lines} lines, more than {MAX_LINES}: split it by what it owns"
        ));
    }
    let first = text
        .lines()
        .find(|line| !line.trim().is_empty() && !line.starts_with("#!"))
        .unwrap_or_default();
    if !first.starts_with("//!") {
        problems.push("does not open with `//!` lines that say what it owns and what it refuses".to_owned());
    }
    for (at, line) in text.lines().enumerate() {
        let unfinished = ["TO\u{44}O", "FIX\u{4d}E", "X\u{58}X"]
            .iter()
            .find(|word| line.contains(**word));
        if let Some(word) = unfinished {
            problems.push(format!("line {}: {word}", at + 1));
        }
        if line.trim() == "#[ignore]" || line.trim().starts_with("#[ignore =") {
            problems.push(format!("line {}: an ignored test proves nothing", at + 1));
        }
    }
    problems
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("can't list {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            if path.file_name().is_some_and(|name| name != "target") {
                collect(&path, files)?;
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

/// Of both workspaces: what users link, and what the BPF object is made of.
fn check_licenses() -> Result<()> {
    let mut problems = Vec::new();
    for manifest in ["Cargo.toml", "ebpf/Cargo.toml"] {
        let metadata = |offline: &[&str]| {
            let mut command = sh::cargo();
            command.args([
                "metadata",
                "--quiet",
                "--format-version",
                "1",
                "--locked",
                // As deny.toml: what only other systems link is in nothing that is built here.
                "--filter-platform",
                "x86_64-unknown-linux-gnu",
                "--filter-platform",
                "aarch64-unknown-linux-gnu",
                "--manifest-path",
                manifest,
            ]);
            sh::output(command.args(offline))
        };
        let text = metadata(&["--offline"]).or_else(|_| metadata(&[]))?;
        let metadata: serde_json::Value =
            serde_json::from_str(&text).context("cargo metadata printed no JSON")?;
        let packages = metadata["packages"]
            .as_array()
            .context("cargo metadata lists no packages")?;
        for package in packages {
            let name = package["name"].as_str().unwrap_or("?");
            match package["license"].as_str() {
                Some(expression) if allowed(expression) => {}
                Some(expression) => problems.push(format!("{name}: {expression}")),
                None => problems.push(format!("{name}: names no licence")),
            }
        }
    }
    if problems.is_empty() {
        Ok(())
    } else {
        bail!("licences not on the list:\n    {}", problems.join("\n    "))
    }
}

/// Whether an SPDX expression can be met with allowed licences alone. `/` is the old way to write OR.
fn allowed(expression: &str) -> bool {
    let spaced = expression
        .replace('/', " OR ")
        .replace('(', " ( ")
        .replace(')', " ) ");
    let mut words = spaced.split_whitespace().peekable();
    let met = any_of(&mut words);
    met == Some(true) && words.next().is_none()
}

type Words<'a, 'b> = &'a mut std::iter::Peekable<std::str::SplitWhitespace<'b>>;

fn any_of(words: Words<'_, '_>) -> Option<bool> {
    let mut met = all_of(words)?;
    while words.next_if_eq(&"OR").is_some() {
        met |= all_of(words)?;
    }
    Some(met)
}

fn all_of(words: Words<'_, '_>) -> Option<bool> {
    let mut met = one(words)?;
    while words.next_if_eq(&"AND").is_some() {
        met &= one(words)?;
    }
    Some(met)
}

fn one(words: Words<'_, '_>) -> Option<bool> {
    let word = words.next()?;
    if word == "(" {
        let met = any_of(words)?;
        words.next_if_eq(&")")?;
        return Some(met);
    }
    if words.next_if_eq(&"WITH").is_some() {
        let exception = words.next()?;
        return Some(LICENSES.contains(&format!("{word} WITH {exception}").as_str()));
    }
    Some(LICENSES.contains(&word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn licence_expressions() {
        for expression in [
            "MIT",
            "MIT OR GPL-3.0",
            "Apache-2.0/MIT",
            "(MIT OR GPL-2.0-only) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception OR GPL-3.0",
        ] {
            assert!(allowed(expression), "{expression}");
        }
        for expression in [
            "GPL-3.0",
            "MIT AND GPL-3.0",
            "",
            "MIT OR",
            "(MIT",
            "Apache-2.0 WITH Other-exception",
            "MIT MIT",
        ] {
            assert!(!allowed(expression), "{expression}");
        }
    }

    #[test]
    fn the_licence_list_is_the_one_of_deny_toml() {
        let text = fs::read_to_string(sh::root().join("deny.toml")).unwrap();
        let listed: Vec<&str> = text
            .lines()
            .skip_while(|line| !line.starts_with("allow = ["))
            .skip(1)
            .take_while(|line| !line.starts_with(']'))
            .map(|line| line.trim().trim_matches(&['"', ','][..]))
            .collect();
        assert_eq!(listed, LICENSES);
    }

    #[test]
    fn file_rules() {
        assert!(problems_of("//! Owns it.\nfn main() {}\n").is_empty());
        assert!(problems_of("#![no_std]\n//! Owns it.\n").is_empty());
        assert_eq!(problems_of("fn main() {}\n").len(), 1);
        assert_eq!(
            problems_of(&("//! Long.\n".to_owned() + &"\n".repeat(MAX_LINES))).len(),
            1
        );
        assert_eq!(problems_of("//! x\n#[test]\n#[ignore]\n").len(), 1);
        assert_eq!(problems_of(&format!("//! x\n// TO{}O: later\n", 'D')).len(), 1);
    }
}

//! Builds what the commands run: the agent, the test executables.
//!
//! Owns: calling cargo and finding what it made. Refuses: knowing cargo's folder layout; its messages tell.

use crate::sh;
use anyhow::{Context, Result};
use serde_json::Value;
use std::path::PathBuf;

/// Builds the agent (release profile) and returns its executable.
pub(crate) fn agent() -> Result<PathBuf> {
    binary("infertap", "infertap", &["--release"])
}

/// Builds the agent as the tests run it, in cargo's development profile, and returns its executable: that has its
/// assertions, and shares every dependency with the tests, where a release build takes longer than most tests.
pub(crate) fn tested_agent() -> Result<PathBuf> {
    binary("infertap", "infertap", &[])
}

/// Builds one executable of a package.
pub(crate) fn binary(package: &str, name: &str, more: &[&str]) -> Result<PathBuf> {
    let artifacts = artifacts(&[&["build", "--package", package, "--bin", name][..], more].concat())?;
    let of_bin =
        |message: &&Value| message["target"]["name"] == name && message["target"]["kind"][0] == "bin";
    executable(artifacts.iter().find(of_bin)).with_context(|| format!("cargo built no {name}"))
}

/// Builds the test executables that the arguments choose: name and path of each.
pub(crate) fn tests(arguments: &[&str]) -> Result<Vec<(String, PathBuf)>> {
    let artifacts = artifacts(&[&["test", "--no-run"][..], arguments].concat())?;
    let tests = artifacts
        .iter()
        .filter(|message| message["profile"]["test"] == true);
    Ok(tests
        .filter_map(|message| {
            Some((
                message["target"]["name"].as_str()?.to_owned(),
                executable(Some(message))?,
            ))
        })
        .collect())
}

fn executable(message: Option<&Value>) -> Option<PathBuf> {
    message?["executable"].as_str().map(PathBuf::from)
}

fn artifacts(arguments: &[&str]) -> Result<Vec<Value>> {
    let mut command = sh::cargo();
    command
        .args(arguments)
        .args(["--message-format", "json-render-diagnostics"]);
    eprintln!("$ {}", sh::display(&command));
    let messages = sh::output(&mut command)?;
    let parsed = messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    Ok(parsed
        .filter(|message| message["reason"] == "compiler-artifact")
        .collect())
}

/// Cargo's target folder for this workspace.
pub(crate) fn target_folder() -> Result<PathBuf> {
    let text = sh::output(sh::cargo().args(["metadata", "--format-version", "1", "--no-deps"]))?;
    let metadata: Value = serde_json::from_str(&text)?;
    metadata["target_directory"]
        .as_str()
        .map(PathBuf::from)
        .context("cargo metadata names no target directory")
}

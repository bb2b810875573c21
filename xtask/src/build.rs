//! Builds what the commands run: the agent, the test executables.
//!
//! Owns: calling cargo and finding what it made. Refuses: knowing cargo's folder layout; its messages tell.

use crate::sh;
use anyhow::{Context, Result};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Builds the agent (release profile) and returns its executable.
pub(crate) fn agent() -> Result<PathBuf> {
    binary("infertap", "infertap", &["--release"])
}

/// What every build of tests asks cargo for: with another choice of packages or features, and so another set of features for
/// each dependency, cargo would compile most of them, the core and the agent once more.
pub(crate) const TESTED: [&str; 3] = ["--workspace", "--features", "infertap-tests/live"];

/// What tests that load BPF programs run.
pub(crate) struct Live {
    /// The agent, in cargo's development profile: that has its assertions, and shares every dependency with the tests.
    pub(crate) agent: PathBuf,
    /// The scripted server.
    pub(crate) server: PathBuf,
    /// Test executables, by name.
    pub(crate) tests: Vec<(String, PathBuf)>,
}

/// Builds what tests that load BPF programs run, of the tests those whose names fit `tests`, a pattern as cargo has them.
pub(crate) fn live(tests: &str) -> Result<Live> {
    let targets = ["--bin", "infertap", "--bin", "scripted-server", "--test", tests];
    let artifacts = artifacts(&[&["build"][..], &TESTED, &targets].concat())?;
    let binary = |name| find_binary(&artifacts, name);
    Ok(Live {
        agent: binary("infertap")?,
        server: binary("scripted-server")?,
        tests: find_tests(&artifacts),
    })
}

/// A test executable, and the folder of its package.
pub(crate) struct HostTest {
    /// Name of the library, program or file that it tests.
    pub(crate) name: String,
    pub(crate) executable: PathBuf,
    pub(crate) folder: PathBuf,
}

/// Builds all tests, and gives those that need neither root nor anything else of the machine: those that need no feature.
pub(crate) fn all_tests() -> Result<Vec<HostTest>> {
    let artifacts = artifacts(&[&["test", "--no-run"][..], &TESTED].concat())?;
    let needs_none = |target: &Value| target["required-features"].as_array().is_none_or(Vec::is_empty);
    let tests = artifacts
        .iter()
        .filter(|message| message["profile"]["test"] == true && needs_none(&message["target"]));
    Ok(tests
        .filter_map(|message| {
            Some(HostTest {
                name: message["target"]["name"].as_str()?.to_owned(),
                executable: executable(Some(message))?,
                folder: Path::new(message["manifest_path"].as_str()?).parent()?.to_owned(),
            })
        })
        .collect())
}

/// Builds one executable of a package.
pub(crate) fn binary(package: &str, name: &str, more: &[&str]) -> Result<PathBuf> {
    let artifacts = artifacts(&[&["build", "--package", package, "--bin", name][..], more].concat())?;
    find_binary(&artifacts, name)
}

fn find_binary(artifacts: &[Value], name: &str) -> Result<PathBuf> {
    let of_bin = |message: &&Value| {
        message["target"]["name"] == name
            && message["target"]["kind"][0] == "bin"
            && message["profile"]["test"] == false
    };
    executable(artifacts.iter().find(of_bin)).with_context(|| format!("cargo built no {name}"))
}

fn find_tests(artifacts: &[Value]) -> Vec<(String, PathBuf)> {
    artifacts
        .iter()
        .filter(|message| message["profile"]["test"] == true)
        .filter_map(|message| {
            Some((
                message["target"]["name"].as_str()?.to_owned(),
                executable(Some(message))?,
            ))
        })
        .collect()
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

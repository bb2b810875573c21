//! The queries that `deploy/` ships: every panel and variable of the dashboards, every rule of the alerts and the long-term
//! series.
//!
//! Owns: finding them and evaluating them against a real Prometheus. Refuses: what their numbers should be.

use crate::prometheus::Prometheus;
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// One PromQL expression and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// "panel Time to first token, query B".
    pub origin: String,
    /// The expression, dashboard variables replaced.
    pub expr: String,
    /// How series are named, as in `{{model}} P95`; empty where they are not.
    pub legend: String,
}

/// A query's answer.
#[derive(Debug, Clone)]
pub struct Answer {
    /// Asked.
    pub query: Query,
    /// How many series answered.
    pub series: usize,
}

/// The repository's root.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The dashboards' paths.
pub fn dashboard_paths() -> [PathBuf; 2] {
    ["infertap.json", "infertap-cost.json"].map(|name| repository().join("deploy/grafana").join(name))
}

/// The alert rules' path.
pub fn alerts_path() -> PathBuf {
    repository().join("deploy/prometheus/infertap-alerts.yml")
}

/// The path of the rules for series that outlive the raw ones.
pub fn recording_path() -> PathBuf {
    repository().join("deploy/prometheus/infertap-recording.yml")
}

/// Reads one JSON file.
pub fn read_json(path: &Path) -> Result<Value> {
    let text = std::fs::read_to_string(path).with_context(|| format!("can't read {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} is not JSON", path.display()))
}

/// Every panel, those inside collapsed rows too.
pub fn panels(dashboard: &Value) -> Vec<&Value> {
    let mut out = Vec::new();
    for panel in dashboard["panels"].as_array().into_iter().flatten() {
        out.push(panel);
        out.extend(panel["panels"].as_array().into_iter().flatten());
    }
    out
}

/// Every query of a dashboard's panels and variables, with the variables set to "all".
///
/// # Errors
/// A target without an expression, or a variable that would be left unreplaced.
pub fn dashboard_queries(dashboard: &Value) -> Result<Vec<Query>> {
    let mut out = Vec::new();
    for panel in panels(dashboard) {
        let title = panel["title"].as_str().context("a panel without a title")?;
        for target in panel["targets"].as_array().into_iter().flatten() {
            let origin = format!("panel {title}, query {}", target["refId"].as_str().unwrap_or("?"));
            let expr = target["expr"]
                .as_str()
                .with_context(|| format!("{origin}: no expression"))?;
            out.push(Query {
                expr: substitute(expr).with_context(|| origin.clone())?,
                legend: target["legendFormat"].as_str().unwrap_or_default().to_owned(),
                origin,
            });
        }
    }
    for variable in dashboard["templating"]["list"].as_array().into_iter().flatten() {
        let name = variable["name"].as_str().context("a variable without a name")?;
        if variable["type"] == "query" {
            let origin = format!("variable {name}");
            let definition = variable["definition"]
                .as_str()
                .with_context(|| format!("{origin}: no query"))?;
            let series = definition
                .strip_prefix("label_values(")
                .and_then(|rest| rest.strip_suffix(')'))
                .and_then(|rest| rest.rsplit_once(','))
                .with_context(|| format!("{origin}: {definition:?} is not label_values(series, label)"))?
                .0;
            out.push(Query {
                expr: substitute(series).with_context(|| origin.clone())?,
                legend: String::new(),
                origin,
            });
        }
    }
    Ok(out)
}

/// Scrapes `target` with a real Prometheus that has all rules loaded, then evaluates every query of the
/// dashboards and of the rules.
///
/// # Errors
/// A query or a rule that Prometheus refuses, or a legend that names a label which the answer has not: all of them are
/// named. A query without an answer is no error; the caller knows what its target exports.
pub fn evaluate(target: SocketAddr) -> Result<Vec<Answer>> {
    let folder = tempfile::tempdir().context("no temporary directory")?;
    let recording = hurried(&recording_path(), folder.path())?;
    let server = Prometheus::start_with_rules(target, &[alerts_path(), recording])?;
    // Rates and increases need two points.
    server.wait_for_scrapes(3)?;
    let mut queries = Vec::new();
    for path in dashboard_paths() {
        let of_one = dashboard_queries(&read_json(&path)?)?;
        ensure!(!of_one.is_empty(), "{} has no queries", path.display());
        queries.extend(of_one);
    }
    // Some panels read what the rules record, which they do a moment after the second scrape.
    server.wait_for_series("model_scene:llm_input_tokens:increase5m")?;
    let mut answers = Vec::new();
    let mut refused = Vec::new();
    let rules = server.rules()?;
    ensure!(!rules.is_empty(), "prometheus loaded no rules");
    for rule in rules {
        if let Some(error) = rule.error {
            refused.push(format!("rule {}: {error}", rule.name));
        }
        queries.push(Query {
            origin: format!("rule {}", rule.name),
            expr: rule.expr,
            legend: String::new(),
        });
    }
    for query in queries {
        match server.query(&query.expr) {
            Ok(samples) => {
                let missing = |label: &str| samples.iter().any(|s| !s.labels.contains_key(label));
                if let Some(label) = legend_labels(&query.legend).find(|label| missing(label)) {
                    refused.push(format!(
                        "{}: the answer has no label {label:?}, which its legend names",
                        query.origin
                    ));
                }
                answers.push(Answer {
                    series: samples.len(),
                    query,
                });
            }
            Err(error) => refused.push(format!("{}: {}\n  {error}", query.origin, query.expr)),
        }
    }
    if !refused.is_empty() {
        bail!("shipped queries that do not work:\n{}", refused.join("\n"));
    }
    Ok(answers)
}

/// A copy of a file of rules that are evaluated every second rather than every five minutes.
fn hurried(rules: &Path, folder: &Path) -> Result<PathBuf> {
    let text = std::fs::read_to_string(rules).with_context(|| format!("can't read {}", rules.display()))?;
    let text = text.replace("interval: 5m", "interval: 1s");
    let copy = folder.join("recording.yml");
    std::fs::write(&copy, text).context("can't write a copy of the rules")?;
    Ok(copy)
}

/// The labels that `{{label}} …` names.
fn legend_labels(legend: &str) -> impl Iterator<Item = &str> {
    legend
        .split("{{")
        .skip(1)
        .filter_map(|part| part.split_once("}}"))
        .map(|(label, _)| label.trim())
}

/// What Grafana would put in place of the variables when "all" is chosen.
fn substitute(expr: &str) -> Result<String> {
    let mut out = expr.to_owned();
    for (variable, value) in [
        ("$__rate_interval", "1m"),
        ("$__interval", "1m"),
        ("$__range", "1h"),
        ("$model", ".*"),
        ("$scene", ".*"),
        ("$engine", ".*"),
    ] {
        out = out.replace(variable, value);
    }
    ensure!(
        !out.contains('$'),
        "a variable that this test does not know: {out}"
    );
    Ok(out)
}

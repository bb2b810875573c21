//! What docs/retention.md tells to write is right: its snippets parse, its queries read series that are recorded, and what
//! it sends on is what is recorded.
//!
//! Refuses: the other documents' snippets.

use crate::read_yaml;
use infertap_tests::deployed::{recording_path, repository};
use infertap_tests::prometheus::promtool;
use infertap_tests::promql::metric_names;
use serde_json::Value;
use std::collections::BTreeSet;

/// The code blocks of one language.
fn blocks(language: &str) -> Vec<String> {
    let path = repository().join("docs/retention.md");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let fence = format!("```{language}\n");
    let found: Vec<String> = text
        .split(&fence)
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap_or_default().to_owned())
        .collect();
    assert!(!found.is_empty(), "no {language} in {}", path.display());
    found
}

fn recorded() -> BTreeSet<String> {
    let file = read_yaml(&recording_path()).remove(0);
    let groups = file["groups"].as_array().expect("groups");
    let rules = groups
        .iter()
        .flat_map(|group| group["rules"].as_array().expect("rules"));
    rules
        .filter_map(|rule| rule["record"].as_str().map(str::to_owned))
        .collect()
}

#[test]
fn every_query_reads_series_that_are_recorded_and_prometheus_takes_it() {
    let recorded = recorded();
    let queries: Vec<String> = blocks("promql")
        .iter()
        .flat_map(|block| block.lines())
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(str::to_owned)
        .collect();
    assert!(queries.len() > 5, "{queries:?}");
    for query in &queries {
        let names = metric_names(query);
        assert!(!names.is_empty(), "reads nothing: {query}");
        let unknown: Vec<_> = names.difference(&recorded).collect();
        assert!(unknown.is_empty(), "{query}: not recorded: {unknown:?}");
    }
    // As rules, promtool reads their expressions as Prometheus would.
    let rules: Vec<Value> = queries
        .iter()
        .enumerate()
        .map(|(at, query)| serde_json::json!({"record": format!("documented:query:{at}"), "expr": query}))
        .collect();
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = serde_json::json!({"groups": [{"name": "documented", "rules": rules}]});
    std::fs::write(dir.path().join("rules.yml"), file.to_string()).expect("a file");
    promtool(dir.path(), &["check", "rules", "rules.yml"]).unwrap_or_else(|e| panic!("{e:#}"));
}

#[test]
fn every_configuration_parses_and_prometheus_takes_its_own() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    for (at, block) in blocks("yaml").iter().enumerate() {
        let path = dir.path().join(format!("{at}.yml"));
        std::fs::write(&path, block).expect("a file");
        assert!(read_yaml(&path)[0].is_object(), "{block}");
        if block.contains("remote_write") {
            promtool(dir.path(), &["check", "config", &format!("{at}.yml")])
                .unwrap_or_else(|e| panic!("{e:#}"));
        }
    }
}

#[test]
fn what_is_sent_on_is_all_that_is_recorded_and_nothing_else() {
    let block = blocks("yaml")
        .into_iter()
        .find(|block| block.contains("remote_write"))
        .expect("a block about remote write");
    let config: Value = serde_saphyr::from_str(&block).expect("YAML");
    let pattern = config["remote_write"][0]["write_relabel_configs"][0]["regex"]
        .as_str()
        .expect("a regex");
    // Prometheus anchors it at both ends.
    let pattern = regex::Regex::new(&format!("^(?:{pattern})$")).expect("a regex");
    for name in recorded() {
        assert!(pattern.is_match(&name), "{name} is not sent on");
    }
    for raw in [
        "llm_requests_total",
        "up",
        "model_scene:llm_tokens:increase1h",
        "job:node_cpu:avg5m",
    ] {
        assert!(!pattern.is_match(raw), "{raw} is sent on");
    }
}

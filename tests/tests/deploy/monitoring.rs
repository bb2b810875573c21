//! Prometheus rules and the Grafana dashboards, as files.

use crate::read_yaml;
use infertap_tests::deployed::{
    Query, alerts_path, dashboard_paths, dashboard_queries, panels, read_json, recording_path, repository,
};
use infertap_tests::prometheus::promtool;
use infertap_tests::promql::metric_names;
use serde_json::Value;
use std::collections::BTreeSet;

fn alerts_file() -> Value {
    read_yaml(&alerts_path()).remove(0)
}

fn recording_file() -> Value {
    read_yaml(&recording_path()).remove(0)
}

fn rules(file: &Value) -> Vec<&Value> {
    file["groups"]
        .as_array()
        .expect("groups")
        .iter()
        .flat_map(|group| group["rules"].as_array().expect("rules"))
        .collect()
}

fn dashboards() -> [Value; 2] {
    dashboard_paths().map(|path| read_json(&path).unwrap_or_else(|e| panic!("{e:#}")))
}

#[test]
fn promtool_accepts_the_rules_and_their_cases_pass() {
    let dir = repository().join("deploy/prometheus");
    for args in [
        &["check", "rules", "infertap-alerts.yml"][..],
        &["check", "rules", "infertap-recording.yml"],
        &["check", "config", "prometheus.yml"],
        &["test", "rules", "infertap-alerts.test.yml"],
        &["test", "rules", "infertap-recording.test.yml"],
    ] {
        promtool(&dir, args).unwrap_or_else(|e| panic!("{e:#}"));
    }
}

#[test]
fn every_alert_says_how_bad_it_is_and_what_to_do() {
    let file = alerts_file();
    let runbook = std::fs::read_to_string(repository().join("docs/alerts.md")).expect("docs/alerts.md");
    let mut documented: BTreeSet<&str> = runbook
        .lines()
        .filter_map(|line| line.strip_prefix("## Infertap"))
        .collect();
    for rule in rules(&file) {
        let Some(name) = rule["alert"].as_str() else {
            continue;
        };
        let severity = rule["labels"]["severity"]
            .as_str()
            .unwrap_or_else(|| panic!("{name}: no severity"));
        assert!(
            ["critical", "warning", "info"].contains(&severity),
            "{name}: severity {severity}"
        );
        for annotation in ["summary", "description"] {
            assert!(
                rule["annotations"][annotation].is_string(),
                "{name}: no {annotation}"
            );
        }
        let anchor = format!("/docs/alerts.md#{}", name.to_lowercase());
        let url = rule["annotations"]["runbook_url"]
            .as_str()
            .unwrap_or_else(|| panic!("{name}: no runbook"));
        assert!(url.ends_with(&anchor), "{name}: {url} does not end in {anchor}");
        let section = name
            .strip_prefix("Infertap")
            .unwrap_or_else(|| panic!("{name} does not begin with Infertap"));
        assert!(documented.remove(section), "docs/alerts.md has no section {name}");
    }
    assert!(
        documented.is_empty(),
        "docs/alerts.md tells of alerts that do not exist: {documented:?}"
    );
}

#[test]
fn every_alert_has_a_case_that_fires_and_one_that_does_not() {
    let file = alerts_file();
    let cases = read_yaml(&repository().join("deploy/prometheus/infertap-alerts.test.yml")).remove(0);
    for rule in rules(&file) {
        let Some(name) = rule["alert"].as_str() else {
            continue;
        };
        let mut fires = false;
        let mut stays_quiet = false;
        for case in cases["tests"].as_array().expect("tests") {
            for check in case["alert_rule_test"].as_array().into_iter().flatten() {
                if check["alertname"] == name {
                    let alerts = check["exp_alerts"].as_array().expect("exp_alerts").len();
                    // Series that must stay quiet beside one that fires count too: the list is exhaustive.
                    let series = case["input_series"].as_array().expect("series").len();
                    fires |= alerts > 0;
                    stays_quiet |= alerts < series;
                }
            }
        }
        assert!(fires, "no case in which {name} fires");
        assert!(stays_quiet, "no case in which {name} stays quiet");
    }
}

#[test]
fn every_series_for_the_long_term_says_what_it_is_and_has_a_case() {
    let file = recording_file();
    let cases = read_yaml(&repository().join("deploy/prometheus/infertap-recording.test.yml")).remove(0);
    let asked: BTreeSet<String> = cases["tests"]
        .as_array()
        .expect("tests")
        .iter()
        .flat_map(|case| case["promql_expr_test"].as_array().expect("checks"))
        .flat_map(|check| metric_names(check["expr"].as_str().expect("an expression")))
        .collect();
    for group in file["groups"].as_array().expect("groups") {
        assert_eq!(group["interval"], "5m", "{}: series at 5 minutes", group["name"]);
    }
    let mut seen = BTreeSet::new();
    for rule in rules(&file) {
        let name = rule["record"]
            .as_str()
            .unwrap_or_else(|| panic!("no record: {rule}"));
        let expr = rule["expr"].as_str().expect("an expression");
        assert!(seen.insert(name), "{name} stands twice");
        assert!(asked.contains(name), "{name} is in no case");
        let [level, metric, operation] = name.split(':').collect::<Vec<_>>()[..] else {
            panic!("{name} is not level:metric:operation");
        };
        // What the name says about labels, metric and operation is what the expression does.
        let by = format!(" by ({})", level.replace('_', ", "));
        assert!(expr.contains(&by), "{name}: no{by} in {expr}");
        assert!(
            metric == "infertap_up" || expr.contains(&format!("({metric}")),
            "{name}: does not read {metric}: {expr}"
        );
        let function = match operation {
            "increase5m" => "(increase(",
            "avg5m" => "(avg_over_time(",
            "max5m" => "(max_over_time(",
            other => panic!("{name}: operation {other}"),
        };
        assert!(
            expr.contains(function) && expr.ends_with("[5m]))"),
            "{name}: {expr}"
        );
    }
}

#[test]
fn the_operators_rules_are_the_same_rules() {
    let overlay = repository().join("deploy/kubernetes/overlays/prometheus-operator");
    for (name, file) in [
        ("prometheusrule.yaml", alerts_file()),
        ("prometheusrule-recording.yaml", recording_file()),
    ] {
        let operator = read_yaml(&overlay.join(name)).remove(0);
        assert_eq!(
            operator["spec"]["groups"], file["groups"],
            "copy the groups of deploy/prometheus into {name}"
        );
    }
}

/// Metrics that Prometheus itself makes.
const OWN: &[&str] = &["up"];

/// The metrics that docs/metrics.md lists, histograms under each of their three series.
fn exported() -> BTreeSet<String> {
    let path = repository().join("docs/metrics.md");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut out = BTreeSet::new();
    // | [`name`](#name) | type | labels | unit |
    for row in text.lines().filter_map(|line| line.strip_prefix("| [`")) {
        let (name, rest) = row.split_once('`').unwrap_or_else(|| panic!("no name in {row}"));
        let kind = rest
            .split('|')
            .nth(1)
            .unwrap_or_else(|| panic!("no type in {row}"))
            .trim();
        match kind {
            "histogram" => out.extend(["_bucket", "_sum", "_count"].map(|part| format!("{name}{part}"))),
            "counter" | "gauge" => _ = out.insert(name.to_owned()),
            other => panic!("{name} is a {other}"),
        }
    }
    assert!(out.len() > 20, "docs/metrics.md lists {out:?} only");
    out
}

#[test]
fn every_query_reads_metrics_that_exist() {
    let (alerts, recording) = (alerts_file(), recording_file());
    let shipped: Vec<&Value> = rules(&alerts).into_iter().chain(rules(&recording)).collect();
    let mut known = exported();
    known.extend(OWN.iter().map(|&name| name.to_owned()));
    known.extend(
        shipped
            .iter()
            .filter_map(|rule| rule["record"].as_str())
            .map(str::to_owned),
    );
    let mut queries: Vec<Query> = dashboards()
        .iter()
        .flat_map(|dashboard| dashboard_queries(dashboard).unwrap_or_else(|e| panic!("{e:#}")))
        .collect();
    queries.extend(shipped.into_iter().map(|rule| Query {
        origin: format!("rule {}", rule["alert"].as_str().or(rule["record"].as_str()).expect("a name")),
        expr: rule["expr"].as_str().expect("an expression").to_owned(),
        legend: String::new(),
    }));
    for query in queries {
        let names = metric_names(&query.expr);
        assert!(
            !names.is_empty(),
            "{}: reads nothing: {}",
            query.origin,
            query.expr
        );
        let unknown: Vec<_> = names.difference(&known).collect();
        assert!(
            unknown.is_empty(),
            "{}: no such metric: {unknown:?}",
            query.origin
        );
    }
}

#[test]
fn every_panel_has_an_id_a_place_a_unit_and_an_explanation() {
    for dashboard in dashboards() {
        panels_are_complete(&dashboard);
    }
}

fn panels_are_complete(dashboard: &Value) {
    let mut ids = BTreeSet::new();
    let mut places = Vec::new();
    for panel in panels(dashboard) {
        let title = panel["title"]
            .as_str()
            .filter(|t| !t.is_empty())
            .unwrap_or_else(|| panic!("no title: {panel}"));
        let id = panel["id"].as_u64().unwrap_or_else(|| panic!("{title}: no id"));
        assert!(ids.insert(id), "{title}: id {id} stands twice");
        let at = |key: &str| {
            panel["gridPos"][key]
                .as_u64()
                .unwrap_or_else(|| panic!("{title}: no place"))
        };
        let place = (at("x"), at("y"), at("w"), at("h"));
        assert!(place.0 + place.2 <= 24, "{title} leaves the grid");
        for (other, (x, y, w, h)) in &places {
            let apart =
                place.0 >= x + w || *x >= place.0 + place.2 || place.1 >= y + h || *y >= place.1 + place.3;
            assert!(apart, "{title} lies over {other}");
        }
        places.push((title, place));
        if panel["type"] == "row" {
            continue;
        }
        assert!(
            panel["description"].as_str().is_some_and(|d| d.len() > 20),
            "{title}: no description"
        );
        assert!(
            panel["fieldConfig"]["defaults"]["unit"].is_string(),
            "{title}: no unit"
        );
        assert!(
            !panel["targets"].as_array().expect("targets").is_empty(),
            "{title}: no query"
        );
        let mut letters = BTreeSet::new();
        for target in panel["targets"].as_array().expect("targets") {
            assert!(
                letters.insert(target["refId"].as_str().expect("a refId")),
                "{title}: a refId stands twice"
            );
            assert_eq!(
                target["datasource"]["uid"], "${datasource}",
                "{title}: a fixed data source"
            );
        }
    }
}

/// Titles of rows, and names of variables.
fn outline(dashboard: &Value) -> (Vec<&str>, Vec<&str>) {
    let rows = panels(dashboard)
        .into_iter()
        .filter(|p| p["type"] == "row")
        .map(|p| p["title"].as_str().expect("a title"))
        .collect();
    let variables = dashboard["templating"]["list"]
        .as_array()
        .expect("variables")
        .iter()
        .map(|v| v["name"].as_str().expect("a name"))
        .collect();
    (rows, variables)
}

#[test]
fn the_dashboards_have_their_rows_and_variables() {
    let [all, cost] = dashboards();
    let (rows, variables) = outline(&all);
    assert_eq!(rows, ["Cost", "Performance", "GPU", "Troubleshooting"]);
    assert_eq!(variables, ["datasource", "model", "scene", "engine"]);
    let (rows, variables) = outline(&cost);
    assert_eq!(
        rows,
        [
            "What it cost",
            "Budgets",
            "Prefix cache",
            "Growth",
            "Days and months"
        ]
    );
    assert_eq!(variables, ["datasource", "model", "scene"]);
}

#[test]
fn no_panel_of_cost_divides_by_what_may_be_zero() {
    let [_, cost] = dashboards();
    for query in dashboard_queries(&cost).unwrap_or_else(|e| panic!("{e:#}")) {
        // Halves are of two; anything else must be above 0 to answer.
        for divisor in query.expr.split(" / ").skip(1) {
            let divisor = divisor
                .strip_prefix("on (model, scene) group_left () ")
                .unwrap_or(divisor);
            let constant = divisor.starts_with(|c: char| c.is_ascii_digit());
            assert!(
                constant || above_zero(divisor),
                "{}: {}",
                query.origin,
                query.expr
            );
        }
    }
}

/// Whether the group in brackets that a text begins with ends in `> 0`.
fn above_zero(text: &str) -> bool {
    let mut depth = 0;
    let end = text.find(|c| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        depth == 0
    });
    end.is_some_and(|end| text[..end].ends_with(" > 0"))
}

//! Rules that depend on more than the request, and other rules while the agent runs.

use super::RecordsConfig;
use crate::config::Span;
use crate::export::metrics::tests::{finished, labels, record, tokens};
use crate::export::{Exporter, MetricsConfig, ServerConfig};
use crate::store::tables::record::{self as table, Query};
use crate::store::{Reader, Store};
use infertap_core::Status;
use infertap_core::budget::{BudgetText, THRESHOLDS};
use infertap_core::observation::TokenDirection;
use std::sync::Arc;
use std::time::Duration;

#[test]
fn who_ends_over_budget_keeps_its_record() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store.db");
    let store = Arc::new(Store::open(&path, Box::new(|_| {})).expect("opens"));
    let exporter = Exporter::new(&MetricsConfig::default(), &ServerConfig::default()).expect("valid");
    let config = RecordsConfig {
        head_rate: 0.0,
        ..RecordsConfig::default()
    };
    exporter.records().keep_in(&store, &config, exporter.metrics());
    let budget = BudgetText {
        name: "b",
        scene: "search",
        model: "*",
        unit: "tokens",
        basis: "tokens",
        limit: 100.0,
        period: "month",
        time_zone: "UTC",
        thresholds: &THRESHOLDS,
    };
    exporter
        .budgets()
        .configure(vec![budget.budget().expect("a budget")]);
    let end = |id: &str, scene: &str, used: u64| {
        let labels = labels("e", "m", scene);
        let mut record = record(&labels, Status::Ok);
        record.id = id.to_owned();
        exporter.apply(&[
            tokens(&labels, TokenDirection::Output, used),
            finished(&labels, record),
        ]);
    };
    end("within", "search", 99);
    // The one that uses it up is over it at its end.
    end("the last", "search", 1);
    end("another scene", "chat", 1000);
    end("after", "search", 0);
    assert!(store.flush(Duration::from_secs(20)));
    let query = Query {
        limit: 10,
        ..Query::default()
    };
    let reader = Reader::open(&path).expect("opens");
    let found = reader.read(|db| table::newest(db, &query)).expect("reads");
    let kept: Vec<(&str, &str)> = found
        .records
        .iter()
        .map(|kept| (&*kept.record.id, &*kept.rules[0]))
        .collect();
    assert_eq!(kept, [("after", "over_budget"), ("the last", "over_budget")]);
}

#[test]
fn other_rules_and_bounds_hold_from_then_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store.db");
    let store = Arc::new(Store::open(&path, Box::new(|_| {})).expect("opens"));
    let exporter = Exporter::new(&MetricsConfig::default(), &ServerConfig::default()).expect("valid");
    let mut config = RecordsConfig {
        head_rate: 0.0,
        ..RecordsConfig::default()
    };
    // Nobody keeps anything yet.
    exporter.records().configure(&config);
    exporter.records().keep_in(&store, &config, exporter.metrics());
    let end = |id: &str| {
        let labels = labels("e", "m", "s");
        let mut record = record(&labels, Status::Ok);
        record.id = id.to_owned();
        exporter.apply(&[finished(&labels, record)]);
    };
    let ids = || {
        exporter.records().advance();
        assert!(store.flush(Duration::from_secs(20)));
        let query = Query {
            limit: 10,
            ..Query::default()
        };
        let reader = Reader::open(&path).expect("opens");
        let found = reader.read(|db| table::newest(db, &query)).expect("reads");
        let ids = found.records.iter().map(|kept| kept.record.id.clone());
        ids.collect::<Vec<_>>()
    };
    end("before");
    assert_eq!(ids(), [""; 0]);
    config.head_rate = 1.0;
    exporter.records().configure(&config);
    end("after");
    assert_eq!(ids(), ["after"]);
    // Old ones go at once, not at the next minute.
    std::thread::sleep(Duration::from_millis(20));
    config.keep = Span::millis(1);
    exporter.records().configure(&config);
    assert_eq!(ids(), [""; 0]);
}

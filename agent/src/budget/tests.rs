//! Budgets of an agent: kept over restarts, told once, changed while it runs.

use super::*;
use crate::export::metrics::Format;
use crate::export::{Exporter, MetricsConfig, ServerConfig};
use crate::store::Store;
use infertap_core::Observation;
use infertap_core::money::{Amount, Basis, Charge, ChargeKind};
use infertap_core::observation::{Labels, TokenDirection};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// One life of an agent.
struct Life {
    exporter: Arc<Exporter>,
    store: Arc<Store>,
    thread: Option<KeeperThread>,
}

fn config(limit: f64, scene: &str) -> BudgetConfig {
    BudgetConfig {
        name: "b".to_owned(),
        scene: scene.to_owned(),
        limit,
        ..BudgetConfig::default()
    }
}

impl Life {
    fn start(path: &Path, config: &BudgetConfig) -> Life {
        let exporter = Exporter::new(&MetricsConfig::default(), &ServerConfig::default()).expect("valid");
        let store = Arc::new(Store::open(path, Box::new(|_| {})).expect("opens"));
        exporter.budgets().keep_in(&store);
        let life = Life {
            thread: Some(KeeperThread::start(&exporter).expect("starts")),
            exporter,
            store,
        };
        life.configure(config);
        life
    }

    fn configure(&self, config: &BudgetConfig) {
        let budgets = budgets(std::slice::from_ref(config)).expect("valid");
        self.exporter.budgets().configure(budgets);
    }

    fn tokens(&self, count: u64) {
        let labels = Labels {
            engine: "e".into(),
            model: "m".into(),
            scene: "search".into(),
        };
        for direction in [TokenDirection::Input, TokenDirection::Output] {
            self.exporter.apply(&[Observation::Tokens {
                labels: labels.clone(),
                request: 1,
                client: None,
                direction,
                count: count / 2,
            }]);
        }
    }

    fn used(&self) -> f64 {
        self.exporter.budgets().report()[0].used
    }

    /// Waits until the exposition has this line.
    fn wait(&self, line: &str) {
        let start = Instant::now();
        loop {
            let text = self.exporter.metrics().encode(Format::Text).expect("encodes");
            if text.lines().any(|other| other == line) {
                return;
            }
            let budgets: Vec<_> = text.lines().filter(|line| line.contains("budget")).collect();
            assert!(
                start.elapsed() < Duration::from_secs(20),
                "no {line} in {budgets:#?}"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn events(&self, count: u64) {
        self.wait(&format!(
            "llm_budget_events_total{{budget=\"b\",threshold=\"0.8\"}} {count}"
        ));
    }

    fn stop(mut self) {
        self.thread = None;
    }
}

#[test]
#[expect(clippy::float_cmp, reason = "whole numbers, which are exact")]
fn usage_and_what_was_told_outlive_the_agent() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store.db");
    let first = Life::start(&path, &config(100.0, "search*"));
    first.events(0);
    first.tokens(90);
    first.events(1);
    first.wait("llm_budget_used_ratio{budget=\"b\",scene=\"search*\"} 0.9");
    first.stop();

    let second = Life::start(&path, &config(100.0, "search*"));
    assert_eq!(second.used(), 90.0);
    second.tokens(2);
    second.wait("llm_token_budget_used{budget=\"b\",scene=\"search*\"} 92");
    second.wait("llm_token_budget_limit{budget=\"b\",scene=\"search*\"} 100");
    second.events(0);
    second.stop();

    let third = Life::start(&path, &config(200.0, "search*"));
    third.wait("llm_token_budget_used{budget=\"b\",scene=\"search*\"} 92");
    third.events(0);
    third.tokens(68);
    third.events(1);
    third.stop();
}

#[test]
#[expect(clippy::float_cmp, reason = "whole numbers, which are exact")]
fn a_reload_keeps_what_is_measured_and_finds_what_was() {
    let folder = tempfile::tempdir().expect("a folder");
    let life = Life::start(&folder.path().join("store.db"), &config(100.0, "search*"));
    life.tokens(10);
    life.configure(&config(200.0, "search*"));
    assert_eq!(life.used(), 10.0);
    life.configure(&config(200.0, "*"));
    assert_eq!(life.used(), 0.0, "another measure");
    life.tokens(4);
    life.configure(&config(200.0, "search*"));
    assert_eq!(life.used(), 10.0, "the first measure again");
    life.wait("llm_token_budget_used{budget=\"b\",scene=\"search*\"} 10");
    life.exporter.budgets().configure(Vec::new());
    life.tokens(4);
    assert_eq!(life.exporter.budgets().report(), []);
    let start = Instant::now();
    while life
        .exporter
        .metrics()
        .encode(Format::Text)
        .expect("encodes")
        .contains("budget=")
    {
        assert!(
            start.elapsed() < Duration::from_secs(20),
            "series end with their budget"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(life.store.status().up());
    life.stop();
}

#[test]
fn charges_count_in_their_currency_and_by_their_kind_of_price() {
    let exporter = Exporter::new(&MetricsConfig::default(), &ServerConfig::default()).expect("valid");
    let of = |name: &str, unit: &str, basis: &str| BudgetConfig {
        name: name.to_owned(),
        unit: unit.to_owned(),
        basis: basis.to_owned(),
        ..config(10.0, "search*")
    };
    let all = [
        of("a", "USD", "tokens"),
        of("b", "EUR", "tokens"),
        of("c", "USD", "gpu"),
        of("d", "tokens", "tokens"),
    ];
    exporter.budgets().configure(budgets(&all).expect("valid"));
    let charge = |scene: &str, basis, units| {
        Observation::Charge(Box::new(Charge {
            request: Some(1),
            labels: Labels {
                engine: "e".into(),
                model: "m".into(),
                scene: scene.into(),
            },
            client: None,
            basis,
            currency: "USD".parse().expect("a currency"),
            kind: ChargeKind::Output,
            amount: Amount::from_units(units).expect("an amount"),
            tokens: 5,
            saved: Amount::ZERO,
        }))
    };
    exporter.apply(&[
        charge("search-web", Basis::Tokens, 2.5),
        charge("search-web", Basis::Tokens, 5.0),
        charge("search-web", Basis::Gpu, 0.25),
        charge("chat", Basis::Tokens, 100.0),
    ]);
    let used: Vec<f64> = exporter
        .budgets()
        .report()
        .iter()
        .map(|budget| budget.used)
        .collect();
    assert_eq!(
        used,
        [7.5, 0.0, 0.25, 0.0],
        "tokens are told apart from what they cost"
    );
}

#[test]
fn a_mistake_is_told_with_its_place() {
    let all = [config(1.0, "*"), config(0.0, "*"), config(1.0, "")];
    let bad = budgets(&all).expect_err("two mistakes");
    let keys: Vec<&str> = bad.iter().map(|(key, _)| &**key).collect();
    assert_eq!(keys, ["budget[1]", "budget[2]"]);
    let twice = budgets(&[config(1.0, "*"), config(2.0, "a")]).expect_err("one name");
    assert_eq!(twice[0].0, "budget[1]");
}

#[test]
fn amounts_are_readable() {
    for (value, unit, text) in [
        (0.0, "tokens", "0"),
        (999.0, "tokens", "999"),
        (1_234_567.0, "tokens", "1,234,567"),
        (1234.5, "USD", "1,234.50"),
        (0.001_234, "USD", "0.001234"),
        (0.0, "USD", "0.00"),
    ] {
        assert_eq!(amount(value, unit), text);
    }
}

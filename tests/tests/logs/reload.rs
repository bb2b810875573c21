//! Destinations that change while records are sent.
//!
//! Owns: that each record arrives once, at the destination that was configured when it came, and that counters never go back.

use super::*;
use infertap::config::Config;
use infertap::ship::Total;

fn total(outlets: &Outlets, name: &str) -> Total {
    let mut totals = outlets.totals().into_iter();
    totals
        .find(|total| total.name == name)
        .expect("it was configured")
}

fn sent(outlets: &Outlets, name: &str) -> u64 {
    total(outlets, name).counts[Outcome::Sent as usize]
}

/// Waits until so many records were sent there; the count must never go back.
async fn until_sent(outlets: &Outlets, name: &str, count: u64) {
    let (begun, mut before) = (Instant::now(), 0);
    while before < count {
        assert!(begun.elapsed() < DEADLINE, "{:?}", total(outlets, name));
        tokio::time::sleep(Duration::from_millis(5)).await;
        let now = sent(outlets, name);
        assert!(now >= before, "{name}: {now} after {before}");
        before = now;
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime")
}

fn numbers(ids: &BTreeSet<String>) -> BTreeSet<u64> {
    ids.iter()
        .map(|id| u64::from_str_radix(id, 16).expect("an id"))
        .collect()
}

#[test]
fn records_around_a_reload_arrive_once_each_where_they_are_to() {
    let (first, first_server) = loki_server(&Limits::default());
    let (second, second_server) = loki_server(&Limits::default());
    let (elastic, elastic_server) = elastic_server(elastic::Settings::default());
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("records.jsonl");
    let mut config = Config::default();
    config.loki.endpoint = first_server.url();
    config.loki.batch_records = 7;
    config.loki.batch_wait = Span::millis(20);
    config.elasticsearch.endpoint = elastic_server.url();
    config.elasticsearch.batch_wait = Span::millis(20);
    let all = records(300);
    runtime().block_on(async {
        let outlets = Outlets::default();
        outlets.configure(&config).expect("starts");
        let worker = |name: &str| outlets.list().into_iter().find(|outlet| outlet.name() == name);
        let untouched = worker("elasticsearch").expect("it is configured");
        all[..100].iter().for_each(|record| outlets.offer(record));
        // Loki's changes, lines are added.
        config.loki.endpoint = second_server.url();
        config.json_lines.path = file.display().to_string();
        outlets.configure(&config).expect("goes on");
        all[100..200].iter().for_each(|record| outlets.offer(record));
        assert!(worker("elasticsearch").is_some_and(|now| Arc::ptr_eq(&now, &untouched)));
        // A mistake changes nothing.
        let mut wrong = config.clone();
        wrong.loki.endpoint = "nowhere".to_owned();
        wrong.json_lines.path = String::new();
        let why = outlets.configure(&wrong).expect_err("it is no URL").to_string();
        assert!(why.contains("loki.endpoint"), "{why}");
        // Lines change while they are written, Elasticsearch is removed.
        config.json_lines.keep_files = 5;
        config.elasticsearch.endpoint = String::new();
        outlets.configure(&config).expect("goes on");
        assert!(worker("elasticsearch").is_none());
        all[200..].iter().for_each(|record| outlets.offer(record));
        until_sent(&outlets, "loki", 300).await;
        until_sent(&outlets, "elasticsearch", 200).await;
        until_sent(&outlets, "json_lines", 200).await;
        outlets.finish(DEADLINE).await;
        for (name, count) in [("loki", 300), ("elasticsearch", 200), ("json_lines", 200)] {
            let total = total(&outlets, name);
            assert_eq!(total.counts.iter().sum::<u64>(), count, "{total:?}");
            assert_eq!((sent(&outlets, name), total.waiting), (count, (0, 0)), "{name}");
        }
    });
    let (old, new) = (lines(&first, "fake"), lines(&second, "fake"));
    assert_eq!((numbers(&old.0), old.1), ((0..100).collect(), 100));
    assert_eq!((numbers(&new.0), new.1), ((100..300).collect(), 200));
    assert_eq!((first.duplicates(), second.duplicates()), (0, 0));
    assert_eq!(document_ids(&elastic, INDEX), ids(200));
    let text = std::fs::read_to_string(&file).expect("there");
    let id = |line: &str| -> u64 {
        let line: Value = serde_json::from_str(line).expect("JSON");
        u64::from_str_radix(line["id"].as_str().expect("an id"), 16).expect("an id")
    };
    assert!(text.lines().map(id).eq(100..300), "each once and in order");
}

#[test]
fn what_waits_for_an_address_goes_to_the_one_that_mends_it() {
    let (loki, server) = loki_server(&Limits::default());
    let mut config = Config::default();
    // Nobody listens there.
    config.loki.endpoint = "http://127.0.0.1:1".to_owned();
    config.loki.batch_wait = Span::millis(20);
    let all = records(120);
    runtime().block_on(async {
        let outlets = Outlets::default();
        outlets.configure(&config).expect("starts");
        all[..60].iter().for_each(|record| outlets.offer(record));
        config.loki.endpoint = "http://127.0.0.1:2".to_owned();
        outlets.configure(&config).expect("goes on");
        all[60..90].iter().for_each(|record| outlets.offer(record));
        assert_eq!(total(&outlets, "loki").waiting.0, 90);
        config.loki.endpoint = server.url();
        outlets.configure(&config).expect("goes on");
        all[90..].iter().for_each(|record| outlets.offer(record));
        until_sent(&outlets, "loki", 120).await;
        let total = total(&outlets, "loki");
        assert_eq!(total.counts.iter().sum::<u64>(), 120, "{total:?}");
        outlets.finish(DEADLINE).await;
    });
    assert_eq!(lines(&loki, "fake"), (ids(120), 120));
}

//! Which records `infertap requests` shows, and what it tells of them.

use super::follow::follow;
use super::tests::kept;
use crate::store::tables::record::{self as table, KeptRecord, Query};
use crate::store::{Reader, Store};
use infertap_core::Status;
use std::path::Path;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(20);

fn store(path: &Path, records: Vec<KeptRecord>) -> Store {
    let store = Store::open(path, Box::new(|_| {})).expect("opens");
    for record in records {
        assert!(store.submit(record));
    }
    assert!(store.flush(SOON));
    store
}

#[test]
fn records_are_found_by_all_that_an_operator_asks_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store.db");
    let of = |id: &str, status, rules: &[&str], ended, engine: &str, client: Option<&str>| {
        let mut kept = kept(id, status, rules, ended);
        kept.record.engine = engine.into();
        kept.record.client = client.map(|client| client.parse().expect("an address"));
        kept
    };
    let _store = store(
        &path,
        vec![
            of("a", Status::Ok, &["head"], 1, "one", Some("10.1.2.3")),
            of(
                "b",
                Status::Timeout,
                &["slow_e2e", "timeout"],
                2,
                "one",
                Some("10.2.0.1"),
            ),
            of("c", Status::Ok, &["slow_ttft"], 3, "two", None),
            of(
                "d",
                Status::Ok,
                &["interference", "slow_ttft"],
                4,
                "two",
                Some("10.1.9.9"),
            ),
        ],
    );
    let reader = Reader::open(&path).expect("opens");
    let ids = |query: Query| -> String {
        let found = reader.read(|db| table::newest(db, &query)).expect("reads");
        found.records.iter().map(|kept| &*kept.record.id).collect()
    };
    let any = || Query {
        limit: 100,
        ..Query::default()
    };
    let some = |text: &str| Some(text.to_owned());
    let network = |text: &str| Some(text.parse().expect("a network"));
    for (query, expected) in [
        (any(), "dcba"),
        (
            Query {
                engine: some("two"),
                ..any()
            },
            "dc",
        ),
        (
            Query {
                engine: some("tw"),
                ..any()
            },
            "",
        ),
        (
            Query {
                client: network("10.1.0.0/16"),
                ..any()
            },
            "da",
        ),
        (
            Query {
                client: network("10.2.0.1"),
                ..any()
            },
            "b",
        ),
        (
            Query {
                status: some("ok"),
                ..any()
            },
            "dca",
        ),
        (
            Query {
                rule: some("slow_ttft"),
                ..any()
            },
            "dc",
        ),
        (
            Query {
                rule: some("slow"),
                ..any()
            },
            "",
        ),
        (
            Query {
                trace_id: some("trace of b"),
                ..any()
            },
            "b",
        ),
        (
            Query {
                rule: some("slow_ttft"),
                engine: some("one"),
                ..any()
            },
            "",
        ),
        (
            Query {
                limit: 1,
                client: network("10.1.0.0/16"),
                ..Query::default()
            },
            "d",
        ),
        // What the table can't tell is no reason to show fewer than were asked for.
        (
            Query {
                limit: 2,
                engine: some("one"),
                ..Query::default()
            },
            "ba",
        ),
    ] {
        assert_eq!(ids(query.clone()), expected, "{query:?}");
    }
}

#[test]
fn who_follows_sees_each_record_once_as_it_is_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store.db");
    let head = |id: &str, ended| kept(id, Status::Ok, &["head"], ended);
    let store = store(
        &path,
        vec![head("one", 1000), head("two", 2000), head("three", 100_000)],
    );
    let reader = Reader::open(&path).expect("opens");
    let query = Query {
        limit: 2,
        status: Some("ok".to_owned()),
        ..Query::default()
    };
    let mut looks = 0;
    let mut out = Vec::new();
    let wait = || {
        looks += 1;
        let more = match looks {
            1 => vec![],
            // A row that came late, one of another outcome, and one that is written again.
            2 => vec![
                head("five", 101_000),
                head("four", 99_000),
                kept("failed", Status::ServerError, &["server_error"], 101_500),
                head("three", 100_000),
            ],
            _ => return false,
        };
        for record in more {
            assert!(store.submit(record));
        }
        assert!(store.flush(SOON));
        true
    };
    follow(&reader, query, true, wait, &mut out).expect("follows");
    let text = String::from_utf8(out).expect("text");
    let ids: Vec<String> = text
        .lines()
        .map(|line| {
            serde_json::from_str::<KeptRecord>(line)
                .expect("a record")
                .record
                .id
        })
        .collect();
    assert_eq!(ids, ["two", "three", "four", "five"]);
}

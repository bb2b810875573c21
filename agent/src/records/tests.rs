//! Records of an agent: kept, found, dropped.

use super::*;
use crate::cli::{RequestsArgs, ShowArgs};
use crate::config::Config;
use crate::export::metrics::Format;
use crate::export::metrics::tests::{finished, labels, record};
use crate::export::{Exporter, MetricsConfig, ServerConfig};
use crate::store::tables::record::{self as table, Found, KeptRecord, Query, Retain};
use crate::store::{Reader, Store};
use infertap_core::gpu::GpuShare;
use infertap_core::{Observation, Source, Status};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(20);

pub(super) fn kept(id: &str, status: Status, rules: &[&str], ended_unix_ms: i64) -> KeptRecord {
    let mut record = record(&labels("e", "m", "s"), status);
    record.id = id.to_owned();
    record.trace_id = format!("trace of {id}");
    record.response_id = Some(format!("chatcmpl-{id}"));
    KeptRecord {
        record,
        ended_unix_ms,
        rules: rules.iter().map(|&rule| rule.to_owned()).collect(),
        token_gaps_from_ns: Some(1_250_000_000),
        token_gaps: vec![(0.05, 3), (0.1, 1), (0.05, 1)],
        content: None,
        gpu: Vec::new(),
        gateway: None,
    }
}

fn all() -> Query {
    Query {
        limit: 1_000_000,
        ..Query::default()
    }
}

fn newest(path: &Path, query: &Query) -> Found {
    let reader = Reader::open(path).expect("opens");
    reader.read(|db| table::newest(db, query)).expect("reads")
}

fn ids(found: &Found) -> Vec<&str> {
    found.records.iter().map(|kept| &*kept.record.id).collect()
}

#[test]
fn a_running_agent_keeps_what_the_rules_say_and_counts_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store.db");
    let exporter = Exporter::new(&MetricsConfig::default(), &ServerConfig::default()).expect("valid");
    let end = |id: &str, status| {
        let mut record = record(&labels("e", "m", "s"), status);
        record.id = id.to_owned();
        record.trace_id = format!("trace of {id}");
        exporter.apply(&[finished(&labels("e", "m", "s"), record)]);
    };
    end("before there is a store", Status::ServerError);
    let store = Arc::new(Store::open(&path, Box::new(|_| {})).expect("opens"));
    let config = RecordsConfig {
        head_rate: 0.0,
        per_minute: 2,
        ..RecordsConfig::default()
    };
    exporter.records().keep_in(&store, &config, exporter.metrics());
    for (id, status) in [
        ("a", Status::Ok),
        ("b", Status::ServerError),
        ("c", Status::Cancelled),
        ("d", Status::ServerError),
        ("e", Status::ServerError),
    ] {
        end(id, status);
    }
    for (id, joules) in [("b", 12.5), ("a", 1.0)] {
        let id = id.to_owned();
        exporter.apply(&[Observation::Gpu(GpuShare::Whole { id, joules })]);
    }
    exporter.records().advance();
    assert!(store.flush(SOON));
    let found = newest(&path, &all());
    assert_eq!(ids(&found), ["d", "c", "b"]);
    assert_eq!(found.records[2].record.energy_j, Some(12.5));
    assert_eq!(found.records[2].rules, ["server_error"]);
    // An exemplar is the latest that can be looked up: `e` was capped, `a` not kept at all.
    let text = exporter.metrics().encode(Format::OpenMetrics).expect("encodes");
    let traces: BTreeSet<&str> = text
        .lines()
        .filter(|line| line.starts_with("llm_requests_total") || line.starts_with("llm_ttft"))
        .filter_map(|line| line.split_once("# {trace_id=\"")?.1.split('"').next())
        .collect();
    assert_eq!(traces, BTreeSet::from(["trace of c", "trace of d"]));
    let text = exporter.metrics().encode(Format::Text).expect("encodes");
    let counts: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("infertap_records_total") && !line.ends_with(" 0"))
        .collect();
    expect_test::expect![[r#"
        infertap_records_total{decision="capped",rule="server_error"} 1
        infertap_records_total{decision="dropped",rule="head"} 1
        infertap_records_total{decision="kept",rule="cancelled"} 1
        infertap_records_total{decision="kept",rule="server_error"} 2"#]]
    .assert_eq(&counts.join("\n"));
}

#[test]
fn records_come_back_whole_and_by_what_is_asked() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store.db");
    let store = Store::open(&path, Box::new(|_| {})).expect("opens");
    let mut other = kept("0004aaaa", Status::Ok, &["head"], 4000);
    other.record.model = "m2".into();
    other.record.scene = "s2".into();
    for record in [
        kept("0001aaaa", Status::Ok, &["slow_ttft", "interference"], 1000),
        kept("0002aaaa", Status::ServerError, &["server_error"], 2000),
        kept("0003aaaa", Status::Timeout, &["slow_e2e", "timeout"], 3000),
        other,
        kept("0005aaaa", Status::Cancelled, &["cancelled"], 5000),
    ] {
        assert!(store.submit(record));
    }
    assert!(store.flush(SOON));
    let some = |text: &str| Some(text.to_owned());
    let cases: Vec<(Query, &[&str])> = vec![
        (
            all(),
            &["0005aaaa", "0004aaaa", "0003aaaa", "0002aaaa", "0001aaaa"],
        ),
        (Query { limit: 2, ..all() }, &["0005aaaa", "0004aaaa"]),
        (Query { slow: true, ..all() }, &["0003aaaa", "0001aaaa"]),
        (
            Query {
                errors: true,
                ..all()
            },
            &["0003aaaa", "0002aaaa"],
        ),
        (
            Query {
                errors: true,
                slow: true,
                ..all()
            },
            &["0003aaaa", "0002aaaa", "0001aaaa"],
        ),
        (
            Query {
                model: some("m2"),
                ..all()
            },
            &["0004aaaa"],
        ),
        (
            Query {
                scene: some("s"),
                since_ms: Some(3000),
                ..all()
            },
            &["0005aaaa", "0003aaaa"],
        ),
        (
            Query {
                scene: some("s' OR 1"),
                ..all()
            },
            &[],
        ),
    ];
    for (query, expected) in cases {
        assert_eq!(ids(&newest(&path, &query)), expected, "{query:?}");
    }
    let reader = Reader::open(&path).expect("opens");
    let named = |name: &str| reader.read(|db| table::named(db, name)).expect("reads");
    let whole = kept("0002aaaa", Status::ServerError, &["server_error"], 2000);
    for name in ["0002aaaa", "0002", "trace of 0002aaaa", "chatcmpl-0002aaaa"] {
        assert_eq!(named(name).records, std::slice::from_ref(&whole), "{name}");
    }
    assert_eq!(named("000").records, [], "too short");
    assert_eq!(named("%").records, []);
    drop(reader);

    // What can't be read is told, and hides nothing else.
    drop(store);
    let db = rusqlite::Connection::open(&path).expect("opens");
    db.execute("UPDATE request_record SET body = x'00' WHERE id = '0003aaaa'", [])
        .expect("runs");
    drop(db);
    let found = newest(&path, &all());
    assert_eq!((ids(&found).len(), found.unreadable), (4, 1));
}

#[test]
fn the_old_and_the_too_much_is_dropped_and_its_space_comes_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store.db");
    let store = Store::open(&path, Box::new(|_| {})).expect("opens");
    for n in 0..2000_i64 {
        let mut record = kept(&format!("{n:08}"), Status::Ok, &["head"], n);
        // Does not compress.
        record.token_gaps = (0..40)
            .map(|gap| (((n * 7919 + gap * 104_729) % 99_991) as f64 / 1e5, 1))
            .collect();
        store.submit(record);
        if n % 500 == 499 {
            assert!(store.flush(SOON));
        }
    }
    let retain = |since_ms, bytes| {
        store.submit(Retain { since_ms, bytes });
        assert!(store.flush(SOON));
        assert_eq!(store.status().lost(), 0);
        let found = newest(&path, &all());
        let oldest = found.records.last().map_or(2000, |kept| kept.ended_unix_ms);
        assert_eq!(found.records.len() as i64, 2000 - oldest, "the newest stay");
        oldest
    };
    assert_eq!(retain(300, u64::MAX), 300);
    let size = || std::fs::metadata(&path).expect("facts").len();
    let limit = 400 << 10;
    let oldest = retain(0, limit);
    assert!((1000..1990).contains(&oldest), "{oldest}");
    // The last connection to a file writes its log back into it.
    drop(store);
    assert!(size() <= limit, "{} is above {limit}", size());
    assert!(size() > limit / 2, "{} is little of {limit}", size());
}

#[test]
fn requests_are_a_table_and_one_is_drawn() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut config = Config::default();
    config.store.path = folder.path().join("store.db");
    let requests = |args: &RequestsArgs| {
        let mut out = Vec::new();
        requests_command(&config, args, &mut out).map(|()| String::from_utf8(out).expect("text"))
    };
    let args = RequestsArgs {
        limit: 10,
        ..RequestsArgs::default()
    };
    let error = requests(&args).expect_err("nothing there");
    assert!(format!("{error:#}").contains("there is no store"), "{error:#}");

    let store = Store::open(&config.store.path, Box::new(|_| {})).expect("opens");
    assert_eq!(
        requests(&args).expect("reads"),
        "No record of such a request was kept.\n"
    );
    let mut one = kept(
        "00000000000000a1",
        Status::Ok,
        &["slow_ttft", "slow_e2e"],
        1_796_060_000_123,
    );
    one.record.t1_ns = Some(1_100_000_000);
    one.record.sources.t1 = Some(Source::Estimate);
    one.record.sources.output_tokens = Some(Source::Usage);
    one.record.model = "smol\u{1b}[31mlm".into();
    let cost = r#"{"currency":"USD","total":0.0013,"input":0.001,"output":0.0003,"saved":0.0002}"#;
    one.record.cost = serde_json::from_str(cost).expect("a cost");
    one.gpu.push(GpuDuring {
        gpu: "0".to_owned(),
        covered_s: 0.5,
        utilization_ratio: Some(0.934),
        power_watts: Some(410.2),
        memory_used_max_bytes: Some(70 << 30),
        sm_clock_min_hertz: Some(1.41e9),
        temperature_max_celsius: None,
        throttle_reasons: vec!["sw_power_cap".to_owned(), "sw_thermal".to_owned()],
    });
    store.submit(one.clone());
    store.submit(kept(
        "00000000000000b2",
        Status::ClientError,
        &["client_error"],
        1_796_060_001_000,
    ));
    drop(store);
    expect_test::expect![[r#"
        ENDED (UTC)          ID                MODEL        SCENE  STATUS          TTFT     E2E  IN  OUT        COST  KEPT AS
        2026-11-30 17:33:21  00000000000000b2  m            s      client_error  250 ms  510 ms  38    6           -  client_error
        2026-11-30 17:33:20  00000000000000a1  smol_[31mlm  s      ok            250 ms  510 ms  38    6  0.0013 USD  slow_ttft,slow_e2e
    "#]].assert_eq(&requests(&args).expect("reads"));
    let json = requests(&RequestsArgs { json: true, ..args }).expect("reads");
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["requests"][1]["id"], "00000000000000a1");
    assert_eq!(json["requests"][1]["ended_unix_ms"], 1_796_060_000_123_i64);

    let show = |id: &str, json| {
        let mut out = Vec::new();
        let args = ShowArgs {
            id: id.to_owned(),
            json,
            config: None,
        };
        show_command(&config, &args, &mut out).map(|()| String::from_utf8(out).expect("text"))
    };
    expect_test::expect![[r#"
        00000000000000a1  ok  HTTP 200, openai_chat, finished by length
        ended     2026-11-30 17:33:20 UTC
        model     smol_[31mlm
        scene     s
        engine    e
        trace     trace of 00000000000000a1
        response  chatcmpl-00000000000000a1
        kept as   slow_ttft, slow_e2e

        queue            100 ms  ████████████                                                      estimated
        prefill          150 ms              ███████████████████
        decode           250 ms                                 ███████████████████████████████
        response        10.0 ms                                                                ██
        tokens                                                  ▃     █            ▃     ▃
                                 0                                                         510 ms

        TTFT 250 ms   TPOT 50.0 ms   end to end 510 ms   longest gap between tokens 100 ms
        tokens: 38 in, 6 out (usage)
        cost: 0.0013 USD (input 0.001, output 0.0003), saved by cached tokens 0.0002
        GPU 0: busy 93 %, 410 W, memory up to 70.0 GiB, 1410 MHz at least, clocks lowered by sw_power_cap, sw_thermal
    "#]]
    .assert_eq(&show("00000000000000a1", false).expect("found"));
    let back: KeptRecord =
        serde_json::from_str(&show("chatcmpl-00000000000000a1", true).expect("found")).expect("JSON");
    assert_eq!(back, one);
    let error = show("0000", false).expect_err("two of them").to_string();
    assert!(error.contains("00000000000000b2, 00000000000000a1"), "{error}");
    let error = show("ffff", false).expect_err("none").to_string();
    assert!(error.contains("no record of ffff"), "{error}");
}

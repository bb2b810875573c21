//! A gateway's part in kept records: whichever is first, in the store and as it is shown.

use super::*;
use crate::cli::ShowArgs;
use crate::config::Config;
use crate::export::metrics::Format;
use crate::export::metrics::gateway_tests::joined;
use crate::export::metrics::tests::{engine, finished, labels, record};
use crate::export::{Exporter, MetricsConfig, ServerConfig};
use crate::store::Store;
use infertap_core::engine::EngineInfo;
use infertap_core::gateway::{Joined, JoinedTrace};
use infertap_core::{EngineKind, Observation, Status, TraceSource};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

/// A request that ended, with this number.
fn ended(id: u64) -> Observation {
    let labels = labels("e", "m", "s");
    let mut record = record(&labels, Status::Ok);
    record.id = format!("{id:016x}");
    record.trace_source = TraceSource::Derived;
    (record.t0_ns, record.t4_ns) = (Some(1_250_000_000), Some(2_500_000_000));
    (record.t1_ns, record.t2_ns, record.t3_ns) = (None, Some(1_500_000_000), Some(2_500_000_000));
    let Observation::Finished(mut ended) = finished(&labels, record) else {
        panic!("it has ended");
    };
    ended.id = id;
    Observation::Finished(ended)
}

fn by_gateway(id: u64) -> Observation {
    Observation::Joined(Box::new(Joined {
        trace: Some(JoinedTrace {
            id: TRACE.to_owned(),
            source: TraceSource::Traceparent,
            parent_span_id: Some("00f067aa0ba902b7".to_owned()),
        }),
        ..joined(id)
    }))
}

#[test]
fn a_gateway_s_part_is_in_the_record_whichever_comes_first() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store.db");
    let store = Arc::new(Store::open(&path, Box::new(|_| {})).expect("opens"));
    let exporter = Exporter::new(&MetricsConfig::default(), &ServerConfig::default()).expect("valid");
    let config = RecordsConfig {
        head_rate: 1.0,
        ..RecordsConfig::default()
    };
    exporter.records().keep_in(&store, &config, exporter.metrics());
    exporter.apply(&[ended(0xa1)]);
    exporter.apply(&[by_gateway(0xa1), by_gateway(0xb2)]);
    exporter.apply(&[ended(0xb2), ended(0xc3)]);
    assert!(store.flush(Duration::from_secs(20)));

    let mut config = Config::default();
    config.store.path = path;
    let show = |id: u64, json| {
        let args = ShowArgs {
            id: format!("{id:016x}"),
            json,
            config: None,
        };
        let mut out = Vec::new();
        show_command(&config, &args, &mut out).expect("it was kept");
        String::from_utf8(out).expect("text")
    };
    for (id, by) in [(0xa1, true), (0xb2, true), (0xc3, false)] {
        let kept: serde_json::Value = serde_json::from_str(&show(id, true)).expect("JSON");
        assert_eq!(kept["gateway"]["name"] == "nginx-8080", by, "{kept}");
        assert_eq!(kept["trace_id"] == TRACE, by, "{kept}");
        assert_eq!(kept["trace_source"] == "traceparent", by, "{kept}");
    }
    let text = show(0xa1, false);
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("gateway") || line.contains('█') || line.contains('▏'))
        .collect();
    expect_test::expect![[r#"
        gateway   nginx-8080  ok  HTTP 200, 250 ms before the engine, 500 ms after it, joined by response
        to the engine    250 ms  ████████
        to first token   250 ms          ████████
        decode           1.00 s                  ████████████████████████████████
        response        0.00 ms                                                  ▏
        to the client    500 ms                                                  ████████████████"#]]
    .assert_eq(&lines.join("\n"));
    // By the gateway's trace it is found, too.
    let args = ShowArgs {
        id: TRACE.to_owned(),
        json: true,
        config: None,
    };
    let error = show_command(&config, &args, &mut Vec::new()).expect_err("two of them");
    assert!(error.to_string().contains("several"), "{error}");
}

/// The traces that metrics point to as exemplars.
fn exemplars(exporter: &Exporter) -> BTreeSet<String> {
    let text = exporter.metrics().encode(Format::OpenMetrics).expect("encodes");
    text.lines()
        .filter(|line| line.starts_with("llm_requests_total"))
        .filter_map(|line| line.split_once("# {trace_id=\"")?.1.split('"').next())
        .map(str::to_owned)
        .collect()
}

#[test]
fn no_exemplar_names_a_trace_that_a_gateway_s_may_replace() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = Arc::new(Store::open(&folder.path().join("store.db"), Box::new(|_| {})).expect("opens"));
    let exporter = Exporter::new(&MetricsConfig::default(), &ServerConfig::default()).expect("valid");
    let config = RecordsConfig {
        head_rate: 1.0,
        ..RecordsConfig::default()
    };
    exporter.records().keep_in(&store, &config, exporter.metrics());
    // Of each kind one, of a trace that has its name.
    let end = |id: u64, trace: &str, source| {
        let Observation::Finished(mut finished) = ended(id) else {
            panic!("it has ended");
        };
        finished.record.trace_id = trace.to_owned();
        finished.record.trace_source = source;
        exporter.apply(&[Observation::Finished(finished)]);
        exemplars(&exporter)
    };
    let only = |trace: &str| BTreeSet::from([trace.to_owned()]);
    let (named, made_up) = (TraceSource::Traceparent, TraceSource::Derived);
    assert_eq!(end(1, "no gateway", made_up), only("no gateway"));
    let gateway = Arc::new(EngineInfo {
        kind: EngineKind::Gateway,
        ..engine("nginx-8080", 7)
    });
    exporter.engine_up(&gateway);
    assert_eq!(end(2, "may be replaced", made_up), only("no gateway"));
    assert_eq!(end(3, "named", named), only("named"));
    exporter.apply(&[by_gateway(4)]);
    assert_eq!(end(4, "was replaced", made_up), only("named"));
    exporter.apply(&[by_gateway(5)]);
    assert_eq!(end(5, "its own", named), only("its own"));
    exporter.apply(&[Observation::Joined(Box::new(joined(6)))]);
    assert_eq!(
        end(6, "the gateway has none", made_up),
        only("the gateway has none")
    );
    exporter.engine_down("nginx-8080");
    assert_eq!(end(7, "no gateway again", made_up), only("no gateway again"));
}

//! The formats and the reference page.

use super::*;
use expect_test::expect_file;
use infertap_core::budget::BudgetReport;
use infertap_core::ledger::{ContextLimit, LimitSource};
use std::collections::BTreeMap;

#[test]
fn the_reference_is_rendered_from_the_catalog() {
    expect_file!["../../../../../docs/metrics.md"].assert_eq(&reference());
}

#[test]
fn the_catalog_is_what_is_registered() {
    let live = Metrics::new(&MetricsConfig::default()).expect("the defaults are valid");
    let of_definition = |d: &Definition| {
        (
            d.name.to_owned(),
            (d.kind.as_str().to_owned(), sorted(d.labels), d.help.to_owned()),
        )
    };
    let of_family = |family: &MetricFamily| {
        let labels: Vec<&str> = family.get_metric()[0]
            .get_label()
            .iter()
            .map(prometheus::proto::LabelPair::name)
            .collect();
        let kind = format!("{:?}", family.get_field_type()).to_lowercase();
        (
            family.name().to_owned(),
            (kind, sorted(&labels), family.help().to_owned()),
        )
    };
    let catalog: BTreeMap<_, _> = CATALOG.iter().copied().map(of_definition).collect();
    let exercised = exercised(live);
    exercised.apply_all(&super::gpu_join::shares("e"));
    exercised.apply_all(&super::cost::charges());
    exercised.apply(&crate::export::metrics::prefix::tests::told("e"));
    exercised.apply_all(&crate::export::metrics::gateway_tests::told());
    exercised.cuda(&"llama_cpp-8080".into(), &CudaCalls::default(), Some(1));
    exercised.budgets(&budget_reports());
    exercised.records_begin();
    exercised.content_begin();
    exercised.near_context_limit(&labels("e", "m", "s"), true);
    let limit = ContextLimit {
        tokens: 4096,
        source: LimitSource::Files,
    };
    exercised.context_limit(&"llama_cpp-8080".into(), Some(limit));
    let file = tempfile::NamedTempFile::new().expect("a file");
    let store = crate::store::StoreStatus::new(file.path(), true);
    exercised.store(Arc::new(store)).expect("the first one");
    exercised
        .kubernetes(crate::pods::testing_status())
        .expect("named once");
    exercised
        .exports(crate::ship::testing::outlets())
        .expect("the first ones");
    let registered: BTreeMap<_, _> = exercised.gather().iter().map(of_family).collect();
    assert_eq!(registered, catalog);
}

/// One budget in tokens that is used up soon, and one in money.
fn budget_reports() -> [BudgetReport; 2] {
    let of = |unit: &str| BudgetReport {
        name: unit.to_owned(),
        scene: "*".to_owned(),
        model: "*".to_owned(),
        unit: unit.to_owned(),
        basis: None,
        period: "day".to_owned(),
        time_zone: "UTC".to_owned(),
        period_start: 0,
        period_end: 86_400,
        measured_since: None,
        thresholds: vec![0.8],
        limit: 2.0,
        used: 1.0,
        ratio: 0.5,
        period_rate: None,
        recent_rate: None,
        exhausted_at: Some(7),
    };
    [of("tokens"), of("USD")]
}

fn sorted(labels: &[&str]) -> Vec<String> {
    let mut labels: Vec<String> = labels.iter().map(|&label| label.to_owned()).collect();
    labels.sort();
    labels
}

#[test]
fn openmetrics_snapshot() {
    let metrics = exercised(metrics());
    let text = metrics.encode(Format::OpenMetrics).expect("encodes");
    let llm: Vec<&str> = text
        .lines()
        .filter(|line| line.contains("llm_") || line.starts_with("# EOF"))
        .collect();
    expect_file!["../testdata/openmetrics.txt"].assert_eq(&(llm.join("\n") + "\n"));
}

#[test]
fn threads_lose_nothing_while_scrapes_run() {
    let metrics = metrics();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let metrics = &metrics;
            scope.spawn(move || {
                for i in 0..500 {
                    metrics.apply_all(&request(
                        &labels("e", &format!("m{}", (thread + i) % 7), "s"),
                        Status::Ok,
                    ));
                }
            });
        }
        for _ in 0..20 {
            assert_openmetrics(&metrics.encode(Format::OpenMetrics).expect("encodes"));
        }
    });
    let total = |family| {
        let values = samples(&metrics, family)
            .into_iter()
            .map(|line| line.rsplit_once(' ').map(|(_, v)| v.parse::<f64>()));
        values
            .map(|v| v.expect("a value").expect("a number"))
            .sum::<f64>()
    };
    assert!((total("llm_requests_total") - 2000.0).abs() < 1e-9);
    assert!((total("llm_input_tokens_total") - 2000.0 * 38.0).abs() < 1e-9);
    assert!(total("llm_requests_running").abs() < 1e-9);
}

/// The structure that OpenMetrics asks for: metadata before samples, families not interleaved, suffixes by type, no
/// sample twice, cumulative buckets that end with `+Inf` and equal the count, exemplars only where allowed and within their bucket,
/// an end marker.
fn assert_openmetrics(text: &str) {
    let body = text.strip_suffix("# EOF\n").expect("ends with the marker");
    assert!(!body.contains("# EOF"));
    let mut families: BTreeMap<&str, &str> = BTreeMap::new();
    let (mut family, mut kind) = ("", "");
    let mut seen = std::collections::HashSet::new();
    let mut bucket: Option<(String, f64, f64)> = None;
    for line in body.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            (family, kind) = rest.split_once(' ').expect("name and type");
            assert!(families.insert(family, kind).is_none(), "{family} is there twice");
            continue;
        }
        if let Some(rest) = line.strip_prefix("# UNIT ") {
            let (name, unit) = rest.split_once(' ').expect("name and unit");
            assert_eq!(name, family);
            assert!(name.ends_with(&format!("_{unit}")), "{line}");
            continue;
        }
        if let Some(rest) = line.strip_prefix("# HELP ") {
            assert_eq!(rest.split(' ').next(), Some(family));
            continue;
        }
        let (sample, exemplar) = line.split_once(" # ").map_or((line, None), |(s, e)| (s, Some(e)));
        let (key, value) = sample.rsplit_once(' ').expect("key and value");
        let value: f64 = value.parse().expect("a number");
        assert!(seen.insert(key.to_owned()), "{key} is there twice");
        let name = key.split('{').next().expect("a name");
        let suffix = name
            .strip_prefix(family)
            .unwrap_or_else(|| panic!("{line} is in the family {family}"));
        match (kind, suffix) {
            ("counter", "_total") => assert!(value >= 0.0),
            ("gauge", "") | ("histogram", "_sum") => assert!(exemplar.is_none(), "{line}"),
            ("histogram", "_count") => {
                let (_, bound, count) = bucket.take().expect("buckets come first");
                assert!(bound.is_infinite() && (count - value).abs() < 0.5, "{line}");
            }
            ("histogram", "_bucket") => {
                let (series, le) = key.split_once("le=\"").expect("a bound");
                let bound: f64 = le.trim_end_matches("\"}").parse().expect("a number");
                let mut floor = f64::NEG_INFINITY;
                if let Some((last, below, count)) = &bucket {
                    assert_eq!(last, series);
                    assert!(*below < bound && *count <= value, "{line}");
                    floor = *below;
                }
                if let Some(exemplar) = exemplar {
                    let observed: f64 = exemplar
                        .split(' ')
                        .nth(1)
                        .expect("a value")
                        .parse()
                        .expect("a number");
                    assert!(floor < observed && observed <= bound, "{line}");
                }
                bucket = Some((series.to_owned(), bound, value));
            }
            other => panic!("{other:?}: {line}"),
        }
        if let Some(exemplar) = exemplar {
            let labels = exemplar.split('}').next().expect("labels");
            assert!(
                labels.starts_with("{trace_id=\"") && labels.len() <= 128 + 4,
                "{line}"
            );
        }
    }
}

#[test]
fn openmetrics_is_well_formed() {
    assert_openmetrics(&exercised(metrics()).encode(Format::OpenMetrics).expect("encodes"));
}

#[test]
fn a_replay_gives_the_same_exposition_each_time() {
    for format in [Format::Text, Format::OpenMetrics] {
        let text = || exercised(metrics()).encode(format).expect("encodes");
        assert_eq!(text(), text());
    }
}

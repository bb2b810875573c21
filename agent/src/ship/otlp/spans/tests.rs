//! Spans of records: nesting, ids, attributes.

use super::*;
use crate::ship::testing::kept;
use infertap_core::Status as Ended;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value::Value};
use proptest::prelude::*;
use std::collections::HashSet;

const OFFSET: i128 = 1_796_060_000_000_000_000;
const SECOND: u64 = 1_000_000_000;

fn encoder(config: &OtlpConfig) -> Encoder {
    Encoder::new(config, "node-1")
}

/// One whose every time is known.
fn whole() -> KeptRecord {
    let mut kept = kept("00000000000000a1");
    let record = &mut kept.record;
    record.trace_id = "0af7651916cd43dd8448eb211c80319c".to_owned();
    record.parent_span_id = Some("b7ad6b7169203331".to_owned());
    record.response_id = Some("chatcmpl-1".to_owned());
    record.engine = "vllm-8000".into();
    record.client = Some([192, 0, 2, 7].into());
    record.client_namespace = Some("shop".into());
    record.client_pod = Some("api-6d4cf56db6-x2v9k".into());
    record.client_workload = Some("api".into());
    record.client_workload_kind = Some("Deployment".into());
    record.t0_ns = Some(SECOND);
    record.t1_ns = Some(2 * SECOND);
    record.t2_ns = Some(4 * SECOND);
    record.t3_ns = Some(8 * SECOND);
    record.t4_ns = Some(9 * SECOND);
    record.ttft_s = Some(3.5);
    record.tokenize_s = Some(0.25);
    record.sources.t1 = Some(Source::Estimate);
    record.sources.t2 = Some(Source::Engine);
    record.energy_j = Some(12.5);
    kept
}

fn shown(attributes: &[KeyValue]) -> Vec<String> {
    let value = |attribute: &KeyValue| match attribute.value.as_ref().and_then(|value| value.value.clone()) {
        Some(Value::StringValue(text)) => format!("{text:?}"),
        Some(Value::IntValue(number)) => number.to_string(),
        Some(Value::DoubleValue(number)) => format!("{number:?}"),
        Some(Value::BoolValue(flag)) => flag.to_string(),
        Some(Value::ArrayValue(array)) => format!("{} of them", array.values.len()),
        other => format!("{other:?}"),
    };
    let line = |attribute: &KeyValue| format!("{}={}", attribute.key, value(attribute));
    attributes.iter().map(line).collect()
}

#[test]
fn a_request_is_a_server_span_with_its_phases_below() {
    let spans = spans(&whole(), OFFSET);
    let at = |unix: u64| (i128::from(unix) - OFFSET) as f64 / SECOND as f64;
    let of = |span: &Span| (at(span.start_time_unix_nano), at(span.end_time_unix_nano));
    let shape: Vec<_> = spans
        .iter()
        .map(|span| (span.name.as_str(), span.kind, of(span)))
        .collect();
    let (server, internal) = (SpanKind::Server as i32, SpanKind::Internal as i32);
    assert_eq!(
        shape,
        [
            ("chat m", server, (1.0, 9.0)),
            ("queue", internal, (1.0, 2.0)),
            ("prefill", internal, (2.0, 4.0)),
            ("decode", internal, (4.0, 8.0)),
            ("tokenize", internal, (1.0, 1.25)),
        ]
    );
    let request = &spans[0];
    assert_eq!(
        request.trace_id,
        0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c_u128.to_be_bytes()
    );
    assert_eq!(request.span_id, 0xa1_u64.to_be_bytes());
    assert_eq!(request.parent_span_id, 0xb7ad_6b71_6920_3331_u64.to_be_bytes());
    assert_eq!(request.flags, 0x301);
    assert!(
        spans[1..]
            .iter()
            .all(|span| span.parent_span_id == request.span_id && span.flags == 0x101)
    );
    assert_eq!(
        (request.events.len(), at(request.events[0].time_unix_nano)),
        (1, 4.5)
    );
    expect_test::expect![[r#"
        gen_ai.operation.name="chat"
        gen_ai.provider.name="vllm"
        gen_ai.request.model="m"
        gen_ai.response.id="chatcmpl-1"
        gen_ai.response.finish_reasons=1 of them
        gen_ai.usage.input_tokens=38
        gen_ai.usage.output_tokens=6
        gen_ai.usage.cache_read.input_tokens=16
        http.response.status_code=200
        client.address="192.0.2.7"
        infertap.client.k8s.namespace.name="shop"
        infertap.client.k8s.pod.name="api-6d4cf56db6-x2v9k"
        infertap.client.k8s.workload.name="api"
        infertap.client.k8s.workload.kind="Deployment"
        infertap.status="ok"
        infertap.engine="vllm-8000"
        infertap.scene="s"
        infertap.protocol="openai_chat"
        infertap.rules=1 of them
        infertap.streamed=true
        infertap.ttft_seconds=3.5
        infertap.tpot_seconds=0.05
        infertap.e2e_seconds=0.51
        infertap.energy_joules=12.5
        infertap.request_bytes=300
        infertap.response_bytes=2000"#]]
    .assert_eq(&shown(&request.attributes).join("\n"));
    expect_test::expect![[r#"
        infertap.phase="queue"
        infertap.source="estimate""#]]
    .assert_eq(&shown(&spans[1].attributes).join("\n"));
}

#[test]
fn only_what_the_server_failed_is_an_error() {
    let error = StatusCode::Error as i32;
    for (ended, http, kind) in [
        (Ended::Ok, 200, None),
        (Ended::ClientError, 422, None),
        (Ended::Cancelled, 200, None),
        (Ended::ServerError, 503, Some("error.type=\"503\"")),
        (Ended::ServerError, 200, Some("error.type=\"server_error\"")),
        (Ended::Timeout, 200, Some("error.type=\"timeout\"")),
    ] {
        let mut kept = whole();
        kept.record.status = ended;
        kept.record.http_status = Some(http);
        let request = spans(&kept, OFFSET).remove(0);
        let told = shown(&request.attributes);
        let told = told.iter().find(|line| line.starts_with("error.type"));
        assert_eq!(told.map(String::as_str), kind, "{ended:?}");
        assert_eq!(
            request.status.expect("a status").code == error,
            kind.is_some(),
            "{ended:?}"
        );
    }
}

#[test]
fn engines_are_resources() {
    let mut other = whole();
    other.record.engine = "sglang-30000".into();
    let records = [Arc::new(whole()), Arc::new(other), Arc::new(whole())];
    let mut config = OtlpConfig::default();
    let attributes = |config: &OtlpConfig| {
        let request = encoder(config).encode(&records, OFFSET);
        let of = |spans: &ResourceSpans| {
            let resource = spans.resource.as_ref().expect("a resource");
            (
                shown(&resource.attributes).join(" "),
                spans.scope_spans[0].spans.len(),
            )
        };
        request.resource_spans.iter().map(of).collect::<Vec<_>>()
    };
    let of = |name: &str, engine: &str, more: &str| {
        format!("service.name={name:?} service.instance.id=\"node-1/{engine}\" host.name=\"node-1\"{more}")
    };
    assert_eq!(
        attributes(&config),
        [
            (of("sglang-30000", "sglang-30000", ""), 5),
            (of("vllm-8000", "vllm-8000", ""), 10)
        ]
    );
    config.service_name = "llm".to_owned();
    config.attributes.insert("zone".to_owned(), "a".to_owned());
    assert_eq!(
        attributes(&config)[0],
        (of("llm", "sglang-30000", " zone=\"a\""), 5)
    );
}

proptest! {
    /// Whatever times a record has, its spans are ones that a receiver takes, and nest.
    #[test]
    fn spans_are_valid_and_nest(
        times in prop::array::uniform5(prop::option::of(0_u64..100)),
        tokenize in prop::option::of(0.0_f64..300.0),
        ttft in prop::option::of(-1.0_f64..300.0),
        id in prop_oneof!["[0-9a-f]{16}", Just("0".repeat(16)), ".{0,20}"],
        trace in prop_oneof!["[0-9a-f]{32}", Just("0".repeat(32)), ".{0,40}"],
        parent in prop::option::of(prop_oneof!["[0-9a-f]{16}", Just("0".repeat(16))]),
    ) {
        let mut kept = whole();
        let record = &mut kept.record;
        let [t0, t1, t2, t3, t4] = times.map(|time| time.map(|time| time * SECOND));
        (record.t0_ns, record.t1_ns, record.t2_ns, record.t3_ns, record.t4_ns) = (t0, t1, t2, t3, t4);
        (record.tokenize_s, record.ttft_s) = (tokenize, ttft);
        (record.id, record.trace_id, record.parent_span_id) = (id, trace, parent);
        let spans = spans(&kept, OFFSET);
        let mut ids = HashSet::new();
        for span in &spans {
            prop_assert!(span.trace_id == spans[0].trace_id && span.trace_id != [0; 16]);
            prop_assert_eq!((span.trace_id.len(), span.span_id.len()), (16, 8));
            prop_assert!(span.span_id != [0; 8] && ids.insert(span.span_id.clone()));
            prop_assert!(span.parent_span_id.is_empty() || span.parent_span_id.len() == 8);
            prop_assert!(span.parent_span_id != [0; 8]);
            prop_assert!(span.start_time_unix_nano <= span.end_time_unix_nano);
            prop_assert!(span.start_time_unix_nano >= spans[0].start_time_unix_nano);
            prop_assert!(span.end_time_unix_nano <= spans[0].end_time_unix_nano);
            for event in &span.events {
                let within = span.start_time_unix_nano..=span.end_time_unix_nano;
                prop_assert!(within.contains(&event.time_unix_nano));
            }
        }
        for child in &spans[1..] {
            prop_assert_eq!(&child.parent_span_id, &spans[0].span_id);
        }
    }
}

#[test]
fn a_gateway_is_the_parent_of_the_request_and_holds_it() {
    let mut kept = whole();
    let mut part = crate::export::metrics::gateway_tests::joined(1).part;
    (part.t0_ns, part.t4_ns) = (Some(SECOND / 2), Some(10 * SECOND));
    kept.gateway = Some(part);
    let request = encoder(&OtlpConfig::default()).encode(&[Arc::new(kept.clone())], OFFSET);
    let of = |service: &str| {
        let all = request.resource_spans.iter().find(|all| {
            let attributes = &all.resource.as_ref().expect("a resource").attributes;
            shown(attributes).contains(&format!("service.name={service:?}"))
        });
        all.expect("it is there").scope_spans[0].spans.clone()
    };
    let (gateway, request) = (&of("nginx-8080")[0], &of("vllm-8000")[0]);
    assert_eq!(gateway.name, "gateway nginx-8080");
    assert_eq!(gateway.trace_id, request.trace_id);
    assert_eq!(gateway.span_id, ids::child("00000000000000a1", 5));
    assert_eq!(gateway.parent_span_id, 0x00f0_67aa_0ba9_02b7_u64.to_be_bytes());
    assert_eq!(
        (&request.parent_span_id, request.flags),
        (&gateway.span_id, 0x101)
    );
    assert!(gateway.start_time_unix_nano < request.start_time_unix_nano);
    assert!(gateway.end_time_unix_nano > request.end_time_unix_nano);
    // The gateway tried again: its span around the other request is another, and the same each time.
    let mut again = kept.clone();
    again.record.id = "00000000000000a2".to_owned();
    let (_, other) = super::gateway::span(&again, OFFSET).expect("a span");
    assert_ne!(other.span_id, gateway.span_id);
    assert_eq!(other.span_id, spans(&again, OFFSET)[0].parent_span_id);
    assert_eq!(super::gateway::span(&again, OFFSET).expect("a span").1, other);
    // Its client went away first.
    kept.gateway.as_mut().expect("it has one").t4_ns = Some(2 * SECOND);
    let (_, early) = super::gateway::span(&kept, OFFSET).expect("a span");
    assert_eq!(early.end_time_unix_nano, request.end_time_unix_nano);
}

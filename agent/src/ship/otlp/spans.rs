//! A record as spans.
//!
//! Owns: which spans there are, their times, their nesting. Refuses: clocks: the offset between the record's clock and the
//! wall clock is given.

mod gateway;

use super::OtlpConfig;
use super::attributes::{Attributes, failed, of_request, operation};
use super::ids;
use super::links::links;
use crate::store::tables::record::KeptRecord;
use infertap_core::Source;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::InstrumentationScope;
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::span::{Event, SpanKind};
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, Status, status::StatusCode};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Span flags: sampled; and what is known of whether the parent is remote.
const SAMPLED: u32 = 0x01;
const PARENT_LOCAL: u32 = 0x100;
const PARENT_REMOTE: u32 = 0x300;

/// What is the same in all batches.
#[derive(Debug, Clone)]
pub(super) struct Encoder {
    service_name: String,
    host: String,
    attributes: BTreeMap<String, String>,
}

impl Encoder {
    pub(super) fn new(config: &OtlpConfig, host: &str) -> Encoder {
        Encoder {
            service_name: config.service_name.clone(),
            host: host.to_owned(),
            attributes: config.attributes.clone(),
        }
    }

    /// The spans of these records. `offset` is what has to be added to their times to get Unix time, nanoseconds.
    pub(super) fn encode(&self, records: &[Arc<KeptRecord>], offset: i128) -> ExportTraceServiceRequest {
        let mut engines: BTreeMap<&str, Vec<Span>> = BTreeMap::new();
        for kept in records {
            engines
                .entry(&kept.record.engine)
                .or_default()
                .extend(spans(kept, offset));
            if let Some((part, span)) = gateway::span(kept, offset) {
                engines.entry(&part.name).or_default().push(span);
            }
        }
        ExportTraceServiceRequest {
            resource_spans: engines
                .into_iter()
                .map(|(engine, spans)| self.of_engine(engine, spans))
                .collect(),
        }
    }

    fn of_engine(&self, engine: &str, spans: Vec<Span>) -> ResourceSpans {
        let mut attributes = Attributes::default();
        let name = if self.service_name.is_empty() {
            engine
        } else {
            &self.service_name
        };
        attributes.text("service.name", name);
        attributes.text("service.instance.id", format!("{}/{engine}", self.host));
        attributes.text("host.name", &self.host);
        for (key, value) in &self.attributes {
            attributes.text(key, value);
        }
        ResourceSpans {
            resource: Some(Resource {
                attributes: attributes.0,
                ..Resource::default()
            }),
            scope_spans: vec![ScopeSpans {
                scope: Some(InstrumentationScope {
                    name: "infertap".to_owned(),
                    version: env!("CARGO_PKG_VERSION").to_owned(),
                    ..InstrumentationScope::default()
                }),
                spans,
                ..ScopeSpans::default()
            }],
            ..ResourceSpans::default()
        }
    }
}

/// When a request was in the server, CLOCK_MONOTONIC nanoseconds; by its end on the wall clock where it has no times.
fn bounds(kept: &KeptRecord, offset: i128) -> (i128, i128) {
    let record = &kept.record;
    let times = [
        record.t0_ns,
        record.t1_ns,
        record.t2_ns,
        record.t3_ns,
        record.t4_ns,
    ];
    let known = || times.into_iter().flatten().map(i128::from);
    let ended = i128::from(kept.ended_unix_ms) * 1_000_000 - offset;
    let end = record.t4_ns.map(i128::from).or(known().max()).unwrap_or(ended);
    let start = record.t0_ns.map(i128::from).or(known().min()).unwrap_or(end);
    (start.min(end), end)
}

fn spans(kept: &KeptRecord, offset: i128) -> Vec<Span> {
    let record = &kept.record;
    let (start, end) = bounds(kept, offset);
    let unix = |at: i128| u64::try_from(at + offset).unwrap_or(0);
    let trace_id = ids::trace(&record.trace_id, &record.id).to_vec();
    let request_id = ids::span(&record.id).to_vec();
    let asked = record.parent_span_id.as_deref().and_then(ids::from_hex::<8>);
    let gateway = gateway::span_id(kept);
    let parent = gateway.or(asked);
    let remote = if gateway.is_some() {
        PARENT_LOCAL
    } else {
        PARENT_REMOTE
    };
    let message = if failed(kept) { record.status.as_str() } else { "" };
    let code = if failed(kept) {
        StatusCode::Error
    } else {
        StatusCode::Unset
    };
    let first_token = record.t0_ns.zip(record.ttft_s).map(|(t0, ttft)| {
        let at = i128::from(t0) + (ttft * 1e9).round() as i128;
        Event {
            time_unix_nano: unix(at.clamp(start, end)),
            name: "infertap.first_token".to_owned(),
            ..Event::default()
        }
    });
    let mut spans = vec![Span {
        trace_id: trace_id.clone(),
        span_id: request_id.clone(),
        parent_span_id: parent.map(Vec::from).unwrap_or_default(),
        flags: SAMPLED | parent.map_or(PARENT_LOCAL, |_| remote),
        name: format!("{} {}", operation(&record.protocol), record.model),
        kind: SpanKind::Server as i32,
        start_time_unix_nano: unix(start),
        end_time_unix_nano: unix(end),
        attributes: of_request(kept).0,
        events: first_token.into_iter().collect(),
        links: links(kept),
        status: Some(Status {
            message: message.to_owned(),
            code: code as i32,
        }),
        ..Span::default()
    }];
    for child in children(kept) {
        let mut attributes = Attributes::default();
        attributes.text("infertap.phase", child.name);
        if let Some(source) = child.source {
            attributes.text("infertap.source", source.as_str());
        }
        if child.name == "queue" {
            attributes.number("infertap.error_seconds", record.t1_error_s);
        }
        let from = i128::from(child.from).clamp(start, end);
        let to = i128::from(child.to).clamp(from, end);
        spans.push(Span {
            trace_id: trace_id.clone(),
            span_id: ids::child(&record.id, child.number).to_vec(),
            parent_span_id: request_id.clone(),
            flags: SAMPLED | PARENT_LOCAL,
            name: child.name.to_owned(),
            kind: SpanKind::Internal as i32,
            start_time_unix_nano: unix(from),
            end_time_unix_nano: unix(to),
            attributes: attributes.0,
            ..Span::default()
        });
    }
    spans
}

/// A phase of a request.
struct Child {
    /// What its id is made of: never changed. The gateway's span has one of them, too.
    number: u8,
    name: &'static str,
    from: u64,
    to: u64,
    /// Of the weaker of its ends; `None`: both were seen.
    source: Option<Source>,
}

fn children(kept: &KeptRecord) -> Vec<Child> {
    let record = &kept.record;
    let mut out = Vec::new();
    let mut add = |number, name, from: Option<u64>, to: Option<u64>, source| {
        if let (Some(from), Some(to)) = (from, to)
            && from <= to
        {
            out.push(Child {
                number,
                name,
                from,
                to,
                source,
            });
        }
    };
    let sources = &record.sources;
    add(1, "queue", record.t0_ns, record.t1_ns, sources.t1);
    add(
        2,
        "prefill",
        record.t1_ns,
        record.t2_ns,
        sources.t1.max(sources.t2),
    );
    add(
        3,
        "decode",
        record.t2_ns,
        record.t3_ns,
        sources.t2.max(sources.t3),
    );
    // How long is known, and that it comes first; when it began is not.
    let tokenized = record.tokenize_s.zip(record.t0_ns);
    let until = tokenized.map(|(seconds, t0)| t0.saturating_add((seconds * 1e9).round() as u64));
    add(
        4,
        "tokenize",
        tokenized.map(|(_, t0)| t0),
        until,
        Some(Source::Estimate),
    );
    out
}

#[cfg(test)]
mod tests;

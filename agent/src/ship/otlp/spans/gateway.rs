//! The span of the gateway that a request came by way of: the parent of the request's own.
//!
//! Owns: its times, which hold those of the request, and its attributes. Refuses: gateways whose beginning is not known:
//! they have no span.

use super::{Attributes, PARENT_LOCAL, PARENT_REMOTE, SAMPLED, bounds, ids};
use crate::store::tables::record::KeptRecord;
use infertap_core::Status as Ended;
use infertap_core::gateway::GatewayPart;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::{Span, Status, status::StatusCode};

/// What the span's id is made of, beside the record's id: never changed.
const NUMBER: u8 = 5;

/// The id of a request's gateway's span, where there is one. Not that of the gateway's exchange: a gateway that tries again
/// has several requests in one, each with a span of it.
pub(super) fn span_id(kept: &KeptRecord) -> Option<[u8; 8]> {
    let part = kept.gateway.as_ref()?;
    part.t0_ns.map(|_| ids::child(&kept.record.id, NUMBER))
}

/// A request's gateway, and its span.
pub(super) fn span(kept: &KeptRecord, offset: i128) -> Option<(&GatewayPart, Span)> {
    let part = kept.gateway.as_ref()?;
    let (asked, answered) = bounds(kept, offset);
    let start = i128::from(part.t0_ns?).min(asked);
    // A client that went away ends the gateway's exchange before the engine's.
    let end = part.t4_ns.map_or(answered, i128::from).max(answered);
    let unix = |at: i128| u64::try_from(at + offset).unwrap_or(0);
    // What asked the gateway is what its own headers name.
    let parent = part.parent_span_id.as_deref().and_then(ids::from_hex::<8>);
    let mut attributes = Attributes::default();
    attributes.text("infertap.phase", "gateway");
    attributes.text("infertap.gateway", &*part.name);
    attributes.text("infertap.gateway.joined_by", part.joined_by.as_str());
    attributes.number("infertap.gateway.before_seconds", part.before_s);
    attributes.number("infertap.gateway.after_seconds", part.after_s);
    attributes.count("http.response.status_code", part.http_status.map(u64::from));
    let (message, code) = match part.status {
        Ended::Ok | Ended::ClientError => ("", StatusCode::Unset),
        failed => (failed.as_str(), StatusCode::Error),
    };
    let span = Span {
        trace_id: ids::trace(&kept.record.trace_id, &kept.record.id).to_vec(),
        span_id: span_id(kept)?.to_vec(),
        parent_span_id: parent.map(Vec::from).unwrap_or_default(),
        flags: SAMPLED | parent.map_or(PARENT_LOCAL, |_| PARENT_REMOTE),
        name: format!("gateway {}", part.name),
        kind: SpanKind::Server as i32,
        start_time_unix_nano: unix(start),
        end_time_unix_nano: unix(end),
        attributes: attributes.0,
        status: Some(Status {
            message: message.to_owned(),
            code: code as i32,
        }),
        ..Span::default()
    };
    Some((part, span))
}

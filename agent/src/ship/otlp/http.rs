//! OTLP over HTTP, binary protobuf.
//!
//! Owns: the request, and what answers mean. Refuses: sending.

use super::spans::Encoder;
use crate::clock::unix_offset_ns;
use crate::ship::{HttpAnswer, HttpDestination, HttpRequest, Verdict};
use crate::store::tables::record::KeptRecord;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use prost::Message as _;
use reqwest::Method;
use std::sync::Arc;

/// See the module.
#[derive(Debug)]
pub(super) struct OtlpHttp {
    encoder: Encoder,
}

impl OtlpHttp {
    pub(super) fn new(encoder: Encoder) -> OtlpHttp {
        OtlpHttp { encoder }
    }
}

impl HttpDestination for OtlpHttp {
    fn name(&self) -> &'static str {
        "otlp"
    }

    fn encode(&self, records: &[Arc<KeptRecord>]) -> HttpRequest {
        HttpRequest {
            method: Method::POST,
            path: "/v1/traces".to_owned(),
            content_type: "application/x-protobuf",
            headers: Vec::new(),
            body: self.encoder.encode(records, unix_offset_ns()).encode_to_vec(),
        }
    }

    fn judge(&self, records: usize, answer: &HttpAnswer) -> Verdict {
        match answer.verdict() {
            Verdict::Accepted { .. } => ExportTraceServiceResponse::decode(&*answer.body)
                .map_or(Verdict::ACCEPTED, |response| accepted(records, response)),
            // Its body is protobuf too, whose text can be read.
            other => other,
        }
    }
}

/// What an answer to a batch that was taken means. It tells of spans; a record that has lost one counts as rejected.
pub(super) fn accepted(records: usize, response: ExportTraceServiceResponse) -> Verdict {
    let Some(partial) = response.partial_success else {
        return Verdict::ACCEPTED;
    };
    let rejected = usize::try_from(partial.rejected_spans).unwrap_or(0);
    Verdict::Accepted {
        rejected: rejected.min(records),
        reason: Some(partial.error_message).filter(|message| !message.is_empty()),
    }
}

//! From the facts of an exchange to its record.
//!
//! Owns: which number goes into which field, and its source. Refuses: counting and timing (`tokens`, `timeline`).

use super::facts::Facts;
use crate::{
    RequestRecord, Source, identity,
    observation::{Finished, Labels, TokenDirection},
    request::Sources,
    status::{self, End, Evidence},
};

impl Facts {
    pub(super) fn into_finished(self, labels: Labels, end: End, client_gone: bool) -> Finished {
        let status = status::decide(Evidence {
            end,
            incomplete: !self.incomplete.is_empty(),
            http_status: self.http_status,
            error: self.response.error,
            whole: self.response.done,
            finish_reason: self.response.finish_reason.is_some(),
            client_gone,
        });
        let (input, output) = (self.tokens.input(), self.tokens.output());
        let timeline = &self.timeline;
        // One chunk with several tokens shows no time between them.
        let chunks = self.tokens.chunks();
        let from_chunks = |point: Option<u64>| point.map(|_| Source::Chunk);
        let record = RequestRecord {
            id: identity::hex_id(self.id),
            trace_id: self
                .trace_id
                .map_or_else(|| identity::derived_trace_id(self.id), String::from),
            response_id: self.response.id,
            engine: labels.engine.clone(),
            model: labels.model.clone(),
            scene: labels.scene.clone(),
            protocol: self.protocol.map_or("unknown", |p| p.name()).to_owned(),
            streamed: self.streamed,
            status,
            http_status: self.http_status,
            finish_reason: self.response.finish_reason,
            t0_ns: timeline.t0(),
            t1_ns: None,
            t2_ns: timeline.t2(),
            t3_ns: timeline.t3(),
            t4_ns: timeline.t4(),
            queue_s: None,
            prefill_s: None,
            decode_s: timeline
                .decode_s()
                .filter(|_| chunks > 1 || output.is_none_or(|(tokens, _)| tokens <= 1)),
            tokenize_s: None,
            ttft_s: timeline.ttft_s(),
            tpot_s: output.and_then(|(tokens, _)| timeline.tpot_s(tokens, chunks)),
            e2e_s: timeline.e2e_s(),
            input_tokens: input.map(|(n, _)| n),
            output_tokens: output.map(|(n, _)| n),
            cached_input_tokens: self.tokens.cached_input(),
            reasoning_tokens: self.tokens.reasoning(),
            chunks,
            request_bytes: self.request_bytes,
            response_bytes: self.response_bytes,
            sources: Sources {
                t1: None,
                t2: from_chunks(timeline.t2()),
                t3: from_chunks(timeline.t3()),
                input_tokens: input.map(|(_, source)| source),
                output_tokens: output.map(|(_, source)| source),
            },
            incomplete: self
                .incomplete
                .iter()
                .map(|reason| (*reason).to_owned())
                .collect(),
            diagnosis: None,
            cost: None,
        };
        Finished {
            labels,
            record,
            gaps: timeline.gaps(),
            token_sources: [
                (TokenDirection::Input, input.map(|(_, source)| source)),
                (TokenDirection::Output, output.map(|(_, source)| source)),
            ],
        }
    }
}

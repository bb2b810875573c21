//! From the facts of an exchange to its record.
//!
//! Owns: which number goes into which field, and its source. Refuses: counting and timing (`tokens`, `timeline`).

use super::facts::Facts;
use crate::{
    Nanos, RequestRecord, Source, TraceSource, identity,
    infer::Estimate,
    inside::Told,
    observation::{Finished, Labels, TokenDirection},
    request::Sources,
    status::{self, End, Evidence},
    timeline::Timeline,
    tokens::Tokens,
    trace,
};
use std::sync::Arc;

/// T1 to T3: the engine's, where it told them and they keep their order with those of the socket; else T1 as inferred.
struct Points {
    t1: Option<(Nanos, Source)>,
    t2: Option<(Nanos, Source)>,
    t3: Option<(Nanos, Source)>,
    /// Set when T1 is inferred.
    estimate: Option<Estimate>,
}

impl Points {
    fn of(timeline: &Timeline, told: &Told, estimate: Option<Estimate>) -> Points {
        let chunk = |at: Option<Nanos>| at.map(|at| (at, Source::Chunk));
        let of_socket = Points {
            t1: None,
            t2: chunk(timeline.t2()),
            t3: chunk(timeline.t3()),
            estimate: None,
        };
        let (t0, t4) = (timeline.t0().unwrap_or(0), timeline.t4().unwrap_or(Nanos::MAX));
        // A process in a time namespace of its own reads another clock.
        let Some(t1) = told.scheduled.filter(|t1| (t0..=t4).contains(t1)) else {
            return of_socket.inferred(timeline, estimate);
        };
        let told_t1 = Some((t1, Source::Engine));
        let Some(t2) = told.first_token.filter(|t2| (t1..=t4).contains(t2)) else {
            return Points {
                t1: told_t1.filter(|(t1, _)| timeline.t2().is_none_or(|t2| *t1 <= t2)),
                ..of_socket
            };
        };
        // The engine may have gone on when nobody read any more.
        let t3 = told.last_token.map(|t3| t3.min(t4)).filter(|t3| *t3 >= t2);
        Points {
            t1: told_t1,
            t2: Some((t2, Source::Engine)),
            t3: t3
                .map(|t3| (t3, Source::Engine))
                .or(of_socket.t3.filter(|(t3, _)| *t3 >= t2)),
            estimate: None,
        }
    }

    /// With T1 as inferred, when it lies where it can and tells at least one phase.
    fn inferred(self, timeline: &Timeline, estimate: Option<Estimate>) -> Points {
        let end = timeline.t2().or(timeline.t4());
        let (Some(t0), Some(end), Some(estimate)) = (timeline.t0(), end, estimate) else {
            return self;
        };
        let points = Points {
            t1: Some((estimate.t1, Source::Estimate)),
            estimate: Some(estimate),
            ..self
        };
        let tells = points.queue_s(Some(t0)).is_some() || points.prefill_s().is_some();
        if !tells || !(t0..=end).contains(&estimate.t1) {
            return Points {
                t1: None,
                estimate: None,
                ..points
            };
        }
        points
    }

    /// Whether a phase between these points may be told: always, but for an estimate that is too coarse for it.
    fn phase(&self, from: Option<Nanos>, to: Option<Nanos>) -> Option<f64> {
        let length = to?.checked_sub(from?)?;
        let told = self.estimate.is_none_or(|estimate| estimate.holds_for(length));
        told.then_some(length as f64 / 1e9)
    }

    fn queue_s(&self, t0: Option<Nanos>) -> Option<f64> {
        self.phase(t0, self.t1.map(|(t1, _)| t1))
    }

    /// From the engine's points alone, or from what is inferred to the first chunk: what lies between the two clocks
    /// is no prefill.
    fn prefill_s(&self) -> Option<f64> {
        match (self.t1, self.t2) {
            (Some((t1, Source::Engine)), Some((t2, Source::Engine)))
            | (Some((t1, Source::Estimate)), Some((t2, _))) => self.phase(Some(t1), Some(t2)),
            _ => None,
        }
    }

    fn engine_decode_s(&self) -> Option<f64> {
        match (self.t2, self.t3) {
            (Some((t2, Source::Engine)), Some((t3, Source::Engine))) => seconds(Some(t2), Some(t3)),
            _ => None,
        }
    }
}

fn seconds(from: Option<Nanos>, to: Option<Nanos>) -> Option<f64> {
    Some(to?.checked_sub(from?)? as f64 / 1e9)
}

impl Facts {
    pub(super) fn into_finished(self, labels: Labels, end: End, client_gone: bool) -> (Finished, Tokens) {
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
        let points = Points::of(timeline, &self.told, self.estimate);
        // Where the engine told both ends of the decode, times between tokens are its own too.
        let of_engine = points.engine_decode_s().is_some();
        // One chunk with several tokens shows no time between them.
        let chunks = self.tokens.chunks();
        let (trace_id, trace_source, parent_span_id) = match self.trace {
            Some(trace) => (trace.id.into(), trace.source, trace.parent.map(String::from)),
            None => (trace::derived_id(self.id), TraceSource::Derived, None),
        };
        let client = self.scene.client();
        let pod = client.pod.as_deref();
        let workload = pod.and_then(|pod| pod.workload.as_ref());
        let record = RequestRecord {
            id: identity::hex_id(self.id),
            trace_id,
            trace_source,
            parent_span_id,
            response_id: self.response.id,
            engine: labels.engine.clone(),
            model: labels.model.clone(),
            client: client.address,
            client_namespace: pod.map(|pod| Arc::clone(&pod.namespace)),
            client_pod: pod.map(|pod| Arc::clone(&pod.name)),
            client_workload: workload.map(|workload| Arc::clone(&workload.name)),
            client_workload_kind: workload.map(|workload| Arc::clone(&workload.kind)),
            scene: labels.scene.clone(),
            protocol: self.protocol.map_or("unknown", |p| p.name()).to_owned(),
            streamed: self.streamed,
            status,
            http_status: self.http_status,
            finish_reason: self.response.finish_reason,
            t0_ns: timeline.t0(),
            t1_ns: points.t1.map(|(at, _)| at),
            t2_ns: points.t2.map(|(at, _)| at),
            t3_ns: points.t3.map(|(at, _)| at),
            t4_ns: timeline.t4(),
            queue_s: points.queue_s(timeline.t0()),
            prefill_s: points.prefill_s(),
            decode_s: match points.engine_decode_s() {
                Some(decode) => Some(decode),
                None => timeline
                    .decode_s()
                    .filter(|_| chunks > 1 || output.is_none_or(|(tokens, _)| tokens <= 1)),
            },
            tokenize_s: self.tokenize_s,
            // What a client sees of a stream is its first chunk; a document shows none, and the engine's time stands in.
            ttft_s: match timeline.ttft_s() {
                None if !self.streamed => seconds(timeline.t0(), points.t2.map(|(at, _)| at)),
                ttft => ttft,
            },
            tpot_s: output.and_then(|(tokens, _)| match points.engine_decode_s() {
                Some(decode) => Timeline::tpot_of(decode, tokens, self.told.requests as usize),
                None => timeline.tpot_s(tokens, chunks),
            }),
            e2e_s: timeline.e2e_s(),
            input_tokens: input.map(|(n, _)| n),
            output_tokens: output.map(|(n, _)| n),
            cached_input_tokens: self.tokens.cached_input(),
            reasoning_tokens: self.tokens.reasoning(),
            chunks,
            request_bytes: self.request_bytes,
            response_bytes: self.response_bytes,
            sources: Sources {
                t1: points.t1.map(|(_, source)| source),
                t2: points.t2.map(|(_, source)| source),
                t3: points.t3.map(|(_, source)| source),
                input_tokens: input.map(|(_, source)| source),
                output_tokens: output.map(|(_, source)| source),
            },
            t1_error_s: points.estimate.map(|estimate| estimate.error as f64 / 1e9),
            gpu_alloc_failures: None,
            incomplete: self
                .incomplete
                .iter()
                .map(|reason| (*reason).to_owned())
                .collect(),
            diagnosis: None,
            cost: None,
            energy_j: None,
        };
        let finished = Finished {
            id: self.id,
            labels,
            record,
            gaps_from: if of_engine {
                self.told.first_token.filter(|_| self.told.requests == 1)
            } else {
                timeline.t2().filter(|_| !self.several_choices)
            },
            gaps: if of_engine {
                self.told.gaps
            } else {
                timeline.gaps()
            },
            in_flight_at_arrival: None,
            content: None,
            token_sources: [
                (TokenDirection::Input, input.map(|(_, source)| source)),
                (TokenDirection::Output, output.map(|(_, source)| source)),
            ],
        };
        (finished, self.tokens)
    }
}

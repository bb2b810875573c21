//! One request and its response: from bytes to facts, and from facts to observations.
//!
//! Owns: what a protocol's messages mean for the counts and the timeline of this exchange; its labels; the promise that
//! every `Started` has exactly one `Finished` with the same labels. Refuses: framing, and which response is whose
//! (`pairing`).

mod body;
mod facts;
mod gateway;
mod kept;
mod record;

use crate::{
    Anomaly, Nanos, Observation,
    content::{Absent, Heard},
    context::Context,
    count::{Ending, Kept},
    diagnose::{Stalls, Witness},
    gateway::{Asked, Digest},
    identity,
    inside::Told,
    pressure::AllocMark,
    protocol::{self, RequestFacts, ResponseFacts},
    scene::SceneFacts,
    status::End,
    timeline::Timeline,
    tokens::Tokens,
    trace,
    wire::{
        encoding::Coding,
        http1::{RequestHead, ResponseHead},
    },
};
use body::{Body, RequestBody, ResponseBody};
use facts::Facts;
use gateway::Hop;
use std::sync::Arc;

/// Reasons to be incomplete.
pub(crate) mod reason {
    /// The agent came when the exchange was under way.
    pub(crate) const LATE_JOIN: &str = "late_join";
    /// Bytes of the request's direction are missing, and with them the certainty which request this is.
    pub(crate) const GAP_IN: &str = "gap_in";
    /// Bytes of the response are missing.
    pub(crate) const GAP_OUT: &str = "gap_out";
    /// State was dropped to stay within bounds.
    pub(crate) const EVICTED: &str = "evicted";
    /// A clock value came before one that it must follow.
    pub(crate) const CLOCK: &str = "clock";
    /// A message of the stream was larger than the limit.
    pub(crate) const OVERSIZE_EVENT: &str = "oversize_event";
    /// The response stopped being HTTP.
    pub(crate) const UNPARSED: &str = "unparsed";
}

/// An inference request, or what may turn out to be one.
#[derive(Debug)]
pub(crate) struct Exchange {
    request_body: Option<Box<RequestBody>>,
    response_body: ResponseBody,
    facts: Facts,
}

impl Exchange {
    /// A request whose head is complete; `None` when it is no inference request.
    pub(crate) fn claim(
        head: &RequestHead,
        bytes: u64,
        began: Nanos,
        sequence: u64,
        context: &mut Context<'_>,
    ) -> Option<Exchange> {
        let protocol = protocol::claiming(&head.method, &head.target)?;
        let mut exchange = Exchange::new(context, sequence, Some(began));
        let facts = &mut exchange.facts;
        facts.protocol = Some(protocol);
        let client = context.client(Some(&head.headers));
        facts.scene = SceneFacts::of_head(&facts.scenes, head, client);
        facts.request_bytes = bytes;
        facts.trace = trace::of_headers(&head.headers, context.config.trace_header.as_deref()).map(Box::new);
        facts.request_id = head
            .headers
            .iter()
            .find(|(name, _)| name == "x-request-id")
            .and_then(|(_, value)| protocol::clean_name(value))
            .map(Into::into);
        facts.begin_gateway(context);
        if facts.hop.is_none() {
            facts.arrive(began, context);
        }
        let coding = Coding::of(&head.headers);
        if coding == Coding::Unsupported {
            context.anomalies.add(Anomaly::UnsupportedEncoding);
        } else {
            if exchange.facts.hop.is_none() {
                exchange.facts.kept = context.keep().map(Box::new);
                exchange.facts.heard = context.hear(protocol).map(Box::new);
            }
            exchange.request_body = Some(Box::new(RequestBody::new(protocol, coding)));
        }
        Some(exchange)
    }

    /// A response, or its rest, without the request that it answers.
    pub(crate) fn orphan(sequence: u64, reason: &'static str, context: &Context<'_>) -> Exchange {
        let mut exchange = Exchange::new(context, sequence, None);
        exchange.facts.request_ended = true;
        exchange.facts.request_whole = true;
        exchange.facts.scene = SceneFacts::without_head(context.client(None));
        exchange.mark(reason);
        exchange
    }

    fn new(context: &Context<'_>, sequence: u64, t0: Option<Nanos>) -> Exchange {
        Exchange {
            request_body: None,
            response_body: ResponseBody::none(),
            facts: Facts {
                id: identity::request_id(context.conn, sequence, context.at),
                trace: None,
                request_id: None,
                protocol: None,
                labels: None,
                request: RequestFacts::default(),
                scenes: Arc::clone(&context.config.scenes),
                scene: SceneFacts::default(),
                request_ended: false,
                request_whole: false,
                response: ResponseFacts::default(),
                http_status: None,
                streamed: false,
                timeline: Timeline::new(t0),
                tokens: Tokens::default(),
                told: Told::default(),
                tokenizes_in: None,
                tokenize_s: None,
                estimate: None,
                kept: None,
                heard: None,
                several_choices: false,
                request_bytes: 0,
                response_bytes: 0,
                incomplete: Vec::new(),
                witness: Witness::default(),
                alloc_mark: AllocMark::default(),
                hop: Hop::of(context.engine),
                digest: None,
            },
        }
    }

    /// Something about it is not known.
    pub(crate) fn mark(&mut self, reason: &'static str) {
        self.facts.mark(reason);
    }

    /// The server writes its response, or can't.
    pub(crate) fn stalls(&mut self) -> &mut Stalls {
        &mut self.facts.witness.stalls
    }

    /// Its request was seen to the end.
    pub(crate) fn request_whole(&self) -> bool {
        self.facts.request_whole
    }

    /// The response's head said that it is no success.
    pub(crate) fn refused(&self) -> bool {
        self.facts.http_status.is_some_and(|status| status >= 400)
    }

    /// The stream said that it is complete.
    pub(crate) fn done(&self) -> bool {
        self.facts.response.done
    }

    pub(crate) fn request_data(&mut self, bytes: &[u8], context: &mut Context<'_>) {
        self.facts.request_bytes += bytes.len() as u64;
        if let Some(digest) = &mut self.facts.digest {
            digest.feed(bytes);
        }
        if let (Some(body), Some(protocol)) = (&mut self.request_body, self.facts.protocol) {
            let Facts {
                request,
                scene,
                kept,
                heard,
                ..
            } = &mut self.facts;
            let mut keep = |bytes: &[u8]| {
                if let Some(kept) = kept {
                    kept.request_data(bytes);
                }
                if let Some(heard) = heard {
                    heard.request_data(bytes);
                }
            };
            if body.feed(bytes, protocol, request, scene, &mut keep).is_err() {
                self.facts.lose_kept();
                context.anomalies.add(Anomaly::UnsupportedEncoding);
                self.request_body = None;
            }
            self.facts.start_if_known(context);
        }
    }

    /// Body bytes that were not seen. The request stays measurable: no time and no count comes from its body. Only facts
    /// in the missing part are lost, and the model then comes from the response.
    pub(crate) fn request_gap(&mut self, len: u64) {
        self.facts.request_bytes += len;
        self.facts.lose_kept();
        self.facts.digest = None;
        if let Some(body) = &mut self.request_body {
            body.gap();
            self.facts.scene.gap();
        }
    }

    pub(crate) fn request_framing(&mut self, len: u64) {
        self.facts.request_bytes += len;
    }

    /// No more of the request will come.
    pub(crate) fn end_request(&mut self, whole: bool, context: &mut Context<'_>) {
        self.facts.request_whole = whole;
        self.facts.request_is_kept(whole);
        if let Some(body) = self.request_body.take()
            && body.malformed()
        {
            context.anomalies.add(Anomaly::BadJson);
        }
        self.facts.request_ended = true;
        self.facts.scene.end();
        self.facts.read_by_gateway(context);
        self.facts.start_if_known(context);
    }

    pub(crate) fn response_head(&mut self, head: &ResponseHead, bytes: u64, context: &mut Context<'_>) {
        self.facts.http_status = Some(head.status);
        if let Some(hop) = &mut self.facts.hop {
            hop.first_byte = hop.first_byte.or(Some(context.at));
        }
        if let Some(engine) = &self.facts.tokenizes_in {
            context.tokenizing.answered(engine, self.facts.id);
        }
        self.response_framing(bytes, context);
        self.response_body = ResponseBody::new(head, self.facts.protocol);
        self.facts.streamed = self.response_body.is_stream();
        if self.response_body.is_unreadable() {
            context.anomalies.add(Anomaly::UnsupportedEncoding);
        }
        self.facts.start_if_known(context);
    }

    pub(crate) fn response_framing(&mut self, len: u64, context: &mut Context<'_>) {
        self.facts.response_bytes += len;
        self.facts.wrote(context);
    }

    pub(crate) fn response_data(&mut self, bytes: &[u8], context: &mut Context<'_>) {
        self.facts.response_bytes += bytes.len() as u64;
        self.facts.wrote(context);
        let facts = &mut self.facts;
        if self
            .response_body
            .feed(bytes, facts.protocol, &mut |piece| facts.piece(&piece, context))
            .is_err()
        {
            context.anomalies.add(Anomaly::UnsupportedEncoding);
        }
        self.facts.streamed = self.response_body.is_stream();
    }

    pub(crate) fn response_gap(&mut self, len: u64, context: &mut Context<'_>) {
        self.facts.response_bytes += len;
        self.facts.wrote(context);
        self.mark(reason::GAP_OUT);
        self.facts.lose_heard(Absent::Incomplete);
        self.response_body.gap();
    }

    /// The framing of the response is lost: what comes is read as the raw rest of an event stream. Chunk sizes are lines
    /// without a meaning there, so an event that lies within one chunk is still found.
    pub(crate) fn continue_raw(&mut self, reason: &'static str) {
        self.mark(reason);
        self.facts.lose_heard(Absent::Incomplete);
        self.response_body.continue_raw();
        self.facts.streamed = self.response_body.is_stream();
    }

    /// A message of its response was understood.
    pub(crate) fn is_answered(&self) -> bool {
        self.facts.response.id.is_some() || self.facts.tokens.chunks() > 0 || self.facts.response.done
    }

    /// Its response is an event stream.
    pub(crate) fn is_stream(&self) -> bool {
        self.response_body.is_stream()
    }

    /// Tells what was counted since it was last told.
    pub(crate) fn flush(&mut self, out: &mut Vec<Observation>) {
        self.facts.flush(out);
    }

    /// Heap bytes, about.
    pub(crate) fn heap_bytes(&self) -> usize {
        let request = if self.request_body.is_some() {
            size_of::<RequestBody>() + 1024
        } else {
            0
        };
        size_of::<Exchange>()
            + request
            + self.response_body.heap_bytes()
            + self.facts.timeline.heap_bytes()
            + self.facts.witness.stalls.heap_bytes()
            + self.facts.scene.heap_bytes()
            + self.facts.kept.as_ref().map_or(0, |_| size_of::<Kept>())
            + self.facts.heard.as_ref().map_or(0, |_| size_of::<Heard>())
            + 256
    }

    /// The end: tells all that is left to tell. Nothing, when no protocol claims it.
    pub(crate) fn finish(mut self, end: End, client_gone: bool, context: &mut Context<'_>) {
        let body = std::mem::replace(&mut self.response_body, ResponseBody::none());
        if let Body::Document(documents) = body.into_body() {
            self.facts.document(documents, context);
        }
        if self.facts.protocol.is_none() {
            return;
        }
        if self.facts.hop.is_some() {
            self.facts.finish_gateway(end, client_gone, context);
            return;
        }
        self.facts.infer(context);
        self.facts.request_ended = true;
        self.facts
            .join_engine(matches!(end, End::Complete | End::Closed), context);
        self.facts.join_tokenizer(context);
        let labels = self.facts.start(context);
        self.facts.flush(context.out);
        *context.in_flight = context.in_flight.saturating_sub(1);
        let (id, witness) = (self.facts.id, std::mem::take(&mut self.facts.witness));
        let alloc_mark = self.facts.alloc_mark;
        let protocol = self.facts.protocol.map_or("unknown", |protocol| protocol.name());
        let kept = self.facts.take_kept();
        let digest = self.facts.digest.as_ref().and_then(Digest::value);
        let heard = self.facts.heard.take();
        let shared = self.facts.told.shared.take();
        let choices = self.facts.timeline.choices();
        let (mut finished, tokens) = self.facts.into_finished(labels, end, client_gone);
        finished.content = heard.map(Arc::from);
        let record = &mut finished.record;
        record.gpu_alloc_failures = context.pressure.alloc_failures_since(&record.engine, alloc_mark);
        let (inside, config) = (&*context.inside, context.config);
        context
            .peers
            .finish(id, witness, context.at, &mut finished, inside, config);
        context.gpu.finished(id, context.at, &finished);
        if context.gateways.any() {
            let asked = Asked::new(id, &finished.record, digest, context.at);
            context.gateways.asked(context.at, asked, context.out);
        }
        let process = context.engine.map_or(0, |engine| engine.pid);
        let body = kept.as_ref().and_then(Kept::whole_request);
        context
            .prefix
            .finished(&finished.labels, process, &finished.record, shared, body);
        let ending = Ending {
            id,
            finished: Box::new(finished),
            tokens,
            choices,
        };
        let (at, config) = (context.at, context.config);
        context
            .counting
            .end(ending, protocol, kept, at, config, context.out);
    }
}

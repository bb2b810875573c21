//! Everything but the parsers of one exchange.
//!
//! Owns: what messages and documents mean for counts, timeline and labels. Refuses: bytes (`body`), the record's shape
//! (`record`).

use super::{body, gateway::Hop, reason};
use crate::{
    Anomaly, EngineInfo, EngineKind, Nanos, Observation, Source,
    content::{Absent, Heard, Mode},
    context::Context,
    count::{self, Kept},
    diagnose::Witness,
    engine::vllm,
    gateway::Digest,
    infer::{self, Estimate},
    inside::Told,
    observation::Labels,
    pressure::AllocMark,
    protocol::{self, Message, PROTOCOLS, Protocol, RequestFacts, ResponseFacts, clean_name},
    scene::{DEFAULT_SCENE, SceneFacts, SceneRules},
    timeline::Timeline,
    tokens::Tokens,
    trace::Trace,
    wire::sse::SseItem,
};
use std::{borrow::Cow, sync::Arc};

/// Label value of what nobody told.
pub(super) const UNKNOWN: &str = "unknown";

/// Everything but the parsers, so that they can be fed while it changes.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) id: u64,
    /// The trace that its headers name.
    pub(super) trace: Option<Box<Trace>>,
    /// `X-Request-Id`, with which a client chooses the id that its response will have.
    pub(super) request_id: Option<Box<str>>,
    /// `None`: its request was not seen, and its response has not told yet.
    pub(super) protocol: Option<&'static dyn Protocol>,
    /// What it was started with.
    pub(super) labels: Option<Labels>,
    pub(super) request: RequestFacts,
    /// The rules as they were when it began, and what is known for them.
    pub(super) scenes: Arc<SceneRules>,
    pub(super) scene: SceneFacts,
    /// No more of the request will be seen.
    pub(super) request_ended: bool,
    /// It was seen to its end.
    pub(super) request_whole: bool,
    pub(super) response: ResponseFacts,
    pub(super) http_status: Option<u16>,
    pub(super) streamed: bool,
    pub(super) timeline: Timeline,
    pub(super) tokens: Tokens,
    /// What the engine's own messages told of it.
    pub(super) told: Told,
    /// The engine whose tokenizer calls may be for it.
    pub(super) tokenizes_in: Option<Arc<str>>,
    /// Seconds in the tokenizer.
    pub(super) tokenize_s: Option<f64>,
    /// When it was started, where that is inferred.
    pub(super) estimate: Option<Estimate>,
    /// What it says, while it may have to be counted.
    pub(super) kept: Option<Box<Kept>>,
    /// What it says, while its content may have to be kept.
    pub(super) heard: Option<Box<Heard>>,
    /// A choice other than the first was seen.
    pub(super) several_choices: bool,
    pub(super) request_bytes: u64,
    pub(super) response_bytes: u64,
    pub(super) incomplete: Vec<&'static str>,
    /// What it has seen of other requests and of its client.
    pub(super) witness: Witness,
    /// Failed allocations of its engine when it began.
    pub(super) alloc_mark: AllocMark,
    /// It is between a gateway and its client, and no request of its own.
    pub(super) hop: Option<Box<Hop>>,
    /// Of its body, where there are gateways.
    pub(super) digest: Option<Digest>,
}

impl Facts {
    pub(super) fn mark(&mut self, reason: &'static str) {
        if !self.incomplete.contains(&reason) {
            self.incomplete.push(reason);
        }
    }

    /// A request has reached its engine, whose others it may have to do with.
    pub(super) fn arrive(&mut self, began: Nanos, context: &mut Context<'_>) {
        self.witness = context
            .peers
            .arrive(context.engine, context.inside, context.config);
        if let Some(engine) = context.engine {
            self.tokenizes_in = Some(engine.id.clone());
            self.alloc_mark = context.pressure.mark(&engine.id);
            context
                .tokenizing
                .opened(&engine.id, self.id, began, (context.tgid, context.tid));
            if context.config.estimates {
                context.infer.arrived(&engine.id, self.id, began);
            }
            context.gpu.arrived(&engine.id, self.id, began);
        }
    }

    pub(super) fn wrote(&mut self, context: &mut Context<'_>) {
        if self.timeline.wrote(context.until).is_err() {
            self.time_went_back(context);
        }
    }

    /// Counted once a request: one step back taints all that follows it.
    pub(super) fn time_went_back(&mut self, context: &mut Context<'_>) {
        if !self.incomplete.contains(&reason::CLOCK) {
            context.anomalies.add(Anomaly::TimeWentBack);
            self.mark(reason::CLOCK);
        }
    }

    /// One item of an event stream.
    pub(super) fn item(&mut self, item: SseItem<'_>, context: &mut Context<'_>) {
        let event = match item {
            SseItem::Event(event) => event,
            SseItem::Comment => return,
            SseItem::Skipped => {
                context.anomalies.add(Anomaly::OversizeEvent);
                self.mark(reason::OVERSIZE_EVENT);
                self.lose_heard(Absent::TooLarge);
                return;
            }
        };
        if self.protocol.is_none() {
            self.protocol = PROTOCOLS.iter().copied().find(|p| p.claims_message(event));
        }
        let Some(protocol) = self.protocol else { return };
        if let Some(heard) = &mut self.heard {
            heard.event(event);
        }
        match protocol.message(event, &self.request) {
            Ok(message) => self.message(message, context),
            Err(protocol::BadMessage) => context.anomalies.add(Anomaly::BadJson),
        }
    }

    pub(super) fn message(&mut self, message: Message<'_>, context: &mut Context<'_>) {
        let name = |kept: &mut Option<String>, told: Option<Cow<'_, str>>| {
            if let (None, Some(told)) = (&kept, told) {
                *kept = clean_name(&told);
            }
        };
        let response = &mut self.response;
        let unnamed = response.id.is_none();
        name(&mut response.id, message.id);
        if let (true, Some(id), None) = (unnamed, &response.id, &self.hop) {
            context
                .peers
                .answering(&self.witness, self.id, self.trace.as_deref(), id);
        }
        name(&mut response.model, message.model);
        name(&mut response.finish_reason, message.finish_reason);
        response.error = response.error.or(message.error);
        response.done |= message.done;
        if self.hop.is_some() {
            return;
        }

        let total = message.usage.and_then(|usage| usage.output);
        let alone = message.choices.iter().nth(1).is_none() && !self.several_choices;
        let mut choices = false;
        for choice in message.choices.iter() {
            choices = true;
            self.several_choices |= choice.index > 0;
            if choice.content {
                if let (Some(kept), Some(text)) = (&mut self.kept, &choice.text) {
                    kept.text(choice.index, text);
                }
                let total = if alone && choice.index == 0 { total } else { None };
                let tokens = self.tokens.chunk(choice.tokens.unwrap_or(1), total);
                if let Some(engine) = context.engine
                    && context.config.estimates
                {
                    context.infer.chunk(&engine.id, self.id, choice.index, context.at);
                }
                if let Some(engine) = context.engine {
                    context.gpu.chunk(&engine.id, self.id, context.at, tokens);
                }
                let limit = context.config.max_token_times;
                if self
                    .timeline
                    .chunk(context.at, choice.index, tokens, limit)
                    .is_err()
                {
                    self.time_went_back(context);
                }
            } else if let Some(tokens) = choice.tokens {
                self.tokens.without_content(tokens);
            }
        }
        if let Some(usage) = message.usage {
            // vLLM's running usage is that of the choice it comes with; only its last frame, without choices, is of all.
            let of_one_choice = choices && self.several_choices;
            if !of_one_choice || self.tokens.output().is_none_or(|(n, _)| total >= Some(n)) {
                self.tokens.report(usage);
            }
        }
        if let Some(usage) = message.fallback_usage {
            self.tokens.report_fallback(usage);
        }
        self.start_if_known(context);
        context.unflushed = true;
    }

    /// A response that is one document has ended.
    pub(super) fn document(&mut self, documents: Vec<body::Document>, context: &mut Context<'_>) {
        let claimed = documents.into_iter().find(|d| {
            self.protocol.is_some_and(|p| p.name() == d.protocol.name())
                || d.protocol.claims_response(&d.facts)
        });
        let Some(document) = claimed else { return };
        // A refusal may be a page of text; a success that does not parse is worth knowing.
        if document.scan.failed() && self.http_status.is_some_and(|status| status < 300) {
            context.anomalies.add(Anomaly::BadJson);
        }
        self.protocol = Some(document.protocol);
        self.tokens.report(document.facts.usage);
        self.tokens.report_fallback(document.facts.fallback_usage);
        self.several_choices |= document.facts.several_choices;
        self.response = document.facts;
        self.response.done = document.scan.complete();
    }

    /// The exchange has ended; `complete`: to the response's end. Takes what the engine's own messages and calls told of it.
    pub(super) fn join_engine(&mut self, complete: bool, context: &mut Context<'_>) {
        let t0 = self.timeline.t0();
        let by_calls = context.slots.take(context.tgid, context.conn, t0, context.out);
        let Some(engine) = context.engine else { return };
        let told = match &self.response.id {
            Some(id) => context.inside.take(&engine.id, id, None, complete),
            None => self
                .expected_id(engine)
                .and_then(|id| context.inside.take(&engine.id, &id, self.timeline.t0(), complete)),
        };
        let told = told.or_else(|| by_calls.map(|told| self.without_contradiction(told, complete)));
        let Some(told) = told else { return };
        if engine.kind == EngineKind::Sglang && !self.is_all_of_it(told.output_tokens) {
            return;
        }
        self.tokens.report_engine(protocol::Usage {
            input: told.input_tokens,
            cached_input: told.cached_tokens,
            output: told.output_tokens,
            reasoning: told.reasoning_tokens,
        });
        self.told = told;
    }

    /// The id that a response would have had which never came to show one. A refused request never was in the engine:
    /// what goes by its id there is another try.
    fn expected_id(&self, engine: &EngineInfo) -> Option<String> {
        let chosen = self.request_id.as_deref()?;
        let (EngineKind::Vllm, Some(protocol), Some(_)) = (engine.kind, self.protocol, self.timeline.t0())
        else {
            return None;
        };
        if self.http_status.is_some_and(|status| status >= 400) {
            return None;
        }
        vllm::expected_response_id(protocol.name(), chosen)
    }

    /// Calls count one by one, and one that was lost leaves no gap: where the response counted otherwise, it is right.
    /// Its prompt may also have been more than the text that was tokenized: images, or tokens as such.
    fn without_contradiction(&self, mut told: Told, complete: bool) -> Told {
        if let Some((input, _)) = self.tokens.input()
            && told.input_tokens.is_some_and(|tokens| tokens != input)
        {
            told.input_tokens = None;
            told.cached_tokens = None;
        }
        if complete
            && let Some((output, Source::Usage)) = self.tokens.output()
            && told.output_tokens != Some(output)
        {
            told.output_tokens = None;
            told.first_token = None;
            told.last_token = None;
        }
        told
    }

    /// SGLang gives each choice and each prompt an id of its own, and shows that of the first: what was told of it is then
    /// only part of the response. `output` is what was told.
    fn is_all_of_it(&self, output: Option<u64>) -> bool {
        let usage = self.response.usage.output;
        !self.has_several_choices() && usage.is_none_or(|usage| output.is_none_or(|told| told >= usage))
    }

    /// The request asked for several choices, or the response has them.
    fn has_several_choices(&self) -> bool {
        self.several_choices || self.request.choices.is_some_and(|n| n > 1)
    }

    /// The exchange has ended: takes what is inferred of its start.
    pub(super) fn infer(&mut self, context: &mut Context<'_>) {
        let Some(engine) = context.engine.filter(|_| context.config.estimates) else {
            return;
        };
        let prompt = infer::Prompt {
            tokens: self.tokens.input().map(|(tokens, _)| tokens),
            cached: self.tokens.cached_input(),
        };
        let estimate = context.infer.ended(&engine.id, self.id, context.at, prompt);
        let refused = self.http_status.is_none_or(|status| status >= 400);
        self.estimate = estimate.filter(|_| !refused && !self.has_several_choices());
    }

    /// The exchange has ended, and what its engine told of it is known. Takes the tokenizer calls that were for it.
    pub(super) fn join_tokenizer(&mut self, context: &mut Context<'_>) {
        let Some(engine) = &self.tokenizes_in else { return };
        let prompt_tokens = self.tokens.input().map(|(tokens, _)| tokens);
        let response = self.response.id.as_deref();
        self.tokenize_s = context.tokenizing.take(engine, self.id, response, prompt_tokens);
    }

    /// The model, best evidence first: the request's own; then, once it is clear that the request names none, the one
    /// that the engine is known to serve, so that the request counts as in flight at once; then the response's. Where
    /// the request was not seen, the response comes before the engine.
    pub(super) fn model<'a>(&'a self, engine: Option<&'a EngineInfo>) -> Option<&'a str> {
        if let Some(model) = &self.request.model {
            return Some(model);
        }
        if !self.request_ended {
            return None;
        }
        let of_engine = engine.and_then(|engine| engine.model.as_deref());
        let of_response = self.response.model.as_deref();
        match self.timeline.t0() {
            Some(_) => of_engine.or(of_response),
            None => of_response.or(of_engine),
        }
    }

    pub(super) fn start_if_known(&mut self, context: &mut Context<'_>) {
        if self.labels.is_none()
            && self.hop.is_none()
            && self.protocol.is_some()
            && let Some(model) = self.model(context.engine)
            && self.scene_of(model, context.engine, self.answered()).is_some()
        {
            self.start(context);
        }
    }

    /// Nothing more of the request can matter: it was seen to its end, or is being answered.
    fn answered(&self) -> bool {
        self.request_ended || self.http_status.is_some()
    }

    /// Its scene, once that is certain; with `all` it is.
    fn scene_of(&self, model: &str, engine: Option<&EngineInfo>, all: bool) -> Option<Arc<str>> {
        let engine = engine.map(|engine| &*engine.id);
        self.scenes.scene(&self.scene, Some(model), engine, all)
    }

    /// Its labels; the first time, tells that it has started.
    pub(super) fn start(&mut self, context: &mut Context<'_>) -> Labels {
        if let Some(labels) = &self.labels {
            return labels.clone();
        }
        let engine = context.engine;
        let model = match self.model(engine) {
            Some(model) => match engine.and_then(|engine| engine.model.as_ref()) {
                Some(known) if **known == *model => known.clone(),
                _ => clean_name(model).unwrap_or_else(|| UNKNOWN.to_owned()).into(),
            },
            None => UNKNOWN.into(),
        };
        let scene = self.scene_of(&model, engine, true);
        let labels = Labels {
            engine: engine.map_or_else(|| UNKNOWN.into(), |engine| engine.id.clone()),
            model,
            scene: scene.unwrap_or_else(|| DEFAULT_SCENE.into()),
        };
        let now = context.config.content.of(&labels.scene);
        self.heard
            .take_if(|heard| heard.keep(&labels.scene, now).mode == Mode::None);
        self.labels = Some(labels.clone());
        *context.in_flight += 1;
        context.gpu.named(self.id, &labels, self.request.stream);
        context.out.push(Observation::Started(labels.clone()));
        labels
    }

    pub(super) fn flush(&mut self, out: &mut Vec<Observation>) {
        if let Some(labels) = &self.labels {
            count::tell_growth(
                self.id,
                labels,
                self.scene.client().address,
                &mut self.tokens,
                out,
            );
        }
    }
}

//! A connection between an engine's own processes, seen from the one that accepted it.
//!
//! Owns: both directions' decoders, whether their messages are understood. Refuses: what the messages mean for requests
//! (`inside`), stream offsets (`connection`).

use crate::{
    Anomaly, EngineKind, Observation,
    context::Context,
    engine::{
        sglang::{MESSAGES, SglangReader, Told},
        vllm::{OUTPUTS, REQUESTS, Request, VllmReader},
    },
    inside::{Seen, prompt_id, response_id},
    wire::zmtp::{self, Message, StartCheck, ZmtpDecoder, ZmtpEvent},
};
use infertap_abi::{Direction, Transport};
use std::sync::Arc;

/// Engines whose processes talk ZeroMQ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    Vllm,
    Sglang,
}

impl Family {
    fn of(kind: EngineKind) -> Option<Family> {
        match kind {
            EngineKind::Vllm => Some(Family::Vllm),
            EngineKind::Sglang => Some(Family::Sglang),
            _ => None,
        }
    }

    /// What starts of messages look like, of requests and of outputs. SGLang's say themselves what they are.
    fn checks(self) -> (StartCheck, StartCheck) {
        match self {
            Family::Vllm => (REQUESTS, OUTPUTS),
            Family::Sglang => (MESSAGES, MESSAGES),
        }
    }
}

/// One connection. vLLM's API server binds, so it accepts: it writes requests and reads outputs. SGLang's tokenizer
/// manager binds its two sockets, to write requests to the scheduler and to read text; its detokenizer binds one, to read
/// the scheduler's outputs.
#[derive(Debug)]
pub(crate) struct Link {
    /// Whose messages they are; of vLLM until the engine is known.
    family: Family,
    requests: Side,
    outputs: Side,
}

#[derive(Debug)]
struct Side {
    decoder: ZmtpDecoder,
    /// The place in the stream was found by searching, and nothing has confirmed it yet.
    unproven: bool,
    /// Towards who accepted it.
    outputs: bool,
}

impl Link {
    /// Whether a connection that the process accepted is one, by the first bytes that are seen of it. `joined`: they are
    /// not its first. HTTP that is served on a Unix socket begins its messages otherwise.
    pub(crate) fn begins(
        joined: bool,
        transport: Transport,
        http: bool,
        bytes: &[u8],
        context: &Context<'_>,
    ) -> bool {
        let family = context.engine.map(|engine| Family::of(engine.kind));
        if joined {
            transport == Transport::Unix && family.flatten().is_some() && !http
        } else {
            zmtp::is_signature(bytes) && family.is_none_or(|family| family.is_some())
        }
    }

    pub(crate) fn new(joined: bool) -> Link {
        let side = |check, outputs| {
            let mut decoder = ZmtpDecoder::new(check);
            if joined {
                decoder.resync();
            }
            Side {
                decoder,
                unproven: joined,
                outputs,
            }
        };
        Link {
            family: Family::Vllm,
            requests: side(REQUESTS, false),
            outputs: side(OUTPUTS, true),
        }
    }

    /// Nothing of either direction was understood yet.
    pub(crate) fn is_unproven(&self) -> bool {
        self.requests.unproven && self.outputs.unproven
    }

    /// Neither direction is read any further.
    pub(crate) fn is_dead(&self) -> bool {
        self.requests.decoder.dead().is_some() && self.outputs.decoder.dead().is_some()
    }

    /// Heap bytes.
    pub(crate) fn heap_bytes(&self) -> usize {
        size_of::<Link>() + self.requests.decoder.buffered() + self.outputs.decoder.buffered()
    }

    /// `gap` bytes are missing, then come `bytes`, then `missing` more were not captured.
    pub(crate) fn data(
        &mut self,
        direction: Direction,
        gap: u64,
        bytes: &[u8],
        missing: u64,
        context: &mut Context<'_>,
    ) {
        if let Some(family) = context.engine.and_then(|engine| Family::of(engine.kind))
            && self.family != family
        {
            self.family = family;
            let (requests, outputs) = family.checks();
            self.requests.decoder.judge_by(requests);
            self.outputs.decoder.judge_by(outputs);
        }
        let side = match direction {
            Direction::In => &mut self.outputs,
            Direction::Out => &mut self.requests,
            Direction::None => return,
        };
        let take: Take = match (self.family, direction) {
            (Family::Vllm, Direction::In) => step,
            (Family::Vllm, _) => request,
            (Family::Sglang, _) => sglang,
        };
        side.act(take, context, |decoder, sink| decoder.gap(gap, sink));
        side.act(take, context, |decoder, sink| decoder.push(bytes, sink));
        side.act(take, context, |decoder, sink| decoder.gap(missing, sink));
    }
}

/// A message that fits no layout.
struct NotUnderstood;

/// Takes one message of an engine of this version; answers whether it told of requests.
type Take = fn(&Arc<str>, Option<&str>, Message<'_>, &mut Context<'_>) -> Result<bool, NotUnderstood>;

impl Side {
    fn act(
        &mut self,
        take: Take,
        context: &mut Context<'_>,
        act: impl FnOnce(&mut ZmtpDecoder, &mut dyn FnMut(ZmtpEvent<'_>)),
    ) {
        let Side {
            decoder,
            unproven,
            outputs,
        } = self;
        let outputs = *outputs;
        let mut misplaced = false;
        act(decoder, &mut |event| match event {
            ZmtpEvent::Greeting { .. } | ZmtpEvent::Command { .. } => {}
            ZmtpEvent::Found { .. } => *unproven = true,
            ZmtpEvent::Lost => {
                context.anomalies.add(Anomaly::Gap);
                if let Some(engine) = context.engine {
                    context.inside.lost(&engine.id);
                }
            }
            ZmtpEvent::Message(message) => {
                let Some(engine) = context.engine else { return };
                // Messages of a handshake have nothing in them, or say how the engine is made.
                if message.parts() == 1 && message.part(0).is_some_and(|part| part.len == 0) {
                    return;
                }
                let id = engine.id.clone();
                let understood = match take(&id, engine.version.as_deref(), message, context) {
                    // What tells of no request looks alike in every layout.
                    Ok(false) => return,
                    Ok(true) => {
                        *unproven = false;
                        true
                    }
                    Err(_) if *unproven => {
                        misplaced = true;
                        return;
                    }
                    Err(_) => {
                        context.anomalies.add(Anomaly::EngineMessage);
                        context.inside.lost(&id);
                        false
                    }
                };
                if context.config.engine_hooks
                    && let Some(understood) = context.inside.understood(&id, outputs, understood)
                {
                    context.out.push(Observation::EngineMessages {
                        engine: id,
                        understood,
                    });
                }
            }
        });
        if misplaced {
            decoder.resync();
        }
    }
}

fn request(
    id: &Arc<str>,
    version: Option<&str>,
    message: Message<'_>,
    context: &mut Context<'_>,
) -> Result<bool, NotUnderstood> {
    let request = VllmReader::new(version).request(message);
    let request = request.map_err(|_| NotUnderstood)?;
    if context.config.engine_hooks {
        let seen = seen(context);
        match &request {
            Request::Added(added) => {
                let begun = context.begun(id, added);
                context.inside.added(id, added, begun, seen);
                let prompt = prompt_id(added.external_id, added.engine_id);
                context.tokenizing.sent_on(
                    id,
                    context.tgid,
                    context.at,
                    prompt,
                    response_id(prompt),
                    added.prompt_tokens,
                );
            }
            Request::Aborted(ids) => context.inside.aborted(id, ids, seen),
            Request::Other => {}
        }
    }
    Ok(matches!(request, Request::Added(_)))
}

fn step(
    id: &Arc<str>,
    version: Option<&str>,
    message: Message<'_>,
    context: &mut Context<'_>,
) -> Result<bool, NotUnderstood> {
    let step = VllmReader::new(version)
        .step(message)
        .map_err(|_| NotUnderstood)?;
    let model = context.engine.and_then(|engine| engine.model.as_ref());
    if context.config.engine_hooks {
        let seen = seen(context);
        context
            .inside
            .stepped(id, model, &step, context.prefix, seen, context.out);
    }
    Ok(!step.outputs.is_empty())
}

fn sglang(
    id: &Arc<str>,
    _version: Option<&str>,
    message: Message<'_>,
    context: &mut Context<'_>,
) -> Result<bool, NotUnderstood> {
    let told = SglangReader.read(message).map_err(|_| NotUnderstood)?;
    let seen = seen(context);
    match told {
        Told::Added(added) => {
            if context.config.engine_hooks {
                context.inside.sglang_added(id, &added, seen);
            }
            Ok(true)
        }
        Told::Outputs(outputs) => {
            let model = context.engine.and_then(|engine| engine.model.as_ref());
            if context.config.engine_hooks
                && let Some(report) = context.inside.sglang_outputs(id, model, &outputs, seen)
            {
                context.out.push(Observation::Engine(Box::new(report)));
            }
            Ok(!outputs.outputs.is_empty())
        }
        Told::Aborted(_) | Told::Other => Ok(false),
    }
}

fn seen(context: &Context<'_>) -> Seen {
    Seen {
        front: context.tgid,
        now: context.at,
        max_gaps: context.config.max_token_times,
    }
}

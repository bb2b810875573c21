//! A connection between an engine's own processes, seen from its API server.
//!
//! Owns: both directions' decoders, whether their messages are understood. Refuses: what the messages mean for requests
//! (`inside`), stream offsets (`connection`).

use crate::{
    Anomaly, EngineKind, Observation,
    context::Context,
    engine::vllm::{OUTPUTS, REQUESTS, Request, ShapeError, VllmReader},
    inside::Seen,
    wire::zmtp::{self, Message, ZmtpDecoder, ZmtpEvent},
};
use infertap_abi::{Direction, Transport};
use std::sync::Arc;

/// One connection. The API server binds, so it accepts: it writes requests and reads outputs.
#[derive(Debug)]
pub(crate) struct Link {
    requests: Side,
    outputs: Side,
}

#[derive(Debug)]
struct Side {
    decoder: ZmtpDecoder,
    /// The place in the stream was found by searching, and nothing has confirmed it yet.
    unproven: bool,
    /// From the engine core to the API server.
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
        let kind = context.engine.map(|engine| engine.kind);
        if joined {
            transport == Transport::Unix && kind == Some(EngineKind::Vllm) && !http
        } else {
            zmtp::is_signature(bytes) && kind.is_none_or(|kind| kind == EngineKind::Vllm)
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
        let (side, take): (_, Take) = match direction {
            Direction::In => (&mut self.outputs, step),
            Direction::Out => (&mut self.requests, request),
            Direction::None => return,
        };
        side.act(take, context, |decoder, sink| decoder.gap(gap, sink));
        side.act(take, context, |decoder, sink| decoder.push(bytes, sink));
        side.act(take, context, |decoder, sink| decoder.gap(missing, sink));
    }
}

/// Takes one message; answers whether it told of requests.
type Take = fn(&Arc<str>, VllmReader, Message<'_>, &mut Context<'_>) -> Result<bool, ShapeError>;

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
                let reader = VllmReader::new(engine.version.as_deref());
                let id = engine.id.clone();
                let understood = match take(&id, reader, message, context) {
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
    reader: VllmReader,
    message: Message<'_>,
    context: &mut Context<'_>,
) -> Result<bool, ShapeError> {
    let request = reader.request(message)?;
    if context.config.engine_hooks {
        let seen = seen(context);
        match &request {
            Request::Added(added) => context.inside.added(id, added, seen),
            Request::Aborted(ids) => context.inside.aborted(id, ids, seen),
            Request::Other => {}
        }
    }
    Ok(matches!(request, Request::Added(_)))
}

fn step(
    id: &Arc<str>,
    reader: VllmReader,
    message: Message<'_>,
    context: &mut Context<'_>,
) -> Result<bool, ShapeError> {
    let step = reader.step(message)?;
    let model = context.engine.and_then(|engine| engine.model.as_ref());
    if context.config.engine_hooks {
        let seen = seen(context);
        context.inside.stepped(id, model, &step, seen, context.out);
    }
    Ok(!step.outputs.is_empty())
}

fn seen(context: &Context<'_>) -> Seen {
    Seen {
        front: context.tgid,
        now: context.at,
        max_gaps: context.config.max_token_times,
    }
}

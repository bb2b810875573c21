//! An exchange between a gateway and its client: what is different from one of an engine.
//!
//! Owns: that it is told as a gateway's and never as a request. Refuses: which request of an engine was for it
//! (`crate::gateway`).

use super::facts::{Facts, UNKNOWN};
use crate::{
    EngineInfo, EngineKind, Nanos,
    context::Context,
    gateway::{Digest, GatewayExchange, GatewayOutcome, Served},
    observation::Labels,
    scene::DEFAULT_SCENE,
    status::End,
};
use std::sync::Arc;

/// What is known of an exchange because it is a gateway's.
#[derive(Debug)]
pub(super) struct Hop {
    gateway: Arc<str>,
    /// When the first byte of the response was written.
    pub(super) first_byte: Option<Nanos>,
}

impl Hop {
    /// Where the process is a gateway's.
    pub(super) fn of(engine: Option<&EngineInfo>) -> Option<Box<Hop>> {
        let gateway = engine.filter(|engine| engine.kind == EngineKind::Gateway)?;
        Some(Box::new(Hop {
            gateway: Arc::clone(&gateway.id),
            first_byte: None,
        }))
    }
}

impl Facts {
    /// The head of the request is complete.
    pub(super) fn begin_gateway(&mut self, context: &mut Context<'_>) {
        if !context.gateways.any() {
            return;
        }
        self.digest = Some(Digest::new(context.config.prefix.seed));
        if self.hop.is_some() {
            let served = Served::new(self.id, self.trace.as_deref(), self.timeline.t0());
            context.gateways.opened(context.at, served, context.out);
        }
    }

    /// No more of the request will come.
    pub(super) fn read_by_gateway(&mut self, context: &mut Context<'_>) {
        if !self.request_whole {
            self.digest = None;
        }
        if self.hop.is_some() {
            let digest = self.digest.as_ref().and_then(Digest::value);
            context.gateways.read(self.id, digest);
        }
    }

    /// It has ended.
    pub(super) fn finish_gateway(self, end: End, client_gone: bool, context: &mut Context<'_>) {
        let Some(hop) = &self.hop else { return };
        let (id, first_byte_ns) = (self.id, hop.first_byte);
        let model = self.request.model.as_deref().or(self.response.model.as_deref());
        let labels = Labels {
            engine: Arc::clone(&hop.gateway),
            model: model.map_or_else(|| UNKNOWN.into(), Arc::from),
            scene: DEFAULT_SCENE.into(),
        };
        let record = self.into_finished(labels, end, client_gone).0.record;
        let exchange = GatewayExchange {
            id: record.id,
            gateway: record.engine,
            trace_id: record.trace_id,
            trace_source: record.trace_source,
            parent_span_id: record.parent_span_id,
            response_id: record.response_id,
            model: record.model,
            protocol: record.protocol,
            status: record.status,
            http_status: record.http_status,
            t0_ns: record.t0_ns,
            first_byte_ns,
            t4_ns: record.t4_ns,
            outcome: GatewayOutcome::NoEngine,
        };
        context.gateways.ended(id, context.at, exchange, context.out);
    }
}
